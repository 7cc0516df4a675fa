//! What is known of the space that separated values take, and of the garbage in it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::Seqno;
use crate::levels::hidden::Hidden;
use crate::levels::version::Version;
use crate::sched::sync::Mutex;

/// What is known beside the ledger.
pub(crate) struct Space {
    /// At most so many bytes of what the ledger has for live are dead, and compactions can show it.
    pub hidden: AtomicU64,
    /// That may be too much, so compactions are asked for.
    pub hides_too_much: AtomicBool,
    /// Of such bounds compactions found so much to be true lately, in thousandths.
    found: AtomicU64,
    /// Collections removed so many bytes of garbage a second.
    pub drain: AtomicU64,
    /// At least so many bytes are live of what tables name, and the largest record of them.
    pub live_min: AtomicU64,
    pub record_max: AtomicU64,
    /// There is no file that could be emptied.
    pub no_victims: AtomicBool,
    /// What was found of tables last, and as of which snapshot: most jobs change no tables.
    looked: Mutex<Option<(Weak<Version>, Seqno, Hidden)>>,
}

impl Default for Space {
    fn default() -> Space {
        Space {
            hidden: AtomicU64::new(0),
            hides_too_much: AtomicBool::new(false),
            found: AtomicU64::new(FOUND_FIRST),
            drain: AtomicU64::new(0),
            live_min: AtomicU64::new(0),
            record_max: AtomicU64::new(0),
            no_victims: AtomicBool::new(false),
            looked: Mutex::default(),
        }
    }
}

impl Space {
    /// How much tables hide from who sees nothing older than `oldest`, which may be known.
    pub fn hidden_in(&self, version: &Arc<Version>, oldest: Seqno, look: impl FnOnce() -> Hidden) -> Hidden {
        // Beyond all that is in tables it makes no difference.
        let tables = version.levels().iter().flat_map(|level| level.tables().iter());
        let oldest = oldest.min(tables.map(|table| table.meta().seqno_max).max().unwrap_or_default());
        let mut looked = self.looked.lock();
        match &*looked {
            Some((known, at, hidden)) if *at == oldest && known.as_ptr() == Arc::as_ptr(version) => *hidden,
            _ => looked.insert((Arc::downgrade(version), oldest, look())).2,
        }
    }

    /// No compaction could show more.
    pub fn nothing_to_uncover(&self) {
        self.hidden.store(0, Ordering::Relaxed);
        self.hides_too_much.store(false, Ordering::Relaxed);
    }

    /// There are files that can be emptied, or none.
    pub fn note_victims(&self, any: bool) {
        self.no_victims.store(!any, Ordering::Relaxed);
    }

    /// A merge of sorted rows that referenced so many bytes left so many.
    pub fn note_merge(&self, rows: impl Iterator<Item = u64>, left: u64) {
        let (mut all, mut largest) = (0, 0);
        rows.for_each(|row| (all, largest) = (all + row, row.max(largest)));
        let (found, possible) = (all.saturating_sub(left), all - largest);
        if possible > 0 {
            let share = found.min(possible) as u128 * 1000 / possible as u128;
            // Half of it is the last merge.
            let before = self.found.load(Ordering::Relaxed);
            self.found.store((before + share as u64) / 2, Ordering::Relaxed);
        }
    }

    pub fn note_drained(&self, bytes: u64, took: Duration) {
        let rate = (bytes as f64 / took.as_secs_f64().max(1e-3)) as u64;
        let before = self.drain.load(Ordering::Relaxed);
        self.drain.store(if before == 0 { rate } else { (before + rate) / 2 }, Ordering::Relaxed);
    }

    /// About so much of what the ledger has for live is dead.
    pub fn guessed(&self) -> u64 {
        let (hidden, found) = (self.hidden.load(Ordering::Relaxed), self.found.load(Ordering::Relaxed));
        (hidden as u128 * found as u128 / 1000) as u64
    }
}

/// Until compactions have told, about so much of the bound on what is hidden is taken to be true, in thousandths.
const FOUND_FIRST: u64 = 500;
