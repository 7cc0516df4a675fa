//! The properties of a table: what it contains, counted while it is written. The table file stores them in a block of
//! their own; the manifest keeps a summary ([`TableMeta`](super::meta::TableMeta)).
//!
//! Filled by the table builder; decoded when a table is opened or checked.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::compression::Compression;
use super::references::{FileReferences, References};
use super::table::BlockHandle;
use crate::base::cursor::leading_bytes;
use crate::base::tombstones::Fragment;
use crate::base::{Address, FileId, Kind, Seqno, Stamp, varint};

const PROPERTIES_VERSION: u64 = 2;

/// Counts and bounds of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Versions.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
    /// Versions that are deltas.
    pub deltas: u64,
    /// Versions whose payload is an address.
    pub addresses: u64,
    /// Bytes of all full keys.
    pub key_bytes: u64,
    /// Bytes of all payloads.
    pub value_bytes: u64,
    /// The first full key.
    pub smallest: Vec<u8>,
    /// The first full key after all versions and range tombstones.
    pub end: Vec<u8>,
    /// The lowest sequence number.
    pub seqno_min: Seqno,
    /// The highest sequence number.
    pub seqno_max: Seqno,
    /// The compression option for data blocks when the table was finished.
    pub compression: Compression,
    /// Target size of data blocks, in bytes.
    pub block_size: u64,
    /// Fragments of range tombstones.
    pub range_deletes: u64,
    /// The block with the fragments, if there are any.
    pub range_block: Option<BlockHandle>,
    /// The widest ranges that the fragments cover without a gap.
    pub covered_ranges: Vec<CoveredRange>,
    /// What its addresses reference.
    pub references: References,
    /// The references while they are counted, which a hash table does faster; empty once the count has ended.
    counting: HashMap<FileId, FileReferences, FixedState>,
    /// Bytes of referenced records whose version is hidden by a newer base in the table: only snapshots can read them.
    pub bytes_hidden: u64,
    /// Bytes of the largest referenced record.
    pub record_bytes_max: u64,
}

impl Properties {
    /// The properties of an empty table.
    pub fn new(compression: Compression, block_size: usize) -> Properties {
        Properties {
            entries: 0,
            deletes: 0,
            deltas: 0,
            addresses: 0,
            key_bytes: 0,
            value_bytes: 0,
            smallest: Vec::new(),
            end: Vec::new(),
            seqno_min: Seqno::MAX,
            seqno_max: Seqno::ZERO,
            compression,
            block_size: block_size as u64,
            range_deletes: 0,
            range_block: None,
            covered_ranges: Vec::new(),
            references: References::default(),
            counting: HashMap::default(),
            bytes_hidden: 0,
            record_bytes_max: 0,
        }
    }

    /// Counts one version; `is_hidden` if a newer base of its key hides it. Does not update `smallest` and `end`.
    pub fn count(&mut self, key: &[u8], stamp: Stamp, value: &[u8], is_hidden: bool) {
        self.entries += 1;
        self.deletes += (stamp.kind() == Some(Kind::Delete)) as u64;
        self.deltas += stamp.kind().is_some_and(|kind| !kind.is_base()) as u64;
        if stamp.kind().is_some_and(Kind::is_address) {
            self.addresses += 1;
            // A damaged address references nothing; reading it reports the damage.
            if let Some(address) = Address::decode(value) {
                let bytes = u64::from(address.len);
                self.counting.entry(address.file).or_default().add(FileReferences::to(address));
                self.bytes_hidden += if is_hidden { bytes } else { 0 };
                self.record_bytes_max = self.record_bytes_max.max(bytes);
            }
        }
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        self.seqno_min = self.seqno_min.min(stamp.seqno());
        self.seqno_max = self.seqno_max.max(stamp.seqno());
    }

    /// Counts one fragment of range tombstones. Does not update `smallest` and `end`.
    pub fn count_range(&mut self, fragment: &Fragment) {
        self.range_deletes += 1;
        for seqno in &fragment.seqnos {
            self.seqno_min = self.seqno_min.min(*seqno);
            self.seqno_max = self.seqno_max.max(*seqno);
        }
    }

    /// Ends the count: adds up the references, and sets the bounds so that they include `last_key` and all range tombstones.
    /// `smallest` must be that of the versions.
    pub fn end_count(&mut self, last_key: Vec<u8>, ranges: &[Fragment]) {
        std::mem::take(&mut self.counting).into_iter().for_each(|(file, counted)| self.references.add(file, counted));
        if self.entries > 0 {
            self.end = last_key;
            self.end.push(0);
        }
        if let (Some(first), Some(last)) = (ranges.first(), ranges.last()) {
            if self.entries == 0 || first.start < self.smallest {
                self.smallest.clone_from(&first.start);
            }
            if self.end < last.end {
                self.end.clone_from(&last.end);
            }
        }
    }

