//! Merges onto separated values: what compactions fold stays separated, whatever fails or is held meanwhile.

use std::path::Path;
use std::sync::Arc;

use cleavedb::operators::Patches;
use cleavedb::testing::{self, Faults, SimDisk, Tuning};
use cleavedb::{Compression, Db, Error, Keyspace, KeyspaceOptions, LogBackend, Options, Stats, ValuePlacement};

use crate::support::{BACKENDS, crash_before, in_world, lose_power, open_with, taken, value, with_each_log};

const KEYS: usize = 120;
const FIELDS: usize = 5;
const FIELD_BYTES: usize = 80;

const PLACEMENTS: [ValuePlacement; 3] =
    [ValuePlacement::Hash, ValuePlacement::Range, ValuePlacement::Log { look_up_each: false }];

fn options(backend: LogBackend) -> Options {
    Options::new().separation(Some(192)).log_backend(backend)
}

/// Separated values of fields, which `patches` overwrites one by one.
fn records(db: &Db) -> Keyspace {
    match db.open_keyspace("records") {
        Ok(records) => records,
        Err(_) => db.create_keyspace("records", KeyspaceOptions::new().merge_operator("patches")).unwrap(),
    }
}

fn key(number: usize) -> String {
    format!("{number:05}")
}

fn field(number: usize, round: usize) -> Vec<u8> {
    value(&format!("{number} in {round}; "), FIELD_BYTES)
}

/// The field of a key that a round overwrites; round 0 writes all.
fn field_of(number: usize, round: usize) -> usize {
    (number + round) % FIELDS
}

/// The value after all rounds up to this one.
fn value_after(number: usize, round: usize) -> Vec<u8> {
    let mut value: Vec<u8> = (0..FIELDS).flat_map(|_| field(number, 0)).collect();
    for round in 1..=round {
        let at = field_of(number, round) * FIELD_BYTES;
        value[at..at + FIELD_BYTES].copy_from_slice(&field(number, round));
    }
    value
}

/// Round 0 puts all values, not in key order; other rounds overwrite a field of each.
fn write_round(db: &Db, round: usize) {
    let records = records(db);
    for number in (0..KEYS).map(|at| at * 7 % KEYS) {
        let at = (field_of(number, round) * FIELD_BYTES) as u32;
        match round {
            0 => records.put(key(number), value_after(number, 0)).unwrap(),
            _ => records.merge(key(number), Patches::operand(at, &field(number, round))).unwrap(),
        }
    }
}

/// All fields are overwritten, so that the operands are worth a fold.
fn write_rounds(db: &Db, rounds: std::ops::RangeInclusive<usize>) {
    for round in rounds {
        write_round(db, round);
        db.flush().unwrap();
    }
}

fn compact(db: &Db) -> Stats {
    db.compact_range(&records(db), ..).unwrap();
    db.wait_for_background().unwrap();
    db.stats()
}

fn assert_round(db: &Db, round: usize) {
    let records = records(db);
    for number in 0..KEYS {
        assert_eq!(&records.get(key(number)).unwrap().unwrap()[..], value_after(number, round), "{number}");
    }
    let found: Vec<_> = records.iter().unwrap().map(|item| item.unwrap().1).collect();
    assert_eq!(found.len(), KEYS);
    assert!(found.iter().enumerate().all(|(number, value)| **value == value_after(number, round)));
}

fn assert_sound(disk: &SimDisk, options: &Options) {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), options).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

/// Bytes of all tables: without values, less than a quarter of them.
fn assert_separated(stats: &Stats) {
    let tables: u64 = stats.levels.iter().map(|level| level.bytes).sum();
    assert!(tables < (KEYS * FIELDS * FIELD_BYTES / 4) as u64, "{tables} B in tables: {stats:?}");
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "segment")
}

fn segments(disk: &SimDisk) -> usize {
    disk.files().iter().filter(|(path, _)| is_segment(path)).count()
}

