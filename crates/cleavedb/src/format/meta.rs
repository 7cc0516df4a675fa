//! What the manifest says of a table: enough to place it in a version and to notice when the file is another one.

use super::table::Properties;
use crate::base::cursor::leading_bytes;
use crate::base::tombstones::Fragment;
use crate::base::{FileId, FileKey, FileKind, Seqno, Tier, varint};

/// A table names at most so many ranges that its tombstones clear.
pub const CLEARED_MAX: usize = 8;

/// A range of which a table's tombstones cover every key, for who must know what lies under them without reading the
/// table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    /// The first full key.
    pub start: Vec<u8>,
    /// The first full key after it.
    pub end: Vec<u8>,
    /// Every version of a key in the range below this is dead to who reads above the table's newest number.
    pub seqno: Seqno,
}

impl Cleared {
    /// The widest ranges that fragments, given in order, cover without a gap; in order.
    pub fn of(fragments: &[Fragment]) -> Vec<Cleared> {
        let mut all: Vec<Cleared> = Vec::new();
        for Fragment { start, end, seqnos } in fragments {
            let seqno = seqnos.first().copied().unwrap_or_default();
            match all.last_mut().filter(|last| last.end == *start) {
                Some(last) => {
                    last.end.clone_from(end);
                    last.seqno = last.seqno.min(seqno);
                }
                None => all.push(Cleared { start: start.clone(), end: end.clone(), seqno }),
            }
        }
        // By their first bytes, which is a guess: how much lies in a range is not known here.
        let width = |range: &Cleared| leading_bytes(&range.end) - leading_bytes(&range.start);
        all.sort_by_key(|range| std::cmp::Reverse(width(range)));
        all.truncate(CLEARED_MAX);
        all.sort_by(|left, right| left.start.cmp(&right.start));
        all
    }

    /// Appends the encoding: how many, then the fields of each.
    pub fn encode_all(all: &[Cleared], out: &mut Vec<u8>) {
        varint::put(out, all.len() as u64);
        for range in all {
            varint::put_bytes(out, &range.start);
            varint::put_bytes(out, &range.end);
            varint::put(out, range.seqno.0);
        }
    }

    /// Takes ranges off the front of `bytes`; `None` if they are malformed or too many.
    pub fn take_all(bytes: &mut &[u8]) -> Option<Vec<Cleared>> {
        let count = varint::take(bytes).filter(|&count| count <= CLEARED_MAX as u64)?;
        (0..count).map(|_| Cleared::take(bytes)).collect()
    }

    fn take(bytes: &mut &[u8]) -> Option<Cleared> {
        let (start, end) = (varint::take_bytes(bytes)?.to_vec(), varint::take_bytes(bytes)?.to_vec());
        let seqno = Seqno(varint::take(bytes)?);
        (start < end).then_some(Cleared { start, end, seqno })
    }
}

/// The description of one table, kept in memory and in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMeta {
    /// The file.
    pub id: FileId,
    /// The length of the file, in bytes.
    pub size: u64,
    /// Versions of single keys in it.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
    /// Versions that are deltas.
    pub deltas: u64,
    /// Versions whose payload is an address.
    pub addresses: u64,
    /// Bytes of the records that these lead to.
    pub bytes_separated: u64,
    /// Of these, bytes of records that a newer base in the table hides: only snapshots keep them.
    pub bytes_hidden: u64,
    /// Bytes of the largest of these records.
    pub record_bytes_max: u64,
    /// The first full key.
    pub smallest: Vec<u8>,
    /// The first full key after all that it holds: its versions lie before it, and so do the ranges of its tombstones.
    pub end: Vec<u8>,
    /// The oldest version.
    pub seqno_min: Seqno,
    /// The newest version.
    pub seqno_max: Seqno,
    /// Fragments of range tombstones in it.
    pub range_deletes: u64,
    /// The widest ranges that these cover.
    pub cleared: Vec<Cleared>,
}

impl TableMeta {
    /// The file of the table, on a tier.
    pub fn key(&self, tier: Tier) -> FileKey {
        FileKey { kind: FileKind::Table, id: self.id, tier }
    }

    /// The description of a file of `size` bytes with these properties.
    pub fn new(id: FileId, size: u64, properties: &Properties) -> TableMeta {
        TableMeta {
            id,
            size,
            entries: properties.entries,
            deletes: properties.deletes,
            deltas: properties.deltas,
            addresses: properties.addresses,
            bytes_separated: properties.names.0.values().map(|referenced| referenced.bytes).sum(),
            bytes_hidden: properties.bytes_hidden,
            record_bytes_max: properties.record_bytes_max,
            smallest: properties.smallest.clone(),
            end: properties.end.clone(),
            seqno_min: properties.seqno_min,
            seqno_max: properties.seqno_max,
            range_deletes: properties.range_deletes,
            cleared: properties.cleared.clone(),
        }
    }

    /// The same with one sequence number for all versions, of a file in which they have none.
    pub fn placed_at(self, seqno: Seqno) -> TableMeta {
        TableMeta { seqno_min: seqno, seqno_max: seqno, ..self }
    }

