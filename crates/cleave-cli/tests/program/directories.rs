//! The directories of a database: two tiers, a copy, a directory without write permission.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{cleave, content, fail, file, files, fill, fresh, run, start};

#[test]
fn every_command_works_on_a_database_in_two_directories() {
    let (dir, db) = fresh();
    let (_, slow) = file(&dir, "slow");
    let (path, source) = file(&dir, "lines");
    std::fs::write(path, "{\"key\":\"a\",\"value\":\"1\"}\n").unwrap();
    let place = ["--slow-dir", &slow];
    let run = |args: &[&str]| run(&[args, &place].concat());
    run(&["import", &db, &source]);
    run(&["ingest", &db, &source, "-k", "other"]);
    run(&["put", &db, "b", "2"]);
    run(&["keyspaces", &db, "create", "sums", "--operator", "u64-add"]);
    run(&["merge", &db, "c", "3", "--u64", "-k", "sums"]);
    run(&["delete", &db, "b"]);
    run(&["compact", &db]);
    assert!(files(&db, ".table").is_empty() && !files(&slow, ".table").is_empty());
    assert_eq!(run(&["keyspaces", &db]), "default\nother\nsums\n");
    assert_eq!(run(&["get", &db, "a"]) + &run(&["scan", &db, "-k", "other"]), "1\na\t1\n");
    assert!(run(&["export", &db, "-"]).contains("\"a\""));
    assert!(run(&["stats", &db]).contains("HL"));
    assert!(run(&["check", &db]).ends_with("sound\n"));
    let (_, copy) = file(&dir, "copy");
    run(&["checkpoint", &db, &copy]);
    assert_eq!(crate::support::run(&["get", &copy, "a"]), "1\n");
    // The directory of the database itself need not exist.
    assert_eq!(run(&["get", "elsewhere", "a", "--fast-dir", &db]), "1\n");
}

#[test]
fn a_database_in_two_directories_is_refused_without_the_second_whether_it_has_tables_or_not() {
    let (dir, db) = fresh();
    let (_, slow) = file(&dir, "slow");
    let (_, nowhere) = file(&dir, "nowhere");
    run(&["put", &db, "a", "1", "--slow-dir", &slow]);
    for _ in 0..2 {
        for args in [&["get", &db, "a"][..], &["check", &db], &["compact", &db], &["put", &db, "a", "2"]] {
            let error = fail(args);
            assert!(error.contains("directory of their own") && error.contains("slow_dir"), "{error}");
        }
        run(&["compact", &db, "--slow-dir", &slow]);
    }
    let error = fail(&["check", &db, "--slow-dir", &nowhere]);
    assert!(error.contains("slow_dir must be as it was"), "{error}");
    let error = fail(&["get", &db, "a", "--slow-dir", &nowhere]);
    assert!(error.contains(&format!("the directory {nowhere} is not there: mount it")), "{error}");
    assert!(!Path::new(&nowhere).exists());
    assert_eq!(run(&["get", &db, "a", "--slow-dir", &slow]), "1\n");
}

#[test]
fn a_checkpoint_is_an_independent_database_and_an_incomplete_one_is_refused() {
    let (dir, db) = fresh();
    fill(&dir, &db, 1000);
    run(&["compact", &db]);
    run(&["put", &db, "in a log", "1"]);
    let everything = run(&["scan", &db]);
    let (target, copy) = file(&dir, "some/where/copy");
    run(&["checkpoint", &db, &copy]);
    run(&["put", &db, "later", "1"]);
    assert_eq!(run(&["scan", &copy]), everything);
    assert!(run(&["check", &copy]).ends_with("sound\n"));
    assert!(fail(&["checkpoint", &db, &copy]).contains("empty directory"));
    assert!(fail(&["checkpoint", &db, &format!("{db}/copy")]).contains("inside the database itself"));
    let (path, own_file) = file(&dir, "file");
    std::fs::write(&path, "mine").unwrap();
    assert!(fail(&["checkpoint", &db, &own_file]).contains("is a file"));
    assert_eq!(std::fs::read(path).unwrap(), b"mine");
    // CURRENT is written last.
    std::fs::remove_file(target.join("CURRENT")).unwrap();
    for args in [&["get", &copy, "a"][..], &["put", &copy, "a", "1"], &["check", &copy], &["compact", &copy]] {
        fail(args);
    }
    assert!(!target.join("CURRENT").exists());
}

