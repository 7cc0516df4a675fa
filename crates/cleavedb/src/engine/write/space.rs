//! The cap on the space of values apart from their keys: how much garbage there may be (DESIGN section 4), how much there
//! is, and what is done as it comes near.
//!
//! Part of the garbage is known from the ledger; part is hidden until compactions meet it, and bounded from above
//! (`levels/hidden.rs`). By the bound, compactions are asked for; by what compactions have found of such bounds lately, it
//! is guessed how much is there, and writers are paced: from nine tenths of the cap on, as fast as garbage is removed at
//! the cap, and slower beyond. They are never stopped, and go on as they like where nothing can be removed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::{FileId, Result, Seqno};
use crate::engine::core::Core;
use crate::engine::view::View;
use crate::engine::write::pacing::Stage;
use crate::format::value_state::ReclaimedBytes;
use crate::levels::hidden::Hidden;
use crate::levels::picker::Figures;
use crate::levels::version::Version;
use crate::sched::clock::now;
use crate::sched::sync::Mutex;
use crate::values::files::ValueFiles;
use crate::values::placement::GarbageLimit;

/// So much fill of the stage of pacing stands for a tenth of the garbage that is allowed.
const FILL_PER_TENTH: f64 = 0.125;
/// The stage is as full where writers go as fast as it drains: at the cap.
const FILL_AT_CAP: f64 = 0.75;

/// Much further than at the cap writers are not slowed, however much there is: they are never stopped.
const FILL_MAX: f64 = 1.0;
/// So much of what is allowed, in hundredths, may be hidden while there is known garbage to remove...
const HIDDEN_PERCENT: u64 = 30;
/// ...as soon as there is so much of both together.
const BOTH_PERCENT: u64 = 80;
/// Until compactions have told, about so much of the bound on what is hidden is taken to be true, in thousandths.
const FOUND_FIRST: u64 = 500;

/// What is known beside the ledger.
pub(crate) struct Space {
    /// At most so many bytes of what the ledger has for live are dead, and compactions can show it.
    hidden: AtomicU64,
    /// That may be too much, so compactions are asked for.
    hides_too_much: AtomicBool,
    /// Of such bounds compactions found so much to be true lately, in thousandths.
    found: AtomicU64,
    /// Collections removed so many bytes of garbage a second.
    drain: AtomicU64,
    /// At least so many bytes are live of what tables name, and the largest record of them.
    live_min: AtomicU64,
    record_max: AtomicU64,
    /// There is no file that could be emptied.
    no_victims: AtomicBool,
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
    fn hidden_in(&self, version: &Arc<Version>, oldest: Seqno, look: impl FnOnce() -> Hidden) -> Hidden {
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

    fn note_drained(&self, bytes: u64, took: Duration) {
        let rate = (bytes as f64 / took.as_secs_f64().max(1e-3)) as u64;
        let before = self.drain.load(Ordering::Relaxed);
        self.drain.store(if before == 0 { rate } else { (before + rate) / 2 }, Ordering::Relaxed);
    }

    /// About so much of what the ledger has for live is dead.
    fn guessed(&self) -> u64 {
        let (hidden, found) = (self.hidden.load(Ordering::Relaxed), self.found.load(Ordering::Relaxed));
        (hidden as u128 * found as u128 / 1000) as u64
    }
}

/// How full the stage of pacing is: 0.5 at eight tenths of the garbage that is allowed, 0.75 at all of it.
fn fill(file_bytes: u64, live: u64, garbage_limit: GarbageLimit) -> f64 {
    let garbage = file_bytes.saturating_sub(live) as f64;
    let tenths = 10.0 * garbage / garbage_limit.of(live).max(1) as f64;
    (FILL_AT_CAP + (tenths - 10.0) * FILL_PER_TENTH).clamp(0.0, FILL_MAX)
}

impl Core {
    /// What garbage that can be removed asks of writers.
    pub fn space_stage(&self, values: &ValueFiles) -> Stage {
        let space = &self.work.space;
        let guessed = space.guessed();
        // With no file to be emptied, and nothing to uncover, it is no use to wait.
        let has_victims = !values.victims.is_empty() && !space.no_victims.load(Ordering::Relaxed);
        let is_moving = space.hides_too_much.load(Ordering::Relaxed) || has_victims;
        let live = values.live_bytes.saturating_sub(guessed);
        let fill = if is_moving { fill(values.file_bytes, live, self.garbage_limit()) } else { 0.0 };
        let drain = space.drain.load(Ordering::Relaxed) as f64;
        Stage { fill, drain, room: f64::INFINITY, left: 0.0, is_full: false }
    }

