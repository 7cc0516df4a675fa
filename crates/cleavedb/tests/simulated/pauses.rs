//! Pausing background work.

use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Error, Options, WriteOptions};

use crate::support::{open_with, value, with_each_log};

#[test]
fn nothing_runs_during_a_pause_and_writers_wait_for_its_end() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new().log_backend(backend), Tuning::tiny()).unwrap();
        let keyspace = db.default_keyspace();
        let (first, second) = (db.pause_background().unwrap(), db.pause_background().unwrap());
        let at_once = WriteOptions::new().stall_max(Duration::from_millis(50));
        let mut taken = 0;
        while keyspace.put_with(format!("{taken:05}"), value("v", 300), at_once).is_ok() {
            taken += 1;
        }
        let stats = db.stats();
        assert!(taken > 50 && stats.sealed > 0 && stats.seals == 0 && stats.flushes == 0, "{taken} puts: {stats:?}");
        assert!(matches!(keyspace.put_with("k", "v", at_once), Err(Error::WouldStall)));
        assert!(matches!(db.flush(), Err(Error::InvalidInput { .. })));
        assert!(matches!(db.compact_range(&keyspace, ..), Err(Error::InvalidInput { .. })));
        assert!(matches!(db.ingest([("k", "v")]), Err(Error::InvalidInput { .. })));
        assert_eq!(db.iter().unwrap().count(), taken);
        first.resume();
        assert!(matches!(db.flush(), Err(Error::InvalidInput { .. })));
        let waiting = {
            let db = db.clone();
            testing::spawn("waiting", move || db.put("waited", "v").unwrap())
        };
        testing::sleep(Duration::from_millis(20));
        assert!(db.get("waited").unwrap().is_none());
        drop(second);
        waiting.join().unwrap();
        db.flush().unwrap();
        assert!(db.stats().flushes > 0);
        assert_eq!(db.iter().unwrap().count(), taken + 1);
    });
}

#[test]
fn a_close_ends_a_pause() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        tuning.close_flush_bytes = 0;
        let db = open_with(&disk, Options::new().log_backend(backend), tuning.clone()).unwrap();
        let pause = db.pause_background().unwrap();
        for number in 0..30 {
            db.put(number.to_string(), value("v", 300)).unwrap();
        }
        db.clone().close().unwrap();
        assert!(matches!(db.pause_background(), Err(Error::Closed)));
        drop((pause, db));
        let db = open_with(&disk, Options::new().log_backend(backend), tuning).unwrap();
        assert_eq!(db.iter().unwrap().count(), 30);
    });
}