#[test]
fn readers_run_concurrently_and_exclude_writers() {
    let (dir, db) = fresh();
    fill(&dir, &db, 20_000);
    let everything = run(&["scan", &db]);
    // It blocks because nobody reads its output.
    let mut reader = start(&["scan", &db]);
    let mut output = reader.stdout.take().unwrap();
    let mut begun = [0; 10];
    output.read_exact(&mut begun).unwrap();
    assert_eq!(run(&["scan", &db]), everything);
    assert_eq!(run(&["keyspaces", &db]), "default\n");
    assert!(run(&["stats", &db]).contains("seqno") && run(&["check", &db]).ends_with("sound\n"));
    for args in [&["put", &db, "a", "1"][..], &["compact", &db]] {
        let refused = cleave(args);
        assert_eq!(refused.status.code(), Some(3));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("open elsewhere"));
    }
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(String::from_utf8_lossy(&begun) + &*rest, everything);
    assert!(reader.wait().unwrap().success());
    run(&["put", &db, "a", "1"]);
}

#[test]
fn commands_that_read_change_nothing_even_after_a_crash_and_need_no_write_permission() {
    let (dir, db) = fresh();
    fill(&dir, &db, 2000);
    let mut owner = start(&["import", &db, "-"]);
    let mut input = owner.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, crate::support::lines(30_000).as_bytes()).unwrap();
    while cleave(&["get", &db, "00000000"]).status.code() != Some(3) {
        std::thread::yield_now();
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    let before = content(Path::new(&db));
    let permit = |dir_mode, file_mode| {
        for (path, _) in &before {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(file_mode)).unwrap();
        }
        std::fs::set_permissions(&db, std::fs::Permissions::from_mode(dir_mode)).unwrap();
    };
    permit(0o555, 0o444);
    let (_, target) = file(&dir, "out");
    assert!(run(&["scan", &db, "--keys-only"]).lines().count() >= 2000);
    assert_eq!(run(&["get", &db, "00000007"]).len(), 101);
    run(&["export", &db, &target]);
    run(&["stats", &db]);
    run(&["keyspaces", &db]);
    run(&["check", &db]);
    permit(0o755, 0o644);
    assert!(content(Path::new(&db)) == before);
}

#[test]
fn a_copy_without_its_lock_file_reports_how_to_create_it() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    std::fs::remove_file(Path::new(&db).join("LOCK")).unwrap();
    let error = fail(&["get", &db, "a"]);
    assert!(error.contains(&format!("`touch {db}/LOCK`")), "{error}");
    assert!(run(&["check", &db]).ends_with("sound\n"));
    std::fs::write(Path::new(&db).join("LOCK"), "").unwrap();
    assert_eq!(run(&["get", &db, "a"]), "1\n");
}

#[test]
fn files_of_another_user_are_named_in_errors_and_readable_ones_are_read() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can run as another user");
        return;
    }
    let (dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    let as_nobody = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cleave"));
        command.args(args).uid(65_534).gid(65_534).output()
    };
    if let Err(error) = as_nobody(&["--version"]) {
        println!("skipped: the program cannot be started as another user: {error}");
        return;
    }
    let set_mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(dir.path(), 0o755);
    content(Path::new(&db)).iter().for_each(|(path, _)| set_mode(path, 0o644));
    set_mode(Path::new(&db), 0o755);
    assert_eq!(as_nobody(&["get", &db, "a"]).unwrap().stdout, b"1\n");
    let new = dir.path().join("new");
    for place in [&db, new.to_str().unwrap()] {
        let refused = as_nobody(&["put", place, "a", "2"]).unwrap();
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{error}");
        assert!(error.contains(place) && error.contains("Permission denied") && error.lines().count() == 1, "{error}");
    }
    set_mode(Path::new(&db), 0o700);
    for args in [&["get", &db, "a"][..], &["check", &db], &["stats", &db]] {
        let refused = as_nobody(args).unwrap();
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{error}");
        assert!(error.contains(&db) && error.contains("Permission denied"), "{error}");
    }
    assert_eq!(run(&["get", &db, "a"]), "1\n");
}
