//! One test for each defect found by reviews and users.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{SimDisk, Tuning, open, simulate, spawn};
use cleavedb::{Db, Durability, Error, KeyspaceOptions, MergeOperator, Options, Result};

fn open_tiny(disk: &SimDisk) -> Result<Db> {
    open(Arc::new(disk.clone()), Path::new("/db"), Options::new(), Tuning::tiny())
}

#[test]
fn creating_keyspaces_alone_can_roll_the_manifest() -> Result<()> {
    let disk = SimDisk::new();
    let db = open_tiny(&disk)?;
    for round in 0..1500 {
        db.create_keyspace(&format!("keyspace number {round}"), KeyspaceOptions::new())?;
    }
    for round in 0..1499 {
        db.drop_keyspace(&format!("keyspace number {round}"))?;
    }
    let crashed = disk.power_loss(1);
    disk.halt();
    drop(db);
    let db = open_tiny(&crashed)?;
    assert_eq!(db.keyspaces(), ["default", "keyspace number 1499"]);
    db.close()
}

#[test]
fn flush_and_compaction_return_when_the_database_is_closed_meanwhile() {
    for seed in 0..60 {
        let ended = simulate(seed, || -> Result<()> {
            let disk = SimDisk::new();
            let db = open_tiny(&disk)?;
            for number in 0..300u32 {
                db.put(format!("key {}", number % 50), vec![7; 100])?;
            }
            let other = db.clone();
            let compacting = spawn("user", move || {
                let flushed = other.flush().and_then(|()| other.compact_range(&other.default_keyspace(), ..));
                assert!(matches!(flushed, Ok(()) | Err(Error::Closed)), "{flushed:?}");
            });
            db.close()?;
            compacting.join().expect("the user's thread does not panic");
            let db = open_tiny(&disk)?;
            assert_eq!(db.iter()?.count(), 50);
            db.close()
        });
        ended.expect("no thread hangs").expect("nothing fails");
    }
}

#[test]
fn dropping_a_keyspace_makes_earlier_writes_to_others_durable() -> Result<()> {
    for seed in 0..20 {
        let disk = SimDisk::new();
        let db = open_tiny(&disk)?;
        let old = db.keyspace("old")?;
        old.put_with("k", "v", Durability::Sync)?;
        let new = db.keyspace("new")?;
        new.put("k", "v")?;
        db.drop_keyspace("old")?;
        let crashed = disk.power_loss(seed);
        disk.halt();
        drop((db, old, new));
        let db = open_tiny(&crashed)?;
        assert_eq!(db.open_keyspace("new")?.get("k")?.as_deref(), Some(&b"v"[..]));
        db.close()?;
    }
    Ok(())
}

#[test]
fn an_infinite_sync_interval_is_accepted_and_a_zero_one_is_refused() -> Result<()> {
    let db = Db::in_memory()?;
    db.default_keyspace().put_with("k", "v", Durability::Interval(Duration::MAX))?;
    assert!(db.default_keyspace().put_with("k", "v", Durability::Interval(Duration::ZERO)).is_err());
    assert_eq!(db.get("k")?.as_deref(), Some(&b"v"[..]));
    db.close()
}

/// Fails for every key that has a base value.
struct FailsOnBase;

