//! Surveys: one walk through the tables serves many collections, and what lives outlasts them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use cleavedb::testing::{self, Random, SimDisk, Tuning};
use cleavedb::{Options, ValuePlacement};

use crate::support::{in_world, open_with, value};

/// Values of at least 16 B are separated.
fn separated() -> Options {
    Options::new().separation(Some(16))
}

fn key(number: u64) -> String {
    format!("{number:05}")
}

fn value_of(number: u64, put: u64) -> Vec<u8> {
    value(&format!("{number} at {put}; "), 40)
}

fn check(disk: &SimDisk) {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn what_lives_is_known_without_a_walk_and_after_an_open_one_walk_serves_many_collections() {
    let run = |records_max, survey_bytes| {
        in_world(7, move || {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            (tuning.surveyed_records_max, tuning.survey_bytes) = (records_max, survey_bytes);
            // Small values and jobs: to copy all of a job costs less than a walk.
            tuning.log_bytes = 16 << 10;
            let mut random = Random::new(3);
            let mut rounds = vec![0; 6000];
            let mut put_all = |puts: Range<u64>| {
                let db = open_with(&disk, separated(), tuning.clone()).unwrap();
                for put in puts {
                    let (number, round) = if put < 6000 { (put, 0) } else { (random.below(6000), put) };
                    rounds[number as usize] = round;
                    db.put(key(number), value_of(number, round)).unwrap();
                }
                db.wait_for_background().unwrap();
                let stats = db.stats();
                for (number, round) in (0..).zip(&rounds) {
                    assert_eq!(&db.get(key(number)).unwrap().unwrap()[..], value_of(number, *round));
                }
                db.close().unwrap();
                check(&disk);
                (stats.value_gcs, stats.value_surveys)
            };
            (put_all(0..20_000), put_all(20_000..30_000))
        })
    };
    let ((jobs, none), (later_jobs, few)) = run(100_000, 1 << 20);
    // Of collections beside each other some copy in vain what dies meanwhile.
    assert!(none <= 1 && jobs > 20 && 0 < few && few * 4 < later_jobs, "{none} of {jobs}, {few} of {later_jobs}");
    let ((jobs, many), (later_jobs, later)) = run(0, 0);
    assert!(many * 4 > jobs * 3 && later * 4 > later_jobs * 3, "{many} of {jobs}, {later} of {later_jobs}");
}

#[test]
fn collections_by_an_old_survey_keep_what_lives_and_what_snapshots_see() {
    for seed in 0..2 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            (tuning.surveyed_records_max, tuning.survey_bytes) = (100_000, 64 << 10);
            tuning.placement = [ValuePlacement::Range, ValuePlacement::Hash][seed as usize % 2];
            let db = open_with(&disk, separated(), tuning.clone()).unwrap();
            let space = db.default_keyspace();
            let mut random = Random::new(seed);
            // For each key the number of its put, if it is there.
            let mut puts: Vec<Option<u64>> = vec![None; 3000];
            let (mut snapshot, mut gcs, mut surveys) = (None, 0, 0);
            for round in 0..6 {
                let held = snapshot.replace((db.snapshot(), puts.clone()));
                for put in round * 3000..(round + 1) * 3000 {
                    let number = if round == 0 { put } else { random.below(3000) };
                    puts[number as usize] = Some(put);
                    db.put(key(number), value_of(number, put)).unwrap();
                }
                let from = random.below(2900);
                db.delete_range(key(from).into_bytes()..key(from + 100).into_bytes()).unwrap();
                puts[from as usize..from as usize + 100].fill(None);
                for (number, put) in (0..).zip(held.iter().flat_map(|(_, puts)| puts)).step_by(7) {
                    let (snapshot, _) = held.as_ref().unwrap();
                    let found = snapshot.get(&space, key(number)).unwrap();
                    assert_eq!(found.as_deref(), put.map(|put| value_of(number, put)).as_deref(), "{number}");
                }
                let stats = db.stats();
                (gcs, surveys) = (stats.value_gcs, stats.value_surveys);
            }
            assert!(surveys < gcs, "{surveys} of {gcs}");
            drop(snapshot);
            db.sync().unwrap();
            let lost = disk.power_loss(seed);
            drop(db);
            let db = open_with(&lost, separated(), tuning).unwrap();
            db.wait_for_background().unwrap();
            for (number, put) in (0..).zip(puts) {
                let found = db.get(key(number)).unwrap();
                assert_eq!(found.as_deref(), put.map(|put| value_of(number, put)).as_deref(), "{number}");
            }
            db.close().unwrap();
            check(&lost);
        });
    }
}
