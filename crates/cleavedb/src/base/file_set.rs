//! A set of file numbers that is asked once for each entry of many tables. Built by value GC, asked by the cursors of
//! `levels/` and the blocks of `format/`.

use std::collections::BTreeSet;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::address::FileId;

/// A set of files that does not change.
#[derive(Debug, Clone, Default)]
pub struct FileSet {
    sorted: BTreeSet<FileId>,
    hashed: HashSet<FileId, FixedState>,
}

impl FileSet {
    /// True if the file is in the set. O(1).
    #[inline]
    pub fn contains(&self, file: FileId) -> bool {
        self.hashed.contains(&file)
    }

    /// True if a file from `first` to `last`, both included, is in the set. O(log n).
    pub fn has_between(&self, first: FileId, last: FileId) -> bool {
        first <= last && self.sorted.range(first..=last).next().is_some()
    }
}

impl From<BTreeSet<FileId>> for FileSet {
    fn from(sorted: BTreeSet<FileId>) -> FileSet {
        let hashed = sorted.iter().copied().collect();
        FileSet { sorted, hashed }
    }
}
