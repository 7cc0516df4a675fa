//! The garbage limit of separated values (decision record 021): how much garbage there is, and how compactions and
//! writers react as it approaches the limit.
//!
//! The ledger knows part of the garbage; the rest is hidden until compactions find it, and has an upper bound
//! (`levels/hidden.rs`). The bound decides whether compactions are requested. An estimate paces writers: tables know how many
//! of their versions cover older ones; for tables from before the open it is the bound times the share of flushed keys that
//! tables had, of which each flush takes a sample (decision record 044). Writers are slowed from 80% of the limit on.
//! At the limit they write as fast as value GC removes garbage, and more slowly beyond. They are never stopped, and not
//! slowed while no garbage can be removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::core::Core;
use crate::engine::current_survey::Judgement;
use crate::engine::gc_pace::{GarbageDebt, UserTotals};
use crate::engine::pacer::{EVEN_AT, Passage, SLOW_FROM, Stage};
use crate::engine::view::View;
use crate::format::value_state::ReclaimedBytes;
use crate::levels::hidden::Hidden;
use crate::levels::picker::Figures;
use crate::values::candidate::{Choice, GarbageLimit};
use crate::values::files::ValueFiles;
use crate::values::placement::range::JOB_PART;

/// The fill of the pacing stage at percentages of the garbage limit, linear in between. Around the limit it grows little: garbage goes
/// up while compactions uncover what flushes have hidden, and down while value GC removes it, by a tenth or so each, and writers
/// go on at an even rate meanwhile. A third beyond it they go at four tenths of the drain rate. From there on the rate was not
/// what it seemed; they are slowed further, but never stopped.
const FILLS: [(f64, f64); 7] =
    [(40.0, 0.0), (80.0, SLOW_FROM), (90.0, 0.7), (100.0, EVEN_AT), (115.0, 0.82), (130.0, 0.87), (195.0, 1.0)];
/// With its pauses value GC counts as no slower than this part of its rate while it works: a compaction may take minutes.
const PAUSED_PART: f64 = 4.0;

/// Hidden garbage is uncovered beside the removal of known garbage if its estimate exceeds this share of the limit, in
/// percent...
const HIDDEN_PERCENT: u64 = 16;
/// ...and hidden and known garbage together exceed this share.
const BOTH_PERCENT: u64 = 60;
/// With so much garbage, if all that may be hidden is, a compaction will be requested soon, in percent of the limit.
const SOON_PERCENT: u64 = 85;

/// An index takes at most this part of the live bytes; tables that take more also hold values.
const INDEX_PART: u64 = 8;

/// Logs that are not flushed hold at most this part of all that is stored...
const UNFLUSHED_PART: u64 = 32;
/// ...and this part of the room for garbage, if that is at least so much.
const UNFLUSHED_ROOM_PART: u64 = 8;
const UNFLUSHED_ROOM_MIN: u64 = 4 << 20;
/// ...and this part of the budget of the fast tier.
const UNFLUSHED_FAST_PART: u64 = 4;

/// The fill of the pacing stage.
fn fill(file_bytes: u64, live: u64, garbage_limit: GarbageLimit) -> f64 {
    let garbage = file_bytes.saturating_sub(live) as f64;
    let percent = 100.0 * garbage / garbage_limit.of(live).max(1) as f64;
    let above = FILLS.partition_point(|(from, _)| *from <= percent);
    match (above.checked_sub(1).map(|below| FILLS[below]), FILLS.get(above)) {
        (None, _) => 0.0,
        (Some((from, fill)), Some((to, next))) => fill + (next - fill) * (percent - from) / (to - from),
        (Some((_, fill)), None) => fill,
    }
}

/// The drain rate of garbage, of which collections remove `working` bytes per second, and `removal` with pauses.
fn drain_rate(removal: Option<Passage>, working: f64) -> f64 {
    removal.map_or(working, |removal| removal.rate.max(working / PAUSED_PART))
}

