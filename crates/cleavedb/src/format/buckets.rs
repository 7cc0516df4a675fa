//! The buckets of the delta store as the manifest keeps them: each is a key range, named by its lower bound, and lists the
//! extents that hold its merge operands. An extent is the part of a delta segment within the range of its bucket.
//! Diagram: `docs/formats/deltas.md`.
//!
//! A bucket lies within one keyspace, and the first bucket of a keyspace begins with the keyspace. Changed by the edits of
//! flushes and of jobs that rewrite buckets; read when a database is opened.

use std::collections::{BTreeMap, BTreeSet};

use super::edit::Edit;
use super::meta::TableMeta;
use crate::base::limits::{FILE_ID_MAX, KEY_BYTES_MAX, KEYSPACE_PREFIX_BYTES};
use crate::base::varint::{put, take};
use crate::base::{FileId, KeyspaceId, Seqno};

/// In place of the number of a level, for a table that is a delta segment. Stored: do not renumber.
pub const SEGMENT_LEVEL: u8 = 255;

/// The part of a delta segment that belongs to one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The segment, a file in the format of tables.
    pub segment: FileId,
    /// Versions in it.
    pub entries: u64,
    /// Bytes of their keys and operands.
    pub bytes: u64,
    /// The lowest sequence number.
    pub seqno_min: Seqno,
    /// The highest sequence number.
    pub seqno_max: Seqno,
}

/// Appends the encoding: a count, then varints in the order of the fields.
pub(super) fn encode_extents(extents: &[Extent], out: &mut Vec<u8>) {
    put(out, extents.len() as u64);
    for extent in extents {
        for number in [extent.segment.0, extent.entries, extent.bytes, extent.seqno_min.0, extent.seqno_max.0] {
            put(out, number);
        }
    }
}

/// Takes extents off the front of `bytes`; `None` if they are malformed or contradict themselves.
pub(super) fn take_extents(bytes: &mut &[u8]) -> Option<Vec<Extent>> {
    let count = take(bytes)?;
    // Each takes five bytes or more, so the count cannot make this allocate much.
    let mut extents = Vec::with_capacity(usize::try_from(count).ok()?.min(bytes.len() / 5));
    for _ in 0..count {
        let extent = Extent {
            segment: FileId(take(bytes)?),
            entries: take(bytes)?,
            bytes: take(bytes)?,
            seqno_min: Seqno(take(bytes)?),
            seqno_max: Seqno(take(bytes)?),
        };
        let numbers_fit = extent.segment.0 <= FILE_ID_MAX && extent.seqno_max <= Seqno::MAX;
        extents.push(Some(extent).filter(|it| numbers_fit && it.entries > 0 && it.seqno_min <= it.seqno_max)?);
    }
    let is_ordered = extents.windows(2).all(|pair| pair[1].seqno_max < pair[0].seqno_min);
    is_ordered.then_some(extents)
}

/// All buckets, by their lower bounds.
pub type Buckets = BTreeMap<Vec<u8>, Vec<Extent>>;

/// The keyspace that a bucket with this lower bound lies in.
pub fn keyspace_of(lower: &[u8]) -> Option<KeyspaceId> {
    lower.first_chunk::<KEYSPACE_PREFIX_BYTES>().map(|prefix| KeyspaceId(u32::from_be_bytes(*prefix)))
}

/// The buckets after an edit.
///
/// # Errors
/// How the edit contradicts itself or the state before, of which `tables` are all tables with their levels. O(buckets).
pub fn buckets_after(
    buckets: &Buckets,
    tables: &BTreeMap<FileId, (u8, TableMeta)>,
    edit: &Edit,
) -> Result<Buckets, String> {
    let mut after = buckets.clone();
    for lower in &edit.buckets_removed {
        after.remove(lower).ok_or_else(|| format!("bucket {} was removed before it was added", text(lower)))?;
    }
    for (lower, extents) in &edit.buckets_set {
        if !(KEYSPACE_PREFIX_BYTES..=KEYSPACE_PREFIX_BYTES + KEY_BYTES_MAX).contains(&lower.len()) {
            return Err(format!("a bucket has a lower bound of {} B", lower.len()));
        }
        after.insert(lower.clone(), extents.clone());
    }
    let added = edit.tables_added.iter().map(|(level, meta)| (meta.id, *level));
    let stayed = tables.iter().map(|(id, (level, _))| (*id, *level));
    let stayed = stayed.filter(|(id, _)| !edit.tables_removed.contains(id));
    let segments: BTreeSet<FileId> =
        stayed.chain(added).filter(|(_, level)| *level == SEGMENT_LEVEL).map(|(id, _)| id).collect();
    let used: BTreeSet<FileId> = after.values().flatten().map(|extent| extent.segment).collect();
    if let Some(missing) = used.difference(&segments).next() {
        return Err(format!("a bucket has an extent in segment {}, which does not exist", missing.0));
    }
    if let Some(unused) = segments.difference(&used).next() {
        return Err(format!("segment {} has no extent of a bucket", unused.0));
    }
    let mut keyspace = None;
    for lower in after.keys() {
        if keyspace_of(lower) != keyspace && lower.len() > KEYSPACE_PREFIX_BYTES {
            return Err(format!("the first bucket of a keyspace begins at {}", text(lower)));
        }
        keyspace = keyspace_of(lower);
    }
    Ok(after)
}

