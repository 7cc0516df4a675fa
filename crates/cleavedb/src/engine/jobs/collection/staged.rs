//! The bytes of records, kept from the read of their keys until they are written: a collection whose live records fit into
//! memory reads its files once.

use std::num::NonZeroU32;

use crate::io::Pages;

/// The bytes of some of the records that a job has read, one after the other.
#[derive(Default)]
pub(super) struct StagedRecords {
    bytes: Pages,
    len: usize,
}

impl StagedRecords {
    /// Memory for records of `bytes_max` bytes in all; 0: none is kept.
    pub fn at_most(bytes_max: usize) -> StagedRecords {
        StagedRecords { bytes: Pages::zeroed(bytes_max.min(u32::MAX as usize - 1)), len: 0 }
    }

    /// Keeps a record, if there is room: where it is, for [`StagedRecords::get`].
    pub fn add(&mut self, record: &[u8]) -> Option<NonZeroU32> {
        let room = self.bytes.get_mut(self.len..self.len + record.len())?;
        room.copy_from_slice(record);
        self.len += record.len();
        // One more than its offset, which fits: it ends within the buffer.
        NonZeroU32::new((self.len - record.len()) as u32 + 1)
    }

    /// The record of `len` bytes kept there.
    pub fn get(&self, at: NonZeroU32, len: u32) -> &[u8] {
        let start = at.get() as usize - 1;
        &self.bytes[start..start + len as usize]
    }

    /// Forgets all records.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_while_there_is_room() {
        let mut staged = StagedRecords::at_most(5);
        let (one, two) = (staged.add(b"one").unwrap(), staged.add(b"tw").unwrap());
        assert!(staged.add(b"x").is_none());
        assert_eq!((staged.get(one, 3), staged.get(two, 2)), (&b"one"[..], &b"tw"[..]));
        staged.clear();
        let again = staged.add(b"again").unwrap();
        assert_eq!(staged.get(again, 5), b"again");
        assert!(StagedRecords::at_most(0).add(b"x").is_none());
    }
}
