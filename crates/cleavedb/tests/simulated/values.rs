//! Separated values: where they are stored, that they are found wherever they moved, and that their space is reclaimed.

use std::path::Path;
use std::sync::Arc;

use cleavedb::testing::{self, Random, SimDisk, Tuning};
use cleavedb::{Db, Durability, Error, KeyspaceOptions, LogBackend, Options, Result, Stats};

use crate::support::{BACKENDS, in_world, open_with, value, with_each_log};

/// Values of at least 192 B are separated.
fn separated() -> Options {
    Options::new().separation(Some(192))
}

fn open(disk: &SimDisk, backend: LogBackend) -> Result<Db> {
    // Surveys for one collection, and for many.
    let mut tuning = Tuning::tiny();
    tuning.surveyed_records_max = if backend == BACKENDS[0] { 0 } else { 1000 };
    open_with(disk, separated().log_backend(backend), tuning)
}

fn check(disk: &SimDisk) {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

fn key(number: usize) -> String {
    format!("{number:05}")
}

/// A value that contains the round.
fn value_of_round(number: usize, round: usize) -> Vec<u8> {
    value(&format!("{number} in round {round}; "), 300 + number % 50)
}

/// Writes all keys in random order.
fn write_round(db: &Db, keys: usize, round: usize) {
    let mut random = Random::new(round as u64);
    let mut order: Vec<usize> = (0..keys).collect();
    for at in (1..keys).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order.iter().for_each(|&number| db.put(key(number), value_of_round(number, round)).unwrap());
}

/// Compacts so that dead values are found, and waits until background work is idle.
fn compact_and_wait(db: &Db) -> Stats {
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    db.wait_for_background().unwrap();
    db.stats()
}

/// Overwrites until value GC has run several times and tables still reference this many moved files; when that happens
/// depends on the order of threads.
fn write_until_moved(db: &Db, keys: usize, moved_files: usize) {
    for round in 1..40 {
        write_round(db, keys, round);
        let stats = compact_and_wait(db);
        if stats.value_gcs >= 3 && stats.moved_files >= moved_files {
            return;
        }
    }
    panic!("no file was collected: {:?}", db.stats());
}

fn assert_round(db: &Db, keys: usize, round: usize) {
    for number in 0..keys {
        assert_eq!(&db.get(key(number)).unwrap().unwrap()[..], value_of_round(number, round), "{number}");
    }
    let found: Vec<_> = db.iter().unwrap().map(|item| item.unwrap()).collect();
    assert_eq!(found.len(), keys);
    assert!(found.iter().enumerate().all(|(number, (_, value))| **value == value_of_round(number, round)));
}

#[test]
fn a_large_value_is_written_once_and_found_by_every_kind_of_read() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        write_round(&db, 400, 0);
        let snapshot = db.snapshot();
        let stats = compact_and_wait(&db);
        let records: usize = (0..400).map(|number| 23 + key(number).len() + value_of_round(number, 0).len()).sum();
        assert_eq!(db.default_keyspace().stats().unwrap().bytes_separated, records as u64);
        // All but the values in the log that is being written.
        assert!(stats.value_bytes_live > records as u64 / 2 && stats.value_bytes_live <= records as u64);
        let tables: u64 = stats.levels.iter().map(|level| level.bytes).sum();
        assert!(tables < 40_000 && stats.value_gcs == 0, "{stats:?}");
        assert_round(&db, 400, 0);
        let space = db.default_keyspace();
        assert_eq!(&snapshot.get(&space, key(7)).unwrap().unwrap()[..], value_of_round(7, 0));
        let many: Vec<_> = db.multi_get((0..400).map(key)).into_iter().map(|value| value.unwrap().unwrap()).collect();
        assert!(many.iter().enumerate().all(|(number, value)| **value == value_of_round(number, 0)));
        let back: Vec<_> = db.iter().unwrap().rev().map(|item| item.unwrap().1).collect();
        assert!(back.iter().rev().enumerate().all(|(number, value)| **value == value_of_round(number, 0)));
        db.checkpoint(Path::new("/copy")).unwrap();
        drop(snapshot);
        db.close().unwrap();
        check(&disk);
        let copy = testing::open(Arc::new(disk.clone()), Path::new("/copy"), separated(), Tuning::tiny()).unwrap();
        assert_round(&copy, 400, 0);
        copy.close().unwrap();
        for read_only in [true, false] {
            let options = separated().log_backend(backend).read_only(read_only);
            assert_round(&open_with(&disk, options, Tuning::tiny()).unwrap(), 400, 0);
        }
    });
}

