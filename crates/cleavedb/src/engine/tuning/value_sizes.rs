//! The sizes of value GC and reordering: what a job holds of values, and how it places them.

use crate::engine::tuning::settings::ValuePlacement;
use crate::engine::tuning::sizes::Tuning;
use crate::values::placement::Placement;
use crate::values::placement::hash::HashPlacement;
use crate::values::placement::log::LogPlacement;
use crate::values::placement::range::RangePlacement;

const MIB: usize = 1 << 20;
/// Upper bound of [`Tuning::sorted_bytes_max`] for any budget.
const SORTED_BYTES_MAX: usize = 128 << 20;
/// The lists of extents take about this part of the budget at most...
const EXTENTS_PART: usize = 16;
/// ...where each extent takes about this much (`fit_caches.rs`).
const EXTENT_BYTES: usize = 600;
/// Upper bound of [`Tuning::judged_bytes_max`] for any budget.
const JUDGED_BYTES_MAX: usize = 256 << 20;

impl Tuning {
    /// Memory limit for the records whose liveness value GC decides together.
    pub(crate) fn judged_bytes_max(&self) -> usize {
        (self.job_bytes / 4).min(JUDGED_BYTES_MAX)
    }

    /// Values within this many bytes of each other are at the same place for a scan: it reads them together.
    pub(crate) fn near_bytes(&self) -> u64 {
        (self.log_bytes / 1024).max(4 << 10)
    }

    /// Memory of a collection for reading and for writing a few extents concurrently; part of the memory for jobs.
    pub(crate) fn collection_buffer_bytes(&self) -> usize {
        // What is read of a file at a time, and as much again, in the smallest budget.
        let least = (self.memory_bytes / 8).min(2 * MIB);
        (self.memory_bytes / 16).clamp(least, 4 * MIB)
    }

    /// A collection writes its extents, which follow one another, in pieces of this size; part of its buffers.
    pub(crate) fn segment_write_bytes(&self) -> usize {
        self.extent_buffer_bytes().max((self.memory_bytes / 128).min(MIB / 4))
    }

    /// A collection reads at most this much of scattered records at a time.
    pub(crate) fn collected_piece_bytes(&self) -> u64 {
        self.collection_buffer_bytes() as u64 / 4
    }

    /// Bytes of values that value GC puts in key order in memory; part of the memory for jobs.
    pub(crate) fn sorted_bytes_by_gc(&self) -> usize {
        self.job_bytes / 6
    }

    /// Bytes of values that a job puts in key order in memory at most. It reads its files once for each such part, so the
    /// caches give way to it.
    pub(crate) fn sorted_bytes_max(&self) -> usize {
        (self.memory_bytes / 16 * 5).min(SORTED_BYTES_MAX)
    }

    /// How many records a job notes for the survey, eight bytes each.
    pub(crate) fn noted_records_max(&self) -> usize {
        self.survey_bytes / 16
    }

    /// The placement of values that are moved.
    pub(crate) fn placement(&self) -> Box<dyn Placement> {
        let segment_bytes = self.log_bytes;
        match self.placement {
            ValuePlacement::Hash => Box::new(HashPlacement {
                segment_bytes,
                group_bytes: self.group_bytes,
                policy: self.victims,
                hot_cold: self.hot_cold,
            }),
            ValuePlacement::Range => Box::new(RangePlacement {
                segment_bytes,
                group_bytes: self.group_bytes,
                policy: self.victims,
                // The state kept for a small record while value GC decides its liveness is a few times its size.
                small_bytes: self.judged_bytes_max() as u64 / 8,
                // The job sorts a quarter more than its live bytes, for records that must be read again.
                sorted_bytes: self.sorted_bytes_max() as u64 / 4 * 3,
                extents_max: (self.memory_bytes / EXTENTS_PART / EXTENT_BYTES) as u64,
            }),
            ValuePlacement::Log { look_up_each } => Box::new(LogPlacement { segment_bytes, look_up_each }),
        }
    }
}
