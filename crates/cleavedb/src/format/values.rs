//! What the manifest and tables say of values that lie apart from their keys: in which file, and how much of it is referenced.
//!
//! A file is *referenced* by the addresses in tables. Each table counts the names in it by file, and the ledger of the manifest
//! has the sums, so a file that nothing names, directly or through what moved into it, can go. Diagrams:
//! `docs/formats/values.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::edit::Edit;
use super::group::Group;
use super::reorder_credit::ReorderCredit;
use crate::base::varint::{put, take};
use crate::base::{Address, FileId};

/// Records that are referenced, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileReferences {
    /// How many.
    pub records: u64,
    /// Their bytes, with headers and keys.
    pub bytes: u64,
    /// No record that is referenced reaches beyond this offset. What is no longer referenced does not lower it.
    pub end: u64,
}

impl FileReferences {
    /// Both together.
    pub fn add(&mut self, other: FileReferences) {
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.end = self.end.max(other.end);
    }

    /// What is left without the other; `None` if there is less than that.
    pub fn checked_sub(self, other: FileReferences) -> Option<FileReferences> {
        let records = self.records.checked_sub(other.records)?;
        Some(FileReferences { records, bytes: self.bytes.checked_sub(other.bytes)?, end: self.end })
    }
}

/// References by file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References(pub BTreeMap<FileId, FileReferences>);

impl References {
    /// One more name.
    pub fn count(&mut self, address: Address) {
        let bytes = address.len.into();
        self.add(address.file, FileReferences { records: 1, bytes, end: address.offset.saturating_add(bytes) });
    }

    /// More names of one file.
    pub fn add(&mut self, file: FileId, referenced: FileReferences) {
        self.0.entry(file).or_default().add(referenced);
    }

    /// All names of another list.
    pub fn add_all(&mut self, other: &References) {
        other.0.iter().for_each(|(file, referenced)| self.add(*file, *referenced));
    }

    /// Takes names away; says which file has fewer than that.
    pub fn remove_all(&mut self, other: &References) -> Result<(), FileId> {
        for (file, referenced) in &other.0 {
            let left = self.0.get(file).copied().unwrap_or_default().checked_sub(*referenced).ok_or(*file)?;
            match (left.records, left.bytes) == (0, 0) {
                true => drop(self.0.remove(file)),
                false => drop(self.0.insert(*file, left)),
            }
        }
        Ok(())
    }

    /// What is referenced in a file.
    pub fn of(&self, file: FileId) -> FileReferences {
        self.0.get(&file).copied().unwrap_or_default()
    }

    /// Appends the encoding: how many files, then number, records, bytes and end of each.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.0.len() as u64);
        for (file, referenced) in &self.0 {
            [file.0, referenced.records, referenced.bytes, referenced.end]
                .into_iter()
                .for_each(|number| put(out, number));
        }
    }

    /// Takes names off the front of `bytes`; `None` if they are malformed.
    pub fn take(bytes: &mut &[u8]) -> Option<References> {
        let count = take(bytes)?;
        let mut names = References::default();
        for _ in 0..count {
            let file = FileId(take(bytes)?);
            let referenced = FileReferences { records: take(bytes)?, bytes: take(bytes)?, end: take(bytes)? };
            if names.0.insert(file, referenced).is_some() {
                return None;
            }
        }
        Some(names)
    }
}

/// How often the records of an extent change (HashKV section 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Temperature {
    /// New, or changed since the group was last gone through.
    Hot,
    /// Not changed since then.
    Cold,
}

