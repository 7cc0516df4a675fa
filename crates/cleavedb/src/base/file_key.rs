//! What identifies a numbered file: its kind, its id, and the tier of storage that it lies on. The manifest has the key of
//! each file, and one function of the engine gives the path (`engine/manifest/files.rs`). An address has the id only, so a file
//! can change its tier while addresses lead to it.

use super::FileId;

/// Storage of one speed: a directory. Both tiers may be the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The directory of the logs and the manifest.
    Fast,
    /// The directory that the option `slow_dir` names.
    Slow,
}

impl Tier {
    /// Both.
    pub const ALL: [Tier; 2] = [Tier::Fast, Tier::Slow];

    /// The stored form: do not renumber.
    pub fn to_stored(self) -> u64 {
        match self {
            Tier::Fast => 1,
            Tier::Slow => 2,
        }
    }

    /// The tier that is stored as this number.
    pub fn from_stored(stored: u64) -> Option<Tier> {
        Tier::ALL.into_iter().find(|tier| tier.to_stored() == stored)
    }
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
}

impl FileKind {
    /// All kinds.
    pub const ALL: [FileKind; 5] =
        [FileKind::Log, FileKind::Table, FileKind::Manifest, FileKind::Segment, FileKind::Redirect];

    /// The stored form: do not renumber.
    pub fn to_stored(self) -> u64 {
        match self {
            FileKind::Log => 1,
            FileKind::Table => 2,
            FileKind::Manifest => 3,
            FileKind::Segment => 4,
            FileKind::Redirect => 5,
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
    /// Where it lies.
    pub tier: Tier,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_tiers_are_known_by_their_stored_numbers() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::from_stored(kind.to_stored()), Some(kind));
        }
        for tier in Tier::ALL {
            assert_eq!(Tier::from_stored(tier.to_stored()), Some(tier));
        }
        assert_eq!((FileKind::from_stored(0), Tier::from_stored(0)), (None, None));
    }
}
