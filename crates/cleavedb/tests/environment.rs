//! Faults of the environment on the real operating system: a full disk, too few file descriptors, a read-only
//! directory, files of another user, foreign files, decaying bytes. The result must always be an error that names the
//! cause, or the right answer.
//!
//! Some tests need root (for a small tmpfs or a read-only mount); without it they print a note and are skipped.

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use cleavedb::testing::Random;
use cleavedb::{Action, Db, Error, LogBackend, Options, Result};
use tempfile::TempDir;

const CHILD: &str = "CLEAVE_FEW_FILES";
const OTHER_USER: &str = "CLEAVE_OTHER_USER";
/// The user and group `nobody`.
const NOBODY: u32 = 65_534;

fn options() -> Options {
    Options::new().memory_budget(16 << 20)
}

fn key(number: usize) -> String {
    format!("{number:06}")
}

fn value(number: usize, len: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// A mount that is removed with its guard; `None` where mounting is not allowed.
struct Mount {
    at: TempDir,
}

impl Mount {
    fn try_new(args: &[&str], what: &str) -> Option<Mount> {
        let at = tempfile::tempdir().unwrap();
        let output = Command::new("mount").args(args).arg(at.path()).output();
        if output.as_ref().is_ok_and(|output| output.status.success()) {
            return Some(Mount { at });
        }
        println!("skipped: {what} cannot be mounted here: {output:?}");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.at.path()).status();
    }
}

#[test]
fn a_full_disk_is_reported_loses_nothing_and_writes_resume_once_there_is_space() {
    for backend in [LogBackend::Auto, LogBackend::Plain] {
        let Some(mount) = Mount::try_new(&["-t", "tmpfs", "-o", "size=64m", "none"], "a small tmpfs") else { return };
        let path = mount.at.path().join("db");
        let open = || options().log_backend(backend).compression(cleavedb::Compression::None).open(&path);
        let db = open().unwrap();
        let ballast = mount.at.path().join("ballast");
        fs::write(&ballast, vec![1; 24 << 20]).unwrap();
        let mut count = 0;
        let refused = loop {
            match db.put(key(count), value(count, 2000)) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
            assert!(count < 40_000, "the disk did not fill up");
        };
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        assert_eq!(refused.action(), Action::FreeSpace);
        let check = |db: &Db, count: usize| {
            for number in (0..count).step_by(97) {
                assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number, 2000));
            }
        };
        for _ in 0..3 {
            assert!(matches!(db.put("large", vec![7; 8 << 20]), Err(Error::NoSpace { .. })));
            check(&db, count);
        }
        fs::remove_file(&ballast).unwrap();
        let began = std::time::Instant::now();
        while let Err(error) = db.put(key(count), value(count, 2000)) {
            assert!(matches!(error, Error::NoSpace { .. }), "{error}");
            assert!(began.elapsed().as_secs() < 20, "writes do not resume although there is space");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        count += 1;
        check(&db, count);
        // There may be too little space for the last flush; records in logs are recovered all the same.
        let close = |db: Db| match db.close() {
            Ok(()) | Err(Error::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        };
        close(db);
        let report = cleavedb::check(&path).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        let db = open().unwrap();
        assert_eq!(db.iter().unwrap().count(), count);
        check(&db, count);
        close(db);
    }
}

#[test]
fn a_read_only_directory_is_an_error_that_names_it_and_can_be_checked() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path().join("db")).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let source = dir.path().to_str().unwrap();
    let Some(mount) = Mount::try_new(&["--bind", source], "a directory") else { return };
    let remounted = Command::new("mount").args(["-o", "remount,ro,bind"]).arg(mount.at.path()).output().unwrap();
    if !remounted.status.success() {
        println!("skipped: a directory cannot be made read-only here");
        return;
    }
    let path = mount.at.path().join("db");
    let refused = options().open(&path).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
    let refused = options().open(mount.at.path().join("new")).map(drop).unwrap_err();
    assert!(refused.to_string().contains("new"), "{refused}");
    let report = cleavedb::check(&path).unwrap();
    assert!(report.is_sound() && report.logs == 1, "{report:?}");
    let reader = options().read_only(true).open(&path).unwrap();
    assert_eq!(reader.get("key").unwrap().unwrap(), "value");
}