#[test]
fn space_is_reclaimed_after_overwrites_and_after_deleting_everything() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for round in 0..12 {
            write_round(&db, 400, round);
            let stats = compact_and_wait(&db);
            let allowed = stats.value_bytes_live * 13 / 10 + (32 << 10);
            assert!(stats.value_bytes <= allowed + (64 << 10), "round {round}: {stats:?}");
        }
        let stats = db.stats();
        assert!(stats.value_gcs > 0 && stats.value_files < 12, "{stats:?}");
        let (files, list_bytes) = (stats.value_files + stats.moved_files, stats.memory.value_list_bytes);
        assert!((files * 300..files * 2000).contains(&list_bytes), "{list_bytes} B for {files} files");
        assert_round(&db, 400, 11);
        db.close().unwrap();
        check(&disk);
        let db = open(&disk, backend).unwrap();
        assert_round(&db, 400, 11);
        (0..200).for_each(|number| db.delete(key(number)).unwrap());
        db.delete_range(key(200).into_bytes()..).unwrap();
        let stats = compact_and_wait(&db);
        assert_eq!((stats.value_bytes_live, stats.moved_files), (0, 0), "{stats:?}");
        db.put("last", "v").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let left: usize = disk.files().iter().map(|(_, len)| *len as usize).sum();
        assert!(left < 300_000, "{left} bytes are left in {:?}", disk.files());
        check(&disk);
    });
}

#[test]
fn snapshots_and_iterators_keep_their_values_during_value_gc() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let space = db.default_keyspace();
        write_round(&db, 300, 0);
        let snapshot = db.snapshot();
        let mut iter = db.iter().unwrap();
        assert_eq!(&iter.next().unwrap().unwrap().1[..], value_of_round(0, 0));
        for round in 1..8 {
            write_round(&db, 300, round);
            compact_and_wait(&db);
        }
        assert!(db.stats().value_gcs > 0);
        for number in 0..300 {
            assert_eq!(&snapshot.get(&space, key(number)).unwrap().unwrap()[..], value_of_round(number, 0));
        }
        for number in 1..300 {
            assert_eq!(&iter.next().unwrap().unwrap().1[..], value_of_round(number, 0));
        }
        let held = db.stats().value_bytes_live;
        drop((snapshot, iter));
        let freed = compact_and_wait(&db).value_bytes_live;
        assert!(freed < held * 6 / 10, "{held} bytes with the snapshot, {freed} without");
        assert_round(&db, 300, 7);
        db.close().unwrap();
        check(&disk);
    });
}

/// HashKV's gap: a small value that replaces a large one never reaches the file of the large one.
#[test]
fn a_large_value_deleted_or_replaced_by_a_small_one_stays_dead() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        write_round(&db, 300, 0);
        compact_and_wait(&db);
        for number in 0..300 {
            match number % 3 {
                0 => db.put(key(number), "small").unwrap(),
                1 => db.delete(key(number)).unwrap(),
                _ => {}
            }
        }
        let stats = compact_and_wait(&db);
        assert!(stats.value_gcs > 0, "{stats:?}");
        let as_it_should = |db: &Db| {
            for number in 0..300 {
                let found = db.get(key(number)).unwrap();
                match number % 3 {
                    0 => assert_eq!(found.as_deref(), Some(&b"small"[..])),
                    1 => assert_eq!(found, None),
                    _ => assert_eq!(&found.unwrap()[..], value_of_round(number, 0)),
                }
            }
        };
        as_it_should(&db);
        db.close().unwrap();
        check(&disk);
        as_it_should(&open(&disk, backend).unwrap());
    });
}

#[test]
fn a_newer_operand_does_not_cover_the_value_it_applies_to() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let space = db.create_keyspace("m", KeyspaceOptions::new().merge_operator("append")).unwrap();
        for number in 0..100 {
            space.put(key(number), value_of_round(number, 0)).unwrap();
        }
        db.flush().unwrap();
        for number in 0..100 {
            space.merge(key(number), "+").unwrap();
        }
        db.flush().unwrap();
        for round in 1..6 {
            write_round(&db, 300, round);
            compact_and_wait(&db);
        }
        assert!(db.stats().value_gcs > 0);
        let expected = |number: usize| [value_of_round(number, 0), b",+".to_vec()].concat();
        for number in 0..100 {
            assert_eq!(&space.get(key(number)).unwrap().unwrap()[..], expected(number));
        }
        db.compact_range(&space, ..).unwrap();
        db.close().unwrap();
        check(&disk);
        let space = open(&disk, backend).unwrap().open_keyspace("m").unwrap();
        for number in 0..100 {
            assert_eq!(&space.get(key(number)).unwrap().unwrap()[..], expected(number));
        }
    });
}

