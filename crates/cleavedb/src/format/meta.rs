//! What the manifest stores about a table: enough to place it in a version of the levels, and to detect that the file
//! is a different one. Part of manifest edits; read by the compaction picker and by every read, without opening the
//! table.

use super::properties::{CoveredRange, Properties};
use crate::base::{DirId, FileId, FileKey, FileKind, Seqno, varint};

/// The metadata of one table, kept in memory and in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMeta {
    /// The file.
    pub id: FileId,
    /// The length of the file, in bytes.
    pub size: u64,
    /// Versions of single keys.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
    /// Versions that are deltas.
    pub deltas: u64,
    /// Versions whose payload is an address.
    pub addresses: u64,
    /// Bytes of the records that these addresses reference.
    pub bytes_separated: u64,
    /// Of these, bytes of records whose version is hidden by a newer base in the table: only snapshots can read them.
    pub bytes_hidden: u64,
    /// Bytes of the largest of these records.
    pub record_bytes_max: u64,
    /// The first full key.
    pub smallest: Vec<u8>,
    /// The first full key after all versions and range tombstones.
    pub end: Vec<u8>,
    /// The lowest sequence number.
    pub seqno_min: Seqno,
    /// The highest sequence number.
    pub seqno_max: Seqno,
    /// Fragments of range tombstones.
    pub range_deletes: u64,
    /// The widest ranges that these fragments cover.
    pub covered_ranges: Vec<CoveredRange>,
}

impl TableMeta {
    /// The file of the table, in a directory.
    pub fn key(&self, dir: DirId) -> FileKey {
        FileKey { kind: FileKind::Table, id: self.id, dir }
    }

    /// Addresses stand in place of most values.
    pub fn holds_addresses(&self) -> bool {
        2 * self.addresses > self.entries
    }

    /// The metadata of a file of `size` bytes with these properties.
    pub fn new(id: FileId, size: u64, properties: &Properties) -> TableMeta {
        TableMeta {
            id,
            size,
            entries: properties.entries,
            deletes: properties.deletes,
            deltas: properties.deltas,
            addresses: properties.addresses,
            bytes_separated: properties.references.0.values().map(|references| references.bytes).sum(),
            bytes_hidden: properties.bytes_hidden,
            record_bytes_max: properties.record_bytes_max,
            smallest: properties.smallest.clone(),
            end: properties.end.clone(),
            seqno_min: properties.seqno_min,
            seqno_max: properties.seqno_max,
            range_deletes: properties.range_deletes,
            covered_ranges: properties.covered_ranges.clone(),
        }
    }

    /// The same with `seqno` for all versions: an ingested file stores none.
    pub fn placed_at(self, seqno: Seqno) -> TableMeta {
        TableMeta { seqno_min: seqno, seqno_max: seqno, ..self }
    }

