//! Checkpoints and read-only opens on real files: across file systems, in directories without write permission, and
//! next to another process.

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cleavedb::{Db, Error, Options, Result};

fn options() -> Options {
    Options::new().memory_budget(16 << 20)
}

fn create_filled(path: &Path) -> Db {
    let db = options().open(path).unwrap();
    for number in 0..2000 {
        db.put(format!("{number:05}"), format!("{number}").repeat(100)).unwrap();
        if number == 1000 {
            db.flush().unwrap();
        }
    }
    db
}

fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut content: Vec<_> = paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    content.sort();
    content
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "table")).collect()
}

fn check(copy: &Path) {
    let db = options().create_if_missing(false).open(copy).unwrap();
    assert_eq!(db.iter().unwrap().count(), 2000);
    assert_eq!(db.get("01999").unwrap().unwrap(), "1999".repeat(100));
    db.put("new", "v").unwrap();
    db.close().unwrap();
}

#[test]
fn a_checkpoint_links_within_a_file_system_and_copies_across() {
    let dir = tempfile::tempdir().unwrap();
    let db = create_filled(&dir.path().join("db"));
    let near = dir.path().join("deep/er/copy");
    db.checkpoint(&near).unwrap();
    assert!(!tables(&near).is_empty() && tables(&near).iter().all(|path| path.metadata().unwrap().nlink() == 2));
    assert!(matches!(db.checkpoint(&near), Err(Error::InvalidInput { .. })));
    let inside = dir.path().join("db/../db/copy");
    assert!(matches!(db.checkpoint(&inside), Err(Error::InvalidInput { .. })));
    assert!(!dir.path().join("db/copy").exists());
    // A file system in memory, if there is one.
    if let Ok(far) = tempfile::tempdir_in("/dev/shm") {
        let far = far.path().join("copy");
        db.checkpoint(&far).unwrap();
        assert!(tables(&far).iter().all(|path| path.metadata().unwrap().nlink() == 1));
        check(&far);
    }
    db.close().unwrap();
    std::fs::remove_dir_all(dir.path().join("db")).unwrap();
    check(&near);
}

#[test]
fn a_read_only_open_needs_no_write_permission_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    create_filled(&path).close().unwrap();
    let before = content(&path);
    let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o555);
    for entry in std::fs::read_dir(&path).unwrap() {
        std::fs::set_permissions(entry.unwrap().path(), std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    let open = || -> Result<Db> { options().read_only(true).open(&path) };
    let (one, other) = (open().unwrap(), open().unwrap());
    assert_eq!(one.iter().unwrap().count(), 2000);
    assert_eq!(other.multi_get(["00001", "01999"]).into_iter().flatten().flatten().count(), 2);
    assert!(matches!(one.put("k", "v"), Err(Error::InvalidInput { .. })));
    one.close().unwrap();
    drop(other);
    set_mode(0o755);
    for entry in std::fs::read_dir(&path).unwrap() {
        std::fs::set_permissions(entry.unwrap().path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    assert!(content(&path) == before);
    let writer = options().open(&path).unwrap();
    assert!(matches!(open(), Err(Error::Locked { .. })));
    writer.close().unwrap();
    let reader = open().unwrap();
    assert!(matches!(options().open(&path), Err(Error::Locked { .. })));
    drop(reader);
}