#[test]
fn a_value_is_not_dropped_because_of_a_newer_one_that_was_not_durable() {
    for seed in 0..20 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open(&disk, LogBackend::Ring).unwrap();
            let space = db.default_keyspace();
            write_round(&db, 200, 0);
            db.sync().unwrap();
            for round in 1..4 {
                write_round(&db, 200, round);
                compact_and_wait(&db);
            }
            db.sync().unwrap();
            // Only in the front when the power fails.
            for number in 0..200 {
                space.put_with(key(number), value_of_round(number, 4), Durability::Buffered).unwrap();
            }
            db.wait_for_background().unwrap();
            let after = open(&disk.power_loss(seed), LogBackend::Ring).unwrap();
            for number in 0..200 {
                let found = after.get(key(number)).unwrap().unwrap();
                assert!((3..5).any(|round| *found == value_of_round(number, round)), "{number}");
            }
        });
    }
}

#[test]
fn a_value_that_moved_several_times_is_found_and_stale_addresses_are_refreshed() {
    let each = |backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        (tuning.garbage_bytes, tuning.garbage_percent) = (0, 1);
        (tuning.stale_percent, tuning.compacts_when_idle) = (100, false);
        let db = open_with(&disk, separated().log_backend(backend), tuning.clone()).unwrap();
        let cold = db.create_keyspace("cold", KeyspaceOptions::new()).unwrap();
        for number in 0..300 {
            db.put(key(number), value_of_round(number, 0)).unwrap();
            cold.put(key(number), value_of_round(number, 0)).unwrap();
        }
        // The cold keyspace is not compacted, so its tables hold the addresses of the logs that its values were written
        // to.
        write_until_moved(&db, 300, 2);
        for number in 0..300 {
            assert_eq!(&cold.get(key(number)).unwrap().unwrap()[..], value_of_round(number, 0));
        }
        db.close().unwrap();
        check(&disk);
        let db = open_with(&disk, separated().log_backend(backend), tuning).unwrap();
        let cold = db.open_keyspace("cold").unwrap();
        // Files left over at the close are collected meanwhile, and the next compaction refreshes the addresses.
        let follow = |_: &i32| {
            db.compact_range(&cold, ..).unwrap();
            compact_and_wait(&db).moved_files > 0
        };
        assert!((0..20).take_while(follow).count() < 20, "some addresses are still stale: {:?}", db.stats());
        for number in 0..300 {
            assert_eq!(&cold.get(key(number)).unwrap().unwrap()[..], value_of_round(number, 0));
        }
    };
    // A thread schedule in which files move that often.
    for seed in 0..4 {
        BACKENDS.into_iter().for_each(|backend| in_world(seed, move || each(backend)));
    }
}

#[test]
fn a_changed_separation_limit_applies_to_the_next_write_of_a_value() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let space = db.default_keyspace();
        let live = |round: usize, separation: Option<u32>| {
            space.set_separation(separation).unwrap();
            write_round(&db, 100, round);
            compact_and_wait(&db);
            space.stats().unwrap().bytes_separated
        };
        assert_eq!(live(0, None), 0);
        assert!(live(1, Some(310)) > 0 && live(1, Some(310)) < live(2, Some(0)));
        assert_eq!(live(3, None), 0);
        assert_eq!(space.separation(), None);
        space.set_separation(Some(1)).unwrap();
        for number in 0..100 {
            db.put(key(number), "tiny").unwrap();
        }
        space.set_separation(Some(0)).unwrap();
        db.put("empty", "").unwrap();
        db.delete("nothing").unwrap();
        compact_and_wait(&db);
        assert!(space.stats().unwrap().bytes_separated > 0);
        db.close().unwrap();
        check(&disk);
        let db = open(&disk, backend).unwrap();
        assert_eq!(db.default_keyspace().separation(), Some(1), "an empty value has nothing to separate");
        assert_eq!(db.get("empty").unwrap().unwrap(), "");
        assert!((0..100).all(|number| db.get(key(number)).unwrap().unwrap() == "tiny"));
    });
}

