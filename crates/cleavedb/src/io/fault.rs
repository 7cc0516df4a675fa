//! Faults of the simulated disk: which of the coming operations fail, and how. Set with
//! [`SimDisk::set_faults`](super::sim::SimDisk::set_faults); the disk asks before each operation.

use crate::sched::random::Random;

/// What goes wrong from now on. The default is nothing. Failures are input/output errors, except for missing space.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// After so many more writes (and allocations and truncations) that work, one fails. Part of it may be on the disk.
    pub fail_write_after: Option<u64>,
    /// After so many more syncs of files or directories that work, one fails. What was to be synced counts as clean
    /// from then on, as in Linux: no later sync writes it, and any part of it may be missing after a power loss.
    pub fail_sync_after: Option<u64>,
    /// After so many more creations, renames and removals that work, one fails, without effect.
    pub fail_directory_after: Option<u64>,
    /// Each read fails with this chance, and works when tried again.
    pub fail_read_one_in: Option<u32>,
    /// Each creation, opening for reading and sync of a directory finds no file descriptor left with this chance, has no
    /// effect, and works when tried again.
    pub no_descriptor_one_in: Option<u32>,
    /// Files can grow by so many bytes together, then there is no space. Freed space does not come back until the
    /// faults are cleared; [`SimDisk::set_capacity`](super::sim::SimDisk::set_capacity) models a full disk fully.
    pub no_space_after_bytes: Option<u64>,
    /// A write, sync or directory operation that has failed once fails always. Otherwise the disk works again.
    pub lasting: bool,
    /// Decides what chance decides.
    pub seed: u64,
}

/// A plan that is being carried out.
#[derive(Debug, Clone)]
pub(super) struct FaultState {
    plan: Faults,
    random: Random,
}

impl FaultState {
    pub(super) fn new(plan: Faults) -> FaultState {
        let random = Random::new(plan.seed);
        FaultState { plan, random }
    }

    pub(super) fn write_fails(&mut self) -> bool {
        count_down(&mut self.plan.fail_write_after, self.plan.lasting)
    }

    pub(super) fn sync_fails(&mut self) -> bool {
        count_down(&mut self.plan.fail_sync_after, self.plan.lasting)
    }

    pub(super) fn directory_fails(&mut self) -> bool {
        count_down(&mut self.plan.fail_directory_after, self.plan.lasting)
    }

    pub(super) fn read_fails(&mut self) -> bool {
        self.plan.fail_read_one_in.is_some_and(|n| self.random.one_in(n))
    }

    pub(super) fn descriptor_fails(&mut self) -> bool {
        self.plan.no_descriptor_one_in.is_some_and(|n| self.random.one_in(n))
    }

    /// How many bytes files can still grow by.
    pub(super) fn space_left(&self) -> u64 {
        self.plan.no_space_after_bytes.unwrap_or(u64::MAX)
    }

    pub(super) fn use_space(&mut self, bytes: u64) {
        if let Some(left) = &mut self.plan.no_space_after_bytes {
            *left = left.saturating_sub(bytes);
        }
    }

    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}

/// True when the count is used up.
fn count_down(left: &mut Option<u64>, lasting: bool) -> bool {
    match left {
        None => false,
        Some(0) => {
            if !lasting {
                *left = None;
            }
            true
        }
        Some(count) => {
            *count -= 1;
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(plan: Faults) -> Vec<bool> {
        let mut state = FaultState::new(plan);
        (0..5).map(|_| state.write_fails()).collect()
    }

    #[test]
    fn one_failure_comes_after_the_count_and_goes() {
        let plan = Faults { fail_write_after: Some(2), ..Faults::default() };
        assert_eq!(failures(plan), [false, false, true, false, false]);
    }

    #[test]
    fn a_lasting_failure_stays() {
        let plan = Faults { fail_write_after: Some(2), lasting: true, ..Faults::default() };
        assert_eq!(failures(plan), [false, false, true, true, true]);
    }

    #[test]
    fn nothing_fails_by_default() {
        let mut state = FaultState::new(Faults::default());
        assert!(!state.sync_fails() && !state.read_fails() && !state.directory_fails());
        state.use_space(1 << 40);
        assert_eq!(state.space_left(), u64::MAX);
    }
}
