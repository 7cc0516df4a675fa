//! The space of the fast tier: what occupies it, and its budget. Files that are made there claim their space first. A claim
//! that is refused does not fail anything: the file is made on the slow tier, or later. Only what cannot be elsewhere is noted
//! without a claim: the manifest, with all the space that it may take, and the smallest ring.
//!
//! Everything in the directory of the manifest counts, as long as it takes space: a file that only open views hold
//! back counts until it is deleted, and is reported apart.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use crate::base::FileId;
use crate::sched::sync::Mutex;

/// Space for `CURRENT`, `LOCK`, and the directory itself.
pub(crate) const SMALL_FILES_BYTES: u64 = 64 << 10;

/// Only the manifest gets the last part of the budget: it cannot be elsewhere, and it grows a little with each edit.
const MANIFEST_PART: u64 = 64;

/// Something that takes space on the fast tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Occupant {
    /// A log, a table, or another numbered file but a manifest.
    File(FileId),
    Ring,
    /// A larger ring that will replace the present one.
    NewRing,
    Reserve,
    /// The manifest, the one that may replace it, and the small files.
    Manifest,
    /// The page of statistics.
    Stats,
    /// The tables that a flush writes, until their sizes are known.
    FlushedTables,
}

/// The space of the fast tier.
pub(crate) struct FastTier {
    /// `None` if the database has one directory: then nothing is counted.
    budget: Option<u64>,
    /// The tier needs room, and there was no log that could be demoted: writers gain nothing by waiting.
    pub has_nothing_to_demote: AtomicBool,
    occupied: Mutex<Occupied>,
}

#[derive(Default)]
struct Occupied {
    by: BTreeMap<Occupant, u64>,
    bytes: u64,
    bytes_max: u64,
    /// Something has left or shrunk: there may be room for files that belong here and lie elsewhere.
    has_more_room: bool,
}

impl Occupied {
    fn set(&mut self, occupant: Occupant, bytes: u64) {
        let before = self.by.insert(occupant, bytes).unwrap_or_default();
        self.bytes = self.bytes - before + bytes;
        self.has_more_room |= bytes < before;
        self.bytes_max = self.bytes_max.max(self.bytes);
    }
}

impl FastTier {
    /// A fast tier of `budget` bytes; `u64::MAX` if only its file system limits it; `None` if there is no slow tier.
    pub fn new(budget: Option<u64>) -> FastTier {
        FastTier { budget, has_nothing_to_demote: AtomicBool::new(false), occupied: Mutex::default() }
    }

    /// True if something has left or shrunk since the last call.
    pub fn take_more_room(&self) -> bool {
        std::mem::take(&mut self.occupied.lock().has_more_room)
    }

    /// The budget; `u64::MAX` if there is none.
    pub fn budget(&self) -> u64 {
        self.budget.unwrap_or(u64::MAX)
    }

    /// What all but the manifest may take together with it.
    pub fn claimable(&self) -> u64 {
        self.budget() - self.budget() / MANIFEST_PART
    }

    /// Takes up to `bytes` for all of something, as far as the budget has them, and no less than it has; how many.
    pub fn claim_up_to(&self, occupant: Occupant, bytes: u64) -> u64 {
        let Some(budget) = self.budget else { return bytes };
        let mut occupied = self.occupied.lock();
        let before = occupied.by.get(&occupant).copied().unwrap_or_default();
        let room = budget.saturating_sub(occupied.bytes - before);
        let granted = bytes.min(room.max(before));
        occupied.set(occupant, granted);
        granted
    }

    /// Takes space for something new, or for all of something that grows; false, and nothing changes, if the budget does
    /// not have it.
    pub fn claim(&self, occupant: Occupant, bytes: u64) -> bool {
        if self.budget.is_none() {
            return true;
        }
        let mut occupied = self.occupied.lock();
        let before = occupied.by.get(&occupant).copied().unwrap_or_default();
        if bytes > before && (occupied.bytes - before).saturating_add(bytes) > self.claimable() {
            return false;
        }
        occupied.set(occupant, bytes);
        true
    }

    /// Notes what something takes, which was found there or has shrunk.
    pub fn note(&self, occupant: Occupant, bytes: u64) {
        if self.budget.is_some() {
            self.occupied.lock().set(occupant, bytes);
        }
    }

    /// Notes the files that were made with the space that `claimed` has, which it keeps no longer.
    pub fn settle(&self, claimed: Occupant, files: impl Iterator<Item = (FileId, u64)>) {
        if self.budget.is_some() {
            let mut occupied = self.occupied.lock();
            occupied.set(claimed, 0);
            files.for_each(|(file, bytes)| occupied.set(Occupant::File(file), bytes));
        }
    }

