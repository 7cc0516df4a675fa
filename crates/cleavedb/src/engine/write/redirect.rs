//! The redirect: while background work is behind, writers go around it (KVAccel, IPDPS 2025; decision record 055). The log goes on
//! beyond what the front may ordinarily leave unflushed, on whichever tier has bandwidth to spare, and flushes wait for HL0 in
//! their place. What was written lies in logs as ever, and flushes catch up; logs that were born on a KV device move to the tiers
//! later (`jobs/roll_back.rs`).
//!
//! The detector is fed by each review of the pace.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::DirId;
use crate::bypass::birthplace::{Birthplace, FRONT_FULL_FROM, Tiers, birthplace};
use crate::bypass::detector::{Fills, SLOWED_FROM};
use crate::engine::bypass::DevicesThen;
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::pacer::{self, Pace, Passage, Stage, fill_together, pace};
use crate::engine::tuning::settings::Bypass;
use crate::engine::view::View;
use crate::engine::write::pacing::Flushed;
use crate::sched::clock::now;

const _: () = assert!(SLOWED_FROM == pacer::SLOW_FROM, "the detector and the pace agree on when writers are slowed");
const _: () = assert!(FRONT_FULL_FROM == pacer::EVEN_AT, "from there on writers are no faster than flushes");

/// The levels below HL0 may hold this many times the target of HL1 beyond their targets, until their debt counts as full.
const DEBT_TARGETS: u64 = 4;
/// Unflushed logs of a redirect take at most this part of the room of the file system.
const ROOM_PART: u64 = 8;

/// How much unflushed logs may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogLimits {
    /// Without values that stay in their logs.
    pub carried: u64,
    /// With them.
    pub all: u64,
}

impl Core {
    /// What unflushed logs may hold without a redirect.
    pub(super) fn log_limits(&self) -> LogLimits {
        let tuning = &self.settings.tuning;
        LogLimits { carried: tuning.logs_bytes_max, all: tuning.replay_bytes_max }
    }

    /// What they may hold during a redirect.
    pub(super) fn redirect_limits(&self) -> LogLimits {
        let LogLimits { carried, all } = self.log_limits();
        let room = self.work.space.garbage_room.load(Ordering::Relaxed) / ROOM_PART;
        let device = match self.settings.bypass {
            Bypass::Device(_) => self.kv_device.as_ref().map(|device| device.usage().capacity_bytes),
            _ => None,
        };
        let more = self.settings.tuning.redirect_bytes_max.min(room).min(device.unwrap_or(u64::MAX));
        LogLimits { carried: carried.saturating_add(more), all: all.saturating_add(more) }
    }

    /// Feeds the detector with stages as they are without a redirect; true if writers go around.
    pub(super) fn watch_pressure(&self, at: Duration, view: &View, front: &Stage, hl0: &Stage, fast: &Stage) -> bool {
        if self.settings.bypass == Bypass::Off {
            return false;
        }
        let mut redirects = self.bypass.state.lock();
        if !redirects.detector.is_due(at) {
            return redirects.detector.redirects;
        }
        let full = |stage: &Stage| if stage.is_full { stage.fill.max(1.0) } else { stage.fill };
        let fills = Fills { front: full(front), hl0: full(hl0), debt: self.debt_fill(view), fast: fast.fill };
        let did = redirects.detector.redirects;
        redirects.detector = redirects.detector.after(at, fills);
        let does = redirects.detector.redirects;
        let bytes = self.counters.user_bytes.load(Ordering::Relaxed);
        if did == does {
            return does;
        }
        self.bypass.set_redirects(does);
        if does {
            redirects.count += 1;
            (redirects.begun, redirects.counted) = (Some((at, bytes)), (at, bytes));
            self.events.raise(Event::RedirectBegun);
        } else if let Some((begun, before)) = redirects.begun.take() {
            let (bytes, duration) = (bytes.saturating_sub(before), at.saturating_sub(begun));
            self.events.raise(Event::RedirectEnded { bytes, duration });
        }
        does
    }

