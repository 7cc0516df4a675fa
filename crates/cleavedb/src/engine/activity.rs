//! Whether the store is busy, idle, paused or closing: one state machine, one function of transitions.
//!
//! ```text
//!                        mandatory work begins, or work ends
//!        ┌─────────────────────────┬──────────────────────────┬─────────────────────┐
//!        ▼                         │                          │                     │
//!   ┌────────┐  nothing due   ┌─────────┐    rested      ┌────────┐    no room   ┌──────┐
//!   │  Busy  ├───────────────►│  Quiet  ├───────────────►│  Idle  ├─────────────►│ Full │
//!   └────────┘                └─────────┘                └────────┘              └──────┘
//!        ▲                          idle work may run only here
//!        │ the last pause ends
//!   ┌────────┐  a pause begins                           ┌───────────┐   stop    ┌─────────┐
//!   │ Paused │◄──────────────── the four above           │  Closing  ├──────────►│ Stopped │
//!   └────────┘                                           └───────────┘           └─────────┘
//!                                                              ▲ a close begins in any of the five
//! ```
//!
//! *Mandatory* work is required for writes and space: seals, flushes, merges, compactions, value GC. *Idle* work makes
//! reads faster or the store smaller than it must be: idle compactions, value GC below the garbage at which it must begin,
//! and value reordering if it is to wait for idle time. It begins after a second without mandatory work, or at once if
//! a caller waits until all work is done. A value reordering ends early once the state is no longer `Idle`.
//!
//! The scheduler (`jobs/`) reports the changes; `work.rs` holds the state under its lock.

/// The state of background work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Mandatory work runs, or the scheduler has not checked for it since a job ended.
    #[default]
    Busy,
    /// No mandatory work runs or is due.
    Quiet,
    /// As `Quiet`, for long enough that idle work may run.
    Idle,
    /// As `Idle`, but idle work found no space. It is not tried again before mandatory work has run or a pause has ended.
    Full,
    /// A caller holds a pause: no job begins.
    Paused,
    /// A close has begun: pauses no longer hold, and the last flush may run. No idle work.
    Closing,
    /// The threads are ending.
    Stopped,
}

/// An event that may change the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActivityChange {
    /// A mandatory job begins.
    MandatoryWorkBegins,
    /// A job that may have created more work ends.
    WorkEnds,
    /// A thread that may run any job found none to begin, and none runs.
    NothingDue,
    /// No mandatory job ended within the last second, or a caller waits for all work.
    Rested,
    /// An idle job found no space.
    NoRoom,
    /// A caller pauses background work.
    PauseBegins,
    /// The last pause ends.
    PausesEnd,
    /// A close has begun.
    CloseBegins,
    /// The threads are to end.
    Stop,
}

impl Activity {
    /// The state after a change.
    pub fn after(self, change: ActivityChange) -> Activity {
        use Activity::{Busy, Closing, Full, Idle, Paused, Quiet, Stopped};
        match (self, change) {
            (Stopped, _) | (_, ActivityChange::Stop) => Stopped,
            (Closing, _) | (_, ActivityChange::CloseBegins) => Closing,
            (Paused, ActivityChange::PausesEnd) => Busy,
            (Paused, _) | (_, ActivityChange::PauseBegins) => Paused,
            (_, ActivityChange::MandatoryWorkBegins | ActivityChange::WorkEnds) => Busy,
            (Busy, ActivityChange::NothingDue) => Quiet,
            (Quiet, ActivityChange::Rested) => Idle,
            (Idle, ActivityChange::NoRoom) => Full,
            (
                state,
                ActivityChange::NothingDue
                | ActivityChange::Rested
                | ActivityChange::NoRoom
                | ActivityChange::PausesEnd,
            ) => state,
        }
    }

    /// True if jobs may begin.
    pub fn may_begin_jobs(self) -> bool {
        !matches!(self, Activity::Paused | Activity::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::Activity::{Busy, Closing, Full, Idle, Paused, Quiet, Stopped};
    use super::ActivityChange::{
        CloseBegins, MandatoryWorkBegins, NoRoom, NothingDue, PauseBegins, PausesEnd, Rested, Stop, WorkEnds,
    };
    use super::*;

    const STATES: [Activity; 7] = [Busy, Quiet, Idle, Full, Paused, Closing, Stopped];

    #[test]
    fn every_transition_is_as_in_the_diagram() {
        // For each change: the next state of Busy, Quiet, Idle, Full, Paused, Closing, Stopped.
        let table = [
            (MandatoryWorkBegins, [Busy, Busy, Busy, Busy, Paused, Closing, Stopped]),
            (WorkEnds, [Busy, Busy, Busy, Busy, Paused, Closing, Stopped]),
            (NothingDue, [Quiet, Quiet, Idle, Full, Paused, Closing, Stopped]),
            (Rested, [Busy, Idle, Idle, Full, Paused, Closing, Stopped]),
            (NoRoom, [Busy, Quiet, Full, Full, Paused, Closing, Stopped]),
            (PauseBegins, [Paused, Paused, Paused, Paused, Paused, Closing, Stopped]),
            (PausesEnd, [Busy, Quiet, Idle, Full, Busy, Closing, Stopped]),
            (CloseBegins, [Closing, Closing, Closing, Closing, Closing, Closing, Stopped]),
            (Stop, [Stopped; 7]),
        ];
        for (change, next) in table {
            assert_eq!(STATES.map(|state| state.after(change)), next, "{change:?}");
        }
    }

    #[test]
    fn jobs_begin_unless_work_is_paused_or_stopped() {
        assert_eq!(STATES.map(Activity::may_begin_jobs), [true, true, true, true, false, true, false]);
    }
}
