//! Promises about crashes, each case by itself.

use std::time::Duration;

use cleavedb::testing::{self, Canary, SimDisk};
use cleavedb::{Durability, LogBackend, Options, WriteBatch};

use crate::support::{BACKENDS, in_world, open, open_with, text, unflushed, value, with_each_log};

#[test]
fn a_buffered_write_survives_a_crash_of_the_process() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for number in 0..50 {
            db.put(format!("key {number}"), value("v", number * 10)).unwrap();
        }
        let image = disk.process_crash();
        disk.halt();
        drop(db);
        let db = open(&image, backend).unwrap();
        for number in 0..50 {
            assert_eq!(db.get(format!("key {number}")).unwrap().unwrap(), value("v", number * 10));
        }
    });
}

#[test]
fn a_sync_write_survives_loss_of_power() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for number in 0..20_u64 {
            db.default_keyspace().put_with("key", number.to_string(), Durability::Sync).unwrap();
            let db = open(&disk.power_loss(number), backend).unwrap();
            assert_eq!(text(&db, "key"), Some(number.to_string()));
        }
    });
}

#[test]
fn all_writes_before_a_sync_call_survive_loss_of_power() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for number in 0..40 {
            db.put(format!("key {number}"), value("v", 500)).unwrap();
        }
        db.sync().unwrap();
        assert!(db.stats().durable_seqno >= 40);
        for seed in 0..10 {
            let db = open(&disk.power_loss(seed), backend).unwrap();
            assert_eq!(db.iter().unwrap().count(), 40);
        }
    });
}

#[test]
fn an_interval_write_survives_loss_of_power_once_the_interval_is_over() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let interval = Durability::Interval(Duration::from_millis(50));
        db.default_keyspace().put_with("key", "value", interval).unwrap();
        testing::sleep(Duration::from_millis(100));
        for seed in 0..10 {
            let db = open(&disk.power_loss(seed), backend).unwrap();
            assert_eq!(text(&db, "key"), Some("value".into()));
        }
    });
}

/// Writes `early` without a sync, fills several logs, writes `late` with a sync, and cuts the power. Returns the number
/// of images that lost `early`.
fn early_writes_lost(backend: LogBackend, canary: Option<Canary>) -> usize {
    in_world(2, move || {
        let disk = SimDisk::new();
        let mut tuning = unflushed();
        tuning.canary = canary;
        let db = open_with(&disk, Options::new().log_backend(backend), tuning.clone()).unwrap();
        db.put("early", "1").unwrap();
        for number in 0..100 {
            db.put(format!("filler {number}"), value("f", 700)).unwrap();
        }
        assert!(db.stats().logs.len() > 1, "the test needs more than one log");
        db.default_keyspace().put_with("late", "2", Durability::Sync).unwrap();
        let images = (0..20).map(|seed| disk.power_loss(seed));
        let mut lost = 0;
        for image in images {
            // A planted bug may also show up as an error.
            let Ok(db) = open_with(&image, Options::new().log_backend(backend), tuning.clone()) else {
                lost += 1;
                continue;
            };
            let both = (text(&db, "early"), text(&db, "late"));
            lost += usize::from(both != (Some("1".into()), Some("2".into())));
        }
        lost
    })
}

#[test]
fn a_sync_acknowledgement_covers_buffered_writes_in_earlier_logs() {
    for backend in BACKENDS {
        assert_eq!(early_writes_lost(backend, None), 0, "{backend:?}");
    }
}

#[test]
fn the_planted_bug_of_a_sync_that_skips_earlier_logs_is_caught() {
    for backend in BACKENDS {
        assert!(early_writes_lost(backend, Some(Canary::SyncSkipsEarlierLogs)) > 0, "{backend:?}");
    }
}

/// Batches are larger than an index table, so parts of a batch may be flushed while the rest is in a lost log.
#[test]
fn a_batch_half_in_a_table_and_half_in_a_lost_log_is_whole_or_absent() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let other = db.keyspace("other").unwrap();
        for number in 0..8 {
            let mut batch = WriteBatch::new();
            for part in 0..60 {
                let keyspace = if part % 2 == 0 { db.default_keyspace() } else { other.clone() };
                batch.put(&keyspace, format!("{part:02}"), format!("{number} {}", "v".repeat(part * 4)));
            }
            db.write(batch).unwrap();
            if number % 3 == 2 {
                db.flush().unwrap();
            }
            for seed in 0..8 {
                let image = disk.power_loss(seed);
                let db = open(&image, backend).unwrap();
                let other = db.keyspace("other").unwrap();
                let of = |value: &[u8]| value.split(|&byte| byte == b' ').next().map(<[u8]>::to_vec);
                let found: Vec<_> =
                    db.iter().unwrap().chain(other.iter().unwrap()).map(|it| of(&it.unwrap().1)).collect();
                assert!(found.is_empty() || found.len() == 60, "{} parts are there", found.len());
                assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "parts of several batches: {found:?}");
            }
        }
    });
}

/// Bytes that recovery truncated must not reappear in a second recovery, beneath whatever was written since.
#[test]
fn a_second_recovery_keeps_what_the_first_one_found() {
    for backend in BACKENDS {
        for seed in 0..12 {
            in_world(seed, move || {
                let mut disk = SimDisk::new();
                let mut expected = Vec::new();
                for round in 0..5 {
                    let db = open(&disk, backend).unwrap();
                    let found: Vec<_> = db.iter().unwrap().map(|item| item.unwrap().0).collect();
                    assert!(found.starts_with(&expected[..]), "round {round}: {expected:?} became {found:?}");
                    // Reopened at once, without a write in between.
                    let again = open(&disk.power_loss(seed + round), backend).unwrap();
                    let found_again: Vec<_> = again.iter().unwrap().map(|item| item.unwrap().0).collect();
                    assert_eq!(found, found_again, "round {round}");
                    drop(again);
                    expected = found;
                    let key = format!("{round} 0 synced").into_bytes();
                    db.default_keyspace().put_with(&key, value("s", 300), Durability::Sync).unwrap();
                    expected.push(cleavedb::Slice::copy_from(&key));
                    for number in 0..8 {
                        db.put(format!("{round} 1 buffered {number}"), value("b", 1200)).unwrap();
                    }
                    let image = disk.power_loss(seed * 31 + round);
                    disk.halt();
                    drop(db);
                    disk = image;
                }
            });
        }
    }
}

#[test]
fn after_a_clean_close_power_loss_loses_nothing() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for number in 0..30 {
            db.put(format!("{number}"), value("v", 400)).unwrap();
        }
        db.close().unwrap();
        for seed in 0..10 {
            let db = open(&disk.power_loss(seed), backend).unwrap();
            assert_eq!(db.iter().unwrap().count(), 30);
        }
    });
}