fn text(lower: &[u8]) -> String {
    format!("{:?}", lower.escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::compression::Compression;
    use crate::format::properties::Properties;

    fn extent(segment: u64, seqnos: (u64, u64)) -> Extent {
        let (seqno_min, seqno_max) = (Seqno(seqnos.0), Seqno(seqnos.1));
        Extent { segment: FileId(segment), entries: 2, bytes: 40, seqno_min, seqno_max }
    }

    fn decoded(extents: &[Extent]) -> Option<Vec<Extent>> {
        let mut bytes = Vec::new();
        encode_extents(extents, &mut bytes);
        take_extents(&mut &bytes[..])
    }

    #[test]
    fn extents_round_trip_newest_first_and_others_are_refused() {
        let good = [extent(9, (8, 11)), extent(4, (3, 7))];
        assert_eq!(decoded(&good).as_deref(), Some(&good[..]));
        assert_eq!(decoded(&[]), Some(Vec::new()));
        let bad = [
            vec![good[1], good[0]],
            vec![extent(9, (7, 11)), good[1]],
            vec![extent(FILE_ID_MAX + 1, (1, 2))],
            vec![extent(9, (2, 1))],
            vec![Extent { entries: 0, ..good[0] }],
        ];
        assert!(bad.iter().all(|extents| decoded(extents).is_none()));
        let huge: Vec<u8> = [vec![0xff; 9], vec![1]].concat();
        assert_eq!(take_extents(&mut &huge[..]), None);
    }

    #[test]
    fn an_edit_of_buckets_must_fit_what_was_there() {
        let table = |id| {
            let mut properties = Properties::new(Compression::None, 1);
            (properties.entries, properties.smallest) = (2, b"\0\0\0\x01a".to_vec());
            properties.end = b"\0\0\0\x01b".to_vec();
            (SEGMENT_LEVEL, TableMeta::new(FileId(id), 100, &properties))
        };
        let set = |lower: &[u8], extents: &[Extent]| (lower.to_vec(), extents.to_vec());
        let (first, second) = (b"\0\0\0\x01".as_slice(), b"\0\0\0\x01k".as_slice());
        let one = extent(9, (8, 11));
        let edit = Edit {
            tables_added: vec![table(9)],
            buckets_set: vec![set(first, &[one]), set(second, &[one])],
            ..Edit::default()
        };
        let buckets = buckets_after(&Buckets::new(), &BTreeMap::new(), &edit).unwrap();
        assert_eq!(buckets.len(), 2);
        let tables = BTreeMap::from([(FileId(9), table(9))]);
        let bad = [
            Edit { buckets_removed: vec![b"\0\0\0\x01x".to_vec()], ..Edit::default() },
            Edit { buckets_removed: vec![first.to_vec()], ..Edit::default() },
            Edit { buckets_set: vec![set(first, &[extent(10, (1, 2))])], ..Edit::default() },
            Edit { buckets_set: vec![set(b"\0\0", &[])], ..Edit::default() },
            Edit { tables_removed: vec![FileId(9)], ..Edit::default() },
            Edit { tables_added: vec![table(10)], ..Edit::default() },
        ];
        for edit in bad {
            assert!(buckets_after(&buckets, &tables, &edit).is_err(), "{edit:?}");
        }
        let last = Edit {
            tables_removed: vec![FileId(9)],
            buckets_removed: vec![first.to_vec(), second.to_vec()],
            ..Edit::default()
        };
        assert_eq!(buckets_after(&buckets, &tables, &last), Ok(Buckets::new()));
    }
}
