//! Old values that must not come back: keys whose versions lie on a KV device and elsewhere, with values in the levels and apart.
//! Each story is checked at once, after a flush and a compaction while logs are still on the device, after a reopen, and after the
//! rollback.

use std::path::Path;
use std::sync::Arc;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Bypass, Db, Rollback};

use crate::device::{device, device_on, little_room, options, press, slow_disk, without_device};
use crate::support::{in_world, open_with, value};

/// Values that are compared by name.
fn of(name: &str) -> Vec<u8> {
    value(name, 200).to_vec()
}

fn put(db: &Db, key: &str, name: &str) {
    db.put(key, of(name)).unwrap();
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

/// Tells a story, with values in the levels and with values apart.
fn tell(story: fn(&Db) -> Wanted) {
    for (seed, is_apart) in [(1, false), (2, true), (3, false), (4, true)] {
        in_world(seed, move || {
            let disk = slow_disk();
            let tuning = sizes(is_apart);
            let open = |disk: &SimDisk| open_with(disk, options(disk, Rollback::Lazy), tuning.clone()).unwrap();
            let db = open(&disk);
            let wanted = story(&db);
            assert!(device(&db).records > 0, "{:?}", db.stats().bypass);
            assert_has(&db, &wanted, "at once");
            let image = disk.power_loss(seed);
            db.flush().unwrap();
            assert_has(&db, &wanted, "after the flush");
            db.compact_range(&db.default_keyspace(), ..).unwrap();
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
        });
    }
}

#[test]
fn a_key_that_is_redirected_twice_has_its_second_value() {
    tell(|db| {
        put(db, "key", "tier");
        db.flush().unwrap();
        press(db);
        put(db, "key", "device 1");
        // The logs go on being born on the device.
        (0..400).for_each(|number| put(db, &format!("other {number}"), "other"));
        put(db, "key", "device 2");
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
            put(&db, "device last", "device");
            put(&db, "tier last", "device");
            db.sync().unwrap();
            let image = disk.process_crash();
            db.close().unwrap();
            // The bypass is off now, so the next log is born on a tier, while the records lie on the device.
            let off = || without_device(Bypass::Off).kv_device(device_on(&image, 32 << 20));
            let db = open_with(&image, off(), tuning.clone()).unwrap();
            assert!(device(&db).records > 0, "{:?}", db.stats().bypass);
            put(&db, "tier last", "tier");
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
        put(db, "from tier", "device");
        put(db, "from device", "device");
        put(db, "kept", "device");
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
        put(db, "range/1", "device");
        put(db, "range/2", "device");
        put(db, "range/3", "device");
        db.delete_range("range/".."range0").unwrap();
        put(db, "range/3", "after");
        vec![("range/1", None), ("range/2", None), ("range/3", Some("after"))]
    });
}

#[test]
fn reads_of_keys_that_are_not_on_the_device_send_it_no_command() {
    in_world(5, || {
        let disk = slow_disk();
        let tuning = sizes(true);
        let db = open_with(&disk, options(&disk, Rollback::Lazy), tuning).unwrap();
        (0..50).for_each(|number| put(&db, &format!("tier {number:02}"), "tier"));
        db.flush().unwrap();
        press(&db);
        put(&db, "device", "device");
        let pause = db.pause_background().unwrap();
        let commands = || device(&db).commands;
        let before = commands();
        for number in 0..50 {
            assert!(db.get(format!("tier {number:02}")).unwrap().is_some_and(|found| *found == *of("tier")));
            assert_eq!(db.get(format!("nowhere {number:02}")).unwrap(), None);
        }
        assert_eq!(commands(), before);
        drop(pause);
        db.close().unwrap();
    });
}
