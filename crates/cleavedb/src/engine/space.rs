//! Figures of the garbage in separated values that are not in the ledger: bounds on hidden garbage, how much of them is likely
//! to be garbage, and the rate of value GC. Updated by jobs, read by `write/space.rs`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::Seqno;
use crate::engine::gc_pace::GcPace;
use crate::levels::hidden::Hidden;
use crate::levels::version::Version;
use crate::sched::sync::Mutex;

/// Figures of garbage beside those of the ledger.
pub(crate) struct Space {
    /// Hidden garbage, by estimate: bytes that the ledger counts as live but compactions can find dead.
    pub hidden_likely: AtomicU64,
    /// Upper bound on the hidden garbage for which there is no estimate.
    pub hidden_unknown: AtomicU64,
    /// The bound may exceed the garbage limit, so compactions are requested.
    pub hides_too_much: AtomicBool,
    /// The share of flushed keys that tables had before, in thousandths.
    found: AtomicU64,
    /// Garbage that value GC removes while it works, in bytes per second.
    pub drain: AtomicU64,
    drained: Mutex<Drained>,
    /// Garbage that value GC has removed so far, in bytes.
    pub removed: AtomicU64,
    /// Lower bound on the live bytes that tables reference.
    pub live_min: AtomicU64,
    /// The largest record that tables reference, in bytes.
    pub record_max: AtomicU64,
    /// Bytes of the file system that are free or taken by garbage.
    pub garbage_room: AtomicU64,
    /// Bytes of garbage in files that cannot be read, which value GC cannot remove.
    pub unreadable: AtomicU64,
    /// There is no file that value GC could collect.
    pub no_victims: AtomicBool,
    /// A user has read since this was last cleared. Readers write to it only if it is not set.
    users_read: AtomicBool,
    /// How often it was found set.
    reads_seen: AtomicU64,
    /// Whether somebody had lately read when value GC last asked for its share.
    pub reads_go_on: AtomicBool,
    /// How fast value GC works.
    pub gc_pace: Mutex<GcPace>,
    /// Held while hidden garbage is estimated by the newest view, so that no older estimate replaces it.
    pub reviewing: Mutex<()>,
    /// The last result for a version and an oldest snapshot, reused because most jobs change no tables.
    looked: Mutex<Option<(Weak<Version>, Seqno, Hidden)>>,
}

/// What collections have removed, and in which time; of each end the ones before count half.
#[derive(Default)]
struct Drained {
    bytes: u64,
    took: Duration,
    /// The last end.
    until: Duration,
}

impl Default for Space {
    fn default() -> Space {
        Space {
            hidden_likely: AtomicU64::new(0),
            hidden_unknown: AtomicU64::new(0),
            hides_too_much: AtomicBool::new(false),
            found: AtomicU64::new(FOUND_FIRST),
            drain: AtomicU64::new(0),
            drained: Mutex::default(),
            removed: AtomicU64::new(0),
            live_min: AtomicU64::new(0),
            record_max: AtomicU64::new(0),
            garbage_room: AtomicU64::new(u64::MAX),
            unreadable: AtomicU64::new(0),
            no_victims: AtomicBool::new(false),
            users_read: AtomicBool::new(false),
            reads_seen: AtomicU64::new(0),
            reads_go_on: AtomicBool::new(false),
            gc_pace: Mutex::default(),
            reviewing: Mutex::default(),
            looked: Mutex::default(),
        }
    }
}

impl Space {
    /// The hidden garbage of a version if the oldest snapshot is `oldest`: the last result, or that of `look`.
    pub fn hidden_in(&self, version: &Arc<Version>, oldest: Seqno, look: impl FnOnce() -> Hidden) -> Hidden {
        // A snapshot newer than all tables gives the same result as one at the newest version in tables.
        let tables = version.levels().iter().flat_map(|level| level.tables().iter());
        let oldest = oldest.min(tables.map(|table| table.meta().seqno_max).max().unwrap_or_default());
        let mut looked = self.looked.lock();
        match &*looked {
            Some((known, at, hidden)) if *at == oldest && known.as_ptr() == Arc::as_ptr(version) => *hidden,
            _ => looked.insert((Arc::downgrade(version), oldest, look())).2,
        }
    }

    /// Notes that a user reads.
    #[inline]
    pub fn note_read(&self) {
        if !self.users_read.load(Ordering::Relaxed) {
            self.users_read.store(true, Ordering::Relaxed);
        }
    }

    /// A number that has changed if a user has read since the last call.
    pub fn reads_seen(&self) -> u64 {
        let before = self.users_read.swap(false, Ordering::Relaxed);
        self.reads_seen.fetch_add(u64::from(before), Ordering::Relaxed) + u64::from(before)
    }

    /// Notes that no compaction can uncover more garbage.
    pub fn nothing_to_uncover(&self) {
        self.hidden_likely.store(0, Ordering::Relaxed);
        self.hidden_unknown.store(0, Ordering::Relaxed);
        self.hides_too_much.store(false, Ordering::Relaxed);
    }

    /// Notes whether there are files that value GC can collect.
    pub fn note_victims(&self, any: bool) {
        self.no_victims.store(!any, Ordering::Relaxed);
    }

    /// Notes that tables had `found` of `sampled` keys that were flushed: their older versions are dead.
    pub fn note_sample(&self, found: u64, sampled: u64) {
        if let Some(share) = (found * 1000).checked_div(sampled) {
            // A moving average: the last flush has a weight of one half.
            let before = self.found.load(Ordering::Relaxed);
            self.found.store((before + share) / 2, Ordering::Relaxed);
        }
    }

    /// Notes that a collection has removed `bytes` of garbage, which worked from `began` until now. The time in which another one
    /// worked, too, was counted at its end, so that the rate is that of both; but at least half of it counts.
    pub fn note_drained(&self, bytes: u64, began: Duration, now: Duration) {
        self.removed.fetch_add(bytes, Ordering::Relaxed);
        let mut drained = self.drained.lock();
        let took = now.saturating_sub(began.max(drained.until)).max(now.saturating_sub(began) / 2);
        *drained = Drained { bytes: drained.bytes / 2 + bytes, took: drained.took / 2 + took, until: now };
        self.drain.store((drained.bytes as f64 / drained.took.as_secs_f64().max(1e-3)) as u64, Ordering::Relaxed);
    }

    /// Estimate of hidden garbage: bytes that the ledger counts as live and that are dead.
    pub fn guessed(&self) -> u64 {
        self.hidden_likely.load(Ordering::Relaxed) + self.found_of(self.hidden_unknown.load(Ordering::Relaxed))
    }

    /// Of a number of versions or bytes in tables, those with older ones, if they are as many as of what was flushed last.
    pub fn found_of(&self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.found.load(Ordering::Relaxed)) / 1000) as u64
    }
}

/// The assumed share of flushed keys that tables have until a flush has measured it, in thousandths.
const FOUND_FIRST: u64 = 500;
