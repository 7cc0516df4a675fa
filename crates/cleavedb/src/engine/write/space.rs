//! The cap on the space of values apart from their keys: how much garbage there may be (decision record 021), how much there
//! is, and what is done as it comes near.
//!
//! Part of the garbage is known from the ledger; part is hidden until compactions meet it, and bounded from above
//! (`levels/hidden.rs`). By the bound, compactions are asked for; by what compactions have found of such bounds lately, it
//! is guessed how much is there, and writers are paced: from nine tenths of the cap on, as fast as garbage is removed at
//! the cap, and slower beyond. They are never stopped, and go on as they like where nothing can be removed.

use std::sync::atomic::Ordering;

use crate::engine::core::Core;
use crate::engine::pacer::Stage;
use crate::engine::view::View;
use crate::format::value_state::ReclaimedBytes;
use crate::levels::hidden::Hidden;
use crate::levels::picker::Figures;
use crate::values::candidate::GarbageLimit;
use crate::values::files::ValueFiles;

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
/// How full the stage of pacing is: 0.5 at eight tenths of the garbage that is allowed, 0.75 at all of it.
fn fill(file_bytes: u64, live: u64, garbage_limit: GarbageLimit) -> f64 {
    let garbage = file_bytes.saturating_sub(live) as f64;
    let tenths = 10.0 * garbage / garbage_limit.of(live).max(1) as f64;
    (FILL_AT_CAP + (tenths - 10.0) * FILL_PER_TENTH).clamp(0.0, FILL_MAX)
}

impl Core {
    /// Bytes that values take: those of files, and of dead extents whose space could not be given back yet.
    fn space_taken(&self, values: &ValueFiles) -> u64 {
        values.file_bytes.saturating_add(self.pending_deletions.pending_bytes())
    }

    /// Bytes of everything that is stored: tables, files of values, and what is in logs.
    pub fn stored_bytes(&self) -> u64 {
        let view = self.published.view();
        let tables: u64 = view.version.levels().iter().map(|level| level.bytes()).sum();
        let logs: u64 = view.logs.values().map(|log| log.end()).sum();
        tables + logs + view.values.candidates().iter().map(|file| file.bytes).sum::<u64>()
    }

    /// What garbage that can be removed asks of writers.
    pub fn space_stage(&self, values: &ValueFiles) -> Stage {
        let space = &self.work.space;
        let guessed = space.guessed();
        // With no file to be emptied, and nothing to uncover, it is no use to wait.
        let has_victims = !values.victims.is_empty() && !space.no_victims.load(Ordering::Relaxed);
        let is_moving = space.hides_too_much.load(Ordering::Relaxed) || has_victims;
        let live = values.live_bytes.saturating_sub(guessed);
        let fill = if is_moving { fill(self.space_taken(values), live, self.garbage_limit()) } else { 0.0 };
        let drain = space.drain.load(Ordering::Relaxed) as f64;
        Stage { fill, drain, room: f64::INFINITY, left: 0.0, is_full: false }
    }

    /// Looks how much tables may hide, if that can matter; true if files of values take too much should it all be dead.
    pub fn hides_too_much(&self, view: &View, figures: &Figures<'_>) -> bool {
        let space = &self.work.space;
        let allowed = |live| live + self.garbage_limit().of(live);
        let taken = self.space_taken(&view.values);
        let is_possible = taken > allowed(0);
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
        let is_too_much = is_possible && taken > allowed(live);
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
        let taken = self.space_taken(&view.values);
        let is_too_much = |live: u64| taken > live + self.garbage_limit().of(live);
        hides >= self.settings.tuning.flush_bytes && !is_too_much(live) && is_too_much(live.saturating_sub(hides))
    }

    /// So much is hidden that it is uncovered while known garbage is removed, and not only after that.
    pub fn hides_much(&self, values: &ValueFiles) -> bool {
        let guessed = self.work.space.guessed();
        let live = values.live_bytes.saturating_sub(guessed);
        let (allowed, garbage) = (self.garbage_limit().of(live), self.space_taken(values).saturating_sub(live));
        guessed > allowed / 100 * HIDDEN_PERCENT && garbage > allowed / 100 * BOTH_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::space::Space;

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