#[test]
fn by_default_values_of_192_bytes_are_separated() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let open =
            |options: Options| open_with(&disk, options.log_backend(backend), Tuning::for_budget(16 << 20)).unwrap();
        let separated_of = |db: &Db, name: &str| {
            let space = db.open_keyspace(name).unwrap();
            for len in [191, 192] {
                space.put(format!("{len}"), vec![b'v'; len]).unwrap();
            }
            compact_and_wait(db);
            space.stats().unwrap().bytes_separated
        };
        let db = open(Options::new());
        db.create_keyspace("near", KeyspaceOptions::new().separation(None)).unwrap();
        db.create_keyspace("all", KeyspaceOptions::new().separation(Some(1))).unwrap();
        assert_eq!(db.default_keyspace().separation(), Some(192));
        let one = separated_of(&db, "default");
        assert!((192..192 + 64).contains(&one), "{one} B of separated records");
        assert_eq!(separated_of(&db, "near"), 0);
        assert!(separated_of(&db, "all") >= 191 + 192);
        db.close().unwrap();
        // A keyspace without its own setting follows that of the open database; one with a setting keeps it.
        let db = open(Options::new().separation(None));
        let chosen = ["default", "near", "all"].map(|name| db.open_keyspace(name).unwrap().separation());
        assert_eq!(chosen, [None, None, Some(1)]);
        assert_eq!(separated_of(&db, "default"), 0);
    });
}

#[test]
fn the_figures_of_groups_add_up_to_the_bytes_in_segments() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        (tuning.group_bytes, tuning.garbage_bytes, tuning.compacts_when_idle) = (4 << 10, 4 << 10, false);
        let db = open_with(&disk, separated().log_backend(backend), tuning).unwrap();
        assert!(db.stats().value_group_list.is_empty());
        write_until_moved(&db, 200, 1);
        let (stats, groups) = (db.stats(), db.stats().value_group_list);
        assert!(groups.len() > 1 && groups.len() == stats.value_groups, "{stats:?}");
        let extents: usize = groups.iter().map(|group| group.extents).sum();
        let bytes: u64 = groups.iter().map(|group| group.bytes).sum();
        assert!(extents <= stats.value_files && (1..=stats.value_bytes).contains(&bytes), "{stats:?}");
        // The rest, if any, is in logs.
        assert_eq!(extents == stats.value_files, bytes == stats.value_bytes, "{stats:?}");
        assert!(groups.iter().all(|group| group.extents > 0 && group.bytes_live <= group.bytes), "{stats:?}");
        assert!(groups.iter().any(|group| group.bytes_live > 0));
    });
}

#[test]
fn dropping_a_keyspace_releases_the_space_of_its_values() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let space = db.create_keyspace("obsolete", KeyspaceOptions::new()).unwrap();
        (0..300).for_each(|number| space.put(key(number), value_of_round(number, 0)).unwrap());
        write_round(&db, 50, 0);
        compact_and_wait(&db);
        let before = db.stats().value_bytes_live;
        db.drop_keyspace("obsolete").unwrap();
        let stats = compact_and_wait(&db);
        assert!(stats.value_bytes_live < before / 3, "{before} B before, {stats:?}");
        assert_round(&db, 50, 0);
        db.close().unwrap();
        check(&disk);
    });
}

#[test]
fn damage_in_value_files_never_gives_a_wrong_answer_and_the_check_reports_it() {
    in_world(5, || {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        (tuning.garbage_bytes, tuning.garbage_percent) = (0, 1);
        (tuning.stale_percent, tuning.compacts_when_idle) = (100, false);
        let db = open_with(&disk, separated(), tuning).unwrap();
        let cold = db.create_keyspace("cold", KeyspaceOptions::new()).unwrap();
        for number in 0..60 {
            db.put(key(number), value_of_round(number, 0)).unwrap();
            cold.put(key(number), value_of_round(number, 0)).unwrap();
        }
        write_until_moved(&db, 60, 1);
        db.close().unwrap();
        let of_values =
            |path: &Path| matches!(path.extension().and_then(|it| it.to_str()), Some("segment" | "redirect"));
        let files: Vec<_> = disk.files().into_iter().map(|(path, _)| path).filter(|path| of_values(path)).collect();
        assert!(files.len() > 1, "{files:?}");
        for path in files {
            let good = disk.read_file(&path).unwrap();
            for at in (0..good.len()).step_by(97) {
                let mut bad = good.clone();
                bad[at] ^= 1 << (at % 8);
                let damaged = disk.process_crash();
                damaged.write_file(&path, &bad);
                let report = testing::check(Arc::new(damaged.clone()), Path::new("/db"), &Options::new()).unwrap();
                assert!(!report.is_sound(), "byte {at} of {}", path.display());
                let Ok(db) = open(&damaged, LogBackend::Plain) else { continue };
                let cold = db.open_keyspace("cold").unwrap();
                for number in 0..60 {
                    if let Ok(found) = cold.get(key(number)) {
                        assert_eq!(&found.unwrap()[..], value_of_round(number, 0), "byte {at} of {}", path.display());
                    }
                }
            }
        }
    });
}

