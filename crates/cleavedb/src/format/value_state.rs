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
use crate::base::{FileId, SharedMap};

/// Bytes that references still count and that are no longer stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReclaimedBytes {
    /// Bytes of dead records that value GC did not move.
    pub dead: u64,
    /// Bytes saved by compressing values while they were moved.
    pub saved: u64,
}

/// All value files, and the references to them. A copy is O(1), and an edit changes of it what the edit names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueState {
    /// Where the records of each file are.
    pub places: SharedMap<FileId, ValuePlace>,
    /// What tables reference, by the file in their addresses; this includes logs of the front.
    pub referenced: References,
    /// Logs that hash indexes reference. They stay as they are: value GC does not move what lies in them.
    pub indexed: BTreeSet<FileId>,
    /// Bytes that reordering may still write.
    pub credit: ReorderCredit,
    /// From how many files records have moved into each file.
    moved_into: SharedMap<FileId, u64>,
    /// How many places lie in each file on storage.
    contained: SharedMap<FileId, u64>,
    /// Files that nothing leads to directly: neither a reference nor a move.
    orphans: BTreeSet<FileId>,
    /// Bytes of all places.
    bytes: u64,
}

impl ValueState {
    /// Applies the part of an edit that is about values. O(what the edit names * log files).
    ///
    /// # Errors
    /// How the edit contradicts the state; the state is then only partly changed.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        // A full state without a credit was written before there was one: it is granted as if all values had just arrived.
        let grants_extents = self.places.is_empty();
        self.referenced.add_all(&edit.referenced);
        let released = self.referenced.remove_all(&edit.released);
        released.map_err(|file| format!("more references to file {} are released than there are", file.0))?;
        for file in edit.referenced.0.keys().chain(edit.released.0.keys()) {
            self.review(*file);
        }
        for (file, place) in &edit.values_placed {
            if let ValuePlace::Moved { to, .. } = place
                && let Some((to, _)) = to.iter().find(|(to, _)| to <= file || !self.places.contains_key(to))
            {
                return Err(format!("file {} moved into file {}, which does not exist or is not newer", file.0, to.0));
            }
            let fits = self.bytes.checked_add(place.bytes()).is_some();
            fits.then_some(()).ok_or_else(|| format!("with file {} there are too many bytes of values", file.0))?;
            let is_new = self.place(*file, place.clone());
            match place {
                ValuePlace::Log { end } if is_new => self.credit.grant(*end),
                ValuePlace::Extent { start, end, .. } if is_new && grants_extents => self.credit.grant(end - start),
                _ => {}
            }
        }
        for file in &edit.indexed {
            let is_log = matches!(self.places.get(file), Some(ValuePlace::Log { .. }));
            is_log.then_some(()).ok_or_else(|| format!("file {} is indexed, but is no log of values", file.0))?;
            self.indexed.insert(*file);
            self.review(*file);
        }
        for file in &edit.unindexed {
            let was_indexed = self.indexed.remove(file);
            was_indexed
                .then_some(())
                .ok_or_else(|| format!("file {} was never indexed, and cannot cease to be", file.0))?;
            self.review(*file);
        }
        for file in &edit.values_removed {
            let place = self.places.remove(file);
            let place = place.ok_or_else(|| format!("value file {} is removed but was never added", file.0))?;
            self.count(*file, &place, false);
            self.review(*file);
        }
        self.credit = edit.reorder_credit.unwrap_or(self.credit);
        self.credit.charge(edit.reordered.unwrap_or_default());
        self.credit.limit(self.bytes);
        Ok(())
    }

    /// A log whose values stay when it leaves the front; whether hash indexes reference some.
    pub fn adopt(&mut self, log: FileId, end: u64, is_indexed: bool) {
        if is_indexed {
            self.indexed.insert(log);
        }
        self.place(log, ValuePlace::Log { end });
        self.credit.grant(end);
    }

    /// Some value file, or where its records went, lies in this file on storage.
    pub fn is_container(&self, file: FileId) -> bool {
        self.contained.contains_key(&file)
    }

    /// Sets the place of a file; true if it had none.
    fn place(&mut self, file: FileId, place: ValuePlace) -> bool {
        self.count(file, &place, true);
        let before = self.places.insert(file, place);
        if let Some(before) = &before {
            self.count(file, before, false);
        }
        self.review(file);
        before.is_none()
    }

    /// Counts a place, or counts it no longer.
    fn count(&mut self, file: FileId, place: &ValuePlace, is_added: bool) {
        let change = |map: &mut SharedMap<FileId, u64>, key: FileId| {
            let before = map.get(&key).copied().unwrap_or_default();
            match if is_added { before + 1 } else { before - 1 } {
                0 => drop(map.remove(&key)),
                count => drop(map.insert(key, count)),
            }
        };
        change(&mut self.contained, place.container().unwrap_or(file));
        self.bytes = if is_added { self.bytes + place.bytes() } else { self.bytes - place.bytes() };
        if let ValuePlace::Moved { to, .. } = place {
            for (to, _) in to.iter() {
                change(&mut self.moved_into, *to);
                self.review(*to);
            }
        }
    }

    /// Notes whether something leads to a file directly.
    fn review(&mut self, file: FileId) {
        let is_led_to =
            self.referenced.of(file).records > 0 || self.moved_into.contains_key(&file) || self.indexed.contains(&file);
        match self.places.contains_key(&file) && !is_led_to {
            true => self.orphans.insert(file),
            false => self.orphans.remove(&file),
        };
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
        for (file, place) in self.places.iter() {
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
        for (file, place) in self.places.iter() {
            let ValuePlace::Moved { reachable: reachable_before, saved, to, .. } = place else { continue };
            let through = reachable.of(*file);
            let of = |number| share(number, through.records.min(*reachable_before), *reachable_before);
            let moved = to.iter().fold(0_u64, |bytes, (_, moved)| bytes.saturating_add(moved.bytes));
            let (moved, saved) = (of(moved), of(saved.unwrap_or_default()));
            let not_stored = through.bytes.saturating_sub(moved);
            reclaimed.saved = reclaimed.saved.saturating_add(saved.min(not_stored));
            reclaimed.dead = reclaimed.dead.saturating_add(not_stored.saturating_sub(saved));
        }
        reclaimed
    }

    /// Files that no reference leads to, ascending. Unlike [`reachable`](ValueState::reachable) this is exact: one
    /// remaining reference to an emptied file may lead to any of the extents that its records moved into.
    /// O(files that are found).
    pub fn unreachable(&self) -> Vec<FileId> {
        let (mut orphans, mut unreachable) = (self.orphans.clone(), Vec::new());
        let mut fewer = BTreeMap::<FileId, u64>::new();
        // Records only move into files with higher numbers.
        while let Some(file) = orphans.pop_first() {
            unreachable.push(file);
            let Some(ValuePlace::Moved { to, .. }) = self.places.get(&file) else { continue };
            for (to, _) in to.iter() {
                let fewer = fewer.entry(*to).or_default();
                *fewer += 1;
                if self.moved_into.get(to) == Some(fewer) && self.referenced.of(*to).records == 0 {
                    orphans.insert(*to);
                }
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
    use crate::sched::random::Random;

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
        let mut state = ValueState::default();
        for (id, place) in places {
            state.place(FileId(*id), place.clone());
        }
        reference(&mut state, referenced);
        state
    }

    /// These are the references now.
    fn reference(state: &mut ValueState, referenced: &[(u64, u64)]) {
        let before = std::mem::replace(&mut state.referenced, references(referenced));
        before.0.keys().chain(references(referenced).0.keys()).for_each(|file| state.review(*file));
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
        reference(&mut state, &[(4, 1)]);
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
            let twice = |(file, of): (&FileId, &FileReferences)| (*file, FileReferences { bytes: of.bytes * 2, ..*of });
            state.referenced = References(state.referenced.0.iter().map(twice).collect());
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

    #[test]
    fn places_of_more_bytes_than_can_be_counted_are_rejected() {
        let mut state = ValueState::default();
        let place =
            |file, end| Edit { values_placed: vec![(FileId(file), ValuePlace::Log { end })], ..Edit::default() };
        state.apply(&place(1, u64::MAX)).unwrap();
        assert!(state.clone().apply(&place(2, 1)).is_err());
        assert!(state.apply(&place(2, 0)).is_ok());
        // Two files that are emptied into as many bytes, of which all were dead.
        let moved_bytes = Moved { records: 1, bytes: u64::MAX };
        let to = [(FileId(3), moved_bytes), (FileId(4), moved_bytes)];
        let emptied = |saved| ValuePlace::Moved {
            redirect: FileId(100),
            start: 0,
            len: 0,
            reachable: 1,
            saved: Some(saved),
            to: to.into(),
        };
        let referenced = FileReferences { records: 1, bytes: u64::MAX, end: 1 };
        let edit = Edit {
            values_placed: vec![(FileId(4), here()), (FileId(3), here())],
            referenced: References([1, 2].map(|file| (FileId(file), referenced)).into_iter().collect()),
            ..Edit::default()
        };
        let mut state = ValueState::default();
        state.apply(&edit).unwrap();
        let values_placed = vec![(FileId(1), emptied(u64::MAX)), (FileId(2), emptied(u64::MAX))];
        state.apply(&Edit { values_placed, ..Edit::default() }).unwrap();
        assert_eq!(state.reclaimed_bytes(), ReclaimedBytes::default());
    }

    #[test]
    fn what_is_counted_edit_by_edit_is_what_a_full_state_counts() {
        let mut random = Random::new(11);
        for _ in 0..60 {
            let mut state = ValueState::default();
            for next in 1..60 {
                let edit = random_edit(&mut random, &state, next);
                let mut after = state.clone();
                after.apply(&edit).unwrap();
                let gone = Edit { values_removed: after.unreachable(), ..Edit::default() };
                assert_eq!(gone.values_removed, unreachable_by_search(&after));
                after.apply(&gone).unwrap();
                assert!(after.unreachable().is_empty());
                state = after;
                let mut whole = ValueState::default();
                whole.apply(&full(&state)).unwrap();
                assert_eq!(whole, state);
            }
        }
    }

    /// A new file, or one that is emptied into two, with some references that come or go.
    fn random_edit(random: &mut Random, state: &ValueState, next: u64) -> Edit {
        let old: Vec<FileId> = state.places.keys().copied().filter(|file| file.0 < 900).collect();
        let mut edit = Edit::default();
        match old.is_empty() || random.one_in(2) {
            true => edit.values_placed.push((FileId(next * 3), here())),
            false => {
                let file = old[random.below(old.len() as u64) as usize];
                let to = [next * 3, next * 3 + 1];
                to.iter().for_each(|to| edit.values_placed.push((FileId(*to), here())));
                edit.values_placed.push((file, moved(9, &to.map(|to| (to, 3)))));
            }
        }
        let (placed, _) = edit.values_placed[0];
        let file = if random.one_in(2) { placed } else { *old.first().unwrap_or(&placed) };
        let references = references(&[(file.0, 1 + random.below(3))]);
        match state.referenced.of(file).records {
            0 => edit.referenced = references,
            _ => edit.released = References([(file, state.referenced.of(file))].into_iter().collect()),
        }
        edit
    }

    fn full(state: &ValueState) -> Edit {
        Edit {
            values_placed: state.places.iter().rev().map(|(file, place)| (*file, place.clone())).collect(),
            referenced: state.referenced.clone(),
            reorder_credit: Some(state.credit),
            ..Edit::default()
        }
    }

    fn unreachable_by_search(state: &ValueState) -> Vec<FileId> {
        let (mut led_to, mut unreachable) = (BTreeSet::new(), Vec::new());
        for (file, place) in state.places.iter() {
            if state.referenced.of(*file).records == 0 && !led_to.contains(file) {
                unreachable.push(*file);
            } else if let ValuePlace::Moved { to, .. } = place {
                led_to.extend(to.iter().map(|(to, _)| *to));
            }
        }
        unreachable
    }
}
