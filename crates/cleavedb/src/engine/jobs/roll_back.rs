//! Rollback (KVAccel): logs that were born on the KV device during redirects move to the tiers, whole, as other files do
//! (`move_files.rs`; decision record 057). `bypass/rollback.rs` decides when.

use crate::base::{DirId, FileKey, Result};
use crate::bypass::rollback::{Phase, Rollback, rollback_is_due};
use crate::engine::activity::Activity;
use crate::engine::claims::Sole;
use crate::engine::core::Core;
use crate::engine::jobs::move_files::{MoveFiles, Purpose};
use crate::engine::shortages::Need;
use crate::engine::tuning::settings::Bypass;
use crate::engine::tuning::tiers::home_of;
use crate::engine::view::View;
use crate::engine::work::WorkState;
use crate::sched::clock::now;

/// One job moves a log, or small ones together, up to about this many bytes: each soon makes room on the device, and a redirect that begins
/// meanwhile waits for no more.
const JOB_BYTES: u64 = 64 << 20;

/// The next logs to move off the device.
pub(super) fn rollback_due(core: &Core, state: &WorkState) -> Option<MoveFiles> {
    let device = core.dirs.device()?;
    let activity = state.activity();
    if activity == Activity::Full || core.bypass.rollback_waits(now()) || !core.device_holds_logs() {
        return None;
    }
    let usage = core.kv_device.as_ref().map(|device| device.usage()).unwrap_or_default();
    let phase = Phase {
        rollback: core.rollback(),
        redirects: core.bypass.redirects(),
        is_idle: activity == Activity::Idle,
        is_closing: activity == Activity::Closing,
        device_fill: usage.used_bytes as f64 / usage.capacity_bytes.max(1) as f64,
    };
    if !rollback_is_due(&phase) {
        return None;
    }
    let view = core.published.view();
    let slow = core.dirs.slow_id();
    let files = core.files_in(&view, device).into_iter().map(|file| (file, home_of(file, slow))).collect();
    core.choose_moves(state, &view, files, JOB_BYTES.min(core.settings.tuning.log_bytes), Purpose::RollBack)
}

impl Core {
    /// When logs leave the device. One that was declared without being the bypass gives them back at once.
    pub fn rollback(&self) -> Rollback {
        match self.settings.bypass {
            Bypass::Device(rollback) => rollback,
            _ => Rollback::Eager,
        }
    }

    /// The logs in a directory, oldest first. O(files).
    pub fn files_in(&self, view: &View, dir: DirId) -> Vec<FileKey> {
        let logs = view.logs.values().map(|log| log.key());
        let values = view.values.stored.values().map(|stored| stored.key());
        let mut files: Vec<FileKey> = logs.chain(values).filter(|file| file.dir == dir).collect();
        files.sort_by_key(|file| file.id);
        files.dedup();
        files
    }

    /// There are logs on the device. O(files).
    pub fn device_holds_logs(&self) -> bool {
        self.dirs.device().is_some_and(|device| !self.files_in(&self.published.view(), device).is_empty())
    }

    /// Moves all logs off the device, as far as the tiers have room for them; what has none stays, and the next open goes on. The
    /// database is being closed.
    pub fn roll_back_at_close(&self) -> Result<()> {
        if !self.device_holds_logs() {
            return Ok(());
        }
        self.check_poison()?;
        self.sync()?;
        {
            // The log that was written last moves too.
            let mut commit = self.commit.lock();
            let ended = commit.writer.as_mut().map(|writer| writer.end()).transpose();
            commit.unsynced.extend(self.guarded(ended)?.flatten());
            self.logs.inner.lock().newest_taken = Default::default();
        }
        let mut state = self.work.lock();
        let since = state.begun();
        state.shortages.try_now(Need::Move);
        self.bypass.may_roll_back();
        self.work.notify_changed();
        while self.rollback_goes_on(&state) {
            self.check_poison()?;
            if state.is_stopped() || state.shortages.check(Some(Need::Move), since).is_err() {
                break;
            }
            self.work.wait_for_progress(&mut state);
        }
        Ok(())
    }

    fn rollback_goes_on(&self, state: &WorkState) -> bool {
        state.has(Sole::Moves) || rollback_due(self, state).is_some()
    }
}
