//! Rollback: logs leave the KV device on which they were born. When that begins, what it yields to, and what readers and writers see of it.

use std::collections::BTreeMap;
use std::time::Duration;

use cleavedb::testing::{self, Tuning};
use cleavedb::{Db, Iter, KeyspaceOptions, Rollback};

use crate::device::{assert_numbers, device, little_room, numbers, options, press, seldom_flushed, slow_disk};
use crate::support::{BACKENDS, in_world, open_with, value};

/// Logs are copied in many pieces, each of which takes as long as the others.
fn small_pieces(mut tuning: Tuning) -> Tuning {
    (tuning.write_bytes, tuning.stats_interval) = (4096, Some(Duration::from_millis(50)));
    tuning
}

fn is_rolling_back(db: &Db) -> bool {
    db.stats().jobs.iter().any(|job| job.kind == "roll back")
}

#[test]
fn an_eager_rollback_begins_with_the_end_of_the_redirect_and_a_lazy_one_when_writers_rest() {
    let rolled_back = |rollback| {
        in_world(3, move || {
            let mut tuning = little_room();
            tuning.stats_interval = Some(Duration::from_millis(50));
            let disk = slow_disk();
            let db = open_with(&disk, options(&disk, rollback), tuning).unwrap();
            press(&db);
            let mut moved = 0;
            // Slowly, so that the redirect ends, but never so that the store would be idle.
            for number in 0..1000 {
                db.put(format!("{number:05}"), value("slow", 300)).unwrap();
                testing::sleep(Duration::from_millis(20));
                moved = db.stats().bypass.bytes_rolled_back;
                if moved > 0 {
                    break;
                }
            }
            db.wait_for_background().unwrap();
            let in_the_end = db.stats().bypass.bytes_rolled_back;
            db.close().unwrap();
            (moved, in_the_end)
        })
    };
    let (eager, lazy) = (rolled_back(Rollback::Eager), rolled_back(Rollback::Lazy));
    assert!(eager.0 > 0, "{eager:?}");
    assert_eq!(lazy.0, 0, "{lazy:?}");
}

#[test]
fn a_rollback_yields_to_reads() {
    let takes = |reads: bool| {
        in_world(4, move || {
            let disk = slow_disk();
            let db = open_with(&disk, options(&disk, Rollback::Eager), small_pieces(little_room())).unwrap();
            press(&db);
            db.put("key", "value").unwrap();
            let (mut steps, mut number) = (0, 0);
            loop {
                if reads {
                    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
                }
                // Others write, slowly, so that the redirect ends, but never so that the store would be idle.
                if number % 10 == 0 {
                    db.put(format!("{number:05}"), value("slow", 300)).unwrap();
                }
                testing::sleep(Duration::from_millis(2));
                number += 1;
                let stats = db.stats();
                steps += u64::from(stats.jobs.iter().any(|job| job.kind == "roll back"));
                if stats.bypass.bytes_rolled_back > 0 {
                    return (steps, stats.bypass.bytes_rolled_back);
                }
                assert!(number < 20_000, "{:?}", stats.bypass);
            }
        })
    };
    let ((alone, moved), (beside_reads, moved_too)) = (takes(false), takes(true));
    assert!(beside_reads > alone * 3 / 2, "{alone} steps for {moved} B, {beside_reads} for {moved_too} B beside reads");
}

/// Each piece of the copy takes the time of many writes, and no write takes any of it.
#[test]
fn a_rollback_never_makes_a_writer_wait() {
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        in_world(seed as u64, move || {
            let disk = slow_disk();
            let db =
                open_with(&disk, options(&disk, Rollback::Eager).log_backend(backend), small_pieces(little_room()))
                    .unwrap();
            press(&db);
            let waited = |db: &Db| db.stats().paced_time + db.stats().stall_time;
            let (mut during, mut longest, mut waited_before) = (0, Duration::ZERO, None);
            for number in 0.. {
                let before = is_rolling_back(&db).then(|| waited(&db));
                let began = testing::now();
                db.put(format!("{number:05}"), value("slow", 300)).unwrap();
                if let Some(before) = before {
                    during += 1;
                    longest = longest.max(testing::now() - began);
                    waited_before.get_or_insert(before);
                } else if during > 0 {
                    break;
                }
                // Slowly, so that the redirect ends, but never so that the store would be idle.
                testing::sleep(Duration::from_millis(5));
                assert!(number < 5000, "{:?}", db.stats().bypass);
            }
            let moved = db.stats().bypass.bytes_rolled_back;
            assert!(moved > 0 && during > 20, "{during} writes while {moved} bytes moved");
            assert_eq!(waited(&db), waited_before.unwrap());
            assert!(longest < Duration::from_millis(1), "{longest:?} of {during} writes");
            db.close().unwrap();
        });
    }
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn assert_content(iter: Iter, backwards: bool, wanted: &Content) {
    let pair = |item: cleavedb::Result<(cleavedb::Slice, cleavedb::Slice)>| {
        let (key, value) = item.unwrap();
        (key.to_vec(), value.to_vec())
    };
    let found: Vec<_> = if backwards { iter.rev().map(pair).collect() } else { iter.map(pair).collect() };
    let wanted = wanted.iter().map(|(key, value)| (key.clone(), value.clone()));
    let wanted: Vec<_> = if backwards { wanted.rev().collect() } else { wanted.collect() };
    assert!(found == wanted, "{} of {} records, backwards: {backwards}", found.len(), wanted.len());
}

