//! The substitute for the module `world` in builds without the feature `testing`, which have no simulation: no thread is
//! ever a member of a world, so the compiler removes the checks.

use std::time::Duration;

/// A member of a world, which does not exist in these builds.
#[derive(Debug, Clone)]
pub(super) enum Member {}

/// What a member waits for.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "only a simulation reads which lock a thread waits for")]
pub(super) enum Wait {
    Mutex(usize),
    RwLock(usize),
    Condvar(usize),
    Sleep,
}

#[inline]
pub(super) const fn is_any_active() -> bool {
    false
}

#[inline]
pub(super) const fn current() -> Option<Member> {
    None
}

pub(super) fn wake_all(_wait: Wait) {}

pub(super) fn wake_one(_wait: Wait) {}

impl Member {
    pub(super) fn now(&self) -> Duration {
        match *self {}
    }

    pub(super) fn may_add_thread(&self) -> bool {
        match *self {}
    }

    pub(super) fn add_thread(&self, _name: &str) -> Member {
        match *self {}
    }

    pub(super) fn cancel(&self) {
        match *self {}
    }

    pub(super) fn maybe_yield(&self) {
        match *self {}
    }

    pub(super) fn wait(&self, _wait: Wait, _limit: Option<Duration>) -> bool {
        match *self {}
    }

    pub(super) fn wait_for_end(&self) {
        match *self {}
    }

    pub(super) fn run(self, _f: impl FnOnce()) {
        match self {}
    }
}
