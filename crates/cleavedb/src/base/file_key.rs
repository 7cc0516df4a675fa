//! What identifies a numbered file: its kind, its id, and the directory that it lies in. The manifest has the key of each
//! file, and one function of the engine gives the path (`engine/manifest/files.rs`). An address has the id only, so a file
//! can move to another directory while addresses lead to it.

use super::FileId;

/// The number of a directory of a database. The manifest has the path of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirId(pub u64);

impl DirId {
    /// The directory of the manifest, the logs, and everything else that needs fast storage.
    pub const HOME: DirId = DirId(1);
}

/// A kind of numbered file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A log, whether the front still needs it or only values are left in it.
    Log,
    /// A sorted table.
    Table,
    /// A manifest.
    Manifest,
    /// Extents of values.
    Segment,
    /// Redirect tables.
    Redirect,
    /// A checkpoint of the indexes of hash keyspaces.
    Index,
}

impl FileKind {
    /// All kinds.
    pub const ALL: [FileKind; 6] =
        [FileKind::Log, FileKind::Table, FileKind::Manifest, FileKind::Segment, FileKind::Redirect, FileKind::Index];

    /// The stored form: do not renumber.
    pub fn to_stored(self) -> u64 {
        match self {
            FileKind::Log => 1,
            FileKind::Table => 2,
            FileKind::Manifest => 3,
            FileKind::Segment => 4,
            FileKind::Redirect => 5,
            FileKind::Index => 6,
        }
    }

    /// The kind that is stored as this number.
    pub fn from_stored(stored: u64) -> Option<FileKind> {
        FileKind::ALL.into_iter().find(|kind| kind.to_stored() == stored)
    }
}

/// A numbered file. Ids are unique among all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileKey {
    /// What is in it.
    pub kind: FileKind,
    /// Its number, never reused.
    pub id: FileId,
    /// The directory it lies in.
    pub dir: DirId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_stored_numbers() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::from_stored(kind.to_stored()), Some(kind));
        }
        assert_eq!(FileKind::from_stored(0), None);
    }
}
