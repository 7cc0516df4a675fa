//! Ownership of files: a database does not use a directory with files of another database, does not remove files that
//! it did not create, and does not share its slow directory with a copy of itself. On the real file system.

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cleavedb::{Db, Error, Event, Listener, Options, Result};

fn options() -> Options {
    Options::new().memory_budget(16 << 20)
}

/// A closed database with a table and a log.
fn create_filled(options: Options, path: &Path) {
    let db = options.open(path).unwrap();
    db.put("in a table", "1").unwrap();
    db.flush().unwrap();
    db.put("in a log", "2").unwrap();
    db.close().unwrap();
}

fn count(opened: Result<Db>) -> usize {
    let db = opened.unwrap();
    let count = db.iter().unwrap().count();
    db.close().unwrap();
    count
}

/// The content of a directory except the lock file.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| !path.ends_with("LOCK"));
    let mut content: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    content.sort();
    content
}

fn refusal(opened: Result<Db>) -> String {
    match opened.map(drop) {
        Err(Error::InvalidInput { message }) => message,
        other => panic!("{other:?}"),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for (path, bytes) in content(from) {
        fs::write(to.join(path.file_name().unwrap()), bytes).unwrap();
    }
}

#[test]
fn a_directory_of_another_database_is_refused_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let (a, b, slow_of_c) = (place("a"), place("b"), place("slow of c"));
    create_filled(options(), &a);
    create_filled(options().slow_dir(&slow_of_c), &place("c"));
    let db = options().open(&b).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    let all = || [&a, &b, &slow_of_c, &place("c")].map(|dir| content(dir));
    let before = all();
    let new = || place("new");
    for (options, path, named) in [
        (options().slow_dir(&a), &b, &a),
        (options().slow_dir(&a), &new(), &a),
        (options().slow_dir(&slow_of_c), &b, &slow_of_c),
        (options().slow_dir(&slow_of_c), &new(), &slow_of_c),
        (options().fast_dir(&b), &a, &a),
        (options().fast_dir(&slow_of_c), &b, &slow_of_c),
        (options(), &slow_of_c, &slow_of_c),
        (options().read_only(true).slow_dir(&a), &b, &a),
    ] {
        let message = refusal(options.open(path));
        assert!(message.contains(named.to_str().unwrap()), "{message}");
        assert!(all() == before, "a file was changed: {message}");
    }
    // This one has tables, which are not in the directory that the options give.
    assert!(options().fast_dir(&a).open(&b).is_err());
    assert!(all() == before);
    assert_eq!((count(options().open(&a)), count(options().open(&b))), (2, 1));
    assert_eq!(count(options().slow_dir(&slow_of_c).open(place("c"))), 2);
}

#[test]
fn a_file_with_any_reserved_name_prevents_a_new_database_in_the_directory() {
    let names = ["00000007.table", "00000123.segment", "00000009.redirect", "CURRENT.new", "OWNER", "ring", "RESERVE"];
    for name in names.into_iter().chain(["STATS", "CURRENT", "00000001.log", "00000001.manifest"]) {
        let dir = tempfile::tempdir().unwrap();
        let (main, taken) = (dir.path().join("main"), dir.path().join("taken"));
        create_without_tables(&main);
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join(name), "of another").unwrap();
        let before = (content(&main), content(&taken));
        let message = refusal(options().slow_dir(&taken).open(&main));
        assert!(message.contains(taken.to_str().unwrap()) && message.contains(name), "{name}: {message}");
        assert!((content(&main), content(&taken)) == before, "{name}");
        assert_eq!(count(options().open(&main)), 1);
        // In the main directory, files that look like the remains of a lost database are damage.
        let opened = options().open(&taken).map(drop).unwrap_err();
        let damaged = matches!(opened, Error::Corruption { .. });
        assert!(damaged || matches!(opened, Error::InvalidInput { .. }), "{name}: {opened}");
        assert!(opened.to_string().contains(name), "{name}: {opened}");
        assert!(content(&taken) == before.1, "{name}");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    fs::write(dir.path().join("7.log"), "mine").unwrap();
    create_filled(options().slow_dir(dir.path()), &dir.path().join("main"));
}

fn create_without_tables(path: &Path) {
    let db = options().open(path).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
}

/// The files named by an event.
#[derive(Default)]
struct RecordingListener(Mutex<Vec<PathBuf>>);

impl Listener for RecordingListener {
    fn event(&self, event: &Event) {
        if let Event::UnknownFiles { paths } = event {
            self.0.lock().unwrap().extend(paths.iter().cloned());
        }
    }
}

#[test]
fn files_with_numbers_that_were_never_reserved_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    create_filled(options(), &path);
    let foreign = ["00100000.table", "00100001.log", "00200000.segment", "00200001.redirect", "00300000.manifest"];
    for name in foreign {
        fs::write(path.join(name), "of another").unwrap();
    }
    let listener = Arc::new(RecordingListener::default());
    for round in 0..5_u32 {
        let db = options().listener(listener.clone()).open(&path).unwrap();
        assert_eq!(db.stats().unknown_files.len(), foreign.len());
        // More files than one block of reserved numbers.
        for number in 0..40_u32 {
            db.put(number.to_be_bytes(), round.to_be_bytes()).unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        for name in foreign {
            assert_eq!(fs::read(path.join(name)).unwrap(), b"of another", "{name}");
        }
        let report = cleavedb::check(&path).unwrap();
        assert!(report.is_sound() && report.notes.len() == foreign.len(), "{report:?}");
        assert_eq!(std::mem::take(&mut *listener.0.lock().unwrap()).len(), foreign.len());
    }
    assert_eq!(count(options().open(&path)), 42);
}

#[test]
fn a_copy_of_a_database_cannot_use_the_slow_directory_of_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let (main, duplicate, slow) = (place("main"), place("duplicate"), place("slow"));
    let options = || options().slow_dir(&slow);
    create_filled(options(), &main);
    copy(&main, &duplicate);
    // The first to open gets the directory.
    let (original, tables) = (content(&main), content(&slow));
    assert_eq!(count(options().open(&duplicate)), 2);
    let message = refusal(options().open(&main));
    assert!(message.contains("copy") && message.contains(slow.to_str().unwrap()), "{message}");
    let message = refusal(options().read_only(true).open(&main));
    assert!(message.contains("copy"), "{message}");
    assert!(content(&main) == original, "the refused database was changed");
    assert!(!cleavedb::Options::new().slow_dir(&slow).check_files(&main).unwrap().is_sound());
    assert_eq!(count(options().open(&duplicate)), 2);
    // With both directories restored, in the other order.
    for (path, _) in content(&slow) {
        fs::remove_file(path).unwrap();
    }
    for (path, bytes) in tables {
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(count(options().open(&main)), 2);
    assert_eq!(count(options().open(&main)), 2);
    refusal(options().open(&duplicate));
}

#[test]
fn a_lost_current_file_is_damage_also_for_an_open_that_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    create_filled(options(), &path);
    fs::remove_file(path.join("CURRENT")).unwrap();
    let before = content(&path);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for options in [options().read_only(true), options().create_if_missing(false), options()] {
        let opened = options.open(&path).map(drop);
        assert!(matches!(&opened, Err(Error::Corruption { path, .. }) if path.ends_with("CURRENT")), "{opened:?}");
    }
    for options in [options().read_only(true), options().create_if_missing(false)] {
        for missing in [&empty, &dir.path().join("missing")] {
            let opened = options.clone().open(missing).map(drop);
            assert!(matches!(opened, Err(Error::NotFound { .. })), "{opened:?}");
        }
    }
    assert!(content(&path) == before);
}
