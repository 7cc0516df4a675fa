//! Old values that must not come back: keys whose versions lie on a KV device and elsewhere, with values in the levels and apart.
//! Each story is checked at once, after a flush and a compaction while logs are still on the device, after a reopen, and after the
//! rollback.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Bypass, Db, LogBackend, Rollback};

use crate::device::{device, device_on, little_room, options, press, slow_disk, without_device};
use crate::support::{in_world, open_with, value};

/// Values that are compared by name.
fn of(name: &str) -> Vec<u8> {
    value(name, 200).to_vec()
}

fn put(db: &Db, key: &str, name: &str) {
    db.put(key, of(name)).unwrap();
}

/// Writes a version whose log lies on the device.
fn put_on_device(db: &Db, key: &str, name: &str) {
    // A flush would take others off it meanwhile.
    let _pause = db.pause_background().unwrap();
    let before = device(db).records;
    put(db, key, name);
    assert!(device(db).records > before, "{key} went to {name}: {:?}", db.stats().bypass);
}

/// Little room in logs; values are in the levels, or apart.
fn sizes(is_apart: bool) -> Tuning {
    let mut tuning = little_room();
    if is_apart {
        tuning.separation_bytes = 150;
    }
    tuning
}

/// What keys must have, `None` for nothing.
type Wanted = Vec<(&'static str, Option<&'static str>)>;

fn assert_has(db: &Db, wanted: &Wanted, when: &str) {
    let found: Vec<Vec<u8>> = db.iter().unwrap().map(|item| item.unwrap().0.to_vec()).collect();
    for (key, name) in wanted {
        assert!(db.get(key).unwrap().map(|found| found.to_vec()) == name.map(of), "{when}: {key}");
        assert_eq!(found.iter().any(|found| found == key.as_bytes()), name.is_some(), "{when}: {key} in a scan");
    }
}

/// Writes until a log is full that was written to before, so that it may leave the device.
fn fill_a_log(db: &Db) {
    let load = db.keyspace("load").unwrap();
    let before = db.stats().bypass.logs_born_on_device;
    for number in 0.. {
        load.put(format!("more {number:06}"), value("more ", 300)).unwrap();
        testing::sleep(Duration::from_micros(300));
        // One of them is the spare log.
        if db.stats().bypass.logs_born_on_device > before + 1 {
            return;
        }
        assert!(number < 2000, "{:?}", db.stats().bypass);
    }
}

/// Tells a story, with values in the levels and with values apart.
fn tell(story: fn(&Db) -> Wanted) {
    // Runs in which all logs lay on the device still after flush and compaction.
    let mut lay_there = 0;
    let always = [(1, false), (2, true), (3, false), (4, true), (5, true)];
    let more = (6..20).map(|seed| (seed, true));
    for (index, (seed, is_apart)) in always.into_iter().chain(more).enumerate() {
        if index >= always.len() && lay_there > 0 {
            break;
        }
        lay_there += in_world(seed, move || {
            let disk = slow_disk();
            let tuning = sizes(is_apart);
            let open = |disk: &SimDisk| open_with(disk, options(disk, Rollback::Lazy), tuning.clone()).unwrap();
            let db = open(&disk);
            let wanted = story(&db);
            assert!(device(&db).records > 0, "{:?}", db.stats().bypass);
            assert_has(&db, &wanted, "at once");
            let image = disk.power_loss(seed);
            fill_a_log(&db);
            let before = device(&db);
            // With values in the levels, tables have all of it.
            let lies_there = || {
                let there = device(&db);
                there.logs >= before.logs && there.records > 0 && db.stats().bypass.bytes_rolled_back == 0
            };
            db.flush().unwrap();
            let lay_there = lies_there();
            assert_has(&db, &wanted, "after the flush");
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            let lay_there = lay_there && lies_there();
            assert_has(&db, &wanted, "after the compaction");
            db.close().unwrap();
            let db = open(&disk);
            assert_has(&db, &wanted, "after the reopen");
            db.wait_for_background().unwrap();
            assert_has(&db, &wanted, "after the rollback");
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            assert_has(&db, &wanted, "after everything");
            db.close().unwrap();
            let options = options(&disk, Rollback::Lazy);
            let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &options).unwrap();
            assert_eq!(report.problems, []);
            // What was durable is a prefix; whatever it is, a rollback right after the crash must not change it.
            let db = open(&image);
            let keys: Vec<&str> = wanted.iter().map(|(key, _)| *key).collect();
            let read =
                |db: &Db| -> Vec<_> { keys.iter().map(|key| db.get(key).unwrap().map(|it| it.to_vec())).collect() };
            let found = read(&db);
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.wait_for_background().unwrap();
            assert!(read(&db) == found);
            db.close().unwrap();
            u32::from(is_apart && lay_there)
        });
    }
    assert!(lay_there > 0, "in some runs nothing has left the device");
}