/// Where the records of a file of values are. A file is a log that has left the front, or an *extent*: a part of a segment
/// that has a number of its own, as if it were a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValuePlace {
    /// In a log that has left the front, up to `end`.
    Log {
        /// Where it ends, in bytes.
        end: u64,
    },
    /// In a segment, from `start` to `end`.
    Extent {
        /// The segment's own number.
        segment: FileId,
        /// Where the extent begins, in bytes: a multiple of [`EXTENT_ALIGN`].
        start: u64,
        /// Where it ends, in bytes.
        end: u64,
        /// Which keys its records have.
        group: Group,
        /// How often they change.
        temperature: Temperature,
    },
    /// Gone from the file: a redirect table says where they are now.
    Moved {
        /// The file that the redirect table is in.
        redirect: FileId,
        /// Where in it the table begins, in bytes.
        start: u64,
        /// How long the table is, in bytes.
        len: u64,
        /// How many records of the file could be reached, dead ones that were still referenced among them, when it was emptied. No
        /// less than were moved, unless all of these are known to have lived.
        reached: u64,
        /// So many bytes of these records were saved by compressing their values, and the redirect table says how long each is.
        /// `None` if it does not, for all are as long as they were.
        saved: Option<u64>,
        /// The extents that hold what was live, and how much of it; their numbers are higher than this file's.
        to: Arc<[(FileId, Moved)]>,
    },
}

/// Extents begin at multiples of this, in bytes, so that each can give all its space back by itself.
pub const EXTENT_ALIGN: u64 = 4096;

/// Bytes of records that are referenced and not there any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Away {
    /// The records were dead.
    pub dead: u64,
    /// They were compressed.
    pub saved: u64,
}

/// Records that were moved, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// How many.
    pub records: u64,
    /// Their bytes, with headers and keys.
    pub bytes: u64,
}

/// Stored: do not renumber.
mod tag {
    pub const LOG: u64 = 0;
    pub const HOT_EXTENT: u64 = 1;
    pub const COLD_EXTENT: u64 = 2;
    pub const MOVED: u64 = 3;
    pub const MOVED_COMPRESSED: u64 = 4;
}

impl ValuePlace {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ValuePlace::Log { end } => [tag::LOG, *end].into_iter().for_each(|number| put(out, number)),
            ValuePlace::Extent { segment, start, end, group, temperature } => {
                let tag = if *temperature == Temperature::Hot { tag::HOT_EXTENT } else { tag::COLD_EXTENT };
                [tag, segment.0, *start, *end].into_iter().for_each(|number| put(out, number));
                group.encode(out);
            }
            ValuePlace::Moved { redirect, start, len, reached, saved, to } => {
                let tag = if saved.is_some() { tag::MOVED_COMPRESSED } else { tag::MOVED };
                let fields =
                    [tag, redirect.0, *start, *len, *reached].into_iter().chain(*saved).chain([to.len() as u64]);
                fields.for_each(|number| put(out, number));
                for (file, moved) in to.iter() {
                    [file.0, moved.records, moved.bytes].into_iter().for_each(|number| put(out, number));
                }
            }
        }
    }

    /// Takes a place off the front of `bytes`; `None` if it is malformed.
    pub fn take(bytes: &mut &[u8]) -> Option<ValuePlace> {
        let extent = |temperature, bytes: &mut &[u8]| {
            let (segment, start, end) = (FileId(take(bytes)?), take(bytes)?, take(bytes)?);
            let group = Group::take(bytes)?;
            let sound = start.is_multiple_of(EXTENT_ALIGN) && start <= end;
            sound.then_some(ValuePlace::Extent { segment, start, end, group, temperature })
        };
        let tag = take(bytes)?;
        match tag {
            tag::LOG => Some(ValuePlace::Log { end: take(bytes)? }),
            tag::HOT_EXTENT => extent(Temperature::Hot, bytes),
            tag::COLD_EXTENT => extent(Temperature::Cold, bytes),
            tag::MOVED | tag::MOVED_COMPRESSED => {
                let (redirect, start, len) = (FileId(take(bytes)?), take(bytes)?, take(bytes)?);
                let reached = take(bytes)?;
                let saved = if tag == tag::MOVED_COMPRESSED { Some(take(bytes)?) } else { None };
                let count = take(bytes)?;
                let mut to = Vec::new();
                for _ in 0..count {
                    to.push((FileId(take(bytes)?), Moved { records: take(bytes)?, bytes: take(bytes)? }));
                }
                Some(ValuePlace::Moved { redirect, start, len, reached, saved, to: to.into() })
            }
            _ => None,
        }
    }

    /// Bytes of a log or an extent; 0 for a file whose records have moved.
    pub fn bytes(&self) -> u64 {
        match self {
            ValuePlace::Log { end } => *end,
            ValuePlace::Extent { start, end, .. } => end - start,
            ValuePlace::Moved { .. } => 0,
        }
    }

    /// The number of the file on storage, if it is not the one that the place is of: a segment, or that of a redirect table.
    pub fn lies_in(&self) -> Option<FileId> {
        match self {
            ValuePlace::Log { .. } => None,
            ValuePlace::Extent { segment, .. } => Some(*segment),
            ValuePlace::Moved { redirect, .. } => Some(*redirect),
        }
    }
}

