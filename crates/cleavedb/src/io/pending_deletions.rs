//! Files, and parts of files, that are to go once nothing reads them. The manifest has already forgotten such a thing when it
//! is obsolete; its last holder drops the guard, and a background job gives its space back (DESIGN rule 4).
//!
//! A part whose space cannot be given back, because its file has another link (a checkpoint) or the file system fails, is
//! *refused*: it stays on a list, counts in [`PendingDeletions::pending_bytes`], and is tried again after a second, then less and less often, at
//! least once a minute. What is left at a close is found again by the next open (`db/values.rs`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::{FileKey, Result};
use crate::io::Punched;
use crate::sched::sync::Mutex;

/// Refused parts are tried again after this time at first...
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// ...and after twice the time before at each further attempt, up to this.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Something to give back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obsolete {
    /// A file.
    File(Arc<Path>),
    /// A part of a file that goes on.
    Part(Part),
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The file.
    pub path: Arc<Path>,
    /// Where the part begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}

/// What waits to be given back.
#[derive(Default)]
pub struct PendingDeletions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Obsolete>,
    /// Offsets and lengths of parts that could not be given back, by file; neighbours are joined.
    refused: BTreeMap<Arc<Path>, BTreeMap<u64, u64>>,
    /// Bytes of the parts above, and of the one that a job is at.
    pending_bytes: u64,
    /// When the refused parts are tried again, unless the file system cannot give parts back at all.
    retry_at: Option<Duration>,
    /// How long after the next refusal that is.
    retry_after: Duration,
}

impl State {
    fn retry_is_due(&self, now: Duration) -> bool {
        self.retry_at.is_some_and(|at| at <= now)
    }

    /// The file goes as a whole, and its parts with it.
    fn forget(&mut self, path: &Arc<Path>) {
        let mut bytes: u64 = self.refused.remove(path).iter().flat_map(BTreeMap::values).sum();
        self.waiting.retain(|obsolete| match obsolete {
            Obsolete::Part(part) if part.path == *path => {
                bytes += part.len;
                false
            }
            _ => true,
        });
        self.pending_bytes -= bytes;
        if self.refused.is_empty() {
            self.retry_at = None;
        }
    }

    fn obsolete(&mut self, part: Part) {
        let parts = self.refused.entry(part.path).or_default();
        let (mut offset, mut len) = (part.offset, part.len);
        if let Some((before, before_len)) = parts.range(..offset).next_back().map(|(at, len)| (*at, *len))
            && before + before_len == offset
        {
            (offset, len) = (before, before_len + len);
        }
        len += parts.remove(&(offset + len)).unwrap_or_default();
        parts.insert(offset, len);
    }
}

impl PendingDeletions {
    /// Takes one of them; of the refused parts only once it is time to try them again.
    pub fn take(&self, now: Duration) -> Option<Obsolete> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && state.retry_is_due(now) {
            state.retry_at = None;
            state.retry_after = (state.retry_after.max(RETRY_FIRST) * 2).min(RETRY_MAX);
            for (path, parts) in std::mem::take(&mut state.refused) {
                let part = |(offset, len)| Obsolete::Part(Part { path: path.clone(), offset, len });
                state.waiting.extend(parts.into_iter().map(part));
            }
        }
        state.waiting.pop()
    }

    /// One more; nobody reads it.
    pub fn add(&self, obsolete: Obsolete) {
        let mut state = self.state.lock();
        match &obsolete {
            Obsolete::File(path) => state.forget(path),
            Obsolete::Part(part) => state.pending_bytes += part.len,
        }
        state.waiting.push(obsolete);
    }

    /// What came of the attempt to give a part back that was [taken](PendingDeletions::take).
    pub fn settle(&self, part: Part, outcome: &Result<Punched>, now: Duration) {
        let mut state = self.state.lock();
        match outcome {
            Ok(Punched::Done) => {
                state.pending_bytes -= part.len;
                // The link has gone, and perhaps others with it.
                state.retry_after = RETRY_FIRST;
            }
            // Another attempt would fail alike. The next open makes one.
            Ok(Punched::Unsupported) => state.obsolete(part),
            Ok(Punched::Linked) | Err(_) => {
                state.obsolete(part);
                let after = state.retry_after.max(RETRY_FIRST);
                state.retry_at.get_or_insert(now + after);
            }
        }
    }

    /// A part that was [taken](PendingDeletions::take) is gone, and its file with it.
    pub fn settle_gone(&self, part: &Part) {
        self.state.lock().pending_bytes -= part.len;
    }

    /// True if there is something to [take](PendingDeletions::take).
    pub fn has_work(&self, now: Duration) -> bool {
        let state = self.state.lock();
        !state.waiting.is_empty() || state.retry_is_due(now)
    }

    /// How long it is until refused parts are tried again; `None` if none are.
    pub fn retry_in(&self, now: Duration) -> Option<Duration> {
        self.state.lock().retry_at.map(|at| at.saturating_sub(now))
    }

    /// Bytes of parts that nobody needs and whose space has not been given back.
    pub fn pending_bytes(&self) -> u64 {
        self.state.lock().pending_bytes
    }
}