impl Core {
    /// How much garbage may lie in files of values.
    pub fn garbage_limit(&self) -> GarbageLimit {
        let tuning = &self.settings.tuning;
        let room = self.work.space.garbage_room.load(Ordering::Relaxed);
        let (percent, bytes, overhead) = (tuning.garbage_percent, tuning.garbage_bytes, self.overhead_bytes());
        GarbageLimit { percent, bytes, overhead, room }
    }

    /// Updates the room for garbage: what the file system has free, and what garbage takes now.
    pub fn review_garbage_room(&self, values: &ValueFiles, live: u64) {
        let garbage = self.space_taken(values).saturating_sub(live);
        let room = self.storage.free_bytes(self.dirs.slow()).saturating_add(garbage);
        self.work.space.garbage_room.store(room, Ordering::Relaxed);
    }

    /// Value GC is due with more known garbage than this, while the store is busy or idle.
    pub fn gc_begins_at(&self, live: u64, idle: bool) -> u64 {
        match idle {
            true if self.settings.tuning.collects_when_idle => self.garbage_limit().rests_at(live),
            _ => self.garbage_limit().begins_at(live),
        }
    }

    /// Logs are flushed once they hold more than this, because the garbage in them is not known: a part of all that is
    /// stored, or the least size in the tuning if that is more, but no more than there is room for.
    pub fn unflushed_bytes_max(&self) -> u64 {
        let part = (self.stored_bytes() / UNFLUSHED_PART).max(self.settings.tuning.unflushed_bytes_min);
        // On a fast tier most logs are flushed before they must leave it, so that it is known which of them are mostly dead.
        let fast = (self.fast.budget() / UNFLUSHED_FAST_PART) as f64 * self.scheduler.flush_growth();
        let part = part.min(fast as u64);
        let room = self.work.space.garbage_room.load(Ordering::Relaxed) / UNFLUSHED_ROOM_PART;
        // The active log counts as a whole, however little in it is not flushed.
        let least = UNFLUSHED_ROOM_MIN.max(2 * self.settings.tuning.log_bytes_for(self.stored_bytes()));
        part.min(room.max(least))
    }

    /// Bytes that are stored beside live values and known garbage: tables, as far as they are an index and do not hold the
    /// values; logs that are not flushed, because most of what they hold replaces older values; the space that the active
    /// log and the spare log were given; what jobs write before they remove anything; the ring and the reserve.
    fn overhead_bytes(&self) -> u64 {
        let view = self.published.view();
        let tables: u64 = view.version.levels().iter().map(|level| level.bytes()).sum();
        let tables = tables.min(view.values.figures().live_bytes / INDEX_PART);
        let unflushed: u64 = view.logs.values().map(|log| log.end()).sum();
        let in_advance = 2 * self.settings.tuning.log_bytes_for(self.stored_bytes());
        // Value GC copies before anything goes.
        let copies = view.values.figures().live_bytes / JOB_PART;
        tables + unflushed + in_advance + copies + self.logs.ring_bytes() + self.reserve.bytes()
    }

    /// The value files to collect next, if value GC is due while the store is busy, or idle. O(1) except for the first call
    /// after an edit.
    pub fn victims_of(&self, values: &Arc<ValueFiles>, idle: bool) -> Option<Arc<Choice>> {
        self.due_choice(self.current_survey.judge(&*self.placement, values), idle)
    }

    fn due_choice(&self, judgement: Judgement, idle: bool) -> Option<Arc<Choice>> {
        let is_due = self.is_gc_due(&judgement, idle) && !judgement.choice.files.is_empty();
        is_due.then_some(judgement.choice)
    }

    /// Known garbage is near its limit; or it is with what is likely to be hidden, and there are files that free much for what
    /// they cost. Else writers would wait for compactions alone, and then for value GC alone.
    pub fn is_gc_due(&self, judgement: &Judgement, idle: bool) -> bool {
        let (known, begins_at) = (judgement.garbage(), self.gc_begins_at(judgement.live_bytes, idle));
        let likely = known.saturating_add(if idle { 0 } else { self.work.space.guessed() });
        known > begins_at || likely > begins_at && !judgement.choice.frees_little()
    }

