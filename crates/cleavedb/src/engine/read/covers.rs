//! Range tombstones at the position of a scan: the newest one that covers the current key, and the span of keys for
//! which that stays true. The scan queries the layers only when it leaves the span that they last reported. Within a
//! covered span each layer older than the one with the tombstone is skipped in one seek, regardless of how much it
//! holds there (rule 1: all of it is deleted).

use std::sync::Arc;

use crate::base::tombstones::{RangeTombstones, TombstoneSpan};
use crate::base::{Cursor, Merging, Result, Seqno};
use crate::engine::layer::LayerScan;

/// Cursors over all layers, newest first, and their range tombstones.
pub(crate) struct ScanSources {
    pub cursors: Merging<Box<dyn Cursor + Send>>,
    covers: Covers,
}

/// The range tombstones around a scan.
#[derive(Default)]
struct Covers {
    /// Newest first, each with the number of the first cursor that is older.
    ranges: Vec<(usize, Arc<dyn RangeTombstones>)>,
    /// The span that the layers reported last, and the first cursor whose versions in it are all deleted.
    span: Option<TombstoneSpan>,
    first_void: usize,
}

/// Collects layers, newest first.
#[derive(Default)]
pub(crate) struct ScanSourcesBuilder {
    cursors: Vec<Box<dyn Cursor + Send>>,
    covers: Covers,
}

impl ScanSourcesBuilder {
    /// Adds the next older layer. A store with versions of any age comes first: no range tombstone skips it.
    pub fn push(&mut self, layer: LayerScan) {
        self.cursors.extend(layer.cursors);
        self.covers.ranges.extend(layer.ranges.map(|ranges| (self.cursors.len(), ranges)));
    }

    pub fn finish(self) -> ScanSources {
        ScanSources { cursors: Merging::new(self.cursors), covers: self.covers }
    }
}

impl ScanSources {
    /// Skips the versions that a range tombstone around the current key deletes. True if cursors have moved, so that
    /// the current key may have changed.
    pub fn pass_over_covered(&mut self, snapshot: Seqno) -> Result<bool> {
        let covers = &mut self.covers;
        if covers.ranges.is_empty() || covers.span.as_ref().is_some_and(|last| last.holds(self.cursors.key())) {
            return Ok(false);
        }
        covers.look(self.cursors.key(), snapshot)?;
        match &covers.span {
            Some(TombstoneSpan { from: Some(from), to: Some(to), seqno }) if *seqno > Seqno::ZERO => {
                self.cursors.skip_range(covers.first_void, from, to).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// The sequence number of the range tombstone that covers the current key; 0 if there is none.
    pub fn cover(&self) -> Seqno {
        self.covers.span.as_ref().map_or(Seqno::ZERO, |span| span.seqno)
    }
}

impl Covers {
    fn look(&mut self, key: &[u8], snapshot: Seqno) -> Result<()> {
        let mut span = TombstoneSpan::default();
        for (first_older, ranges) in &self.ranges {
            span.narrow(ranges.span_at(key, snapshot)?);
            if span.seqno > Seqno::ZERO {
                self.first_void = *first_older;
                break;
            }
        }
        self.span = Some(span);
        Ok(())
    }
}