#[test]
fn a_key_that_is_redirected_twice_has_its_second_value() {
    tell(|db| {
        put(db, "key", "tier");
        db.flush().unwrap();
        press(db);
        put_on_device(db, "key", "device 1");
        let born = || db.stats().bypass.logs_born_on_device;
        let before = born();
        (0..400).for_each(|number| put(db, &format!("other {number}"), "other"));
        assert!(born() > before, "{:?}", db.stats().bypass);
        put_on_device(db, "key", "device 2");
        vec![("key", Some("device 2"))]
    });
}

#[test]
fn a_key_that_is_written_on_both_sides_has_the_value_of_the_side_that_was_last() {
    for (seed, is_apart) in [(1, false), (2, true)] {
        in_world(seed, move || {
            let disk = slow_disk();
            let tuning = sizes(is_apart);
            let db = open_with(&disk, options(&disk, Rollback::Lazy), tuning.clone()).unwrap();
            put(&db, "device last", "tier");
            db.flush().unwrap();
            press(&db);
            put_on_device(&db, "device last", "device");
            put_on_device(&db, "tier last", "device");
            db.sync().unwrap();
            let image = disk.process_crash();
            db.close().unwrap();
            // The bypass is off now, so the next log is born on a tier, while the records lie on the device.
            let off = || without_device(Bypass::Off).kv_device(device_on(&image, 32 << 20));
            let db = open_with(&image, off(), tuning.clone()).unwrap();
            assert!(device(&db).records > 0, "{:?}", db.stats().bypass);
            let before = device(&db).records;
            put(&db, "tier last", "tier");
            assert_eq!(device(&db).records, before, "{:?}", db.stats().bypass);
            let wanted: Wanted = vec![("device last", Some("device")), ("tier last", Some("tier"))];
            assert_has(&db, &wanted, "at once");
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            assert_has(&db, &wanted, "after the compaction");
            db.close().unwrap();
            let db = open_with(&image, off(), tuning).unwrap();
            assert_has(&db, &wanted, "after the reopen");
            db.wait_for_background().unwrap();
            assert_has(&db, &wanted, "after the rollback");
            assert_eq!(device(&db).logs, 0);
            db.close().unwrap();
        });
    }
}

#[test]
fn a_key_that_is_deleted_after_its_redirect_stays_deleted_when_the_tombstone_is_gone() {
    tell(|db| {
        put(db, "from tier", "tier");
        db.flush().unwrap();
        press(db);
        put_on_device(db, "from tier", "device");
        put_on_device(db, "from device", "device");
        put_on_device(db, "kept", "device");
        db.delete("from tier").unwrap();
        db.delete("from device").unwrap();
        vec![("from tier", None), ("from device", None), ("kept", Some("device"))]
    });
}

#[test]
fn a_range_delete_covers_what_lies_on_the_device_and_nothing_that_comes_later() {
    tell(|db| {
        put(db, "range/1", "tier");
        db.flush().unwrap();
        press(db);
        put_on_device(db, "range/1", "device");
        put_on_device(db, "range/2", "device");
        put_on_device(db, "range/3", "device");
        db.delete_range("range/".."range0").unwrap();
        put_on_device(db, "range/3", "after");
        vec![("range/1", None), ("range/2", None), ("range/3", Some("after"))]
    });
}

#[test]
fn reads_of_keys_that_are_not_on_the_device_send_it_no_command() {
    in_world(5, || {
        let disk = slow_disk();
        let tuning = sizes(true);
        // The ring would answer for what was just written.
        let options = options(&disk, Rollback::Lazy).log_backend(LogBackend::Plain);
        let db = open_with(&disk, options, tuning).unwrap();
        (0..50).for_each(|number| put(&db, &format!("tier {number:02}"), "tier"));
        db.flush().unwrap();
        press(&db);
        put_on_device(&db, "device", "device");
        let pause = db.pause_background().unwrap();
        let commands = || device(&db).commands;
        let before = commands();
        for number in 0..50 {
            assert!(db.get(format!("tier {number:02}")).unwrap().is_some_and(|found| *found == *of("tier")));
            assert_eq!(db.get(format!("nowhere {number:02}")).unwrap(), None);
        }
        assert_eq!(commands(), before);
        // A key that lies there does.
        assert!(db.get("device").unwrap().is_some_and(|found| *found == *of("device")));
        assert!(commands() > before, "{:?}", device(&db));
        drop(pause);
        db.close().unwrap();
    });
}
