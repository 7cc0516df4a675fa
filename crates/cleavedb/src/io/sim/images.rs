//! Images of a simulated disk: its state after the process died, or after the machine lost power.
//!
//! Called by [`SimDisk`](super::SimDisk).

use std::collections::BTreeSet;
use std::path::Path;

use super::directory::Directory;
use super::fault::{FaultState, Faults};
use super::inode::{Inode, Survival};
use super::state::State;
use crate::sched::random::Random;

impl State {
    /// The state that the kernel holds: all names and all bytes, synced or not.
    pub(super) fn after_process_crash(&self) -> State {
        let mut image = self.clone();
        image.reset_machine();
        image
    }

    /// A state that the disk may hold after a power loss that concerns some directories.
    pub(super) fn after_power_loss(&self, seed: u64, lose: &dyn Fn(&Path) -> bool) -> State {
        let mut random = Random::new(seed);
        let survival = match random.below(3) {
            0 => Survival::Nothing,
            1 => self.survival_of_all_but_a_tail(&mut random),
            _ => Survival::Some,
        };
        let mut image = self.clone();
        image.reset_machine();
        let mut kept = BTreeSet::new();
        for (path, directory) in &mut image.directories {
            let names = match lose(path) {
                true => directory.after_power_loss(survival, &mut random),
                false => {
                    kept.extend(directory.names().values().copied());
                    directory.names().clone()
                }
            };
            *directory = Directory::settled(names);
        }
        image.forget_unreachable();
        for (number, inode) in &mut image.inodes {
            *inode = Inode::settled(match kept.contains(number) {
                true => inode.content().clone(),
                false => inode.after_power_loss(survival, &mut random),
            });
        }
        image
    }

    fn survival_of_all_but_a_tail(&self, random: &mut Random) -> Survival {
        let changes = self.inodes.values().flat_map(Inode::unsynced_orders);
        let names = self.directories.values().flat_map(Directory::pending_orders);
        let mut orders: Vec<u64> = changes.chain(names).collect();
        orders.sort_unstable();
        let longest = if random.one_in(2) { orders.len() } else { orders.len().min(8) };
        let tail = random.below(longest as u64 + 1) as usize;
        // Ends before the first change of the tail, so that this change can be torn.
        Survival::Until(orders.get(orders.len() - tail).map_or(self.order, |first| first - 1))
    }

    /// Removes locks, handles and faults: the next process, or the restarted machine, has none.
    fn reset_machine(&mut self) {
        self.locks.clear();
        self.halted = false;
        self.unmount_vanished();
        self.faults = FaultState::new(Faults::default());
        for inode in self.inodes.values_mut() {
            inode.handles = 0;
        }
        self.forget_unreachable();
    }
}
