//! The numbers of new files. The manifest reserves them in blocks before they are assigned, so that a later open can
//! recognise unreferenced files that this database has created: their numbers are in a reserved range.
//!
//! The last few numbers of a block are for manifests: the manifest that reserves the next block needs one itself.
//! Called by `lifecycle/open.rs` and `core.rs`.

use crate::base::limits::FILE_ID_MAX;
use crate::base::{FileId, Result};
use crate::engine::manifest::usable;
use crate::sched::sync::Mutex;

/// Numbers at the end of a block that are kept for manifests.
const KEPT: u64 = 4;

/// The next number, and the end of the reserved range.
pub(crate) struct FileNumbers {
    range: Mutex<Range>,
    /// The size of a block.
    block: u64,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    next: u64,
    end: u64,
}

impl FileNumbers {
    /// Numbers from `next` on; those below `end` are durably reserved.
    pub fn new(next: FileId, end: FileId, block: u64) -> FileNumbers {
        FileNumbers { range: Mutex::new(Range { next: next.0, end: end.0 }), block: block.max(4 * KEPT) }
    }

    /// A reserved number; `None` if the next block must be reserved first.
    pub fn take(&self) -> Option<FileId> {
        let mut range = self.range.lock();
        (range.next + KEPT < range.end).then(|| range.take())
    }

    /// A number for a manifest. If the reserved range is used up, the number is not reserved: if a crash then comes
    /// before the manifest is current, its file stays and is reported as unknown.
    pub fn take_for_manifest(&self) -> Result<FileId> {
        usable(self.range.lock().take())
    }

    /// Files created from now on have at least this number.
    pub fn next(&self) -> FileId {
        FileId(self.range.lock().next.min(FILE_ID_MAX + 1))
    }

    /// The number given out last. All files have at most this number.
    pub fn newest(&self) -> FileId {
        FileId(self.next().0.saturating_sub(1))
    }

    /// True if less than half a block is left, so that the next edit should reserve another one.
    pub fn is_low(&self) -> bool {
        let range = self.range.lock();
        range.next + self.block / 2 > range.end
    }

    /// The block to be reserved next; `None` if there are no numbers left. `taken` are the numbers of existing files:
    /// the block begins after them, or in the first gap if few numbers are left after them.
    pub fn next_block(&self, taken: impl IntoIterator<Item = FileId>) -> Option<(FileId, FileId)> {
        let reserved = self.range.lock().end;
        let mut taken: Vec<u64> = taken.into_iter().map(|id| id.0).filter(|id| *id >= reserved).collect();
        taken.sort_unstable();
        let mut from = taken.last().map_or(reserved, |last| last + 1);
        let mut limit = FILE_ID_MAX + 1;
        if from > FILE_ID_MAX / 2 {
            from = reserved;
            for id in taken {
                if id >= from + 4 * KEPT {
                    limit = id;
                    break;
                }
                from = id + 1;
            }
        }
        let end = from.saturating_add(self.block).min(limit);
        (from < end).then_some((FileId(from), FileId(end)))
    }

    /// Notes that a block is durably reserved.
    pub fn add(&self, (from, end): (FileId, FileId)) {
        let mut range = self.range.lock();
        if from.0 != range.end {
            range.next = range.next.max(from.0);
        }
        range.end = end.0;
    }
}

impl Range {
    fn take(&mut self) -> FileId {
        self.next += 1;
        FileId(self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_assigned_only_from_reserved_blocks_and_manifests_always_get_one() {
        let numbers = FileNumbers::new(FileId(7), FileId(7), 16);
        assert_eq!((numbers.take(), numbers.is_low()), (None, true));
        let block = numbers.next_block([FileId(6)]).unwrap();
        assert_eq!(block, (FileId(7), FileId(23)));
        numbers.add(block);
        let given: Vec<_> = std::iter::from_fn(|| numbers.take()).map(|id| id.0).collect();
        assert_eq!(given, (7..19).collect::<Vec<_>>());
        assert_eq!(numbers.take_for_manifest().unwrap(), FileId(19));
        numbers.add(numbers.next_block([FileId(22)]).unwrap());
        assert_eq!(numbers.take(), Some(FileId(20)));
        // A foreign file in the way of the next block.
        assert_eq!(numbers.next_block([FileId(1000), FileId(50)]), Some((FileId(1001), FileId(1017))));
        numbers.add((FileId(1001), FileId(1017)));
        assert_eq!((numbers.take(), numbers.next()), (Some(FileId(1001)), FileId(1002)));
        let stray = [FILE_ID_MAX, 1020, 1017, 2000].map(FileId);
        assert_eq!(numbers.next_block(stray), Some((FileId(1021), FileId(1037))));
        numbers.add((FileId(FILE_ID_MAX - 3), FileId(FILE_ID_MAX + 1)));
        assert_eq!(numbers.next_block([]), None);
    }
}
