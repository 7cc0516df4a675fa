//! What passes through a compaction goes at the rate of background I/O, and leaves users who read a part of the time.

use crate::base::versions::{VersionRef, VersionSource};
use crate::engine::core::Core;
use crate::engine::throttle::Throttle;

/// Bytes of versions between two looks at the limit on I/O and at users who read.
const PASSED_TOGETHER: u64 = 128 << 10;

/// Versions that are read from tables and written to others.
pub(crate) struct Yielding<'a, S> {
    source: S,
    core: &'a Core,
    throttle: Throttle<'a>,
    passed: u64,
}

impl<'a, S: VersionSource> Yielding<'a, S> {
    pub fn new(core: &'a Core, source: S) -> Yielding<'a, S> {
        Yielding { source, core, throttle: Throttle::of_compaction(core), passed: 0 }
    }
}

impl<S: VersionSource> VersionSource for Yielding<'_, S> {
    type Error = S::Error;

    fn advance(&mut self) -> Result<bool, S::Error> {
        let more = self.source.advance()?;
        if more {
            let (key, _, value) = self.source.current();
            self.passed += (key.len() + value.len()) as u64;
        }
        if self.passed >= PASSED_TOGETHER || !more {
            // Read and written.
            self.throttle.note_waited(self.core.limit_io(2 * std::mem::take(&mut self.passed)));
            self.throttle.pause();
        }
        Ok(more)
    }

    fn current(&self) -> VersionRef<'_> {
        self.source.current()
    }
}