    /// Counts what was written during a redirect, and what its writers would have waited with the pace of these stages.
    pub(super) fn count_redirected(&self, at: Duration, stages: &[Stage]) {
        let rate = match pace(stages) {
            Pace::Free => None,
            Pace::Limited(rate) => Some(rate as u64),
            Pace::Stopped => Some(0),
        };
        let bytes = self.counters.user_bytes.load(Ordering::Relaxed);
        self.bypass.state.lock().count_since(at, bytes, rate);
    }

    /// The front during a redirect, together with HL0, which its flushes wait for: writers go at the rate at which both are emptied
    /// in the end, and not at that of flushes, which follow a compaction of HL0 in one go and then wait for the next. Demotion is not
    /// waited for: logs are born elsewhere. `rates` are the drain rates of flushes and of HL0.
    pub(super) fn redirected_stage(
        &self,
        at: Duration,
        before: Option<Passage>,
        view: &View,
        rates: (f64, f64),
    ) -> (Stage, Passage) {
        let limits = self.redirect_limits();
        let Flushed { shrunk, grown } = self.flushed();
        let in_hl0 = view.version.levels()[0].bytes().saturating_sub(self.pacer.hl0.current());
        let so_far = (self.pacer.flush.in_all(), in_hl0);
        let passage = match before {
            Some(before) => before.after(at, so_far, shrunk),
            // At first the rate is that of flushes, or of HL0 if that is lower.
            None => Passage::begin(at, so_far, if rates.1 > 0.0 { rates.0.min(rates.1) } else { rates.0 }),
        };
        let front = self.front_stage(view, passage.rate, limits);
        // The same all the time: with larger flushes the fill must not change at once.
        let hl0_limit = self.settings.tuning.hl0_stop_tables as f64 * self.settings.tuning.flush_bytes as f64;
        let fill =
            fill_together((front.fill, limits.carried as f64), (in_hl0 as f64 * shrunk / grown / hl0_limit, hl0_limit));
        (Stage { fill, ..front }, passage)
    }

    /// What the levels below HL0 hold beyond their targets, of what counts as full.
    fn debt_fill(&self, view: &View) -> f64 {
        let targets = self.level_targets();
        let levels = view.version.levels().iter().enumerate().skip(1);
        let debt: u64 = levels.map(|(number, level)| level.bytes().saturating_sub(targets.bytes(number))).sum();
        debt as f64 / targets.base_bytes.saturating_mul(DEBT_TARGETS).max(1) as f64
    }

    /// The device on which logs are born during redirects.
    fn birth_device(&self) -> Option<DirId> {
        self.dirs.device().filter(|_| matches!(self.settings.bypass, Bypass::Device(_)))
    }

    /// The place for the next log, of which these sizes are possible.
    pub(super) fn birthplace(&self, sizes: &[u64]) -> Birthplace {
        if !self.bypass.redirects() {
            return Birthplace::Fast;
        }
        let least = sizes.iter().min().copied().unwrap_or_default();
        let device_has_room =
            self.birth_device().is_some_and(|dir| self.storage.free_bytes(self.dirs.of(dir)) >= least);
        let front_fill = self.front_memory_fill(&self.published.view());
        let fast_wants_room = false;
        let known =
            Tiers { redirects: true, device_has_room, front_fill, fast_wants_room, fast_busy: None, slow_busy: None };
        if known.use_device() || !self.dirs.are_apart() {
            return birthplace(&known);
        }
        let at = now();
        let usage = [self.dirs.fast(), self.dirs.slow()].map(|dir| self.storage.device_usage(dir));
        let before = self.bypass.devices.lock().replace(DevicesThen { at, usage });
        let busy = |device: usize| {
            let before = before.as_ref()?;
            let (now, then) = (usage[device].as_ref()?, before.usage[device].as_ref()?);
            let seconds = at.saturating_sub(before.at).as_secs_f64().max(1e-6);
            Some((now.busy_time.saturating_sub(then.busy_time).as_secs_f64() / seconds).min(1.0))
        };
        let fast_wants_room = self.fast_fill().wants_room();
        birthplace(&Tiers { fast_wants_room, fast_busy: busy(0), slow_busy: busy(1), ..known })
    }
}
