//! Statistics of the delta store: its buckets, and their upkeep.

use std::sync::atomic::Ordering;

use minicbor::{Decode, Encode};

use crate::engine::core::Core;
use crate::engine::view::View;

/// The buckets of merge operands of all keyspaces. Sizes are in bytes; totals count from the last open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct DeltaStats {
    /// Buckets, each for a range of keys.
    #[n(0)]
    pub buckets: usize,
    /// Extents in them. A read visits those of one bucket.
    #[n(1)]
    pub extents: usize,
    /// Operands in them. Bases of keys whose operands cannot be combined count too.
    #[n(2)]
    pub operands: u64,
    /// Bytes of the operands and their keys.
    #[n(3)]
    pub bytes: u64,
    /// Delta segments, the files of the extents.
    #[n(4)]
    pub segments: usize,
    /// Bytes of these files. They also hold what was rewritten since, until all of a segment was.
    #[n(5)]
    pub segment_bytes: u64,
    /// Completed jobs that rewrote buckets.
    #[n(6)]
    pub rewrites: u64,
    /// Keys whose operands were written as a new base.
    #[n(7)]
    pub folds: u64,
    /// Keys for which that was refused, because they had changed meanwhile.
    #[n(8)]
    pub folds_refused: u64,
    /// Point reads that found the operands of their key in the operand cache.
    #[n(9)]
    #[cbor(default)]
    pub cache_hits: u64,
    /// Point reads that read them from segments.
    #[n(10)]
    #[cbor(default)]
    pub cache_misses: u64,
    /// Buckets that were split off another one, because that was full.
    #[n(11)]
    #[cbor(default)]
    pub splits: u64,
    /// Buckets that were joined to their neighbour, so that another one can be split.
    #[n(12)]
    #[cbor(default)]
    pub joins: u64,
}

impl Core {
    /// The buckets of a view, and the totals. O(buckets).
    pub fn delta_stats(&self, view: &View) -> DeltaStats {
        let buckets = view.directory.buckets();
        let segments = view.version.segments();
        DeltaStats {
            buckets: buckets.len(),
            extents: buckets.iter().map(|bucket| bucket.extents.len()).sum(),
            operands: buckets.iter().map(|bucket| bucket.entries()).sum(),
            bytes: buckets.iter().map(|bucket| bucket.bytes()).sum(),
            segments: segments.len(),
            segment_bytes: segments.iter().map(|segment| segment.meta().size).sum(),
            rewrites: self.counters.bucket_rewrites.load(Ordering::Acquire),
            folds: self.counters.folds.load(Ordering::Acquire),
            folds_refused: self.counters.folds_refused.load(Ordering::Acquire),
            cache_hits: self.memory.operands.hits(),
            cache_misses: self.memory.operands.misses(),
            splits: self.counters.bucket_splits.load(Ordering::Acquire),
            joins: self.counters.bucket_joins.load(Ordering::Acquire),
        }
    }
}
