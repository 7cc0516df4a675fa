//! Where numbered files lie: the directories of a database, the one function that gives the path of a file (manifests have
//! their own in `file.rs`, since they lie beside `CURRENT`), and the one place that chooses the tier of a new file. Of a file that exists, the manifest says where it is.

use std::path::{Path, PathBuf};

use crate::base::{FileId, FileKey, FileKind, Tier};
use crate::engine::manifest::file_names::name;

/// The directories of a database, one for each tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dirs {
    pub fast: PathBuf,
    pub slow: PathBuf,
}

impl Dirs {
    /// The directory of a tier.
    pub fn of(&self, tier: Tier) -> &Path {
        match tier {
            Tier::Fast => &self.fast,
            Tier::Slow => &self.slow,
        }
    }

    /// The slow tier has a directory of its own.
    pub fn are_apart(&self) -> bool {
        self.fast != self.slow
    }

    /// The path of a numbered file.
    pub fn path(&self, file: FileKey) -> PathBuf {
        self.of(file.tier).join(name(file.kind, file.id))
    }
}

/// The tier on which a new file is made.
pub(crate) fn tier_of_new(kind: FileKind) -> Tier {
    match kind {
        FileKind::Log | FileKind::Manifest => Tier::Fast,
        FileKind::Table | FileKind::Segment | FileKind::Redirect => Tier::Slow,
    }
}

/// A new file.
pub(crate) fn new_file(kind: FileKind, id: FileId) -> FileKey {
    FileKey { kind, id, tier: tier_of_new(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_lies_in_the_directory_of_its_tier_whatever_its_kind() {
        let dirs = Dirs { fast: PathBuf::from("/fast"), slow: PathBuf::from("/slow") };
        for kind in FileKind::ALL {
            for tier in Tier::ALL {
                let path = dirs.path(FileKey { kind, id: FileId(7), tier });
                assert_eq!(path.parent(), Some(dirs.of(tier)));
                assert_eq!(path.file_name().and_then(|found| found.to_str()), Some(&*name(kind, FileId(7))));
            }
        }
    }
}