    /// Notes that something is gone.
    pub fn release(&self, occupant: Occupant) {
        if self.budget.is_some() {
            let mut occupied = self.occupied.lock();
            let bytes = occupied.by.remove(&occupant).unwrap_or_default();
            occupied.bytes -= bytes;
            occupied.has_more_room |= bytes > 0;
        }
    }

    /// Notes that the new ring has replaced the other.
    pub fn replace_ring(&self) {
        if self.budget.is_some() {
            let mut occupied = self.occupied.lock();
            if let Some(bytes) = occupied.by.remove(&Occupant::NewRing) {
                occupied.bytes -= bytes;
                occupied.set(Occupant::Ring, bytes);
            }
        }
    }

    /// Bytes in use now.
    pub fn bytes(&self) -> u64 {
        self.occupied.lock().bytes
    }

    /// The most bytes in use at once since the open.
    pub fn bytes_max(&self) -> u64 {
        self.occupied.lock().bytes_max
    }

    /// Bytes of one occupant.
    pub fn bytes_of(&self, occupant: Occupant) -> u64 {
        self.occupied.lock().by.get(&occupant).copied().unwrap_or_default()
    }

    /// Bytes of the files for which `is_pinned` is true.
    pub fn file_bytes(&self, is_pinned: impl Fn(FileId) -> bool) -> u64 {
        let occupied = self.occupied.lock();
        let pinned = occupied.by.iter().filter(|(of, _)| matches!(of, Occupant::File(id) if is_pinned(*id)));
        pinned.map(|(_, bytes)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_granted_up_to_the_budget_and_never_beyond_it() {
        // 100, and the part of the manifest.
        let tier = FastTier::new(Some(101));
        let log = |id| Occupant::File(FileId(id));
        assert!(tier.claim(log(1), 60) && tier.claim(log(2), 40));
        assert!(!tier.claim(log(3), 1));
        tier.note(log(1), 10);
        assert!(tier.claim(log(3), 50) && !tier.claim(log(3), 51), "a claim that grows counts once");
        tier.release(log(2));
        assert_eq!((tier.bytes(), tier.bytes_max()), (60, 100));
        assert!(tier.take_more_room() && !tier.take_more_room());
        assert_eq!((tier.file_bytes(|id| id == FileId(3)), tier.bytes_of(log(3)), tier.bytes_of(log(2))), (50, 50, 0));
        // What was there before the budget shrank stays, and blocks what is new.
        tier.note(log(4), 1000);
        assert!(!tier.claim(log(5), 1) && tier.claim(log(4), 900), "shrinking needs no room");
    }

    #[test]
    fn the_manifest_gets_what_others_do_not() {
        let tier = FastTier::new(Some(6400));
        let log = |id| Occupant::File(FileId(id));
        assert!(!tier.claim(log(1), 6301) && tier.claim(log(1), 6300));
        assert_eq!(tier.claim_up_to(Occupant::Manifest, 80), 80);
        assert_eq!(tier.claim_up_to(Occupant::Manifest, 180), 100);
        assert!(!tier.claim(log(2), 1) && tier.bytes_max() == 6400);
        tier.note(log(1), 6200);
        assert_eq!(tier.claim_up_to(Occupant::Manifest, 180), 180);
        assert_eq!(tier.claim_up_to(Occupant::Manifest, 50), 50);
        tier.note(log(1), 20_000);
        assert_eq!(tier.claim_up_to(Occupant::Manifest, 60), 50, "what it has it keeps");
    }

    #[test]
    fn files_take_the_space_that_was_claimed_for_them_and_count_once() {
        let tier = FastTier::new(Some(100));
        assert!(tier.claim(Occupant::FlushedTables, 90));
        tier.settle(Occupant::FlushedTables, [(FileId(1), 30), (FileId(2), 40)].into_iter());
        assert_eq!((tier.bytes(), tier.bytes_max()), (70, 90));
        tier.release(Occupant::FlushedTables);
        assert_eq!(tier.bytes(), 70);
    }

    #[test]
    fn the_new_ring_takes_the_place_of_the_old_one() {
        let tier = FastTier::new(Some(100));
        assert!(tier.claim(Occupant::Ring, 20) && tier.claim(Occupant::NewRing, 40));
        tier.replace_ring();
        assert_eq!(tier.bytes(), 40);
        tier.replace_ring();
        assert_eq!(tier.bytes(), 40);
    }

    #[test]
    fn a_database_with_one_directory_counts_nothing() {
        let tier = FastTier::new(None);
        assert!(tier.claim(Occupant::Ring, u64::MAX) && tier.claim(Occupant::Reserve, u64::MAX));
        assert_eq!((tier.bytes(), tier.budget()), (0, u64::MAX));
    }
}
