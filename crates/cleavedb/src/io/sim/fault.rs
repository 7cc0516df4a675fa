//! Faults of the simulated disk: which of the coming operations fail, and how. Set with
//! [`SimDisk::set_faults`](super::SimDisk::set_faults); the disk asks before each operation.

use std::path::{Path, PathBuf};

use crate::sched::random::Random;

/// A plan of failures from now on; by default there are none. Failures are I/O errors, except for missing space.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// One write (or allocation or truncation) fails after this many successful ones. Part of it may be on the disk.
    pub fail_write_after: Option<u64>,
    /// One sync of a file or directory fails after this many successful ones. The unsynced bytes count as clean from
    /// then on, as in Linux: no later sync writes them, and any part of them may be missing after a power loss.
    pub fail_sync_after: Option<u64>,
    /// One creation, rename or removal fails, without effect, after this many successful ones.
    pub fail_directory_after: Option<u64>,
    /// One rename finds no space, without effect, after this many successful ones.
    pub no_space_rename_after: Option<u64>,
    /// Each read fails with probability 1 in this number, and can succeed when tried again.
    pub fail_read_one_in: Option<u32>,
    /// Each creation, open for reading and directory sync fails for lack of a file descriptor, without effect, with
    /// probability 1 in this number, and can succeed when tried again.
    pub no_descriptor_one_in: Option<u32>,
    /// All files together can grow by this many bytes, then there is no space. Freed space is not available again until
    /// the faults are cleared; [`SimDisk::set_capacity`](super::SimDisk::set_capacity) is the complete model of a full disk.
    pub no_space_after_bytes: Option<u64>,
    /// Only operations on files in this directory fail, as if it lay on a disk of its own; missing space is everywhere. By
    /// default all directories are concerned.
    pub within: Option<PathBuf>,
    /// After its first failure a write, sync, rename or other directory operation always fails. Otherwise the next one succeeds.
    pub lasting: bool,
    /// Seed of all random choices.
    pub seed: u64,
}

/// A plan in execution.
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

    /// True if operations on a path may fail.
    pub(super) fn reach(&self, path: &Path) -> bool {
        self.plan.within.as_ref().is_none_or(|directory| path.starts_with(directory))
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

    pub(super) fn rename_lacks_space(&mut self) -> bool {
        count_down(&mut self.plan.no_space_rename_after, self.plan.lasting)
    }

    pub(super) fn read_fails(&mut self) -> bool {
        self.plan.fail_read_one_in.is_some_and(|n| self.random.one_in(n))
    }

    pub(super) fn descriptor_fails(&mut self) -> bool {
        self.plan.no_descriptor_one_in.is_some_and(|n| self.random.one_in(n))
    }

    /// Bytes by which files can still grow.
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

/// True once the count has reached zero.
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
    fn one_failure_follows_the_count_and_the_next_call_succeeds() {
        let plan = Faults { fail_write_after: Some(2), ..Faults::default() };
        assert_eq!(failures(plan), [false, false, true, false, false]);
    }

    #[test]
    fn a_lasting_failure_repeats() {
        let plan = Faults { fail_write_after: Some(2), lasting: true, ..Faults::default() };
        assert_eq!(failures(plan), [false, false, true, true, true]);
    }

    #[test]
    fn nothing_fails_by_default() {
        let mut state = FaultState::new(Faults::default());
        assert!(!state.sync_fails() && !state.read_fails() && !state.directory_fails() && !state.rename_lacks_space());
        state.use_space(1 << 40);
        assert_eq!(state.space_left(), u64::MAX);
    }
}
