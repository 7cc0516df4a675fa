//! Some keys of neighbouring buckets with all their versions: as many as jobs look up together. The memory is counted.

use std::sync::Arc;

use crate::base::key_versions::KeyVersion;
use crate::base::memory::{Counted, Gauge};
use crate::base::{Cursor, Result, Stamp};
use crate::deltas::directory::Bucket;
use crate::engine::buckets::{BucketCursor, Buckets};

/// The most keys looked up together.
const KEYS_MAX: usize = 256;
/// The most bytes of versions in a window, unless one key has more.
const BYTES_MAX: usize = 256 << 10;

/// Goes through buckets, one window after the other.
pub(crate) struct BucketWindows<'a> {
    cursor: BucketCursor,
    last: &'a Bucket,
    memory: Counted,
    /// Keys with their versions, newest first, in the order of keys.
    pub keys: Vec<(Vec<u8>, Vec<KeyVersion>)>,
}

impl<'a> BucketWindows<'a> {
    /// Windows over neighbouring buckets; `None` if there are none.
    pub fn over(
        source: &Arc<Buckets>,
        buckets: &'a [Arc<Bucket>],
        memory: &Arc<Gauge>,
    ) -> Result<Option<BucketWindows<'a>>> {
        let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return Ok(None) };
        let mut cursor = BucketCursor::new(source.clone(), false).until(last);
        cursor.seek(&first.lower, Stamp::NEWEST)?;
        Ok(Some(BucketWindows { cursor, last, memory: memory.hold(0), keys: Vec::new() }))
    }

    /// Moves on; false at the end of the buckets.
    pub fn advance(&mut self) -> Result<bool> {
        self.keys.clear();
        let mut bytes = 0;
        while self.keys.len() < KEYS_MAX
            && bytes < BYTES_MAX
            && self.cursor.valid()
            && self.last.ends_after(self.cursor.key())
        {
            let (key, versions) = self.cursor.take_key()?;
            bytes +=
                key.len() + versions.iter().map(|(_, payload)| payload.len() + size_of::<KeyVersion>()).sum::<usize>();
            self.keys.push((key, versions));
        }
        // What they are merged into may be as large.
        self.memory.set(2 * bytes);
        Ok(!self.keys.is_empty())
    }
}