impl MergeOperator for FailsOnBase {
    fn name(&self) -> &str {
        "failing"
    }
    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, String> {
        if base.is_some() { Err("not today".into()) } else { Ok(b"fine".to_vec()) }
    }
    fn partial_merge(&self, _: &[u8], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn a_scan_continues_after_a_key_whose_merge_operator_fails() -> Result<()> {
    let options = Options::new().merge_operator(Arc::new(FailsOnBase));
    let db = open(Arc::new(SimDisk::new()), Path::new("/db"), options, Tuning::tiny())?;
    let failing = db.create_keyspace("failing", KeyspaceOptions::new().merge_operator("failing"))?;
    failing.put("b", "base")?;
    for key in ["a", "b", "c"] {
        failing.merge(key, "operand")?;
    }
    for flushed in [false, true] {
        if flushed {
            db.flush()?;
        }
        let succeeded = |item: Result<_>| item.is_ok();
        assert_eq!(failing.iter()?.map(succeeded).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(failing.iter()?.rev().map(succeeded).collect::<Vec<_>>(), [true, false, true]);
        assert!(matches!(failing.get("b"), Err(Error::MergeFailed { .. })));
    }
    db.close()
}

#[test]
fn a_missing_manifest_is_reported_and_nothing_is_removed() -> Result<()> {
    let disk = SimDisk::new();
    let db = open_tiny(&disk)?;
    db.put("k", vec![1; 100])?;
    db.flush()?;
    db.close()?;
    let before = disk.files();
    let names: Vec<_> = before.iter().filter(|(path, _)| path.ends_with("CURRENT")).collect();
    assert_eq!(names.len(), 1);
    cleavedb::testing::Storage::remove(&disk, Path::new("/db/CURRENT"))?;
    assert!(matches!(open_tiny(&disk), Err(Error::Corruption { .. })));
    assert_eq!(disk.files().len(), before.len() - 1);
    Ok(())
}

#[test]
fn tombstones_kept_for_a_snapshot_in_the_lowest_level_are_removed_once_it_is_released() -> Result<()> {
    let db = open_tiny(&SimDisk::new())?;
    let entries = |db: &Db| db.stats().levels.iter().map(|level| level.entries).sum::<u64>();
    db.put("k", "v")?;
    let snapshot = db.snapshot();
    db.delete("k")?;
    db.compact_range(&db.default_keyspace(), ..)?;
    assert_eq!(entries(&db), 2);
    assert!(snapshot.contains(&db.default_keyspace(), "k")?);
    drop(snapshot);
    db.compact_range(&db.default_keyspace(), ..)?;
    assert_eq!(entries(&db), 0);
    db.close()
}

#[test]
fn the_largest_value_is_accepted_and_a_larger_one_is_refused() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Options::new().memory_budget(64 << 20).open(dir.path().join("db"))?;
    let largest = vec![0; cleavedb::limits::VALUE_BYTES_LIMIT - 1];
    db.put("k", &largest)?;
    assert_eq!(db.get("k")?.map(|value| value.len()), Some(largest.len()));
    db.flush()?;
    assert_eq!(db.get("k")?.map(|value| value.len()), Some(largest.len()));
    db.close()?;
    assert!(Db::in_memory()?.put("k", vec![0; cleavedb::limits::VALUE_BYTES_LIMIT]).is_err());
    Ok(())
}

#[test]
fn two_databases_cannot_share_a_slow_directory() -> Result<()> {
    let disk = SimDisk::new();
    let open_at = |name: &str| {
        let options = Options::new().slow_dir("/bulk");
        open(Arc::new(disk.clone()), Path::new(name), options, Tuning::tiny())
    };
    let first = open_at("/first")?;
    assert!(open_at("/second").is_err(), "while the first is open");
    first.put("k", "v")?;
    first.flush()?;
    first.close()?;
    assert!(matches!(open_at("/second"), Err(Error::InvalidInput { .. })), "and when it is closed");
    let first = open_at("/first")?;
    assert_eq!(first.get("k")?.as_deref(), Some(&b"v"[..]));
    first.close()
}

#[test]
fn a_database_with_a_slow_directory_cannot_be_opened_without_it_even_before_its_first_table() -> Result<()> {
    let disk = SimDisk::new();
    let open_at = |options: Options| open(Arc::new(disk.clone()), Path::new("/db"), options, Tuning::tiny());
    open_at(Options::new())?.close()?;
    for _ in 0..2 {
        open_at(Options::new().slow_dir("/slow"))?.close()?;
        for read_only in [false, true] {
            match open_at(Options::new().read_only(read_only)) {
                Err(Error::InvalidInput { message }) => assert!(message.contains("slow_dir"), "{message}"),
                other => panic!("{:?}", other.map(drop)),
            }
        }
    }
    let db = open_at(Options::new().slow_dir("/slow"))?;
    db.put("k", "v")?;
    db.flush()?;
    db.checkpoint(Path::new("/copy"))?;
    db.close()?;
    // A copy is in one directory, wherever the original is.
    let copy = open(Arc::new(disk.clone()), Path::new("/copy"), Options::new(), Tuning::tiny())?;
    assert_eq!(copy.get("k")?.as_deref(), Some(&b"v"[..]));
    copy.close()
}

#[test]
fn refusing_a_slow_directory_of_another_database_does_not_change_the_layout() -> Result<()> {
    let disk = SimDisk::new();
    let open_at = |name: &str, options| open(Arc::new(disk.clone()), Path::new(name), options, Tuning::tiny());
    open_at("/first", Options::new().slow_dir("/bulk"))?.close()?;
    open_at("/second", Options::new())?.close()?;
    assert!(matches!(open_at("/second", Options::new().slow_dir("/bulk")), Err(Error::InvalidInput { .. })));
    open_at("/second", Options::new())?.close()
}

#[test]
fn stray_files_with_the_largest_numbers_are_harmless() -> Result<()> {
    for name in ["18446744073709551615.log", "18446744073709551615.table", "18446744073709551615.manifest"] {
        let disk = SimDisk::new();
        let stray = Path::new("/db").join(name);
        for round in 0..3 {
            let db = open_tiny(&disk)?;
            for number in 0..200 {
                db.put(format!("{number}"), format!("{round}").repeat(100))?;
            }
            db.flush()?;
            db.close()?;
            if round == 0 {
                disk.write_file(&stray, b"not ours");
            }
        }
        assert_eq!(open_tiny(&disk)?.iter()?.count(), 200);
        assert_eq!(disk.read_file(&stray).as_deref(), Some(&b"not ours"[..]), "a foreign file must stay");
    }
    Ok(())
}

#[test]
fn a_stray_file_with_the_largest_number_does_not_use_up_the_numbers() -> Result<()> {
    let disk = SimDisk::new();
    let db = open_tiny(&disk)?;
    db.put("k", "v")?;
    db.flush()?;
    db.close()?;
    let last = format!("/db/{}.log", cleavedb::limits::FILE_ID_MAX);
    disk.write_file(Path::new(&last), b"the last number");
    for _ in 0..3 {
        let db = open_tiny(&disk)?;
        for number in 0..40 {
            db.put(format!("{number}"), "v")?;
            db.flush()?;
        }
        db.close()?;
    }
    assert_eq!(disk.read_file(Path::new(&last)).as_deref(), Some(&b"the last number"[..]));
    assert_eq!(open_tiny(&disk)?.iter()?.count(), 41);
    Ok(())
}

#[test]
fn a_directory_with_the_name_of_a_future_file_does_not_prevent_writes() -> Result<()> {
    for first in [5, 20, 26] {
        let disk = SimDisk::new();
        open_tiny(&disk)?.close()?;
        for number in first..60 {
            for extension in ["log", "table", "manifest"] {
                let path = format!("/db/{number:08}.{extension}");
                cleavedb::testing::Storage::create_dir_all(&disk, Path::new(&path))?;
            }
        }
        let db = open_tiny(&disk)?;
        for number in 0..200 {
            db.put(format!("{number}"), vec![7; 100])?;
            if number % 10 == 0 {
                db.flush()?;
            }
        }
        db.close()?;
        assert_eq!(open_tiny(&disk)?.iter()?.count(), 200);
    }
    Ok(())
}
