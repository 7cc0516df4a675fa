//! Where the manifest says that separated values are stored: the places of value files, and their encoding. Diagram:
//! `docs/formats/values.md`.
//!
//! Part of manifest edits; read by value GC, which moves records between places.

use std::sync::Arc;

use super::group::Group;
use crate::base::FileId;
use crate::base::varint::{put, take};

/// How the records of an extent are used: how often they change (HashKV section 3.4), or that they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Temperature {
    /// New, or changed since the last GC of the group.
    Hot,
    /// Not changed since then.
    Cold,
    /// Of all keys; their values were cached when they were moved. On the fast tier, as long as it has room.
    Read,
}

/// Where the records of a value file are. A value file is a log that has left the front, or an *extent*: a section of a
/// segment with a file number of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValuePlace {
    /// In a log that has left the front, up to `end`.
    Log {
        /// Where the log ends, in bytes.
        end: u64,
    },
    /// In a segment, from `start` to `end`.
    Extent {
        /// The file number of the segment.
        segment: FileId,
        /// Where the extent starts, in bytes: a multiple of `EXTENT_ALIGN`.
        start: u64,
        /// Where the extent ends, in bytes.
        end: u64,
        /// Which keys the records have.
        group: Group,
        /// How often the records change.
        temperature: Temperature,
    },
    /// Moved out of the file by value GC: a redirect table has the new addresses.
    Moved {
        /// The file that contains the redirect table.
        redirect: FileId,
        /// Where the table starts in that file, in bytes.
        start: u64,
        /// Length of the table, in bytes.
        len: u64,
        /// Number of records in the file that were reachable when GC emptied it, including dead records that were still
        /// referenced. At least the number of records moved, unless all of those are known to be live.
        reachable: u64,
        /// Bytes that compressing the values saved; the redirect table then stores the new length of each record.
        /// `None` if it does not, because no record changed its length.
        saved: Option<u64>,
        /// The extents that received the live records, and how much each received; their file numbers are higher than
        /// this file's.
        to: Arc<[(FileId, Moved)]>,
    },
}

/// Extents start at multiples of this, in bytes, so that the space of each can be freed on its own.
pub const EXTENT_ALIGN: u64 = 4096;

/// Records that were moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of records.
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
    pub const READ_EXTENT: u64 = 5;
}

impl ValuePlace {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ValuePlace::Log { end } => [tag::LOG, *end].into_iter().for_each(|number| put(out, number)),
            ValuePlace::Extent { segment, start, end, group, temperature } => {
                let tag = match temperature {
                    Temperature::Hot => tag::HOT_EXTENT,
                    Temperature::Cold => tag::COLD_EXTENT,
                    Temperature::Read => tag::READ_EXTENT,
                };
                [tag, segment.0, *start, *end].into_iter().for_each(|number| put(out, number));
                group.encode(out);
            }
            ValuePlace::Moved { redirect, start, len, reachable, saved, to } => {
                let tag = if saved.is_some() { tag::MOVED_COMPRESSED } else { tag::MOVED };
                let fields =
                    [tag, redirect.0, *start, *len, *reachable].into_iter().chain(*saved).chain([to.len() as u64]);
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
            let is_valid = start.is_multiple_of(EXTENT_ALIGN) && start <= end;
            is_valid.then_some(ValuePlace::Extent { segment, start, end, group, temperature })
        };
        let tag = take(bytes)?;
        match tag {
            tag::LOG => Some(ValuePlace::Log { end: take(bytes)? }),
            tag::HOT_EXTENT => extent(Temperature::Hot, bytes),
            tag::COLD_EXTENT => extent(Temperature::Cold, bytes),
            tag::READ_EXTENT => extent(Temperature::Read, bytes),
            tag::MOVED | tag::MOVED_COMPRESSED => {
                let (redirect, start, len) = (FileId(take(bytes)?), take(bytes)?, take(bytes)?);
                start.checked_add(len)?;
                let reachable = take(bytes)?;
                let saved = if tag == tag::MOVED_COMPRESSED { Some(take(bytes)?) } else { None };
                let count = take(bytes)?;
                let mut to = Vec::new();
                for _ in 0..count {
                    to.push((FileId(take(bytes)?), Moved { records: take(bytes)?, bytes: take(bytes)? }));
                }
                Some(ValuePlace::Moved { redirect, start, len, reachable, saved, to: to.into() })
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

    /// The file on storage that contains the place, if it is not the value file itself: a segment, or the file of a
    /// redirect table.
    pub fn container(&self) -> Option<FileId> {
        match self {
            ValuePlace::Log { .. } => None,
            ValuePlace::Extent { segment, .. } => Some(*segment),
            ValuePlace::Moved { redirect, .. } => Some(*redirect),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::group::HashGroup;
    use crate::format::interval::Interval;

    #[test]
    fn places_round_trip_and_truncated_ones_are_rejected() {
        let moved = |saved| ValuePlace::Moved {
            redirect: FileId(100),
            start: 8192,
            len: 4096,
            reachable: 9,
            saved,
            to: [(FileId(6), Moved { records: 3, bytes: 300 }), (FileId(9), Moved { records: 5, bytes: 500 })].into(),
        };
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
            ValuePlace::Extent {
                segment: FileId(4),
                start: 4096,
                end: 4200,
                group: Group::ALL,
                temperature: Temperature::Read,
            },
            moved(None),
            moved(Some(100)),
        ];
        let mut bytes = Vec::new();
        places.iter().for_each(|place| place.encode(&mut bytes));
        let rest = &mut &bytes[..];
        for place in &places {
            assert_eq!(ValuePlace::take(rest).as_ref(), Some(place));
        }
        assert!(rest.is_empty());
        for cut in 0..bytes.len() - 1 {
            let rest = &mut &bytes[..cut];
            assert!(!places.iter().all(|_| ValuePlace::take(rest).is_some()), "cut at {cut}");
        }
    }
}