    /// Appends the encoding: varints and length-prefixed keys in the order of the fields. The manifest's version covers
    /// it; do not reorder.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let counts = [self.entries, self.deletes, self.deltas, self.addresses];
        let separated = [self.bytes_separated, self.bytes_hidden, self.record_bytes_max];
        for number in [self.id.0, self.size].into_iter().chain(counts).chain(separated) {
            varint::put(out, number);
        }
        varint::put_bytes(out, &self.smallest);
        varint::put_bytes(out, &self.end);
        varint::put(out, self.seqno_min.0);
        varint::put(out, self.seqno_max.0);
        varint::put(out, self.range_deletes);
        CoveredRange::encode_all(&self.covered_ranges, out);
    }

    /// Takes metadata off the front of `bytes`; `None` if they are malformed or contradict themselves.
    pub fn decode(bytes: &mut &[u8]) -> Option<TableMeta> {
        let meta = TableMeta {
            id: FileId(varint::take(bytes)?),
            size: varint::take(bytes)?,
            entries: varint::take(bytes)?,
            deletes: varint::take(bytes)?,
            deltas: varint::take(bytes)?,
            addresses: varint::take(bytes)?,
            bytes_separated: varint::take(bytes)?,
            bytes_hidden: varint::take(bytes)?,
            record_bytes_max: varint::take(bytes)?,
            smallest: varint::take_bytes(bytes)?.to_vec(),
            end: varint::take_bytes(bytes)?.to_vec(),
            seqno_min: Seqno(varint::take(bytes)?),
            seqno_max: Seqno(varint::take(bytes)?),
            range_deletes: varint::take(bytes)?,
            covered_ranges: CoveredRange::take_all(bytes)?,
        };
        let counts_fit = [meta.deletes, meta.deltas, meta.addresses].iter().all(|&count| count <= meta.entries);
        let ranges_fit = meta.smallest < meta.end && meta.seqno_min <= meta.seqno_max;
        let seqnos_fit = meta.seqno_max <= Seqno::MAX;
        let within = |range: &CoveredRange| meta.smallest <= range.start && range.end <= meta.end;
        let covered_fit =
            meta.covered_ranges.len() as u64 <= meta.range_deletes && meta.covered_ranges.iter().all(within);
        let is_not_empty = meta.entries > 0 || meta.range_deletes > 0;
        let separated_fits = meta.bytes_hidden.max(meta.record_bytes_max) <= meta.bytes_separated;
        (is_not_empty && counts_fit && ranges_fit && seqnos_fit && covered_fit && separated_fits).then_some(meta)
    }

    /// The table may contain keys, or range tombstones, between `start` and `end` (exclusive).
    pub fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        &self.smallest[..] < end && start < &self.end[..]
    }

    /// As [`overlaps`](TableMeta::overlaps); without `end`, of all keys from `start` on.
    pub fn reaches_into(&self, start: &[u8], end: Option<&[u8]>) -> bool {
        start < &self.end[..] && end.is_none_or(|end| &self.smallest[..] < end)
    }

    /// `key` lies within the bounds of the table.
    pub fn spans(&self, key: &[u8]) -> bool {
        &self.smallest[..] <= key && key < &self.end[..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::properties::COVERED_RANGES_MAX;

    fn meta() -> TableMeta {
        TableMeta {
            id: FileId(900),
            size: 1 << 33,
            entries: 500,
            deletes: 3,
            deltas: 4,
            addresses: 300,
            bytes_separated: 300_000,
            bytes_hidden: 7_000,
            record_bytes_max: 5_000,
            smallest: b"0001a".to_vec(),
            end: b"0001z".to_vec(),
            seqno_min: Seqno(10),
            seqno_max: Seqno(1 << 50),
            range_deletes: 2,
            covered_ranges: vec![CoveredRange { start: b"0001b".to_vec(), end: b"0001c".to_vec(), seqno: Seqno(30) }],
        }
    }

    #[test]
    fn metadata_round_trip_and_truncated_ones_are_rejected() {
        let mut bytes = Vec::new();
        meta().encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(TableMeta::decode(&mut &bytes[..cut]), None);
        }
        bytes.push(42);
        let mut rest = &bytes[..];
        assert_eq!(TableMeta::decode(&mut rest), Some(meta()));
        assert_eq!(rest, [42]);
    }

    #[test]
    fn contradictions_are_rejected() {
        let is_rejected = |change: fn(&mut TableMeta)| {
            let mut meta = meta();
            change(&mut meta);
            let mut bytes = Vec::new();
            meta.encode(&mut bytes);
            TableMeta::decode(&mut &bytes[..]).is_none()
        };
        let no_versions = |meta: &mut TableMeta| {
            (meta.entries, meta.deletes, meta.deltas, meta.addresses) = (0, 0, 0, 0);
        };
        assert!(!is_rejected(no_versions), "a table may contain range tombstones only");
        assert!(is_rejected(|meta| {
            (meta.entries, meta.deletes, meta.deltas, meta.addresses) = (0, 0, 0, 0);
            (meta.range_deletes, meta.covered_ranges) = (0, Vec::new());
        }));
        assert!(is_rejected(|meta| meta.range_deletes = 0));
        assert!(is_rejected(|meta| meta.covered_ranges[0].end = b"0002".to_vec()));
        assert!(is_rejected(|meta| meta.covered_ranges[0].end = b"0001b".to_vec()));
        assert!(is_rejected(|meta| meta.covered_ranges = vec![meta.covered_ranges[0].clone(); COVERED_RANGES_MAX + 1]));
        assert!(is_rejected(|meta| meta.deletes = 501));
        assert!(is_rejected(|meta| meta.smallest = b"0002".to_vec()));
        assert!(is_rejected(|meta| meta.seqno_min = Seqno::MAX));
        assert!(is_rejected(|meta| meta.seqno_max = Seqno(u64::MAX)));
        assert!(is_rejected(|meta| meta.bytes_hidden = 300_001));
        assert!(is_rejected(|meta| meta.record_bytes_max = 300_001));
        assert!(!is_rejected(|_| ()));
    }

    #[test]
    fn overlap_includes_the_first_key_and_not_the_end() {
        let meta = meta();
        assert!(meta.overlaps(b"0001y", b"0001zz") && meta.overlaps(b"0000", b"0001a\0") && meta.overlaps(b"0", b"1"));
        assert!(!meta.overlaps(b"0001z", b"0002") && !meta.overlaps(b"0000", b"0001a"));
        assert!(meta.spans(b"0001a") && meta.spans(b"0001y") && !meta.spans(b"0001z") && !meta.spans(b"0001"));
    }
}