    /// The encoding: a version, then fields of tag, length and bytes. Tags are stored: do not renumber.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, PROPERTIES_VERSION);
        let numbers = [
            (1, self.entries),
            (2, self.deletes),
            (3, self.deltas),
            (4, self.addresses),
            (5, self.key_bytes),
            (6, self.value_bytes),
            (9, self.seqno_min.0),
            (10, self.seqno_max.0),
            (11, self.compression as u64),
            (12, self.block_size),
            (13, self.range_deletes),
            (18, self.bytes_hidden),
            (19, self.record_bytes_max),
        ];
        for (tag, number) in numbers {
            let mut field = Vec::new();
            varint::put(&mut field, number);
            varint::put(&mut out, tag);
            varint::put_bytes(&mut out, &field);
        }
        let mut range_block = Vec::new();
        self.range_block.iter().for_each(|handle| handle.encode(&mut range_block));
        let mut covered_ranges = Vec::new();
        CoveredRange::encode_all(&self.covered_ranges, &mut covered_ranges);
        let mut references = Vec::new();
        self.references.encode(&mut references);
        for (tag, bytes) in
            [(7, &self.smallest), (14, &self.end), (15, &range_block), (16, &covered_ranges), (17, &references)]
        {
            varint::put(&mut out, tag);
            varint::put_bytes(&mut out, bytes);
        }
        out
    }

    /// Decodes properties that fill `bytes` exactly; unknown tags are skipped.
    ///
    /// # Errors
    /// A description of the damage; the caller adds the path.
    pub fn decode(mut bytes: &[u8]) -> Result<Properties, &'static str> {
        const TRUNCATED: &str = "the properties are truncated";
        if varint::take(&mut bytes).ok_or(TRUNCATED)? != PROPERTIES_VERSION {
            return Err("the properties have an unknown version");
        }
        let mut properties = Properties::new(Compression::None, 0);
        while !bytes.is_empty() {
            let tag = varint::take(&mut bytes).ok_or(TRUNCATED)?;
            let field = varint::take_bytes(&mut bytes).ok_or(TRUNCATED)?;
            let number = || varint::take(&mut &field[..]).ok_or(TRUNCATED);
            match tag {
                1 => properties.entries = number()?,
                2 => properties.deletes = number()?,
                3 => properties.deltas = number()?,
                4 => properties.addresses = number()?,
                5 => properties.key_bytes = number()?,
                6 => properties.value_bytes = number()?,
                7 => properties.smallest = field.to_vec(),
                9 => properties.seqno_min = Seqno(number()?),
                10 => properties.seqno_max = Seqno(number()?),
                11 => {
                    let stored = u8::try_from(number()?).ok().and_then(Compression::from_u8);
                    properties.compression = stored.ok_or("the properties have an unknown compression")?;
                }
                12 => properties.block_size = number()?,
                13 => properties.range_deletes = number()?,
                14 => properties.end = field.to_vec(),
                15 if field.is_empty() => properties.range_block = None,
                15 => properties.range_block = Some(BlockHandle::decode(field).ok_or(TRUNCATED)?),
                17 => properties.references = References::take(&mut &field[..]).ok_or(TRUNCATED)?,
                18 => properties.bytes_hidden = number()?,
                19 => properties.record_bytes_max = number()?,
                16 => properties.covered_ranges = CoveredRange::take_all(&mut &field[..]).ok_or(TRUNCATED)?,
                _ => {}
            }
        }
        Ok(properties)
    }
}

/// Highest number of covered ranges that a table lists.
pub const COVERED_RANGES_MAX: usize = 8;

/// A range in which range tombstones of a table cover every key. It lets compaction find out what lies below without
/// reading the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredRange {
    /// The first full key.
    pub start: Vec<u8>,
    /// The first full key after it.
    pub end: Vec<u8>,
    /// Every version in the range with a lower sequence number is deleted for reads above the table's highest sequence
    /// number.
    pub seqno: Seqno,
}