/// All files of values, and the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueState {
    /// Where the records of each file are.
    pub places: BTreeMap<FileId, ValuePlace>,
    /// What tables name, by the file in their addresses; logs of the front included.
    pub referenced: References,
    /// What reordering may write.
    pub credit: ReorderCredit,
}

impl ValueState {
    /// Applies what an edit says of values; says what is wrong if it contradicts what came before.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        // A full state of before, which has no credit, is granted as much as if all values had just arrived.
        let grants_extents = self.places.is_empty();
        self.referenced.add_all(&edit.referenced);
        let released = self.referenced.remove_all(&edit.released);
        released.map_err(|file| format!("more names of file {} were removed than there were", file.0))?;
        for (file, place) in &edit.values_placed {
            if let ValuePlace::Moved { to, .. } = place
                && let Some((to, _)) = to.iter().find(|(to, _)| to <= file || !self.places.contains_key(to))
            {
                return Err(format!("file {} moved into {}, which is no place for it", file.0, to.0));
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
                return Err(format!("values {} were removed before they were added", file.0));
            }
        }
        self.credit = edit.reorder_credit.unwrap_or(self.credit);
        self.credit.charge(edit.reordered.unwrap_or_default());
        self.credit.limit(self.places.values().map(ValuePlace::bytes).sum());
        Ok(())
    }

    /// The credit of a full state; without files of values there is nothing that it could be spent on.
    pub fn credit_to_store(&self) -> Option<ReorderCredit> {
        (!self.places.is_empty() || self.credit != ReorderCredit::default()).then_some(self.credit)
    }

    /// How much of each file is read by its own name or through those whose records have moved into it. What is read by the name
    /// of a file that was emptied is not known extent by extent: of what moved from there as large a part seems to be left as of
    /// what could be reached when it did. So right after a move all that moved seems to live.
    pub fn reach(&self) -> References {
        let mut reach = self.referenced.clone();
        // A file's records only move into those with higher numbers.
        for (file, place) in &self.places {
            let ValuePlace::Moved { reached, to, .. } = place else { continue };
            let through = reach.of(*file).records.min(*reached);
            for (to, part) in to.iter().filter(|_| through > 0) {
                let of = |number| share(number, through, *reached);
                reach.add(*to, FileReferences { records: of(part.records), bytes: of(part.bytes), end: 0 });
            }
        }
        reach
    }

    /// About how many bytes of records are referenced that are not there any more: of those that were dead when their files were
    /// emptied, and of those that have been compressed since they were referenced.
    pub fn moved_away(&self) -> Away {
        let reach = self.reach();
        let mut away = Away::default();
        for (file, place) in &self.places {
            let ValuePlace::Moved { reached, saved, to, .. } = place else { continue };
            let through = reach.of(*file);
            let of = |number| share(number, through.records.min(*reached), *reached);
            let (moved, saved) = (of(to.iter().map(|(_, moved)| moved.bytes).sum()), of(saved.unwrap_or_default()));
            let away_here = through.bytes.saturating_sub(moved);
            away.saved += saved.min(away_here);
            away.dead += away_here.saturating_sub(saved);
        }
        away
    }

    /// Files that nothing leads to, ascending. Unlike [`reach`](ValueState::reach) not a matter of how much: as long as a name
    /// leads to a file that was emptied, it may lead to whatever moved from there.
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