#[test]
fn folded_values_stay_separated_under_every_placement() {
    for (index, placement) in PLACEMENTS.into_iter().enumerate() {
        for compression in [Compression::None, Compression::Lz4] {
            in_world(index as u64, move || {
                let (disk, mut tuning) = (SimDisk::new(), Tuning::tiny());
                (tuning.placement, tuning.value_compression) = (placement, compression);
                let options = options(BACKENDS[index % 2]);
                let options = if index == 1 { options.slow_dir("/slow") } else { options };
                let db = open_with(&disk, options.clone(), tuning.clone()).unwrap();
                write_rounds(&db, 0..=0);
                compact(&db);
                for last in [FIELDS, 2 * FIELDS, 3 * FIELDS] {
                    write_rounds(&db, last - FIELDS + 1..=last);
                    let stats = compact(&db);
                    assert_round(&db, last);
                    assert_separated(&stats);
                    assert!(stats.values_folded >= (KEYS * last / FIELDS) as u64, "{stats:?}");
                    assert!(stats.folded_value_bytes_written > 0);
                }
                if index == 1 {
                    // Value GC makes others on the fast tier, of values that are read.
                    assert!(disk.files().iter().any(|(path, _)| path.starts_with("/slow") && is_segment(path)));
                }
                db.checkpoint(Path::new("/copy")).unwrap();
                db.close().unwrap();
                assert_sound(&disk, &options);
                let copy = testing::open(Arc::new(disk.clone()), Path::new("/copy"), Options::new(), tuning.clone());
                assert_round(&copy.unwrap(), 3 * FIELDS);
                let db = open_with(&disk, options, tuning).unwrap();
                assert_round(&db, 3 * FIELDS);
            });
        }
    }
}

#[test]
fn a_store_without_merges_has_no_segments_of_folds() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(backend), Tuning::tiny()).unwrap();
        write_rounds(&db, 0..=0);
        assert_eq!(compact(&db).values_folded, 0);
        assert_eq!(segments(&disk), 0);
    });
}

#[test]
fn a_snapshot_keeps_what_was_there_before_a_fold() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(backend), Tuning::tiny()).unwrap();
        write_rounds(&db, 0..=FIELDS);
        let (space, snapshot) = (records(&db), db.snapshot());
        write_rounds(&db, FIELDS + 1..=2 * FIELDS);
        let in_snapshot = || {
            for number in 0..KEYS {
                let found = snapshot.get(&space, key(number)).unwrap().unwrap();
                assert_eq!(&found[..], value_after(number, FIELDS), "{number}");
            }
        };
        let stats = compact(&db);
        assert!(stats.values_folded >= KEYS as u64, "{stats:?}");
        in_snapshot();
        assert_round(&db, 2 * FIELDS);
        write_rounds(&db, 2 * FIELDS + 1..=3 * FIELDS);
        compact(&db);
        in_snapshot();
        assert_round(&db, 3 * FIELDS);
        drop(snapshot);
        assert_separated(&compact(&db));
        assert_round(&db, 3 * FIELDS);
        db.close().unwrap();
        assert_sound(&disk, &Options::new());
    });
}

#[test]
fn a_result_below_the_threshold_is_stored_in_the_table() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(backend), Tuning::tiny()).unwrap();
        let least = db.create_keyspace("least", KeyspaceOptions::new().merge_operator("min")).unwrap();
        for number in 0..KEYS {
            least.put(key(number), value("value ", 300)).unwrap();
        }
        db.flush().unwrap();
        // Each is smaller than the value, and the two together are larger.
        for _ in 0..2 {
            (0..KEYS).for_each(|number| least.merge(key(number), [b'a'; 180]).unwrap());
            db.flush().unwrap();
        }
        db.compact_range(&least, ..).unwrap();
        db.wait_for_background().unwrap();
        let stats = db.stats();
        assert_eq!((stats.values_folded, stats.value_bytes), (0, 0), "{stats:?}");
        assert!((0..KEYS).all(|number| least.get(key(number)).unwrap().unwrap() == [b'a'; 180]));
    });
}

#[test]
fn a_value_that_cannot_be_merged_stays_separated_with_its_operands() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(backend), Tuning::tiny()).unwrap();
        let broken = db.create_keyspace("broken", KeyspaceOptions::new().merge_operator("u64-add")).unwrap();
        for number in 0..KEYS {
            // Not a number.
            broken.put(key(number), value("value ", 400)).unwrap();
        }
        db.flush().unwrap();
        // Neither is this, so the operands do not combine.
        for _ in 0..20 {
            (0..KEYS).for_each(|number| broken.merge(key(number), "+").unwrap());
        }
        db.flush().unwrap();
        db.compact_range(&broken, ..).unwrap();
        let stats = db.stats();
        assert_eq!(stats.values_folded, 0);
        assert!(stats.value_bytes >= (KEYS * 400) as u64, "{stats:?}");
        assert!(matches!(broken.get(key(7)), Err(Error::MergeFailed { .. })));
        broken.put(key(7), "again").unwrap();
        assert_eq!(broken.get(key(7)).unwrap().unwrap(), *b"again");
        db.close().unwrap();
        assert_sound(&disk, &Options::new());
    });
}

