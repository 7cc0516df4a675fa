//! Where numbered files lie: the directories of a database, the one function that gives the path of a file (manifests have
//! their own in `file.rs`, since they lie beside `CURRENT`), and the one place that chooses the directory of a new file. Of a
//! file that exists, the manifest says where it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::base::{DirId, FileKey, FileKind, Tier};
use crate::engine::manifest::file_names::name;

/// The directories that an open declares, as absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredDirs {
    /// Of the manifest and the logs.
    pub fast: PathBuf,
    /// Of everything else.
    pub slow: PathBuf,
    /// The caller named `fast`, instead of leaving it to the default.
    pub names_fast: bool,
    /// The caller named `slow`.
    pub names_slow: bool,
    /// The path under which the storage has the declared KV device.
    pub device: Option<PathBuf>,
}

impl DeclaredDirs {
    /// The slow tier is to have a directory of its own.
    pub fn are_apart(&self) -> bool {
        self.fast != self.slow
    }
}

/// The directories of a database while it is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dirs {
    home: PathBuf,
    slow: DirId,
    /// The declared KV device, which is one of the others.
    device: Option<DirId>,
    /// The directory of the slow tier, those that still have files of an earlier one, and the KV device.
    others: BTreeMap<DirId, PathBuf>,
}

impl Dirs {
    /// A database in one directory.
    pub fn one(home: PathBuf) -> Dirs {
        Dirs { home, slow: DirId::HOME, device: None, others: BTreeMap::new() }
    }

    /// A database with its manifest in `home`; `slow` is `DirId::HOME` or one of `others`.
    pub fn new(home: PathBuf, slow: DirId, others: BTreeMap<DirId, PathBuf>) -> Dirs {
        assert!(slow == DirId::HOME || others.contains_key(&slow), "the slow tier is one of the directories");
        Dirs { home, slow, device: None, others }
    }

    /// The same with a KV device, which is one of the directories.
    pub fn with_device(self, device: Option<DirId>) -> Dirs {
        assert!(device.is_none_or(|device| self.others.contains_key(&device)), "the device is one of the directories");
        Dirs { device, ..self }
    }

    /// The declared KV device, on which logs are born during redirects.
    pub fn device(&self) -> Option<DirId> {
        self.device
    }

    /// The directory of the manifest and of the fast tier.
    pub fn fast(&self) -> &Path {
        &self.home
    }

    /// The directory in which the slow tier gets new files.
    pub fn slow(&self) -> &Path {
        self.of(self.slow)
    }

    /// The number of that directory.
    pub fn slow_id(&self) -> DirId {
        self.slow
    }

    /// The slow tier has a directory of its own.
    pub fn are_apart(&self) -> bool {
        self.slow != DirId::HOME
    }

    /// The path of a directory.
    pub fn of(&self, dir: DirId) -> &Path {
        match dir {
            DirId::HOME => &self.home,
            dir => self.others.get(&dir).expect("files lie in directories that the manifest has"),
        }
    }

    /// All directories.
    pub fn all(&self) -> impl Iterator<Item = (DirId, &Path)> {
        std::iter::once((DirId::HOME, &*self.home)).chain(self.others())
    }

    /// All directories but that of the manifest.
    pub fn others(&self) -> impl Iterator<Item = (DirId, &Path)> {
        self.others.iter().map(|(dir, path)| (*dir, &**path))
    }

    /// The tier of a directory; that of the manifest is the fast one, even if it is the only one.
    pub fn tier(&self, dir: DirId) -> Tier {
        if dir == DirId::HOME { Tier::Fast } else { Tier::Slow }
    }

    /// The tier of the directory in which the slow tier gets new files: the fast one if there is no other.
    pub fn slow_tier(&self) -> Tier {
        self.tier(self.slow)
    }

    /// The tier on which a file or directory of the database lies; the fast one of what lies elsewhere.
    pub fn tier_of(&self, path: &Path) -> Tier {
        let is_there = |(_, dir): (DirId, &Path)| path == dir || path.parent() == Some(dir);
        if self.others().any(is_there) { Tier::Slow } else { Tier::Fast }
    }

    /// As [`tier_of`](Dirs::tier_of), for messages: `None` if there is one directory, or the file lies in none of them.
    pub fn named_tier_of(&self, path: &Path) -> Option<Tier> {
        let is_there = |(_, dir): (DirId, &Path)| path == dir || path.parent() == Some(dir);
        (!self.others.is_empty() && self.all().any(is_there)).then(|| self.tier_of(path))
    }

    /// The path of a numbered file.
    pub fn path(&self, file: FileKey) -> PathBuf {
        self.of(file.dir).join(name(file.kind, file.id))
    }

    /// The directory in which new files of a kind are made.
    pub fn of_new(&self, kind: FileKind) -> DirId {
        match kind {
            FileKind::Log | FileKind::Manifest => DirId::HOME,
            FileKind::Table | FileKind::Segment | FileKind::Redirect | FileKind::Index => self.slow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::FileId;

    #[test]
    fn a_file_lies_in_its_directory_whatever_its_kind() {
        let (slow, former) = (DirId(4), DirId(2));
        let others = BTreeMap::from([(slow, PathBuf::from("/slow")), (former, PathBuf::from("/former"))]);
        let dirs = Dirs::new(PathBuf::from("/fast"), slow, others);
        for kind in FileKind::ALL {
            for (dir, path) in dirs.all() {
                let file = dirs.path(FileKey { kind, id: FileId(7), dir });
                assert_eq!(file, path.join(name(kind, FileId(7))));
            }
        }
        let tiers =
            ["/slow/1.table", "/former", "/fast/1.log", "/fast", "/else"].map(|path| dirs.tier_of(Path::new(path)));
        assert_eq!(tiers, [Tier::Slow, Tier::Slow, Tier::Fast, Tier::Fast, Tier::Fast]);
        let named = ["/slow/1.table", "/fast", "/else"].map(|path| dirs.named_tier_of(Path::new(path)));
        assert_eq!(named, [Some(Tier::Slow), Some(Tier::Fast), None]);
        assert_eq!(Dirs::one(PathBuf::from("/db")).named_tier_of(Path::new("/db/1.log")), None);
        assert_eq!((dirs.slow_tier(), Dirs::one(PathBuf::from("/db")).slow_tier()), (Tier::Slow, Tier::Fast));
        assert_eq!((dirs.fast(), dirs.slow()), (Path::new("/fast"), Path::new("/slow")));
        assert_eq!([DirId::HOME, slow, former].map(|dir| dirs.tier(dir)), [Tier::Fast, Tier::Slow, Tier::Slow]);
    }

    #[test]
    fn all_files_of_a_database_with_one_directory_are_made_there() {
        let dirs = Dirs::one(PathBuf::from("/db"));
        assert!(!dirs.are_apart());
        assert!(FileKind::ALL.into_iter().all(|kind| dirs.of_new(kind) == DirId::HOME));
    }
}