/// Not a test by itself: a process that may read or write only some of the files. It prints one line for each way of
/// opening.
#[test]
fn another_user() {
    let Ok(path) = std::env::var(OTHER_USER) else { return };
    for read_only in [false, true] {
        let opened = options().create_if_missing(false).read_only(read_only).open(&path);
        let output_text = match opened.and_then(|db| db.iter()?.collect::<Result<Vec<_>>>()) {
            Ok(records) => format!("read {}", records.len()),
            Err(error) => format!("{:?}: {error}", error.action()),
        };
        println!("another user, read_only {read_only}: {output_text}");
    }
}

/// The results when another user opens the database for writing, and then for reading. `None` where the test may not
/// switch users.
fn ask_another_user(path: &Path) -> Option<[String; 2]> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "another_user", "--nocapture", "--test-threads=1"]).env(OTHER_USER, path);
    let output = match command.uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: this program cannot be started as another user: {error}");
            return None;
        }
    };
    let output_text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<String> = output_text
        .lines()
        .filter_map(|line| line.split_once("another user, read_only "))
        .map(|(_, answer)| answer.to_owned())
        .collect();
    Some(answers.try_into().unwrap_or_else(|_| panic!("{output_text}{}", String::from_utf8_lossy(&output.stderr))))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A closed database with logs and a table, in a directory that everyone may list.
fn closed_database(dir: &TempDir) -> PathBuf {
    set_mode(dir.path(), 0o755);
    let path = dir.path().join("db");
    let db = options().open(&path).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    db.close().unwrap();
    path
}

fn files_of(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn files_of_another_user_are_read_or_named_in_an_error() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = closed_database(&dir);
    let ask = || ask_another_user(&path);
    set_mode(&path, 0o755);
    files_of(&path).iter().for_each(|file| set_mode(file, 0o644));
    let Some([writing, reading]) = ask() else { return };
    let denied = |file: &Path| format!("{}: Permission denied", file.display());
    assert!(writing.starts_with("false: Reopen: ") && writing.contains(&denied(&path.join("LOCK"))), "{writing}");
    assert_eq!(reading, "true: read 2");
    set_mode(&path, 0o700);
    for answer in ask().unwrap() {
        assert!(answer.contains(path.to_str().unwrap()) && answer.contains("Permission denied"), "{answer}");
    }
    set_mode(&path, 0o755);
    let db = options().open(&path).unwrap();
    assert_eq!(db.iter().unwrap().count(), 2);
}

#[test]
fn an_error_names_the_one_unreadable_file_whichever_it_is() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    // File numbers depend on the order of threads, so files are identified by kind.
    for kind in ["CURRENT", "LOCK", ".manifest", ".log", ".table", "ring"] {
        // Opening for writing may change which files exist.
        let dir = tempfile::tempdir().unwrap();
        let path = closed_database(&dir);
        for file in files_of(&path).iter().chain([&path]) {
            std::os::unix::fs::chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let found = files_of(&path).into_iter().find(|file| file.to_str().unwrap().ends_with(kind));
        let Some(file) = found else {
            assert_eq!(kind, "ring", "only the ring may be missing");
            continue;
        };
        std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
        set_mode(&file, 0o600);
        let Some(answers) = ask_another_user(&path) else { return };
        for answer in answers {
            let is_named = answer.contains(file.to_str().unwrap()) && answer.contains("Permission denied");
            // After a close the ring is empty.
            assert!(is_named || kind == "ring" && answer.ends_with("read 2"), "{kind}: {answer}");
        }
        set_mode(&file, 0o644);
        assert!(cleavedb::check(&path).unwrap().is_sound());
        assert_eq!(options().open(&path).unwrap().iter().unwrap().count(), 2);
    }
}

#[test]
fn a_file_in_place_of_a_directory_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fs::write(&path, "I was here first").unwrap();
    for place in [path.clone(), path.join("below")] {
        let refused = options().open(&place).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Io { .. }), "{refused}");
        assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
    }
    let refused = options().create_if_missing(false).open(&path).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Io { .. } | Error::NotFound { .. }), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"I was here first");
}