#[test]
fn a_crash_at_any_sync_of_a_fold_leaves_the_values_before_or_after_it() {
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        in_world(seed as u64, move || {
            let disk = SimDisk::new();
            let db = open_with(&disk, options(backend), Tuning::tiny()).unwrap();
            write_rounds(&db, 0..=FIELDS);
            db.sync().unwrap();
            let powerless = lose_power(&disk);
            assert!(compact(&db).values_folded > 0);
            let mut images = taken(&disk, &powerless);
            write_rounds(&db, FIELDS + 1..=2 * FIELDS);
            db.sync().unwrap();
            let crashed = crash_before(&disk, |_, _| true);
            compact(&db);
            let later = taken(&disk, &crashed);
            assert!(images.len() > 10 && later.len() > 2, "{} and {}", images.len(), later.len());
            let first = images.len();
            images.extend(later);
            for (index, image) in images.into_iter().enumerate() {
                let db = open_with(&image, options(backend), Tuning::tiny()).unwrap();
                let round = if index < first { FIELDS } else { 2 * FIELDS };
                assert_round(&db, round);
                compact(&db);
                assert_round(&db, round);
                db.close().unwrap();
                assert_sound(&image, &Options::new());
            }
        });
    }
}

/// Compacts while the disk fails as `faults` says.
fn compact_on(disk: &SimDisk, db: &Db, faults: Faults) -> Result<(), Error> {
    disk.set_faults(faults);
    let result = db.compact_range(&records(db), ..);
    disk.clear_faults();
    result
}

#[test]
fn a_disk_that_fails_at_any_operation_of_a_fold_loses_nothing() {
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        in_world(seed as u64, move || {
            let (mut failed, mut after) = (0, 0);
            loop {
                let faults = |kind| match kind {
                    0 => Faults { fail_write_after: Some(after), ..Faults::default() },
                    1 => Faults { fail_sync_after: Some(after), ..Faults::default() },
                    _ => Faults { fail_directory_after: Some(after), ..Faults::default() },
                };
                let mut is_over = true;
                for kind in 0..3 {
                    let disk = SimDisk::new();
                    let db = open_with(&disk, options(backend), Tuning::tiny()).unwrap();
                    write_rounds(&db, 0..=FIELDS);
                    db.sync().unwrap();
                    let result = compact_on(&disk, &db, faults(kind));
                    failed += usize::from(result.is_err());
                    is_over &= result.is_ok();
                    assert_round(&db, FIELDS);
                    drop(db);
                    let db = open_with(&disk, options(backend), Tuning::tiny()).unwrap();
                    assert_round(&db, FIELDS);
                    assert_separated(&compact(&db));
                    assert_round(&db, FIELDS);
                    db.close().unwrap();
                    assert_sound(&disk, &Options::new());
                }
                if is_over {
                    break;
                }
                after += 1;
            }
            assert!(failed > 10, "only {failed} failed");
        });
    }
}

#[test]
fn a_fold_that_finds_no_space_leaves_no_segment_and_is_repeated() {
    with_each_log(|backend| {
        let mut failed = 0;
        for room in (0..60_000).step_by(6_000) {
            let disk = SimDisk::new();
            let db = open_with(&disk, options(backend), Tuning::tiny()).unwrap();
            write_rounds(&db, 0..=FIELDS);
            db.sync().unwrap();
            let faults = Faults { no_space_after_bytes: Some(room), ..Faults::default() };
            if let Err(error) = compact_on(&disk, &db, faults) {
                assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                failed += 1;
            }
            let stats = compact(&db);
            assert!(stats.values_folded >= KEYS as u64, "{stats:?}");
            assert_round(&db, FIELDS);
            db.close().unwrap();
            let left = segments(&disk);
            assert_sound(&disk, &Options::new());
            // An open removes what the manifest does not name.
            open_with(&disk, options(backend), Tuning::tiny()).unwrap().close().unwrap();
            assert_eq!(segments(&disk), left, "a failed job left a segment");
        }
        assert!(failed > 2, "only {failed} failed");
    });
}