    /// True if known garbage exceeds the limit.
    pub fn exceeds_limit(&self, values: &Arc<ValueFiles>) -> bool {
        self.space_taken(values) > self.garbage_limit().file_bytes(self.live_bytes(values))
    }

    /// Live bytes of separated values, as far as is known.
    pub fn live_bytes(&self, values: &Arc<ValueFiles>) -> u64 {
        self.current_survey.judge(&*self.placement, values).live_bytes
    }

    /// Bytes of separated values on storage, in value files and in dead extents that await deletion; without garbage in
    /// files that cannot be read, for which nobody waits.
    fn space_taken(&self, values: &ValueFiles) -> u64 {
        let files = values.figures().file_bytes.saturating_sub(self.work.space.unreadable.load(Ordering::Relaxed));
        files.saturating_add(self.pending_deletions.pending_bytes())
    }

    /// Bytes of everything that is stored: tables, delta segments, value files, and logs.
    pub fn stored_bytes(&self) -> u64 {
        let view = self.published.view();
        let tables: u64 = view.version.levels().iter().map(|level| level.bytes()).sum();
        let logs: u64 = view.logs.values().map(|log| log.end()).sum();
        let segments: u64 = view.version.segments().iter().map(|segment| segment.meta().size).sum();
        let figures = view.values.figures();
        tables + segments + logs + figures.file_bytes + figures.indexed_bytes
    }

    /// The pacing stage of garbage. Once writers wait, they go by the rate at which garbage was removed over the last twenty seconds, with
    /// pauses: value GC is fast after a compaction has uncovered garbage, and waits for the next one later. `waits` says that
    /// writers have waited lately; as long as they do not, value GC removes no more than they write, so its rate is not what it can do.
    pub(super) fn space_stage(
        &self,
        at: Duration,
        before: Option<Passage>,
        waits: bool,
        values: &Arc<ValueFiles>,
    ) -> (Stage, Option<Passage>) {
        let (fill, space) = (self.space_fill(values), &self.work.space);
        let working = space.drain.load(Ordering::Relaxed) as f64;
        let passage = (waits && fill >= SLOW_FROM).then(|| {
            let removed = (space.removed.load(Ordering::Relaxed), 0);
            before.map_or_else(|| Passage::begin(at, removed, working), |before| before.after(at, removed, 1.0))
        });
        let drain = drain_rate(passage, working);
        (Stage { fill, drain, room: f64::INFINITY, left: 0.0, is_full: false }, passage)
    }

    /// The fill of the pacing stage of garbage; 0 while no garbage can be removed.
    fn space_fill(&self, values: &Arc<ValueFiles>) -> f64 {
        let space = &self.work.space;
        let judgement = self.current_survey.judge(&*self.placement, values);
        self.review_garbage_room(values, judgement.live_bytes);
        let live = judgement.live_bytes.saturating_sub(space.guessed());
        // With no file to be emptied, and nothing to uncover, it is no use to wait.
        let has_victims = self.due_choice(judgement, false).is_some() && !space.no_victims.load(Ordering::Relaxed);
        let (limit, taken) = (self.garbage_limit(), self.space_taken(values));
        // A compaction will be requested soon, and will uncover much.
        let live_min = space.live_min.load(Ordering::Relaxed);
        let is_near = taken > live_min.saturating_add(limit.of(live_min) / 100 * SOON_PERCENT);
        let will_uncover = is_near && space.guessed() > limit.of(live) / 100 * HIDDEN_PERCENT;
        let is_moving = space.hides_too_much.load(Ordering::Relaxed) || will_uncover || has_victims;
        if is_moving { fill(taken, live, limit) } else { 0.0 }
    }

    /// Garbage is so near its limit that writers are slowed down.
    pub fn garbage_slows_writers(&self, values: &Arc<ValueFiles>) -> bool {
        self.space_fill(values) >= SLOW_FROM
    }

    /// The garbage and its limit, with the estimate of hidden garbage, for the pace of value GC.
    pub fn garbage_debt(&self, values: &Arc<ValueFiles>) -> GarbageDebt {
        let space = &self.work.space;
        let live = self.live_bytes(values).saturating_sub(space.guessed());
        let (garbage, limit) = (self.space_taken(values).saturating_sub(live), self.garbage_limit().of(live));
        GarbageDebt { garbage, limit, drain: space.drain.load(Ordering::Relaxed) }
    }

