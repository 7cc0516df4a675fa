//! Obsolete files, and obsolete ranges of files, that are deleted once no reader holds them. The manifest no longer
//! references them; the last holder of a file drops its guard, and a background job frees the space (rule 4).
//!
//! A range whose space cannot be freed, because its file has another hard link (a checkpoint) or the file system fails, is
//! *deferred*: it stays on a list, counts in [`PendingDeletions::pending_bytes`], and is tried again after a second, then
//! after twice the time each, at least once a minute. The next open finds the ranges that a close leaves
//! (`engine/recovery/values.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Result;
use crate::io::storage::Punched;
use crate::sched::sync::Mutex;

/// Deferred ranges are first tried again after this time...
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// ...and after twice the previous time at each further attempt, up to this.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// An obsolete file or range of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obsolete {
    /// A whole file, to be removed.
    File(Arc<Path>),
    /// A range of a file that stays, to be punched out.
    Range(FileRange),
}

/// A range of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub path: Arc<Path>,
    /// Offset of its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// Obsolete files and ranges that still take space.
#[derive(Default)]
pub struct PendingDeletions {
    state: Mutex<Deferred>,
}

#[derive(Default)]
struct Deferred {
    waiting: Vec<Obsolete>,
    /// Offsets and lengths of ranges that could not be freed, by file; adjacent ranges are joined.
    deferred: BTreeMap<Arc<Path>, BTreeMap<u64, u64>>,
    /// The files that had another link when a range was to be freed last.
    linked: BTreeSet<Arc<Path>>,
    /// Bytes of all waiting and deferred ranges, and of the range that a job is freeing.
    pending_bytes: u64,
    /// When the deferred ranges are tried again; None if there are none or the file system cannot punch holes.
    retry_at: Option<Duration>,
    /// The delay before the next attempt.
    retry_after: Duration,
}

impl Deferred {
    fn retry_is_due(&self, now: Duration) -> bool {
        self.retry_at.is_some_and(|at| at <= now)
    }

    /// Drops the ranges of a file, which is removed as a whole.
    fn forget(&mut self, path: &Arc<Path>) {
        let mut bytes: u64 = self.deferred.remove(path).iter().flat_map(BTreeMap::values).sum();
        self.waiting.retain(|obsolete| match obsolete {
            Obsolete::Range(range) if range.path == *path => {
                bytes += range.len;
                false
            }
            _ => true,
        });
        self.pending_bytes -= bytes;
        self.linked.remove(path);
        if self.deferred.is_empty() {
            self.retry_at = None;
        }
    }

    fn defer(&mut self, range: FileRange) {
        let ranges = self.deferred.entry(range.path).or_default();
        let (mut offset, mut len) = (range.offset, range.len);
        if let Some((before, before_len)) = ranges.range(..offset).next_back().map(|(at, len)| (*at, *len))
            && before + before_len == offset
        {
            (offset, len) = (before, before_len + len);
        }
        len += ranges.remove(&(offset + len)).unwrap_or_default();
        ranges.insert(offset, len);
    }
}

