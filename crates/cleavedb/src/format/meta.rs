//! What the manifest says of a table: enough to place it in a version and to notice when the file is another one.

use super::table::Properties;
use crate::base::{FileId, Seqno, varint};

/// The description of one table, kept in memory and in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMeta {
    /// The file.
    pub id: FileId,
    /// The length of the file, in bytes.
    pub size: u64,
    /// Versions in it; at least one.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
    /// Versions that are deltas.
    pub deltas: u64,
    /// Versions whose payload is an address.
    pub addresses: u64,
    /// The first full key.
    pub smallest: Vec<u8>,
    /// The last full key.
    pub largest: Vec<u8>,
    /// The oldest version.
    pub seqno_min: Seqno,
    /// The newest version.
    pub seqno_max: Seqno,
}

impl TableMeta {
    /// The description of a file of `size` bytes with these properties.
    pub fn new(id: FileId, size: u64, properties: &Properties) -> TableMeta {
        TableMeta {
            id,
            size,
            entries: properties.entries,
            deletes: properties.deletes,
            deltas: properties.deltas,
            addresses: properties.addresses,
            smallest: properties.smallest.clone(),
            largest: properties.largest.clone(),
            seqno_min: properties.seqno_min,
            seqno_max: properties.seqno_max,
        }
    }

    /// The same with one sequence number for all versions, of a file in which they have none.
    pub fn placed_at(self, seqno: Seqno) -> TableMeta {
        TableMeta { seqno_min: seqno, seqno_max: seqno, ..self }
    }

    /// Appends the encoding: varints and length-prefixed keys in the order of the fields. The manifest's version covers
    /// it; do not reorder.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.id.0, self.size, self.entries, self.deletes, self.deltas, self.addresses] {
            varint::put(out, number);
        }
        varint::put_bytes(out, &self.smallest);
        varint::put_bytes(out, &self.largest);
        varint::put(out, self.seqno_min.0);
        varint::put(out, self.seqno_max.0);
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
            smallest: varint::take_bytes(bytes)?.to_vec(),
            largest: varint::take_bytes(bytes)?.to_vec(),
            seqno_min: Seqno(varint::take(bytes)?),
            seqno_max: Seqno(varint::take(bytes)?),
        };
        let counts_fit = [meta.deletes, meta.deltas, meta.addresses].iter().all(|&count| count <= meta.entries);
        let ranges_fit = meta.smallest <= meta.largest && meta.seqno_min <= meta.seqno_max;
        let seqnos_fit = meta.seqno_max <= Seqno::MAX;
        (meta.entries > 0 && counts_fit && ranges_fit && seqnos_fit).then_some(meta)
    }

    /// The table may hold versions of keys in `smallest..=largest`.
    pub fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        &self.smallest[..] <= largest && smallest <= &self.largest[..]
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
            smallest: b"0001a".to_vec(),
            largest: b"0001z".to_vec(),
            seqno_min: Seqno(10),
            seqno_max: Seqno(1 << 50),
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
        assert!(refused(|meta| (meta.entries, meta.deletes, meta.deltas, meta.addresses) = (0, 0, 0, 0)));
        assert!(refused(|meta| meta.deletes = 501));
        assert!(refused(|meta| meta.smallest = b"0002".to_vec()));
        assert!(refused(|meta| meta.seqno_min = Seqno::MAX));
        assert!(refused(|meta| meta.seqno_max = Seqno(u64::MAX)));
        assert!(!refused(|_| ()));
    }

    #[test]
    fn overlap_includes_the_ends() {
        let meta = meta();
        assert!(meta.overlaps(b"0001z", b"0001zz") && meta.overlaps(b"0000", b"0001a") && meta.overlaps(b"0", b"1"));
        assert!(!meta.overlaps(b"0001za", b"0002") && !meta.overlaps(b"0000", b"0001"));
    }
}
