//! Mistakes of users: each is reported in one sentence with an exit code.

use std::path::Path;

use crate::support::{cleave, fail, file, fresh, run};

#[test]
fn a_file_where_a_directory_is_needed_is_named() {
    let (dir, _) = fresh();
    let (path, own) = file(&dir, "file");
    std::fs::write(&path, "mine").unwrap();
    let below = format!("{own}/below");
    for args in [
        &["get", &own, "a"][..],
        &["put", &own, "a", "1"],
        &["scan", &own],
        &["stats", &own],
        &["check", &own],
        &["compact", &own],
        &["keyspaces", &own],
        &["checkpoint", &own, &below],
        &["put", &below, "a", "1"],
    ] {
        let error = fail(args);
        assert!(error.contains(&format!("{own} is a file, but a database")), "{args:?}: {error}");
    }
    assert_eq!(std::fs::read(path).unwrap(), b"mine");
}

#[test]
fn missing_files_and_databases_are_named() {
    let (dir, db) = fresh();
    for args in [
        &["get", &db, "a"][..],
        &["check", &db],
        &["compact", &db],
        &["checkpoint", &db, "copy"],
        &["get", &db, "a", "--slow-dir", &db],
        &["get", dir.path().to_str().unwrap(), "a", "--fast-dir", &db],
    ] {
        let error = fail(args);
        assert!(error.contains("not found: database "), "{args:?}: {error}");
        assert!(!Path::new(&db).exists());
    }
    let (_, nowhere) = file(&dir, "nowhere");
    for args in [&["import", &db, &nowhere][..], &["ingest", &db, &nowhere], &["dump", &nowhere]] {
        assert!(fail(args).contains(&nowhere), "{args:?}");
        assert!(!Path::new(&db).exists());
    }
    run(&["put", &db, "a", "1"]);
    assert!(fail(&["dump", &db]).contains("is a directory"));
    assert!(fail(&["export", &db, &format!("{nowhere}/out")]).contains(&nowhere));
}

/// No such hardware is needed to see that the device is the one that was asked for, and that nothing else is touched.
#[test]
fn an_nvme_device_that_is_missing_or_is_none_is_named() {
    let (dir, db) = fresh();
    let (path, other) = file(&dir, "other");
    std::fs::write(&path, "mine").unwrap();
    let (_, missing) = file(&dir, "ng0n1");
    for device in [format!("nvme:{missing}"), format!("nvme:{missing}:1073741824")] {
        for args in [&["put", &db, "a", "1"][..], &["get", &db, "a"], &["check", &db], &["stats", &db]] {
            let error = fail(&[args, &["--kv-device", &device]].concat());
            assert!(error.contains(&format!("not found: NVMe device {missing}")), "{args:?}: {error}");
            assert!(!Path::new(&db).exists());
        }
    }
    for device in [&*other, "/dev/null"] {
        let error = fail(&["put", &db, "a", "1", "--kv-device", &format!("nvme:{device}")]);
        assert!(
            error.contains(&format!("cannot use {device}: it is not the generic character device of an NVMe")),
            "{error}"
        );
    }
    assert_eq!(std::fs::read(path).unwrap(), b"mine");
    assert!(run(&["put", "--help"]).contains("untested on hardware"));
    // Without the prefix it is the directory of an emulated device.
    run(&["put", &db, "a", "1", "--kv-device", &missing]);
    assert!(Path::new(&missing).join("CURRENT").exists());
    assert_eq!(run(&["get", &db, "a", "--kv-device", &missing]), "1\n");
}

#[test]
fn every_command_has_help_and_refuses_missing_arguments() {
    assert_eq!(cleave(&[]).status.code(), Some(2));
    let help = run(&["--help"]);
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"checkpoint") && commands.contains(&"ingest"), "{help}");
    for command in commands.iter().filter(|command| **command != "help") {
        assert!(run(&[command, "--help"]).contains("Usage: cleave"));
        if !["tour", "man"].contains(command) {
            assert_eq!(cleave(&[command]).status.code(), Some(2), "{command}");
        }
    }
}