#[test]
fn foreign_files_and_links_are_neither_followed_nor_removed() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().join("db");
    options().open(&path).unwrap().close().unwrap();
    let treasure = outside.path().join("treasure");
    fs::write(&treasure, "of another").unwrap();
    fs::create_dir(path.join("lost+found")).unwrap();
    fs::create_dir(path.join("00000098.table")).unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    fs::write(path.join("7.log"), "not a log of ours").unwrap();
    for name in ["00000099.log", "00000097.table", "STATS", "link"] {
        symlink(&treasure, path.join(name)).unwrap();
    }
    for round in 0..3_usize {
        let db = options().open(&path).unwrap();
        for number in 0..500 {
            db.put(key(number), value(number + round, 100)).unwrap();
        }
        db.flush().unwrap();
        // Long enough for the statistics page to be written.
        std::thread::sleep(std::time::Duration::from_millis(if round == 0 { 1200 } else { 0 }));
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.close().unwrap();
        assert_eq!(fs::read(&treasure).unwrap(), b"of another");
        assert_eq!(fs::read(path.join("notes.txt")).unwrap(), b"mine");
        assert_eq!(fs::read(path.join("7.log")).unwrap(), b"not a log of ours");
        for name in ["00000099.log", "00000097.table", "STATS", "link"] {
            assert_eq!(fs::read_link(path.join(name)).unwrap(), treasure, "{name}");
        }
        assert!(path.join("lost+found").is_dir() && path.join("00000098.table").is_dir());
        assert!(cleavedb::check(&path).unwrap().is_sound());
    }
}

#[test]
fn a_foreign_file_named_ring_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let treasure = dir.path().join("treasure");
    // The maximum length of a ring.
    fs::write(&treasure, vec![7; 65_536]).unwrap();
    type Lay = fn(&Path, &Path);
    let lay: [Lay; 4] = [
        |_, ring| fs::write(ring, "of gold").unwrap(),
        |treasure, ring| symlink(treasure, ring).unwrap(),
        |treasure, ring| fs::hard_link(treasure, ring).unwrap(),
        |_, ring| fs::create_dir(ring).unwrap(),
    ];
    for (round, lay) in lay.into_iter().enumerate() {
        let path = dir.path().join(format!("db {round}"));
        options().open(&path).unwrap().close().unwrap();
        lay(&treasure, &path.join("ring"));
        let before = fs::read(path.join("ring")).ok();
        for opening in 0..2 {
            let refused = options().log_backend(LogBackend::Ring).open(&path).map(drop).unwrap_err();
            assert!(matches!(refused, Error::InvalidInput { .. }), "{refused}");
            let db = options().log_backend(LogBackend::Auto).open(&path).unwrap();
            assert_eq!(db.get("k").unwrap().is_some(), opening > 0);
            db.put("k", "v").unwrap();
            // The state after a crash.
            let image = dir.path().join(format!("image {round} {opening}"));
            fs::create_dir(&image).unwrap();
            let pause = db.pause_background().unwrap();
            for entry in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap()) {
                if entry.file_name() != "ring" {
                    fs::copy(entry.path(), image.join(entry.file_name())).unwrap();
                }
            }
            drop(pause);
            lay(&treasure, &image.join("ring"));
            assert!(cleavedb::check(&image).unwrap().is_sound());
            assert!(options().open(&image).unwrap().get("k").unwrap().is_some());
            db.close().unwrap();
            assert_eq!(fs::read(path.join("ring")).ok(), before);
        }
        assert_eq!(fs::read(&treasure).unwrap(), vec![7; 65_536]);
    }
}

