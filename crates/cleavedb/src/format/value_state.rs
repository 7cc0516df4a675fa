//! What the edits of the manifest add up to for separated values: where the records of each value file are, and which
//! of them tables reference.
//!
//! A value file is reachable while an address in a table references it, or references a file whose records moved into
//! it. Files that are not reachable can be deleted. Applied by the manifest; read by value GC and by the space
//! accounting.

use std::collections::{BTreeMap, BTreeSet};

use super::edit::Edit;
use super::references::{FileReferences, References};
use super::reorder_credit::ReorderCredit;
use super::values::ValuePlace;
use crate::base::FileId;

/// Bytes that references still count and that are no longer stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReclaimedBytes {
    /// Bytes of dead records that value GC did not move.
    pub dead: u64,
    /// Bytes saved by compressing values while they were moved.
    pub saved: u64,
}

/// All value files, and the references to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueState {
    /// Where the records of each file are.
    pub places: BTreeMap<FileId, ValuePlace>,
    /// What tables reference, by the file in their addresses; this includes logs of the front.
    pub referenced: References,
    /// Bytes that reordering may still write.
    pub credit: ReorderCredit,
}

impl ValueState {
    /// Applies the part of an edit that is about values.
    ///
    /// # Errors
    /// How the edit contradicts the state; the state is then only partly changed.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        // A full state without a credit was written before there was one: it is granted as if all values had just arrived.
        let grants_extents = self.places.is_empty();
        self.referenced.add_all(&edit.referenced);
        let released = self.referenced.remove_all(&edit.released);
        released.map_err(|file| format!("more references to file {} are released than there are", file.0))?;
        for (file, place) in &edit.values_placed {
            if let ValuePlace::Moved { to, .. } = place
                && let Some((to, _)) = to.iter().find(|(to, _)| to <= file || !self.places.contains_key(to))
            {
                return Err(format!("file {} moved into file {}, which does not exist or is not newer", file.0, to.0));
            }
            let is_new = self.places.insert(*file, place.clone()).is_none();
            match place {
                ValuePlace::Log { end } if is_new => self.credit.grant(*end),
                ValuePlace::Extent { start, end, .. } if is_new && grants_extents => self.credit.grant(end - start),
                _ => {}
            }
        }
        for file in &edit.values_removed {
            if self.places.remove(file).is_none() {
                return Err(format!("value file {} is removed but was never added", file.0));
            }
        }
        self.credit = edit.reorder_credit.unwrap_or(self.credit);
        self.credit.charge(edit.reordered.unwrap_or_default());
        self.credit.limit(self.places.values().map(ValuePlace::bytes).sum());
        Ok(())
    }

    /// The credit to store in a full state; none if there are no value files to spend it on.
    pub fn credit_to_store(&self) -> Option<ReorderCredit> {
        (!self.places.is_empty() || self.credit != ReorderCredit::default()).then_some(self.credit)
    }

    /// How much of each file is reachable: through references to the file itself, and through references to files whose
    /// records moved into it. After a move it is not known which extent a reference leads to, so this is an estimate:
    /// of the records that moved, the fraction of the file's reachable records that is still referenced counts as
    /// reachable. Directly after a move all moved records therefore count.
    pub fn reachable(&self) -> References {
        let mut reachable = self.referenced.clone();
        // Records only move into files with higher numbers, so one ascending pass is enough.
        for (file, place) in &self.places {
            let ValuePlace::Moved { reachable: reachable_before, to, .. } = place else { continue };
            let through = reachable.of(*file).records.min(*reachable_before);
            for (to, part) in to.iter().filter(|_| through > 0) {
                let of = |number| share(number, through, *reachable_before);
                reachable.add(*to, FileReferences { records: of(part.records), bytes: of(part.bytes), end: 0 });
            }
        }
        reachable
    }

    /// Estimated bytes that references still count and that are no longer stored: of records that were dead when their
    /// file was emptied, and those saved by compressing records after they were referenced.
    pub fn reclaimed_bytes(&self) -> ReclaimedBytes {
        let reachable = self.reachable();
        let mut reclaimed = ReclaimedBytes::default();
        for (file, place) in &self.places {
            let ValuePlace::Moved { reachable: reachable_before, saved, to, .. } = place else { continue };
            let through = reachable.of(*file);
            let of = |number| share(number, through.records.min(*reachable_before), *reachable_before);
            let (moved, saved) = (of(to.iter().map(|(_, moved)| moved.bytes).sum()), of(saved.unwrap_or_default()));
            let not_stored = through.bytes.saturating_sub(moved);
            reclaimed.saved += saved.min(not_stored);
            reclaimed.dead += not_stored.saturating_sub(saved);
        }
        reclaimed
    }

    /// Files that no reference leads to, ascending. Unlike [`reachable`](ValueState::reachable) this is exact: one
    /// remaining reference to an emptied file may lead to any of the extents that its records moved into.
    pub fn unreachable(&self) -> Vec<FileId> {
        let mut led_to = BTreeSet::new();
        let mut unreachable = Vec::new();
        for (file, place) in &self.places {
            if self.referenced.of(*file).records == 0 && !led_to.contains(file) {
                unreachable.push(*file);
            } else if let ValuePlace::Moved { to, .. } = place {
                led_to.extend(to.iter().map(|(to, _)| *to));
            }
        }
        unreachable
    }
}

