//! What the manifest and tables say of values that lie apart from their keys: in which file, and how much of it is named.
//!
//! A file is *named* by the addresses in tables. Each table counts the names in it by file, and the ledger of the manifest
//! has the sums, so a file that nothing names, directly or through what moved into it, can go. Diagrams:
//! `docs/formats/values.md`.

use std::collections::BTreeMap;

use super::edit::Edit;
use crate::base::varint::{put, take};
use crate::base::{Address, FileId};

/// Records that are named, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Named {
    /// How many.
    pub records: u64,
    /// Their bytes, with headers and keys.
    pub bytes: u64,
    /// No record that is named reaches beyond this offset. What is no longer named does not lower it.
    pub end: u64,
}

impl Named {
    /// Both together.
    pub fn add(&mut self, other: Named) {
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.end = self.end.max(other.end);
    }

    /// What is left without the other; `None` if there is less than that.
    pub fn checked_sub(self, other: Named) -> Option<Named> {
        let records = self.records.checked_sub(other.records)?;
        Some(Named { records, bytes: self.bytes.checked_sub(other.bytes)?, end: self.end })
    }
}

/// Names by file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(pub BTreeMap<FileId, Named>);

impl Names {
    /// One more name.
    pub fn count(&mut self, address: Address) {
        let bytes = address.len.into();
        self.add(address.file, Named { records: 1, bytes, end: address.offset.saturating_add(bytes) });
    }

    /// More names of one file.
    pub fn add(&mut self, file: FileId, named: Named) {
        self.0.entry(file).or_default().add(named);
    }

    /// All names of another list.
    pub fn add_all(&mut self, other: &Names) {
        other.0.iter().for_each(|(file, named)| self.add(*file, *named));
    }

    /// Takes names away; says which file has fewer than that.
    pub fn remove_all(&mut self, other: &Names) -> Result<(), FileId> {
        for (file, named) in &other.0 {
            let left = self.0.get(file).copied().unwrap_or_default().checked_sub(*named).ok_or(*file)?;
            match (left.records, left.bytes) == (0, 0) {
                true => drop(self.0.remove(file)),
                false => drop(self.0.insert(*file, left)),
            }
        }
        Ok(())
    }

    /// What is named in a file.
    pub fn of(&self, file: FileId) -> Named {
        self.0.get(&file).copied().unwrap_or_default()
    }

    /// Appends the encoding: how many files, then number, records, bytes and end of each.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.0.len() as u64);
        for (file, named) in &self.0 {
            [file.0, named.records, named.bytes, named.end].into_iter().for_each(|number| put(out, number));
        }
    }

    /// Takes names off the front of `bytes`; `None` if they are malformed.
    pub fn take(bytes: &mut &[u8]) -> Option<Names> {
        let count = take(bytes)?;
        let mut names = Names::default();
        for _ in 0..count {
            let file = FileId(take(bytes)?);
            let named = Named { records: take(bytes)?, bytes: take(bytes)?, end: take(bytes)? };
            if names.0.insert(file, named).is_some() {
                return None;
            }
        }
        Some(names)
    }
}

/// Where the records of a file of values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValuePlace {
    /// In a log that has left the front, up to `end`.
    Log {
        /// Where it ends, in bytes.
        end: u64,
    },
    /// In a segment of `end` bytes.
    Segment {
        /// Its length, in bytes.
        end: u64,
    },
    /// Gone from the file: redirect table `redirect` says where in segment `to` they are now.
    Moved {
        /// The redirect table.
        redirect: FileId,
        /// Its length, in bytes.
        len: u64,
        /// The segment that holds what was live; its number is higher than this file's.
        to: FileId,
    },
}

/// Stored: do not renumber.
mod tag {
    pub const LOG: u64 = 0;
    pub const SEGMENT: u64 = 1;
    pub const MOVED: u64 = 2;
}

impl ValuePlace {
    /// Appends the encoding.
    pub fn encode(self, out: &mut Vec<u8>) {
        match self {
            ValuePlace::Log { end } => [tag::LOG, end].into_iter().for_each(|number| put(out, number)),
            ValuePlace::Segment { end } => [tag::SEGMENT, end].into_iter().for_each(|number| put(out, number)),
            ValuePlace::Moved { redirect, len, to } => {
                [tag::MOVED, redirect.0, len, to.0].into_iter().for_each(|number| put(out, number));
            }
        }
    }