    /// Totals of users' reads and writes, for the pace of value GC.
    pub fn user_totals(&self) -> UserTotals {
        let (written, waited) = (&self.counters.user_bytes, &self.counters.paced);
        UserTotals {
            written: written.load(Ordering::Relaxed),
            waited: waited.load(Ordering::Relaxed),
            reads_seen: self.work.space.reads_seen(),
        }
    }

    /// Updates the bound on hidden garbage, if it can matter. True if value files would exceed the garbage limit if all
    /// of it were dead.
    pub fn hides_too_much(&self, view: &View, figures: &Figures<'_>) -> bool {
        let space = &self.work.space;
        let allowed = |live| self.garbage_limit().file_bytes(live);
        let taken = self.space_taken(&view.values);
        let is_possible = taken > allowed(0);
        let Hidden { referenced, hidden, likely, unknown, record_max } = match is_possible {
            true => space.hidden_in(&view.version, figures.oldest_snapshot, || figures.hidden()),
            false => Hidden::default(),
        };
        // Some of what tables hide was found without them, and is gone.
        let ReclaimedBytes { dead, saved } = view.values.figures().reclaimed;
        let left = referenced.saturating_sub(dead);
        // Records compressed since they were referenced are taken to be hidden as often as the others.
        let stored = left.saturating_sub(saved);
        let of_stored = |hidden: u64, dead: u64| {
            (u128::from(hidden.saturating_sub(dead)) * u128::from(stored) / u128::from(left.max(1))) as u64
        };
        space.hidden_likely.store(of_stored(likely, dead), Ordering::Relaxed);
        space.hidden_unknown.store(of_stored(unknown, dead.saturating_sub(likely)), Ordering::Relaxed);
        let live = stored.saturating_sub(of_stored(hidden, dead));
        space.live_min.store(live, Ordering::Relaxed);
        space.record_max.store(record_max, Ordering::Relaxed);
        let is_too_much = is_possible && taken > allowed(live);
        space.hides_too_much.store(is_too_much, Ordering::Relaxed);
        is_too_much
    }

    /// Estimates hidden garbage anew after a change of tables: a flush hides more, and a compaction makes some of it known, which
    /// would slow writers down if it counted twice. So a compaction calls this before anything else that follows its edit.
    pub fn review_hidden(&self) {
        let _reviewing = self.work.space.reviewing.lock();
        let (view, none) = (self.published.view(), BTreeSet::new());
        let figures = Figures {
            levels: view.version.figures(&|_| false),
            targets: self.level_targets(),
            dropped: &[],
            running: &[],
            oldest_snapshot: self.snapshots.oldest(&self.published),
            stale: &none,
            stale_when_idle: &none,
            uncovers: false,
            when_idle: false,
        };
        self.hides_too_much(&view, &figures);
    }

    /// True if value files exceed the garbage limit under the assumption that the front makes as many records dead as
    /// it can, and do not exceed it otherwise.
    pub fn front_hides_too_much(&self, view: &View) -> bool {
        let space = &self.work.space;
        let live = space.live_min.load(Ordering::Relaxed);
        let hides = match view.front_ranges() {
            0 => view.front_entries().saturating_mul(space.record_max.load(Ordering::Relaxed)),
            _ => live,
        };
        let taken = self.space_taken(&view.values);
        let is_too_much = |live: u64| taken > self.garbage_limit().file_bytes(live);
        hides >= self.settings.tuning.flush_bytes && !is_too_much(live) && is_too_much(live.saturating_sub(hides))
    }