/// Held by whatever reads a file; when the last holder lets go of a obsolete file, its path goes to the pending_deletions.
pub struct FileGuard {
    key: FileKey,
    path: Arc<Path>,
    obsolete: AtomicBool,
    pending_deletions: Arc<PendingDeletions>,
}

impl FileGuard {
    /// Guards a file, which lies at `path`.
    pub fn new(key: FileKey, path: impl Into<Arc<Path>>, pending_deletions: Arc<PendingDeletions>) -> FileGuard {
        FileGuard { key, path: path.into(), obsolete: AtomicBool::new(false), pending_deletions }
    }

    /// The file's kind, number and tier.
    pub fn key(&self) -> FileKey {
        self.key
    }

    /// Where it lies.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The manifest no longer names the file: it goes with its last holder.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The manifest no longer names it.
    pub fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }

    /// A part of the file is needed no longer, by nobody. It goes now if the file does not go as a whole.
    pub fn give_back(&self, offset: u64, len: u64) {
        if !self.is_obsolete() {
            self.pending_deletions.add(Obsolete::Part(Part { path: self.path.clone(), offset, len }));
        }
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.pending_deletions.add(Obsolete::File(self.path.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(path: &str, offset: u64, len: u64) -> Part {
        Part { path: Path::new(path).into(), offset, len }
    }

    fn taken(pending_deletions: &PendingDeletions, now: u64) -> Option<Part> {
        match pending_deletions.take(Duration::from_secs(now))? {
            Obsolete::Part(part) => Some(part),
            Obsolete::File(path) => panic!("{}", path.display()),
        }
    }

    fn refused(pending_deletions: &PendingDeletions, now: u64, outcome: Punched) {
        while let Some(part) = taken(pending_deletions, now) {
            pending_deletions.settle(part, &Ok(outcome), Duration::from_secs(now));
        }
    }

    #[test]
    fn refused_parts_are_joined_counted_and_tried_again_less_and_less_often() {
        let pending_deletions = PendingDeletions::default();
        for offset in [8, 0, 4] {
            pending_deletions.add(Obsolete::Part(part("a", offset, 4)));
        }
        pending_deletions.add(Obsolete::Part(part("a", 20, 4)));
        refused(&pending_deletions, 0, Punched::Linked);
        assert_eq!(pending_deletions.pending_bytes(), 16);
        assert!(!pending_deletions.has_work(Duration::ZERO));
        let mut times = Vec::new();
        for now in 1..400 {
            if pending_deletions.has_work(Duration::from_secs(now)) {
                times.push(now);
                refused(&pending_deletions, now, Punched::Linked);
            }
        }
        assert_eq!(times, [1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]);
        assert_eq!(pending_deletions.retry_in(Duration::from_secs(400)), Some(Duration::from_secs(23)));
        let parts: Vec<Part> = std::iter::from_fn(|| taken(&pending_deletions, 423)).collect();
        assert_eq!(parts, [part("a", 20, 4), part("a", 0, 12)]);
        parts.into_iter().for_each(|part| pending_deletions.settle(part, &Ok(Punched::Done), Duration::from_secs(423)));
        assert_eq!((pending_deletions.pending_bytes(), pending_deletions.retry_in(Duration::ZERO)), (0, None));
    }

    #[test]
    fn what_the_file_system_cannot_do_is_counted_and_not_tried_again() {
        let pending_deletions = PendingDeletions::default();
        pending_deletions.add(Obsolete::Part(part("a", 0, 4)));
        refused(&pending_deletions, 0, Punched::Unsupported);
        assert_eq!((pending_deletions.pending_bytes(), pending_deletions.retry_in(Duration::ZERO)), (4, None));
        assert!(!pending_deletions.has_work(Duration::from_secs(1 << 30)));
    }

    #[test]
    fn parts_go_with_their_file() {
        let pending_deletions = PendingDeletions::default();
        pending_deletions.add(Obsolete::Part(part("a", 0, 4)));
        pending_deletions.add(Obsolete::Part(part("b", 0, 8)));
        refused(&pending_deletions, 0, Punched::Linked);
        pending_deletions.add(Obsolete::Part(part("a", 12, 4)));
        pending_deletions.add(Obsolete::File(Path::new("a").into()));
        assert_eq!(pending_deletions.pending_bytes(), 8);
        assert_eq!(pending_deletions.take(Duration::ZERO), Some(Obsolete::File(Path::new("a").into())));
        assert_eq!(pending_deletions.take(Duration::ZERO), None);
        pending_deletions.add(Obsolete::File(Path::new("b").into()));
        assert_eq!((pending_deletions.pending_bytes(), pending_deletions.retry_in(Duration::ZERO)), (0, None));
    }
}