    /// Looks how much tables may hide, if that can matter; true if files of values take too much should it all be dead.
    pub fn hides_too_much(&self, view: &View, figures: &Figures<'_>) -> bool {
        let space = &self.work.space;
        let allowed = |live| live + self.garbage_limit().of(live);
        let is_possible = view.values.file_bytes > allowed(0);
        let Hidden { referenced, hidden, record_max } = match is_possible {
            true => space.hidden_in(&view.version, figures.oldest_snapshot, || figures.hidden()),
            false => Hidden::default(),
        };
        // Some of what tables hide was found without them, and is gone.
        let ReclaimedBytes { dead, saved } = view.values.away;
        let (referenced, hidden) = (referenced.saturating_sub(dead), hidden.saturating_sub(dead));
        // What has been compressed since it was referenced is as likely to be hidden as the rest.
        let stored = referenced.saturating_sub(saved);
        let hidden = (u128::from(hidden) * u128::from(stored) / u128::from(referenced.max(1))) as u64;
        let referenced = stored;
        space.hidden.store(hidden, Ordering::Relaxed);
        let live = referenced.saturating_sub(hidden);
        space.live_min.store(live, Ordering::Relaxed);
        space.record_max.store(record_max, Ordering::Relaxed);
        let is_too_much = is_possible && view.values.file_bytes > allowed(live);
        space.hides_too_much.store(is_too_much, Ordering::Relaxed);
        is_too_much
    }

    /// Files of values take more than they may if what is in the front kills what it can, and not otherwise.
    pub fn front_hides_too_much(&self, view: &View) -> bool {
        let space = &self.work.space;
        let live = space.live_min.load(Ordering::Relaxed);
        let hides = match view.front_ranges() {
            0 => view.front_entries().saturating_mul(space.record_max.load(Ordering::Relaxed)),
            _ => live,
        };
        let is_too_much = |live: u64| view.values.file_bytes > live + self.garbage_limit().of(live);
        hides >= self.settings.tuning.flush_bytes && !is_too_much(live) && is_too_much(live.saturating_sub(hides))
    }

    /// So much is hidden that it is uncovered while known garbage is removed, and not only after that.
    pub fn hides_much(&self, values: &ValueFiles) -> bool {
        let guessed = self.work.space.guessed();
        let live = values.live_bytes.saturating_sub(guessed);
        let (allowed, garbage) = (self.garbage_limit().of(live), values.file_bytes.saturating_sub(live));
        guessed > allowed / 100 * HIDDEN_PERCENT && garbage > allowed / 100 * BOTH_PERCENT
    }

    /// As [`collect_garbage`](Core::collect_garbage), and notes how much space it gave back in which time.
    pub fn collect_garbage_measured(&self, victims: &[FileId]) -> Result<()> {
        let began = now();
        let given_back = self.collect_garbage(victims)?;
        self.work.space.note_drained(given_back, now().saturating_sub(began));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_slowed_from_eight_tenths_on_and_go_as_fast_as_it_drains_at_the_cap() {
        let garbage_limit = GarbageLimit { percent: 30, bytes: 700 };
        let fills = [0, 800, 1000, 1200, 5000].map(|garbage| fill(1000 + garbage, 1000, garbage_limit));
        assert_eq!(fills, [0.0, 0.5, 0.75, 1.0, FILL_MAX]);
        // Nothing is live, and nothing is allowed.
        assert_eq!(fill(0, 0, GarbageLimit { percent: 30, bytes: 0 }), 0.0);
    }

    #[test]
    fn what_merges_find_of_what_they_might_tells_how_much_is_hidden() {
        let space = Space::default();
        space.hidden.store(1000, Ordering::Relaxed);
        assert_eq!(space.guessed(), 500);
        space.note_merge([300, 900].into_iter(), 1200);
        assert_eq!(space.guessed(), 250);
        space.note_merge([300, 900].into_iter(), 900);
        assert_eq!(space.guessed(), 625);
        // Deletes take more with them than they have themselves; a single row says nothing.
        space.note_merge([0, 900, 100].into_iter(), 100);
        assert_eq!(space.guessed(), 812);
        space.note_merge([900].into_iter(), 900);
        assert_eq!(space.guessed(), 812);
        space.nothing_to_uncover();
        assert_eq!(space.guessed(), 0);
    }
}