impl PendingDeletions {
    /// Takes one of them; a deferred range only once it is due to be tried again.
    pub fn take(&self, now: Duration) -> Option<Obsolete> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && state.retry_is_due(now) {
            state.retry_at = None;
            state.retry_after = (state.retry_after.max(RETRY_FIRST) * 2).min(RETRY_MAX);
            for (path, ranges) in std::mem::take(&mut state.deferred) {
                let range = |(offset, len)| Obsolete::Range(FileRange { path: path.clone(), offset, len });
                state.waiting.extend(ranges.into_iter().map(range));
            }
        }
        state.waiting.pop()
    }

    /// Adds a file or range that no reader holds.
    pub fn add(&self, obsolete: Obsolete) {
        let mut state = self.state.lock();
        match &obsolete {
            Obsolete::File(path) => state.forget(path),
            Obsolete::Range(range) => state.pending_bytes += range.len,
        }
        state.waiting.push(obsolete);
    }

    /// Records the outcome of punching out a range that was [taken](PendingDeletions::take).
    pub fn record_punch(&self, range: FileRange, outcome: &Result<Punched>, now: Duration) {
        let mut state = self.state.lock();
        match outcome {
            Ok(Punched::Linked) => drop(state.linked.insert(range.path.clone())),
            _ => drop(state.linked.remove(&range.path)),
        }
        match outcome {
            Ok(Punched::Done) => {
                state.pending_bytes -= range.len;
                // The other link of this file is gone, and perhaps those of other files are too.
                state.retry_after = RETRY_FIRST;
            }
            // Another attempt would fail too. The next open makes one.
            Ok(Punched::Unsupported) => state.defer(range),
            Ok(Punched::Linked) | Err(_) => {
                state.defer(range);
                let after = state.retry_after.max(RETRY_FIRST);
                state.retry_at.get_or_insert(now + after);
            }
        }
    }

    /// Records that the file of a range that was [taken](PendingDeletions::take) no longer exists.
    pub fn record_file_gone(&self, range: &FileRange) {
        self.state.lock().pending_bytes -= range.len;
    }

    /// True if there is something to [take](PendingDeletions::take).
    pub fn has_work(&self, now: Duration) -> bool {
        let state = self.state.lock();
        !state.waiting.is_empty() || state.retry_is_due(now)
    }

    /// The time until deferred ranges are tried again; `None` if there are none.
    pub fn retry_in(&self, now: Duration) -> Option<Duration> {
        self.state.lock().retry_at.map(|at| at.saturating_sub(now))
    }

    /// Bytes of obsolete ranges whose space has not been freed.
    pub fn pending_bytes(&self) -> u64 {
        self.state.lock().pending_bytes
    }

    /// Of these, bytes of ranges in files with another link, such as a checkpoint's, for which `counts` is true.
    pub fn linked_bytes(&self, counts: impl Fn(&Path) -> bool) -> u64 {
        let state = self.state.lock();
        let linked = state.linked.iter().filter(|path| counts(path));
        let deferred = linked.filter_map(|path| state.deferred.get(path)).flat_map(BTreeMap::values).sum::<u64>();
        let waiting = state.waiting.iter().map(|obsolete| match obsolete {
            Obsolete::Range(range) if state.linked.contains(&range.path) && counts(&range.path) => range.len,
            _ => 0,
        });
        deferred + waiting.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(path: &str, offset: u64, len: u64) -> FileRange {
        FileRange { path: Path::new(path).into(), offset, len }
    }

    fn taken(pending_deletions: &PendingDeletions, now: u64) -> Option<FileRange> {
        match pending_deletions.take(Duration::from_secs(now))? {
            Obsolete::Range(range) => Some(range),
            Obsolete::File(path) => panic!("{} is a whole file", path.display()),
        }
    }

    fn take_all(pending_deletions: &PendingDeletions, now: u64, outcome: Punched) {
        while let Some(range) = taken(pending_deletions, now) {
            pending_deletions.record_punch(range, &Ok(outcome), Duration::from_secs(now));
        }
    }

    #[test]
    fn deferred_ranges_are_joined_counted_and_tried_again_after_growing_delays() {
        let pending_deletions = PendingDeletions::default();
        for offset in [8, 0, 4] {
            pending_deletions.add(Obsolete::Range(range("a", offset, 4)));
        }
        pending_deletions.add(Obsolete::Range(range("a", 20, 4)));
        take_all(&pending_deletions, 0, Punched::Linked);
        assert_eq!(pending_deletions.pending_bytes(), 16);
        let linked = |of: &str| pending_deletions.linked_bytes(|path| path == Path::new(of));
        assert_eq!((linked("a"), linked("b")), (16, 0));
        assert!(!pending_deletions.has_work(Duration::ZERO));
        let mut times = Vec::new();
        for now in 1..400 {
            if pending_deletions.has_work(Duration::from_secs(now)) {
                times.push(now);
                take_all(&pending_deletions, now, Punched::Linked);
            }
        }
        assert_eq!(times, [1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]);
        assert_eq!(pending_deletions.retry_in(Duration::from_secs(400)), Some(Duration::from_secs(23)));
        let ranges: Vec<FileRange> = std::iter::from_fn(|| taken(&pending_deletions, 423)).collect();
        assert_eq!(ranges, [range("a", 20, 4), range("a", 0, 12)]);
        ranges
            .into_iter()
            .for_each(|range| pending_deletions.record_punch(range, &Ok(Punched::Done), Duration::from_secs(423)));
        assert_eq!((pending_deletions.pending_bytes(), pending_deletions.retry_in(Duration::ZERO)), (0, None));
    }

    #[test]
    fn ranges_are_counted_and_not_tried_again_if_the_file_system_cannot_punch_holes() {
        let pending_deletions = PendingDeletions::default();
        pending_deletions.add(Obsolete::Range(range("a", 0, 4)));
        take_all(&pending_deletions, 0, Punched::Unsupported);
        assert_eq!((pending_deletions.pending_bytes(), pending_deletions.retry_in(Duration::ZERO)), (4, None));
        assert_eq!(pending_deletions.linked_bytes(|_| true), 0);
        assert!(!pending_deletions.has_work(Duration::from_secs(1 << 30)));
    }

    #[test]
    fn removing_a_file_drops_its_ranges() {
        let pending_deletions = PendingDeletions::default();
        pending_deletions.add(Obsolete::Range(range("a", 0, 4)));
        pending_deletions.add(Obsolete::Range(range("b", 0, 8)));
        take_all(&pending_deletions, 0, Punched::Linked);
        pending_deletions.add(Obsolete::Range(range("a", 12, 4)));
        pending_deletions.add(Obsolete::File(Path::new("a").into()));
        assert_eq!(pending_deletions.pending_bytes(), 8);
        assert_eq!(pending_deletions.take(Duration::ZERO), Some(Obsolete::File(Path::new("a").into())));
        assert_eq!(pending_deletions.take(Duration::ZERO), None);
        pending_deletions.add(Obsolete::File(Path::new("b").into()));
        assert_eq!((pending_deletions.pending_bytes(), pending_deletions.retry_in(Duration::ZERO)), (0, None));
    }
}