    /// Appends the encoding: varints and length-prefixed keys in the order of the fields. The manifest's version covers
    /// it; do not reorder.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let counts = [self.entries, self.deletes, self.deltas, self.addresses];
        let apart = [self.bytes_separated, self.bytes_hidden, self.record_bytes_max];
        for number in [self.id.0, self.size].into_iter().chain(counts).chain(apart) {
            varint::put(out, number);
        }
        varint::put_bytes(out, &self.smallest);
        varint::put_bytes(out, &self.end);
        varint::put(out, self.seqno_min.0);
        varint::put(out, self.seqno_max.0);
        varint::put(out, self.range_deletes);
        Cleared::encode_all(&self.cleared, out);
    }

    /// Takes a description off the front of `bytes`; `None` if it is malformed or contradicts itself.
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
            cleared: Cleared::take_all(bytes)?,
        };
        let counts_fit = [meta.deletes, meta.deltas, meta.addresses].iter().all(|&count| count <= meta.entries);
        let ranges_fit = meta.smallest < meta.end && meta.seqno_min <= meta.seqno_max;
        let seqnos_fit = meta.seqno_max <= Seqno::MAX;
        let within = |range: &Cleared| meta.smallest <= range.start && range.end <= meta.end;
        let cleared_fit = meta.cleared.len() as u64 <= meta.range_deletes && meta.cleared.iter().all(within);
        let holds_any = meta.entries > 0 || meta.range_deletes > 0;
        let separated_fits = meta.bytes_hidden.max(meta.record_bytes_max) <= meta.bytes_separated;
        (holds_any && counts_fit && ranges_fit && seqnos_fit && cleared_fit && separated_fits).then_some(meta)
    }

    /// The table may say something of keys from `start` up to, not including, `end`.
    pub fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        &self.smallest[..] < end && start < &self.end[..]
    }

    /// The table may say something of this key.
    pub fn spans(&self, key: &[u8]) -> bool {
        &self.smallest[..] <= key && key < &self.end[..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            cleared: vec![Cleared { start: b"0001b".to_vec(), end: b"0001c".to_vec(), seqno: Seqno(30) }],
        }
    }

    #[test]
    fn descriptions_round_trip_and_cut_ones_are_refused() {
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
    fn contradictions_are_refused() {
        let refused = |change: fn(&mut TableMeta)| {
            let mut meta = meta();
            change(&mut meta);
            let mut bytes = Vec::new();
            meta.encode(&mut bytes);
            TableMeta::decode(&mut &bytes[..]).is_none()
        };
        let no_versions = |meta: &mut TableMeta| {
            (meta.entries, meta.deletes, meta.deltas, meta.addresses) = (0, 0, 0, 0);
        };
        assert!(!refused(no_versions), "range tombstones alone make a table");
        assert!(refused(|meta| {
            (meta.entries, meta.deletes, meta.deltas, meta.addresses) = (0, 0, 0, 0);
            (meta.range_deletes, meta.cleared) = (0, Vec::new());
        }));
        assert!(refused(|meta| meta.range_deletes = 0));
        assert!(refused(|meta| meta.cleared[0].end = b"0002".to_vec()));
        assert!(refused(|meta| meta.cleared[0].end = b"0001b".to_vec()));
        assert!(refused(|meta| meta.cleared = vec![meta.cleared[0].clone(); CLEARED_MAX + 1]));
        assert!(refused(|meta| meta.deletes = 501));
        assert!(refused(|meta| meta.smallest = b"0002".to_vec()));
        assert!(refused(|meta| meta.seqno_min = Seqno::MAX));
        assert!(refused(|meta| meta.seqno_max = Seqno(u64::MAX)));
        assert!(refused(|meta| meta.bytes_hidden = 300_001));
        assert!(refused(|meta| meta.record_bytes_max = 300_001));
        assert!(!refused(|_| ()));
    }

    #[test]
    fn overlap_includes_the_first_key_and_not_the_end() {
        let meta = meta();
        assert!(meta.overlaps(b"0001y", b"0001zz") && meta.overlaps(b"0000", b"0001a\0") && meta.overlaps(b"0", b"1"));
        assert!(!meta.overlaps(b"0001z", b"0002") && !meta.overlaps(b"0000", b"0001a"));
        assert!(meta.spans(b"0001a") && meta.spans(b"0001y") && !meta.spans(b"0001z") && !meta.spans(b"0001"));
    }

    #[test]
    fn the_widest_ranges_without_a_gap_are_named_in_order() {
        let fragment = |start: u16, end: u16, seqno| Fragment {
            start: start.to_be_bytes().to_vec(),
            end: end.to_be_bytes().to_vec(),
            seqnos: vec![Seqno(seqno), Seqno(1)],
        };
        let touching = Cleared::of(&[fragment(1, 5, 9), fragment(5, 6, 7), fragment(7, 8, 8)]);
        let range = |start: u16, end: u16, seqno| Cleared {
            start: start.to_be_bytes().to_vec(),
            end: end.to_be_bytes().to_vec(),
            seqno: Seqno(seqno),
        };
        assert_eq!(touching, [range(1, 6, 7), range(7, 8, 8)]);
        let many: Vec<_> = (0..40).map(|at| fragment(100 * at, 100 * at + at + 1, 9)).collect();
        let widest: Vec<_> = (32..40).map(|at| range(100 * at, 100 * at + at + 1, 9)).collect();
        assert_eq!(Cleared::of(&many), widest);
    }
}