/// `number * part / whole`, rounded up.
fn share(number: u64, part: u64, whole: u64) -> u64 {
    (u128::from(number) * u128::from(part)).div_ceil(u128::from(whole.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::values::Moved;

    fn references(of: &[(u64, u64)]) -> References {
        let file_references =
            |&(file, records)| (FileId(file), FileReferences { records, bytes: records * 100, end: 7000 });
        References(of.iter().map(file_references).collect())
    }

    /// A file with `reachable` reachable records; each pair in `to` is a target file and the records that moved there.
    fn moved(reachable: u64, to: &[(u64, u64)]) -> ValuePlace {
        let to = to.iter().map(|&(file, records)| (FileId(file), Moved { records, bytes: records * 100 }));
        ValuePlace::Moved { redirect: FileId(100), start: 8192, len: 4096, reachable, saved: None, to: to.collect() }
    }

    /// The same, with `bytes` saved by compression.
    fn compressed(reachable: u64, bytes: u64, to: &[(u64, u64)]) -> ValuePlace {
        match moved(reachable, to) {
            ValuePlace::Moved { redirect, start, len, reachable, to, .. } => {
                ValuePlace::Moved { redirect, start, len, reachable, saved: Some(bytes), to }
            }
            place => place,
        }
    }

    fn here() -> ValuePlace {
        ValuePlace::Log { end: 1 }
    }

    fn state(places: &[(u64, ValuePlace)], referenced: &[(u64, u64)]) -> ValueState {
        let places = places.iter().map(|(id, place)| (FileId(*id), place.clone()));
        ValueState { places: places.collect(), referenced: references(referenced), ..ValueState::default() }
    }

    fn reachable(state: &ValueState, file: u64) -> (u64, u64) {
        let referenced = state.reachable().of(FileId(file));
        (referenced.records, referenced.bytes)
    }

    #[test]
    fn a_file_is_reachable_through_files_whose_records_moved_into_it() {
        let places = [(1, moved(2, &[(3, 2)])), (2, here()), (3, moved(2, &[(4, 2)])), (4, here())];
        let mut state = state(&places, &[(1, 2), (4, 1)]);
        assert_eq!([1, 2, 3, 4].map(|file| reachable(&state, file)), [(2, 200), (0, 0), (2, 200), (3, 300)]);
        assert_eq!(state.unreachable(), [FileId(2)]);
        state.referenced = references(&[(4, 1)]);
        assert_eq!(state.unreachable(), [FileId(1), FileId(2), FileId(3)]);
    }

    #[test]
    fn records_that_were_dead_when_a_file_was_emptied_do_not_count_as_live_in_its_targets() {
        // Ten records are referenced; GC moved eight of them, to two files.
        let places = [(1, moved(10, &[(2, 6), (3, 2)])), (2, here()), (3, here())];
        let all = |referenced| {
            let state = state(&places, &[(1, referenced)]);
            [2, 3].map(|file| reachable(&state, file).0)
        };
        assert_eq!(all(10), [6, 2]);
        assert_eq!(all(5), [3, 1]);
        assert_eq!(all(1), [1, 1]);
        assert_eq!(all(0), [0, 0]);
        let dead = |referenced| state(&places, &[(1, referenced)]).reclaimed_bytes();
        assert_eq!([10, 5, 0].map(dead), [200, 100, 0].map(|dead| ReclaimedBytes { dead, saved: 0 }));
        // GC moved nothing, yet references remain: a read through one of them reports that the record was dead.
        let nothing = state(&[(1, moved(3, &[]))], &[(1, 3)]);
        assert!(nothing.unreachable().is_empty());
    }

    #[test]
    fn bytes_saved_by_compression_are_distinguished_from_dead_bytes() {
        // Of ten records of 200 B two were dead; the other eight now have 100 B each.
        let places = [(1, compressed(10, 800, &[(2, 8)])), (2, here())];
        let reclaimed = |referenced| {
            let mut state = state(&places, &[(1, referenced)]);
            state.referenced.0.values_mut().for_each(|referenced| referenced.bytes *= 2);
            (state.reclaimed_bytes(), reachable(&state, 2))
        };
        assert_eq!(reclaimed(10), (ReclaimedBytes { dead: 400, saved: 800 }, (8, 800)));
        assert_eq!(reclaimed(5), (ReclaimedBytes { dead: 200, saved: 400 }, (4, 400)));
    }

    #[test]
    fn all_records_count_as_live_directly_after_they_were_moved() {
        // Half of twenty records are referenced, and it is not known which, so both extents seem to be half garbage.
        // After GC of the first one none of the records that it moved seem to be dead.
        let mut places = vec![(1, moved(20, &[(2, 10), (3, 10)])), (2, here()), (3, here()), (4, here())];
        let before = state(&places, &[(1, 10)]);
        assert_eq!([2, 3].map(|file| reachable(&before, file).0), [5, 5]);
        places[1].1 = moved(5, &[(4, 10)]);
        assert_eq!(reachable(&state(&places, &[(1, 10)]), 4).0, 10);
        assert_eq!(reachable(&state(&places, &[(1, 5)]), 4).0, 6);
    }

    #[test]
    fn moves_into_older_or_missing_files_are_rejected() {
        for to in [&[(1, 1)][..], &[(5, 1)], &[(3, 1), (5, 1)]] {
            let mut state = state(&[(1, here()), (2, here()), (3, here())], &[]);
            let edit = Edit { values_placed: vec![(FileId(2), moved(9, to))], ..Edit::default() };
            assert!(state.apply(&edit).is_err(), "{to:?}");
        }
    }
}
