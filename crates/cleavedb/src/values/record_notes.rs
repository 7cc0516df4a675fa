//! Notes of records by file, in memory: those that tables begin to reference, or reference no more. Flushes, collections and
//! compactions write them; a survey is kept up to date with them.

use std::collections::BTreeMap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::base::{Address, FileId};

const LEN_BITS: u32 = 24;
const LEN_MAX: u64 = (1 << LEN_BITS) - 1;
const OFFSET_LIMIT: u64 = 1 << (u64::BITS - LEN_BITS);

/// A noted record: its offset and its length, which is cut at 16 MiB. Ordered by offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotedRecord(u64);

impl NotedRecord {
    /// A note; `None` if the offset has more than 40 bits.
    pub fn new(offset: u64, len: u32) -> Option<NotedRecord> {
        (offset < OFFSET_LIMIT).then(|| NotedRecord(offset << LEN_BITS | u64::from(len).min(LEN_MAX)))
    }

    /// The offset in the file.
    pub fn offset(self) -> u64 {
        self.0 >> LEN_BITS
    }

    /// The length, in bytes.
    pub fn len(self) -> u32 {
        (self.0 & LEN_MAX) as u32
    }
}

/// Notes of records, by file.
#[derive(Debug, Default)]
pub struct RecordNotes {
    files: HashMap<FileId, Vec<NotedRecord>, FixedState>,
    left: usize,
    is_complete: bool,
}

impl RecordNotes {
    /// No notes yet; there may be `most`, eight bytes each.
    pub fn at_most(most: usize) -> RecordNotes {
        RecordNotes { files: HashMap::default(), left: most, is_complete: true }
    }

    /// Notes of which none was made.
    pub fn missed() -> RecordNotes {
        RecordNotes::default()
    }

    /// Notes a record, if there is room left.
    #[inline]
    pub fn note(&mut self, address: Address) {
        match NotedRecord::new(address.offset, address.len).filter(|_| self.left > 0) {
            Some(noted) => {
                self.left -= 1;
                self.files.entry(address.file).or_default().push(noted);
            }
            None => self.miss(),
        }
    }

    /// A record was not noted.
    pub fn miss(&mut self) {
        self.is_complete = false;
    }

    /// True if there was no record to note.
    pub fn is_empty(&self) -> bool {
        self.is_complete && self.files.is_empty()
    }

    /// True if every record was noted.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.files.values().map(|records| records.capacity() * size_of::<NotedRecord>()).sum()
    }

    /// The notes, by ascending file.
    pub fn into_files(self) -> BTreeMap<FileId, Vec<NotedRecord>> {
        self.files.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(file: u64, offset: u64, len: u32) -> Address {
        Address { file: FileId(file), offset, len, value_len: 0 }
    }

    #[test]
    fn records_are_noted_until_there_is_no_room() {
        let mut notes = RecordNotes::at_most(3);
        for (file, offset) in [(7, 4096), (3, 9), (7, (1 << 40) - 1)] {
            notes.note(address(file, offset, 100));
        }
        assert!(notes.is_complete());
        notes.note(address(3, 10, 100));
        assert!(!notes.is_complete());
        let offsets = |notes: Vec<NotedRecord>| notes.into_iter().map(NotedRecord::offset).collect::<Vec<_>>();
        let files: Vec<_> = notes.into_files().into_iter().map(|(file, notes)| (file.0, offsets(notes))).collect();
        assert_eq!(files, [(3, vec![9]), (7, vec![4096, (1 << 40) - 1])]);
        let mut notes = RecordNotes::at_most(3);
        notes.note(address(7, 1 << 40, 100));
        assert!(!notes.is_complete());
    }

    #[test]
    fn notes_keep_the_offset_and_a_length_below_16_mib() {
        for (offset, len, kept) in [(0, 0, 0), (12, 1047, 1047), ((1 << 40) - 1, u32::MAX, LEN_MAX as u32)] {
            let noted = NotedRecord::new(offset, len).unwrap();
            assert_eq!((noted.offset(), noted.len()), (offset, kept));
        }
    }
}