/// `part` of `whole` of a number, rounded up.
fn share(number: u64, part: u64, whole: u64) -> u64 {
    (u128::from(number) * u128::from(part)).div_ceil(u128::from(whole.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::group::HashGroup;
    use crate::format::interval::Interval;

    fn names(of: &[(u64, u64)]) -> References {
        References(
            of.iter()
                .map(|&(file, records)| (FileId(file), FileReferences { records, bytes: records * 100, end: 7000 }))
                .collect(),
        )
    }

    #[test]
    fn names_and_places_round_trip() {
        let all = names(&[(3, 7), (900, 1)]);
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        let places = [
            ValuePlace::Log { end: 77 },
            ValuePlace::Extent {
                segment: FileId(4),
                start: 1 << 40,
                end: (1 << 40) + 5,
                group: Group::Hash(HashGroup::of(u64::MAX, 7)),
                temperature: Temperature::Cold,
            },
            ValuePlace::Extent {
                segment: FileId(4),
                start: 0,
                end: 5,
                group: Group::Range(Arc::new(Interval::new(b"a", Some(b"b")).unwrap())),
                temperature: Temperature::Hot,
            },
            moved(9, &[(6, 3), (9, 5)]),
            compressed(9, 100, &[(6, 3), (9, 5)]),
        ];
        places.iter().for_each(|place| place.encode(&mut bytes));
        let rest = &mut &bytes[..];
        assert_eq!(References::take(rest), Some(all));
        for place in places {
            assert_eq!(ValuePlace::take(rest), Some(place));
        }
        assert!(rest.is_empty());
        for cut in 0..bytes.len() - 1 {
            let rest = &mut &bytes[..cut];
            let whole = References::take(rest).is_some() && (0..5).all(|_| ValuePlace::take(rest).is_some());
            assert!(!whole, "cut at {cut}");
        }
    }

    #[test]
    fn names_add_up_and_cannot_fall_below_none() {
        let mut all = names(&[(1, 2)]);
        all.add_all(&names(&[(1, 3), (2, 1)]));
        assert_eq!(all.remove_all(&names(&[(1, 5)])), Ok(()));
        assert_eq!(all, names(&[(2, 1)]));
        assert_eq!(all.remove_all(&names(&[(2, 2)])), Err(FileId(2)));
    }

    /// Of so many records that could be reached, so many went to each of these.
    fn moved(reached: u64, to: &[(u64, u64)]) -> ValuePlace {
        let to = to.iter().map(|&(file, records)| (FileId(file), Moved { records, bytes: records * 100 }));
        ValuePlace::Moved { redirect: FileId(100), start: 8192, len: 4096, reached, saved: None, to: to.collect() }
    }

    /// The same, and so many bytes were saved.
    fn compressed(reached: u64, bytes: u64, to: &[(u64, u64)]) -> ValuePlace {
        match moved(reached, to) {
            ValuePlace::Moved { redirect, start, len, reached, to, .. } => {
                ValuePlace::Moved { redirect, start, len, reached, saved: Some(bytes), to }
            }
            place => place,
        }
    }

    fn here() -> ValuePlace {
        ValuePlace::Log { end: 1 }
    }

    fn state(places: &[(u64, ValuePlace)], referenced: &[(u64, u64)]) -> ValueState {
        let places = places.iter().map(|(id, place)| (FileId(*id), place.clone()));
        ValueState { places: places.collect(), referenced: names(referenced), ..ValueState::default() }
    }

    fn reached(state: &ValueState, file: u64) -> (u64, u64) {
        let referenced = state.reach().of(FileId(file));
        (referenced.records, referenced.bytes)
    }

    #[test]
    fn a_file_is_reached_through_all_that_moved_into_it() {
        let places = [(1, moved(2, &[(3, 2)])), (2, here()), (3, moved(2, &[(4, 2)])), (4, here())];
        let mut state = state(&places, &[(1, 2), (4, 1)]);
        assert_eq!([1, 2, 3, 4].map(|file| reached(&state, file)), [(2, 200), (0, 0), (2, 200), (3, 300)]);
        assert_eq!(state.unreachable(), [FileId(2)]);
        state.referenced = names(&[(4, 1)]);
        assert_eq!(state.unreachable(), [FileId(1), FileId(2), FileId(3)]);
    }

    #[test]
    fn what_was_dead_when_a_file_was_emptied_is_not_taken_for_alive_elsewhere() {
        // Ten are referenced, of which eight were moved, to two files.
        let places = [(1, moved(10, &[(2, 6), (3, 2)])), (2, here()), (3, here())];
        let all = |referenced| {
            let state = state(&places, &[(1, referenced)]);
            [2, 3].map(|file| reached(&state, file).0)
        };
        assert_eq!(all(10), [6, 2]);
        assert_eq!(all(5), [3, 1]);
        assert_eq!(all(1), [1, 1]);
        assert_eq!(all(0), [0, 0]);
        let dead = |referenced| state(&places, &[(1, referenced)]).moved_away();
        assert_eq!([10, 5, 0].map(dead), [200, 100, 0].map(|dead| Away { dead, saved: 0 }));
        // Nothing was moved, yet the dead are still referenced: who follows such a name hears that the record was dead.
        let nothing = state(&[(1, moved(3, &[]))], &[(1, 3)]);
        assert!(nothing.unreachable().is_empty());
    }

    #[test]
    fn what_was_saved_by_compression_is_told_from_what_was_dead() {
        // Of ten records of 200 B two were dead, and the others have 100 B each now.
        let places = [(1, compressed(10, 800, &[(2, 8)])), (2, here())];
        let away = |referenced| {
            let mut state = state(&places, &[(1, referenced)]);
            state.referenced.0.values_mut().for_each(|referenced| referenced.bytes *= 2);
            (state.moved_away(), reached(&state, 2))
        };
        assert_eq!(away(10), (Away { dead: 400, saved: 800 }, (8, 800)));
        assert_eq!(away(5), (Away { dead: 200, saved: 400 }, (4, 400)));
    }

    #[test]
    fn what_was_just_moved_seems_to_live_however_little_was_known_of_it() {
        // Of twenty half are referenced, and it is not known which: so each of the two extents seems to be half garbage. The first
        // is not; after it was emptied nothing in what came of it seems dead.
        let mut places = vec![(1, moved(20, &[(2, 10), (3, 10)])), (2, here()), (3, here()), (4, here())];
        let before = state(&places, &[(1, 10)]);
        assert_eq!([2, 3].map(|file| reached(&before, file).0), [5, 5]);
        places[1].1 = moved(5, &[(4, 10)]);
        assert_eq!(reached(&state(&places, &[(1, 10)]), 4).0, 10);
        assert_eq!(reached(&state(&places, &[(1, 5)]), 4).0, 6);
    }

    #[test]
    fn a_place_is_refused_that_leads_back_or_to_nothing() {
        for to in [&[(1, 1)][..], &[(5, 1)], &[(3, 1), (5, 1)]] {
            let mut state = state(&[(1, here()), (2, here()), (3, here())], &[]);
            let edit = Edit { values_placed: vec![(FileId(2), moved(9, to))], ..Edit::default() };
            assert!(state.apply(&edit).is_err(), "{to:?}");
        }
    }
}