    /// True if so much garbage is hidden that compactions uncover it while value GC removes known garbage, and not only
    /// afterwards.
    pub fn hides_much(&self, values: &Arc<ValueFiles>) -> bool {
        let guessed = self.work.space.guessed();
        let live = self.live_bytes(values).saturating_sub(guessed);
        let (allowed, garbage) = (self.garbage_limit().of(live), self.space_taken(values).saturating_sub(live));
        guessed > allowed / 100 * HIDDEN_PERCENT && garbage > allowed / 100 * BOTH_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::pacer::{Pace, pace};
    use crate::engine::space::Space;

    #[test]
    fn writers_are_slowed_from_80_percent_of_the_garbage_limit_and_go_at_the_drain_rate_at_the_limit() {
        let garbage_limit = GarbageLimit { percent: 30, bytes: 700, overhead: 0, room: u64::MAX };
        let fills = [0, 600, 800, 850, 1000, 1300, 1950, 5000].map(|garbage| fill(1000 + garbage, 1000, garbage_limit));
        assert_eq!(fills, [0.0, 0.25, SLOW_FROM, 0.6, EVEN_AT, 0.87, 1.0, 1.0]);
        // A twentieth more or less changes the rate by a fifth at most.
        let rates = [950, 1000, 1050].map(|garbage| {
            let fill = fill(1000 + garbage, 1000, garbage_limit);
            match pace(&[Stage { fill, drain: 1e8, room: f64::INFINITY, left: 0.0, is_full: false }]) {
                Pace::Limited(rate) => rate / 1e8,
                Pace::Free | Pace::Stopped => panic!("writers are slowed near the limit"),
            }
        });
        assert!(rates[0] < 1.25 && rates[1] == 1.0 && rates[2] > 0.8, "{rates:?}");
        // No live bytes, and a limit of zero.
        assert_eq!(fill(0, 0, GarbageLimit { percent: 30, bytes: 0, overhead: 0, room: u64::MAX }), 0.0);
    }

    #[test]
    fn garbage_drains_at_the_rate_with_pauses_but_no_slower_than_a_quarter_of_that_of_collections() {
        let at = Duration::from_secs;
        let begun = Passage::begin(at(0), (0, 0), 80e6);
        assert_eq!([drain_rate(None, 80e6), drain_rate(Some(begun), 80e6)], [80e6; 2]);
        // Half of the time.
        let (halved, _) = (1..=60).fold((begun, 0), |(removal, removed), second| {
            let removed = removed + if second % 2 == 0 { 80_000_000 } else { 0 };
            (removal.after(at(second), (removed, 0), 1.0), removed)
        });
        let rate = drain_rate(Some(halved), 80e6);
        assert!((38e6..46e6).contains(&rate), "{rate}");
        // A minute without any.
        let paused = halved.after(at(120), (30 * 80_000_000, 0), 1.0);
        assert_eq!(drain_rate(Some(paused), 80e6), 20e6);
    }

    #[test]
    fn the_rate_of_collections_beside_each_other_is_that_of_both() {
        let space = Space::default();
        let at = |ms| Duration::from_millis(ms);
        let rate = || (space.drain.load(Ordering::Relaxed) + 500) / 1000;
        space.note_drained(100_000, at(1000), at(2000));
        assert_eq!(rate(), 100);
        // Two that end in turn, each of which takes two seconds.
        for second in 3..20 {
            space.note_drained(100_000, at((second - 2) * 1000), at(second * 1000));
            assert_eq!(rate(), 100);
        }
        // One alone does half as much; what was there before counts less and less.
        for second in (21..41).step_by(2) {
            space.note_drained(100_000, at((second - 2) * 1000), at(second * 1000));
        }
        assert_eq!(rate(), 50);
    }

    #[test]
    fn the_estimate_of_hidden_garbage_follows_the_share_of_flushed_keys_that_tables_had() {
        let space = Space::default();
        space.hidden_unknown.store(1000, Ordering::Relaxed);
        assert_eq!(space.guessed(), 500);
        space.note_sample(0, 64);
        assert_eq!(space.guessed(), 250);
        space.note_sample(64, 64);
        assert_eq!(space.guessed(), 625);
        space.note_sample(0, 0);
        assert_eq!(space.guessed(), 625);
        space.hidden_likely.store(30, Ordering::Relaxed);
        assert_eq!(space.guessed(), 655);
        space.nothing_to_uncover();
        assert_eq!(space.guessed(), 0);
    }
}