impl CoveredRange {
    /// The widest ranges that `fragments`, which are in order, cover without a gap; in order.
    pub fn of(fragments: &[Fragment]) -> Vec<CoveredRange> {
        let mut all: Vec<CoveredRange> = Vec::new();
        for Fragment { start, end, seqnos } in fragments {
            let seqno = seqnos.first().copied().unwrap_or_default();
            match all.last_mut().filter(|last| last.end == *start) {
                Some(last) => {
                    last.end.clone_from(end);
                    last.seqno = last.seqno.min(seqno);
                }
                None => all.push(CoveredRange { start: start.clone(), end: end.clone(), seqno }),
            }
        }
        // The width is estimated from the leading bytes of the bounds: the amount of data in a range is not known here.
        let width = |range: &CoveredRange| leading_bytes(&range.end) - leading_bytes(&range.start);
        all.sort_by_key(|range| std::cmp::Reverse(width(range)));
        all.truncate(COVERED_RANGES_MAX);
        all.sort_by(|left, right| left.start.cmp(&right.start));
        all
    }

    /// Appends the encoding: the number of ranges, then the fields of each.
    pub fn encode_all(all: &[CoveredRange], out: &mut Vec<u8>) {
        varint::put(out, all.len() as u64);
        for range in all {
            varint::put_bytes(out, &range.start);
            varint::put_bytes(out, &range.end);
            varint::put(out, range.seqno.0);
        }
    }

    /// Takes ranges off the front of `bytes`; `None` if they are malformed or too many.
    pub fn take_all(bytes: &mut &[u8]) -> Option<Vec<CoveredRange>> {
        let count = varint::take(bytes).filter(|&count| count <= COVERED_RANGES_MAX as u64)?;
        (0..count).map(|_| CoveredRange::take(bytes)).collect()
    }

    fn take(bytes: &mut &[u8]) -> Option<CoveredRange> {
        let (start, end) = (varint::take_bytes(bytes)?.to_vec(), varint::take_bytes(bytes)?.to_vec());
        let seqno = Seqno(varint::take(bytes)?);
        (start < end).then_some(CoveredRange { start, end, seqno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn properties_round_trip_and_skip_unknown_tags() {
        let mut properties = Properties::new(Compression::Lz4, 4096);
        properties.count(b"0000a", Stamp::new(Seqno(5), Kind::Delete), b"", false);
        properties.count(b"0000b", Stamp::new(Seqno(9), Kind::DeltaAt), b"12345", false);
        (properties.bytes_hidden, properties.record_bytes_max) = (70, 40);
        properties.smallest = b"0000a".to_vec();
        properties.end = b"0000c".to_vec();
        let seqnos = vec![Seqno(12), Seqno(4)];
        properties.count_range(&Fragment { start: b"0000a".to_vec(), end: b"0000c".to_vec(), seqnos });
        properties.range_block = Some(BlockHandle { offset: 300, len: 40 });
        properties.covered_ranges =
            vec![CoveredRange { start: b"0000a".to_vec(), end: b"0000c".to_vec(), seqno: Seqno(12) }];
        assert_eq!((properties.entries, properties.deletes, properties.deltas, properties.addresses), (2, 1, 1, 1));
        assert_eq!((properties.seqno_min, properties.seqno_max), (Seqno(4), Seqno(12)));
        let mut bytes = properties.encode();
        bytes.extend_from_slice(&[99, 2, 0, 0]);
        assert_eq!(Properties::decode(&bytes).unwrap(), properties);
        for cut in 0..bytes.len() {
            let _ = Properties::decode(&bytes[..cut]);
        }
        bytes[0] = 3;
        assert!(Properties::decode(&bytes).is_err());
    }

    #[test]
    fn covered_ranges_are_the_widest_ones_without_a_gap_in_order() {
        let fragment = |start: u16, end: u16, seqno| Fragment {
            start: start.to_be_bytes().to_vec(),
            end: end.to_be_bytes().to_vec(),
            seqnos: vec![Seqno(seqno), Seqno(1)],
        };
        let touching = CoveredRange::of(&[fragment(1, 5, 9), fragment(5, 6, 7), fragment(7, 8, 8)]);
        let range = |start: u16, end: u16, seqno| CoveredRange {
            start: start.to_be_bytes().to_vec(),
            end: end.to_be_bytes().to_vec(),
            seqno: Seqno(seqno),
        };
        assert_eq!(touching, [range(1, 6, 7), range(7, 8, 8)]);
        let many: Vec<_> = (0..40).map(|at| fragment(100 * at, 100 * at + at + 1, 9)).collect();
        let widest: Vec<_> = (32..40).map(|at| range(100 * at, 100 * at + at + 1, 9)).collect();
        assert_eq!(CoveredRange::of(&many), widest);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = Properties::decode(&bytes);
        }
    }
}