/// Not a test by itself: the process with few file descriptors.
#[test]
fn few_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Ok(path) = std::env::var(CHILD) else { return };
    let path = Path::new(&path);
    let maximum = getrlimit(Resource::Nofile).maximum;
    let allow = |files| setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap();
    allow(40);
    let refused = options().open(path).map(drop).unwrap_err();
    assert!(matches!(refused, Error::InvalidInput { .. }), "{refused}");
    assert!(refused.to_string().contains("may open only 40"), "{refused}");
    allow(64);
    let db = options().open(path).unwrap();
    // A job that gets no file descriptor stops writes until the database is reopened; this test is about reads.
    let pause = db.pause_background().unwrap();
    let read_all = || {
        let (mut right, mut refused) = (0, 0);
        for number in 0..40 {
            match db.get(key(number)) {
                Ok(found) => {
                    assert_eq!(found.unwrap(), value(number, 5000));
                    right += 1;
                }
                Err(error) => {
                    assert!(matches!(error, Error::Io { operation: "open", .. }), "{error}");
                    assert!(error.to_string().contains(".table"), "{error}");
                    refused += 1;
                }
            }
        }
        (right, refused)
    };
    // Another part of the process takes all remaining descriptors while most tables have never been opened.
    let mut taken = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        taken.push(file);
    }
    let (right, refused) = read_all();
    assert!(right + refused == 40 && refused > 0, "{right} {refused}");
    taken.clear();
    drop(pause);
    assert_eq!(read_all(), (40, 0));
    db.put("later", "value").unwrap();
    db.close().unwrap();
    println!("few files were enough");
}

#[test]
fn too_few_file_descriptors_are_a_clear_error_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut tuning = cleavedb::testing::Tuning::for_budget(16 << 20);
    (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (1 << 20, 1 << 20);
    let storage = std::sync::Arc::new(cleavedb::testing::OsStorage::new());
    let db = cleavedb::testing::open(storage, &path, options(), tuning).unwrap();
    for number in 0..40 {
        db.put(key(number), value(number, 5000)).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "few_files", "--nocapture", "--test-threads=1"])
        .env(CHILD, &path)
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output_text.contains("few files were enough"), "{output:?}");
    assert!(cleavedb::check(&path).unwrap().is_sound());
}

/// Copies the files of a closed database.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn read_all(path: &Path, count: usize, place: &str) {
    let is_known = |error: &Error| {
        matches!(error, Error::Corruption { .. } | Error::Unsupported { .. }) && error.action() == Action::Restore
    };
    let db = match options().create_if_missing(false).open(path) {
        Ok(db) => db,
        Err(error) => return assert!(is_known(&error) || matches!(error, Error::NotFound { .. }), "{place}: {error}"),
    };
    for number in 0..count {
        match db.get(key(number)) {
            Ok(found) => {
                assert!(found.is_some_and(|found| found == value(number, 50 + number % 900)), "{place}: {number}")
            }
            Err(error) => assert!(is_known(&error), "{place}: {error}"),
        }
    }
    match db.iter().and_then(Iterator::collect::<Result<Vec<_>>>) {
        Ok(all) => assert_eq!(all.len(), count, "{place}"),
        Err(error) => assert!(is_known(&error), "{place}: {error}"),
    }
}

#[test]
fn decayed_bytes_in_real_files_are_found_and_give_no_wrong_answer() {
    const COUNT: usize = 6000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = options().open(&path).unwrap();
    for number in 0..COUNT {
        db.put(key(number), value(number, 50 + number % 900)).unwrap();
        if number == COUNT / 2 || number == COUNT - 500 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
    assert!(cleavedb::check(&path).unwrap().is_sound());
    let files: Vec<PathBuf> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    let means_nothing = |file: &Path| ["LOCK", "RESERVE", "ring"].iter().any(|name| file.ends_with(name));
    let files: Vec<PathBuf> = files.into_iter().filter(|file| !means_nothing(file)).collect();
    let mut rng = Random::new(11);
    for round in 0..40 {
        let image = dir.path().join(format!("image {round}"));
        copy(&path, &image);
        let file = image.join(files[rng.below(files.len() as u64) as usize].file_name().unwrap());
        let mut bytes = fs::read(&file).unwrap();
        let offset = rng.below(bytes.len() as u64) as usize;
        let place = match round % 4 {
            0 => {
                bytes.truncate(offset);
                format!("{} cut to {offset}", file.display())
            }
            _ => {
                bytes[offset] ^= 1 << rng.below(8);
                format!("byte {offset} of {}", file.display())
            }
        };
        fs::write(&file, bytes).unwrap();
        let report = cleavedb::check(&image).unwrap();
        assert!(!report.is_sound(), "the check missed {place}");
        read_all(&image, COUNT, &place);
        fs::remove_dir_all(&image).unwrap();
    }
}