#[test]
fn damage_in_a_log_before_referenced_records_is_reported_and_nothing_is_truncated() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        (0..60).for_each(|number| db.put(key(number), value_of_round(number, 0)).unwrap());
        db.flush().unwrap();
        // The newest log still belongs to the front, though all its records are in tables.
        let crashed = disk.process_crash();
        disk.halt();
        drop(db);
        let is_log = |path: &Path| path.extension().is_some_and(|it| it == "log");
        let logs: Vec<_> = crashed.files().into_iter().map(|(path, _)| path).filter(|path| is_log(path)).collect();
        let mut reported = 0;
        for path in logs {
            let mut bytes = crashed.read_file(&path).unwrap();
            // The middle of the first frame.
            let Some(byte) = bytes.get_mut(4096 + 100) else { continue };
            *byte ^= 1;
            let damaged = crashed.process_crash();
            damaged.write_file(&path, &bytes);
            // Which would repair it.
            if let Some(ring) = damaged.read_file(Path::new("/db/ring")) {
                damaged.write_file(Path::new("/db/ring"), &vec![0; ring.len()]);
            }
            match open(&damaged, backend) {
                Err(Error::Corruption { .. }) => {
                    reported += 1;
                    assert_eq!(damaged.read_file(&path).unwrap(), bytes);
                }
                Err(error) => panic!("{error}"),
                // If the log had left the front, reading the value reports the damage.
                Ok(db) => assert!((0..60).all(|number| match db.get(key(number)) {
                    Ok(found) => *found.unwrap() == value_of_round(number, 0),
                    Err(error) => matches!(error, Error::Corruption { .. }),
                })),
            }
        }
        assert!(reported > 0);
        assert_round(&open(&crashed, backend).unwrap(), 60, 0);
    });
}

#[test]
fn values_that_stay_in_logs_do_not_trigger_flushes_but_recovery_reads_a_bounded_amount() {
    let flushes = |separation: Option<u32>, replay_bytes_max: u64| {
        in_world(3, move || {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            tuning.replay_bytes_max = replay_bytes_max;
            let db = open_with(&disk, Options::new().separation(separation), tuning).unwrap();
            for number in 0..1000 {
                db.put(key(number), value("v", 1000)).unwrap();
                db.wait_for_background().unwrap();
            }
            let stats = db.stats();
            let front = stats.index_table_bytes + stats.runs.iter().map(|run| run.bytes).sum::<u64>();
            assert!(front <= 24 << 10, "{stats:?}");
            stats.flushes
        })
    };
    // Flushes of 12 KiB: of 1 MiB of data, and of the keys only.
    let (whole, keys) = (flushes(None, 4 << 20), flushes(Some(192), 4 << 20));
    assert!(whole > 60 && keys < 10, "{whole} flushes of values, {keys} of keys");
    // One flush for every two or three logs of 64 KiB.
    let bounded = flushes(Some(192), 256 << 10);
    assert!((4..20).contains(&bounded) && bounded > keys, "{bounded} flushes");
}

#[test]
fn tables_that_are_not_compacted_get_fresh_addresses_of_moved_values() {
    let each = |backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        tuning.table_bytes = 4 << 10;
        let db = open_with(&disk, separated().log_backend(backend), tuning).unwrap();
        let cold = db.create_keyspace("cold", KeyspaceOptions::new()).unwrap();
        for number in 0..1000 {
            db.put(key(number), value_of_round(number, 0)).unwrap();
            cold.put(key(number), value_of_round(number, 0)).unwrap();
        }
        compact_and_wait(&db);
        // Half of the records in the logs die, so the other half moves.
        write_round(&db, 1000, 1);
        let stats = compact_and_wait(&db);
        assert!(stats.value_gcs > 1 && stats.moved_files < 8, "{stats:?}");
        let jobs = (stats.compactions, stats.value_gcs);
        testing::sleep(std::time::Duration::from_secs(5));
        assert_eq!((db.stats().compactions, db.stats().value_gcs), jobs, "background work is idle");
        for number in 0..1000 {
            assert_eq!(&cold.get(key(number)).unwrap().unwrap()[..], value_of_round(number, 0));
        }
        db.close().unwrap();
        check(&disk);
    };
    BACKENDS.into_iter().for_each(|backend| in_world(1, move || each(backend)));
}