    /// Takes a place off the front of `bytes`; `None` if it is malformed.
    pub fn take(bytes: &mut &[u8]) -> Option<ValuePlace> {
        Some(match take(bytes)? {
            tag::LOG => ValuePlace::Log { end: take(bytes)? },
            tag::SEGMENT => ValuePlace::Segment { end: take(bytes)? },
            tag::MOVED => {
                ValuePlace::Moved { redirect: FileId(take(bytes)?), len: take(bytes)?, to: FileId(take(bytes)?) }
            }
            _ => return None,
        })
    }
}

/// All files of values, and the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueState {
    /// Where the records of each file are.
    pub places: BTreeMap<FileId, ValuePlace>,
    /// What tables name, by the file in their addresses; logs of the front included.
    pub named: Names,
}

impl ValueState {
    /// Applies what an edit says of values; says what is wrong if it contradicts what came before.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        self.named.add_all(&edit.named);
        let unnamed = self.named.remove_all(&edit.unnamed);
        unnamed.map_err(|file| format!("more names of file {} were removed than there were", file.0))?;
        for (file, place) in &edit.values_placed {
            if let ValuePlace::Moved { to, .. } = place
                && (to <= file || !self.places.contains_key(to))
            {
                return Err(format!("file {} moved into {}, which is no place for it", file.0, to.0));
            }
            self.places.insert(*file, *place);
        }
        for file in &edit.values_removed {
            if self.places.remove(file).is_none() {
                return Err(format!("values {} were removed before they were added", file.0));
            }
        }
        Ok(())
    }

    /// What can be reached in each file: by its own name, and through those whose records have moved into it. A bound from
    /// above, which holds as long as what is named was moved.
    pub fn reach(&self) -> Names {
        let mut reach = self.named.clone();
        // A file's records only move into one with a higher number.
        for (file, place) in &self.places {
            if let ValuePlace::Moved { to, .. } = place {
                let moved = reach.of(*file);
                if moved.records > 0 {
                    reach.add(*to, moved);
                }
            }
        }
        reach
    }

    /// Files that nothing leads to.
    pub fn unreachable(&self) -> Vec<FileId> {
        let reach = self.reach();
        self.places.keys().copied().filter(|file| reach.of(*file).records == 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[(u64, u64)]) -> Names {
        Names(
            of.iter()
                .map(|&(file, records)| (FileId(file), Named { records, bytes: records * 100, end: 7000 }))
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
            ValuePlace::Segment { end: 1 << 40 },
            ValuePlace::Moved { redirect: FileId(5), len: 4096, to: FileId(6) },
        ];
        places.iter().for_each(|place| place.encode(&mut bytes));
        let rest = &mut &bytes[..];
        assert_eq!(Names::take(rest), Some(all));
        for place in places {
            assert_eq!(ValuePlace::take(rest), Some(place));
        }
        assert!(rest.is_empty());
        for cut in 0..bytes.len() - 1 {
            let rest = &mut &bytes[..cut];
            let whole = Names::take(rest).is_some() && (0..3).all(|_| ValuePlace::take(rest).is_some());
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

    #[test]
    fn a_file_is_reached_through_all_that_moved_into_it() {
        let moved = |to| ValuePlace::Moved { redirect: FileId(to + 100), len: 1, to: FileId(to) };
        let places =
            [(1, moved(3)), (2, ValuePlace::Log { end: 1 }), (3, moved(4)), (4, ValuePlace::Segment { end: 1 })];
        let places: BTreeMap<_, _> = places.into_iter().map(|(id, place)| (FileId(id), place)).collect();
        let mut state = ValueState { places, named: names(&[(1, 2), (4, 1)]) };
        assert_eq!(state.reach(), names(&[(1, 2), (3, 2), (4, 3)]));
        assert_eq!(state.unreachable(), [FileId(2)]);
        state.named = names(&[(4, 1)]);
        assert_eq!(state.unreachable(), [FileId(1), FileId(2), FileId(3)]);
    }
}