/// In both directions; with iterators that go on from one step of the copy to the next, and with new ones.
#[test]
fn iterators_see_the_same_records_before_during_and_after_a_rollback() {
    let mut during = 0;
    for (seed, separation_bytes) in [(1, usize::MAX), (2, 200), (3, usize::MAX), (4, 200)] {
        during += in_world(seed, move || {
            let disk = slow_disk();
            let tuning = small_pieces(seldom_flushed(separation_bytes));
            let db = open_with(&disk, options(&disk, Rollback::Eager), tuning).unwrap();
            let others = db.create_keyspace("others", KeyspaceOptions::new()).unwrap();
            let mut wanted = Content::new();
            let mut put = |key: String, of: &str| {
                db.put(&key, value(of, 300)).unwrap();
                wanted.insert(key.into_bytes(), value(of, 300));
            };
            (0..100).for_each(|number| put(format!("{number:04}"), &format!("tier {number} ")));
            db.flush().unwrap();
            press(&db);
            let pause = db.pause_background().unwrap();
            // Some keys get another version on the device, others are new, or go.
            (50..600).for_each(|number| put(format!("{number:04}"), &format!("device {number} ")));
            for number in (0..600).step_by(7) {
                db.delete(format!("{number:04}")).unwrap();
                wanted.remove(format!("{number:04}").as_bytes());
            }
            assert!(device(&db).records > 200, "{:?}", device(&db));
            drop(pause);
            let (mut forwards, mut backwards) = (db.iter().unwrap(), db.iter().unwrap());
            let (mut ascending, mut descending) = (Content::new(), Content::new());
            let mut step = || {
                let both = [(forwards.next(), &mut ascending), (backwards.next_back(), &mut descending)];
                for (item, seen) in both {
                    if let Some((key, value)) = item.transpose().unwrap() {
                        seen.insert(key.to_vec(), value.to_vec());
                    }
                }
            };
            step();
            let mut steps = 0;
            for number in 0.. {
                let before = is_rolling_back(&db);
                let from = number * 40 % 600;
                let range = format!("{from:04}")..format!("{:04}", from + 10);
                let part = wanted.range(range.start.clone().into_bytes()..range.end.clone().into_bytes());
                let part = part.map(|(key, value)| (key.clone(), value.clone())).collect();
                assert_content(db.range(range).unwrap(), number % 2 == 1, &part);
                if before {
                    step();
                    steps += 1;
                } else if steps > 0 && device(&db).logs <= 1 {
                    break;
                }
                // Slowly, so that the redirect ends, but never so that the store would be idle.
                others.put(format!("{number:05}"), value("slow", 300)).unwrap();
                testing::sleep(Duration::from_millis(20));
                assert!(number < 2000, "{:?}", db.stats().bypass);
            }
            assert!(steps > 0 && db.stats().bypass.bytes_rolled_back > 0, "{steps} steps: {:?}", db.stats().bypass);
            assert_content(db.iter().unwrap(), false, &wanted);
            assert_content(db.iter().unwrap(), true, &wanted);
            (0..600).for_each(|_| step());
            assert!(ascending == wanted && descending == wanted, "the iterators from before the rollback");
            drop((forwards, backwards, others));
            db.close().unwrap();
            steps
        });
    }
    assert!(during > 20, "{during} steps during rollbacks");
}

/// Of a range, however small it is: the front is flushed first.
#[test]
fn a_compaction_takes_what_is_inline_off_the_device_without_a_copy() {
    for (seed, separation_bytes) in [(1, usize::MAX), (2, 200)] {
        in_world(seed, move || {
            let disk = slow_disk();
            let tuning = seldom_flushed(separation_bytes);
            let db = open_with(&disk, options(&disk, Rollback::Lazy), tuning).unwrap();
            press(&db);
            let pause = db.pause_background().unwrap();
            numbers(&db, 0..600);
            let before = device(&db);
            assert!(before.logs > 2 && before.records > 500, "{before:?}");
            drop(pause);
            db.compact_range(&db.default_keyspace(), "00000".."00001").unwrap();
            let after = device(&db);
            match separation_bytes {
                // The log that is being written is left, with nothing in it that is needed.
                usize::MAX => assert!(after.logs <= 1 && after.records == 0, "{after:?}"),
                _ => assert!(after.logs >= before.logs && after.records > 0, "separated values stay: {after:?}"),
            }
            assert_eq!(db.stats().bypass.bytes_rolled_back, 0);
            assert_numbers(&db, 600);
            db.close().unwrap();
        });
    }
}
