//! The figures of a table that the choice of compactions follows from. Taken from its entry in the manifest by a version
//! (`version.rs`), evaluated by `picker.rs` and `hidden.rs`.

use crate::base::cursor::leading_bytes;
use crate::base::{FileId, Seqno};
use crate::format::meta::TableMeta;
use crate::format::properties::CoveredRange;

/// The picker's figures for a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFigures<'a> {
    /// The file.
    pub id: FileId,
    /// Its length, in bytes.
    pub size: u64,
    /// The first full key.
    pub smallest: &'a [u8],
    /// The first full key after the table.
    pub end: &'a [u8],
    /// The oldest sequence number.
    pub seqno_min: Seqno,
    /// The newest sequence number.
    pub seqno_max: Seqno,
    /// Number of versions.
    pub entries: u64,
    /// Number of versions that are deletes.
    pub deletes: u64,
    /// Number of versions that are deltas.
    pub deltas: u64,
    /// Bytes of the records that its addresses reference.
    pub bytes_separated: u64,
    /// Of these, bytes of records hidden by a newer base in the same table.
    pub bytes_hidden: u64,
    /// Bytes of the largest of these records.
    pub record_bytes_max: u64,
    /// Number of fragments of range tombstones.
    pub range_deletes: u64,
    /// The ranges they cover.
    pub covered_ranges: &'a [CoveredRange],
    /// How many versions have an older version in other tables, by estimate, if there is one.
    pub covering: Option<u64>,
    /// Buckets may hold operands that its tombstones delete.
    pub covers_buckets: bool,
    /// A running job uses it.
    pub busy: bool,
}

impl<'a> TableFigures<'a> {
    /// The figures of the table described by `meta`.
    pub fn new(meta: &'a TableMeta, busy: bool) -> TableFigures<'a> {
        TableFigures {
            id: meta.id,
            size: meta.size,
            smallest: &meta.smallest,
            end: &meta.end,
            seqno_min: meta.seqno_min,
            seqno_max: meta.seqno_max,
            entries: meta.entries,
            deletes: meta.deletes,
            deltas: meta.deltas,
            bytes_separated: meta.bytes_separated,
            bytes_hidden: meta.bytes_hidden,
            record_bytes_max: meta.record_bytes_max,
            range_deletes: meta.range_deletes,
            covered_ranges: &meta.covered_ranges,
            covering: None,
            covers_buckets: false,
            busy,
        }
    }

    pub(super) fn mostly_deletes(&self) -> bool {
        self.deletes * 2 > self.entries
    }

    /// Whether deletes are at least one in `part` of its versions, or of its contents with range tombstones counted,
    /// too.
    pub(super) fn deletes_are_one_in(&self, part: u64) -> bool {
        let all = self.deletes + self.range_deletes;
        all > 0 && all.saturating_mul(part) >= self.entries + self.range_deletes
    }

    /// Whether one of its range tombstones covers every version of `other`, which is older.
    pub(super) fn covers(&self, other: &TableFigures<'_>) -> bool {
        let hides = |range: &CoveredRange| {
            range.start.as_slice() <= other.smallest
                && other.end <= range.end.as_slice()
                && other.seqno_max < range.seqno
        };
        self.id != other.id && self.covered_ranges.iter().any(hides)
    }

    /// Whether one of its range tombstones may cover a version of `other`, which is older.
    pub(super) fn may_cover_some_of(&self, other: &TableFigures<'_>) -> bool {
        let meets = |range: &CoveredRange| overlap(other, &range.start, &range.end);
        self.range_deletes > self.covered_ranges.len() as u64 || self.covered_ranges.iter().any(meets)
    }

    /// Estimated bytes of `other` that its range tombstones cover, assuming evenly spread keys.
    pub(super) fn covered_bytes(&self, other: &TableFigures<'_>) -> u64 {
        let shared = other.smallest.iter().zip(other.end).take_while(|(left, right)| left == right).count();
        let place = |key: &[u8]| leading_bytes(&key[shared..]) >> 16;
        let width = place(other.end).saturating_sub(place(other.smallest)).max(1);
        let covered = |range: &CoveredRange| {
            let (start, end) = (other.smallest.max(&range.start), other.end.min(&range.end));
            if start < end { place(end).saturating_sub(place(start)) } else { 0 }
        };
        let thousandths = self.covered_ranges.iter().map(covered).sum::<u128>().min(width) * 1000 / width;
        (other.size as u128 * thousandths / 1000) as u64
    }

    /// Its size weighted for priority: a delete counts three times, since it removes what is older, and in the end
    /// itself.
    pub(super) fn urgency_bytes(&self) -> u64 {
        let entries = self.entries.max(1) as u128;
        let counted = entries + 2 * self.deletes as u128;
        (self.size as u128 * counted / entries).min(u64::MAX as u128) as u64
    }
}

/// True if keys of the table lie between `start` (inclusive) and `end` (exclusive).
pub(super) fn overlap(table: &TableFigures<'_>, start: &[u8], end: &[u8]) -> bool {
    table.smallest < end && start < table.end
}
