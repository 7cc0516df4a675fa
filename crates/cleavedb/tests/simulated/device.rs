//! Writers go around background work onto a KV device (`Bypass::Device`): what lies there is one store with the rest, before, during
//! and after its rollback, and nothing depends on which option the next open chooses. The device is emulated on the simulated disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{
    Bypass, Compression, Db, Durability, EmulatedSsd, Error, KeyspaceOptions, KvDevice, KvDeviceStats, NvmeParameters,
    Options, Rollback, SsdParameters, WriteBatch,
};

use crate::support::{BACKENDS, in_world, open_with, value};
use crate::tiers::small_logs;

/// The directory of the device's files.
pub const DEVICE: &str = "/device";
const CAPACITY: u64 = 32 << 20;

/// A disk with a slow tier that cannot follow writers.
pub fn slow_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.set_latency(Path::new("/slow"), Duration::from_millis(20));
    disk
}

/// The device on a disk. It has little memory, so that it writes and merges runs.
pub fn device_on(disk: &SimDisk, capacity_bytes: u64) -> Arc<dyn KvDevice> {
    let parameters = SsdParameters { memtable_bytes: 40_000, ..SsdParameters::unthrottled() };
    testing::emulated_ssd(Arc::new(disk.clone()), Path::new(DEVICE), parameters.with_capacity(capacity_bytes)).unwrap()
}

/// Without the device.
pub fn without_device(bypass: Bypass) -> Options {
    Options::new().slow_dir("/slow").background_threads(1).bypass(bypass)
}

pub fn options(disk: &SimDisk, rollback: Rollback) -> Options {
    without_device(Bypass::Device(rollback)).kv_device(device_on(disk, CAPACITY))
}

/// Values that go through the levels; memory for the keys of a whole burst, but little room in logs.
pub fn little_room() -> Tuning {
    let mut tuning = Tuning::tiny();
    tuning.separation_bytes = usize::MAX;
    (tuning.logs_bytes_max, tuning.replay_bytes_max) = (96 << 10, 96 << 10);
    tuning
}

/// The same with a front that holds more, and values that are separated from this size on.
pub fn seldom_flushed(separation_bytes: usize) -> Tuning {
    let mut tuning = little_room();
    tuning.separation_bytes = separation_bytes;
    (tuning.index_table_bytes, tuning.flush_bytes) = (64 << 10, 128 << 10);
    tuning
}

/// Writes keys of their own until a log of the device is written to.
pub fn press(db: &Db) {
    let load = db.keyspace("load").unwrap();
    for number in 0.. {
        load.put(format!("{number:06}"), value(&format!("load {number} "), 300)).unwrap();
        testing::sleep(Duration::from_micros(300));
        if device(db).records > 0 {
            return;
        }
        assert!(number < 20_000, "no log was born on the device: {:?}", db.stats().bypass);
    }
}

pub fn device(db: &Db) -> KvDeviceStats {
    db.stats().bypass.device.expect("a device is declared")
}

pub fn numbers(db: &Db, range: std::ops::Range<u64>) {
    for number in range {
        db.put(format!("{:05}", number * 7919 % 1500), value(&format!("{number} "), 300)).unwrap();
        testing::sleep(Duration::from_micros(300));
    }
}

pub fn assert_numbers(db: &Db, count: u64) {
    assert_eq!(db.iter().unwrap().filter(|record| record.is_ok()).count() as u64, count);
    for number in (0..count).step_by(13) {
        let found = db.get(format!("{:05}", number * 7919 % 1500)).unwrap();
        assert_eq!(found.as_deref(), Some(&value(&format!("{number} "), 300)[..]), "{number}");
    }
}

/// Keys on the device that belong to pieces of files, and not to names.
fn pieces(disk: &SimDisk) -> usize {
    let mut count = 0;
    device_on(disk, CAPACITY).list(&mut |key| count += usize::from(key[..4] != [0; 4])).unwrap();
    count
}

fn assert_sound(disk: &SimDisk, options: &Options) {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), options).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn a_burst_goes_to_the_device_and_comes_back_from_it() {
    for (seed, rollback) in [(1, Rollback::Eager), (2, Rollback::Lazy)] {
        for backend in BACKENDS {
            in_world(seed, move || {
                let disk = slow_disk();
                let db = open_with(&disk, options(&disk, rollback).log_backend(backend), little_room()).unwrap();
                numbers(&db, 0..1500);
                let bypass = db.stats().bypass;
                assert!(
                    bypass.redirects && bypass.logs_born_on_device > 0 && bypass.bytes_redirected > 100 << 10,
                    "{bypass:?}"
                );
                let there = device(&db);
                assert!(there.logs > 0 && there.records > 100 && there.host_bytes_sent > there.log_bytes, "{there:?}");
                assert!(there.name.starts_with("kv-device:") && there.used_bytes >= there.log_bytes, "{there:?}");
                assert_numbers(&db, 1500);
                db.wait_for_background().unwrap();
                let after = device(&db);
                assert!(
                    after.logs <= 1 && after.log_bytes < there.log_bytes,
                    "the newest log alone is left: {after:?}"
                );
                assert_numbers(&db, 1500);
                db.close().unwrap();
                assert!(pieces(&disk) <= 1, "only the owner is left");
                // The device is not needed any more.
                let without = without_device(Bypass::Off);
                assert_sound(&disk, &without);
                let db = open_with(&disk, without, little_room()).unwrap();
                assert_numbers(&db, 1500);
                db.close().unwrap();
            });
        }
    }
}

#[test]
fn a_restart_finds_what_lies_on_the_device_and_refuses_to_open_without_it() {
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        in_world(seed as u64, move || {
            let disk = slow_disk();
            let db = open_with(&disk, options(&disk, Rollback::Lazy).log_backend(backend), little_room()).unwrap();
            numbers(&db, 0..1500);
            assert!(device(&db).logs > 1);
            let name = device(&db).name;
            db.sync().unwrap();
            for image in [disk.process_crash(), disk.power_loss(1), disk.power_loss(2)] {
                // Without the device, and with another one: an error that names it.
                let other = testing::emulated_ssd(
                    Arc::new(image.clone()),
                    Path::new("/other"),
                    SsdParameters::unthrottled().with_capacity(CAPACITY),
                );
                for refused in [without_device(Bypass::Off), without_device(Bypass::Spill).kv_device(other.unwrap())] {
                    for refused in [refused.clone(), refused.read_only(true)] {
                        let error = open_with(&image, refused, little_room()).expect_err("files are not there");
                        assert!(
                            matches!(&error, Error::InvalidInput { message } if message.contains(&name)),
                            "{error}"
                        );
                    }
                }
                let checked = testing::check(Arc::new(image.clone()), Path::new("/db"), &without_device(Bypass::Off));
                assert!(checked.is_err() || !checked.unwrap().is_sound(), "the check misses the device");
                let there = device_on(&image, CAPACITY);
                assert_sound(&image, &without_device(Bypass::Off).kv_device(there.clone()));
                // Reading only, with the bypass off, and as before.
                let read_only = without_device(Bypass::Off).kv_device(there.clone()).read_only(true);
                let db = open_with(&image, read_only, little_room()).unwrap();
                assert_numbers(&db, 1500);
                assert!(device(&db).logs > 1);
                db.close().unwrap();
                let crashed = image.process_crash();
                let off = without_device(Bypass::Off).kv_device(there);
                let db = open_with(&image, off, little_room()).unwrap();
                assert_numbers(&db, 1500);
                db.wait_for_background().unwrap();
                assert_eq!(device(&db).logs, 0, "what lies there comes back although the bypass is off");
                assert_numbers(&db, 1500);
                db.put("more", "v").unwrap();
                db.close().unwrap();
                let db = open_with(&crashed, options(&crashed, Rollback::Eager), little_room()).unwrap();
                assert_numbers(&db, 1500);
                db.close().unwrap();
            }
            db.close().unwrap();
        });
    }
}

/// The files of logs that lie on the tiers.
fn logs_on_tiers(disk: &SimDisk) -> BTreeSet<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect()
}

#[test]
fn a_device_that_is_full_lets_logs_be_born_where_they_are_without_it() {
    // Bytes of the key-value side, which has half of the device; logs that were born on a tier while writers went around a device that
    // had some.
    let born_elsewhere = |kv_bytes: u64| {
        in_world(5, move || {
            let disk = slow_disk();
            let open = |disk: &SimDisk| {
                let options = without_device(Bypass::Device(Rollback::Lazy)).kv_device(device_on(disk, 2 * kv_bytes));
                open_with(disk, options, little_room()).unwrap()
            };
            let db = open(&disk);
            let (mut most, mut elsewhere) = (0, 0);
            for number in 0..1500 {
                let (before, on_tiers) = (db.stats().bypass, logs_on_tiers(&disk));
                numbers(&db, number..number + 1);
                let after = db.stats().bypass;
                if before.redirects && after.redirects && before.logs_born_on_device > 1 {
                    elsewhere += logs_on_tiers(&disk).difference(&on_tiers).count();
                }
                let there = device(&db);
                most = most.max(there.log_bytes);
                assert!(there.used_bytes <= there.capacity_bytes, "{there:?}");
            }
            assert!(db.stats().bypass.redirects, "{:?}", db.stats().bypass);
            assert!(most > Tuning::tiny().log_bytes, "the device was used: {most}");
            assert_numbers(&db, 1500);
            db.sync().unwrap();
            for image in [disk.process_crash(), disk.power_loss(1), disk.power_loss(2)] {
                let db = open(&image);
                assert_numbers(&db, 1500);
                db.wait_for_background().unwrap();
                assert_numbers(&db, 1500);
                db.close().unwrap();
            }
            db.wait_for_background().unwrap();
            assert_numbers(&db, 1500);
            db.close().unwrap();
            elsewhere
        })
    };
    // Room for three logs, and for all.
    let (full, large) = (born_elsewhere((64 << 10) + 3 * Tuning::tiny().log_bytes), born_elsewhere(CAPACITY / 2));
    assert!(full > 2 && large == 0, "{full} logs were born beside the full device, and {large} beside the large one");
}

/// What was not flushed counts by version, and what tables reference by key.
#[test]
fn records_on_the_device_are_those_that_reads_may_ask_it_for() {
    for separation_bytes in [usize::MAX, 200] {
        in_world(13, move || {
            let disk = slow_disk();
            let tuning = seldom_flushed(separation_bytes);
            let db = open_with(&disk, options(&disk, Rollback::Lazy), tuning).unwrap();
            press(&db);
            let pause = db.pause_background().unwrap();
            let before = device(&db);
            let key = |number: u64| format!("key {number:03}");
            for round in 0..2 {
                (0..200).for_each(|number| db.put(key(number), value(&format!("{round} "), 300)).unwrap());
            }
            let mut batch = WriteBatch::new();
            (200..203).for_each(|number| batch.put(&db.default_keyspace(), key(number), value("batch ", 300)));
            db.write(batch).unwrap();
            db.delete(key(0)).unwrap();
            db.delete_range(key(1)..key(2)).unwrap();
            let there = device(&db);
            assert!(there.logs > before.logs + 1, "{there:?}");
            assert_eq!(there.records - before.records, 2 * 200 + 3 + 1 + 1);
            drop(pause);
            // Whatever number of flushes the writes take.
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            // All keys but those that were deleted; those from before were written once.
            let wanted = if separation_bytes == usize::MAX { 0 } else { before.records + 203 - 2 };
            assert_eq!(device(&db).records, wanted);
            db.close().unwrap();
        });
    }
}

/// The cases in which a device of its own LSM tree gives old values back (issue 21): what matters is the order of age, which logs have.
#[test]
fn a_key_that_was_redirected_and_written_again_has_its_newest_value() {
    for (seed, rollback) in [(1, Rollback::Eager), (2, Rollback::Lazy), (3, Rollback::Eager)] {
        in_world(seed, move || {
            let disk = slow_disk();
            let db = open_with(&disk, options(&disk, rollback), little_room()).unwrap();
            let counted = db.create_keyspace("counted", KeyspaceOptions::new().merge_operator("u64-add")).unwrap();
            counted.put("sum", 1u64.to_le_bytes()).unwrap();
            let hashed = db.create_keyspace("hashed", KeyspaceOptions::hash()).unwrap();
            for name in ["twice", "both", "deleted", "range/1", "range/2", "kept", "reborn"] {
                db.put(name, "tier").unwrap();
            }
            db.flush().unwrap();
            let before = (db.snapshot(), db.iter().unwrap());
            press(&db);
            // On the device: a key twice, a delete, a range delete, a batch across keyspaces of all kinds.
            db.put("twice", "device 1").unwrap();
            db.put("both", "device").unwrap();
            db.delete("deleted").unwrap();
            db.put("range/3", "device").unwrap();
            db.delete_range("range/".."range0").unwrap();
            db.delete("reborn").unwrap();
            let mut batch = WriteBatch::new();
            batch.put(&db.default_keyspace(), "batch", "device");
            batch.merge(&counted, "sum", 20u64.to_le_bytes());
            batch.put(&hashed, "batch", "device");
            db.write_with(batch, Durability::Sync).unwrap();
            db.put("twice", "device 2").unwrap();
            db.put("range/2", "after").unwrap();
            let during = (db.snapshot(), db.iter().unwrap());
            let wanted: BTreeMap<&str, &str> = [
                ("batch", "device"),
                ("both", "device"),
                ("kept", "tier"),
                ("range/2", "after"),
                ("twice", "device 2"),
            ]
            .into();
            let content = |iter: cleavedb::Iter| -> Vec<(String, String)> {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                iter.map(|item| item.unwrap()).map(|(key, value)| (text(&key), text(&value))).collect()
            };
            let is = |wanted: &BTreeMap<&str, &str>, iter| {
                let wanted: Vec<_> = wanted.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
                assert_eq!(content(iter), wanted);
            };
            is(&wanted, db.iter().unwrap());
            assert!(device(&db).records > 0);
            // After the rollback.
            db.wait_for_background().unwrap();
            is(&wanted, db.iter().unwrap());
            let mut after = wanted.clone();
            db.put("both", "tier again").unwrap();
            db.put("reborn", "tier again").unwrap();
            counted.merge("sum", 300u64.to_le_bytes()).unwrap();
            after.extend([("both", "tier again"), ("reborn", "tier again")]);
            db.flush().unwrap();
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.wait_for_background().unwrap();
            is(&after, db.iter().unwrap());
            assert_eq!(db.get("deleted").unwrap(), None);
            assert_eq!(hashed.get("batch").unwrap().as_deref(), Some(&b"device"[..]));
            assert_eq!(counted.get("sum").unwrap().as_deref(), Some(&321u64.to_le_bytes()[..]));
            // Iterators and snapshots from before and from during the redirect see what they saw.
            assert_eq!(during.0.get(&db.default_keyspace(), "twice").unwrap().as_deref(), Some(&b"device 2"[..]));
            is(&wanted, during.1);
            assert_eq!(before.0.get(&db.default_keyspace(), "deleted").unwrap().as_deref(), Some(&b"tier"[..]));
            let names = ["both", "deleted", "kept", "range/1", "range/2", "reborn", "twice"];
            is(&names.map(|name| (name, "tier")).into(), before.1);
            drop((before.0, during.0));
            db.close().unwrap();
            let db = open_with(&disk, without_device(Bypass::Off), little_room()).unwrap();
            is(&after, db.iter().unwrap());
            db.close().unwrap();
        });
    }
}

#[test]
fn separated_values_move_from_the_device_with_their_logs() {
    in_world(4, || {
        let disk = slow_disk();
        let mut tuning = little_room();
        tuning.separation_bytes = 200;
        let db = open_with(&disk, options(&disk, Rollback::Lazy), tuning.clone()).unwrap();
        numbers(&db, 0..1500);
        press(&db);
        db.flush().unwrap();
        assert!(device(&db).logs > 0);
        assert_numbers(&db, 1500);
        let keys: Vec<String> = (0..1500).map(|number| format!("{number:05}")).collect();
        let got = |db: &Db| db.multi_get(&keys).into_iter().filter(|found| matches!(found, Ok(Some(_)))).count();
        assert_eq!(got(&db), 1500);
        db.wait_for_background().unwrap();
        assert_eq!(got(&db), 1500);
        assert!(db.stats().bypass.bytes_rolled_back > 0, "{:?}", db.stats().bypass);
        db.close().unwrap();
        let db = open_with(&disk, without_device(Bypass::Off), tuning).unwrap();
        assert_numbers(&db, 1500);
        db.close().unwrap();
    });
}

#[test]
fn a_checkpoint_and_an_ingest_see_what_lies_on_the_device() {
    in_world(6, || {
        let disk = slow_disk();
        let db = open_with(&disk, options(&disk, Rollback::Lazy), little_room()).unwrap();
        db.put("ingested", "old").unwrap();
        press(&db);
        numbers(&db, 0..300);
        db.put("ingested", "device").unwrap();
        assert!(device(&db).logs > 0);
        db.checkpoint("/copy").unwrap();
        let pairs = [("ingested", "new")];
        db.default_keyspace().ingest(pairs).unwrap();
        assert_eq!(db.get("ingested").unwrap().as_deref(), Some(&b"new"[..]));
        db.wait_for_background().unwrap();
        assert_eq!(db.get("ingested").unwrap().as_deref(), Some(&b"new"[..]));
        db.close().unwrap();
        // The copy has all its files in one directory, and needs no device.
        let copy = testing::open(Arc::new(disk.clone()), Path::new("/copy"), Options::new(), little_room()).unwrap();
        assert_eq!(copy.get("ingested").unwrap().as_deref(), Some(&b"device"[..]));
        copy.delete("ingested").unwrap();
        assert_numbers(&copy, 300);
        copy.close().unwrap();
    });
}

#[test]
fn a_database_in_one_directory_can_have_a_device() {
    in_world(7, || {
        let disk = SimDisk::new();
        disk.set_latency(Path::new("/db"), Duration::from_millis(10));
        let options = Options::new()
            .background_threads(1)
            .bypass(Bypass::Device(Rollback::Eager))
            .kv_device(device_on(&disk, CAPACITY));
        let db = open_with(&disk, options, little_room()).unwrap();
        press(&db);
        numbers(&db, 0..200);
        assert_numbers(&db, 200);
        db.close().unwrap();
        assert_eq!(pieces(&disk), 1);
        let db = open_with(&disk, Options::new(), little_room()).unwrap();
        assert_numbers(&db, 200);
        db.close().unwrap();
    });
}

/// Both sides share one bandwidth, which flushes and compactions do not leave to writers.
#[test]
fn the_slow_tier_can_lie_on_the_block_side_of_the_device() {
    in_world(10, || {
        let disk = SimDisk::new();
        let parameters = SsdParameters {
            media_bytes_per_second: 2 << 20,
            media_latency: Duration::from_millis(5),
            memtable_bytes: 64 << 10,
            ..SsdParameters::unthrottled().with_capacity(CAPACITY)
        };
        let there = testing::emulated_ssd(Arc::new(disk.clone()), Path::new(DEVICE), parameters).unwrap();
        let side = there.block_side().unwrap();
        let bypass = Bypass::Device(Rollback::Eager);
        let options = Options::new().slow_dir(side.dir()).background_threads(1).bypass(bypass).kv_device(there);
        let db = open_with(&disk, options.clone(), little_room()).unwrap();
        numbers(&db, 0..1500);
        assert!(db.stats().bypass.logs_born_on_device > 0, "{:?}", db.stats().bypass);
        db.wait_for_background().unwrap();
        assert_numbers(&db, 1500);
        db.close().unwrap();
        let tables = disk.files().into_iter().filter(|(path, _)| path.starts_with(side.dir())).count();
        assert!(tables > 2, "the slow tier is there");
        let db = open_with(&disk, options, little_room()).unwrap();
        assert_numbers(&db, 1500);
        db.close().unwrap();
    });
}

/// The slow tier on a block side is full where its part of the device ends, on a disk with more room, and like any full tier.
#[test]
fn a_full_block_side_is_a_full_slow_tier_until_something_is_dropped() {
    in_world(12, || {
        const BLOCK_BYTES: u64 = 1 << 20;
        let disk = SimDisk::new();
        let (tuning, budget) = small_logs(Tuning::tiny());
        let parameters = SsdParameters { kv_percent: 75, memtable_bytes: 40_000, ..SsdParameters::unthrottled() };
        let open_device = || {
            let parameters = parameters.clone().with_capacity(4 * BLOCK_BYTES);
            testing::emulated_ssd(Arc::new(disk.clone()), Path::new(DEVICE), parameters).unwrap()
        };
        let options = |there: &Arc<EmulatedSsd>| {
            let side = there.block_side().unwrap();
            let bypass = Bypass::Device(Rollback::Eager);
            let options = Options::new().slow_dir(side.dir()).background_threads(1).compression(Compression::None);
            options.fast_bytes(budget).bypass(bypass).kv_device(there.clone())
        };
        let there = open_device();
        let side = there.block_side().unwrap();
        assert_eq!((side.capacity_bytes(), there.usage().capacity_bytes), (BLOCK_BYTES, 3 * BLOCK_BYTES));
        let db = open_with(&disk, options(&there), tuning.clone()).unwrap();
        numbers(&db, 0..200);
        db.flush().unwrap();
        let load = db.create_keyspace("load", KeyspaceOptions::new()).unwrap();
        let fill = || {
            let write = |number| load.put(format!("{number:06}"), value(&format!("load {number} "), 1000)).err();
            let refused = (0..20_000).find_map(|number| Some((number, write(number)?)));
            refused.expect("the block side takes no more")
        };
        let (count, error) = fill();
        assert!(matches!(&error, Error::NoSpace { path, .. } if path.starts_with(side.dir())), "{error:?}");
        assert!(error.to_string().ends_with(" on the slow tier"), "{error}");
        assert!((BLOCK_BYTES / 2..=BLOCK_BYTES).contains(&disk.used_in(side.dir())), "{disk:?}");
        assert!(there.usage().used_bytes <= 3 * BLOCK_BYTES);
        assert_eq!(load.iter().unwrap().filter(|record| record.is_ok()).count(), count);
        // What lies there is counted when the device and the database are opened again.
        drop((load, db, there));
        let there = open_device();
        let db = open_with(&disk, options(&there), tuning.clone()).unwrap();
        assert_numbers(&db, 200);
        let load = db.keyspace("load").unwrap();
        assert_eq!(load.iter().unwrap().filter(|record| record.is_ok()).count(), count);
        db.drop_keyspace("load").unwrap();
        db.wait_for_background().unwrap();
        numbers(&db, 200..600);
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        assert!(disk.used_in(side.dir()) <= BLOCK_BYTES);
        assert_numbers(&db, 600);
        db.close().unwrap();
    });
}

/// The whole engine over the commands of NVMe devices, as a model of one understands them.
#[test]
fn a_burst_goes_around_by_nvme_commands_and_comes_back() {
    in_world(9, || {
        let disk = slow_disk();
        let parameters = NvmeParameters { capacity_bytes: CAPACITY, value_bytes_max: 64 << 10 };
        let there = testing::nvme_model(parameters).unwrap();
        let options = |rollback| without_device(Bypass::Device(rollback)).kv_device(there.clone() as Arc<dyn KvDevice>);
        let db = open_with(&disk, options(Rollback::Lazy), little_room()).unwrap();
        numbers(&db, 0..1500);
        assert!(device(&db).records > 100, "{:?}", device(&db));
        assert_numbers(&db, 1500);
        db.close().unwrap();
        let db = open_with(&disk, options(Rollback::Eager), little_room()).unwrap();
        assert_numbers(&db, 1500);
        db.close().unwrap();
        let mut pieces = 0;
        there.list(&mut |key| pieces += usize::from(key[..4] != [0; 4])).unwrap();
        assert_eq!(pieces, 1, "only the owner is left");
    });
}

#[test]
fn a_device_has_one_database_and_the_bypass_needs_a_device() {
    in_world(8, || {
        let disk = SimDisk::new();
        let missing = open_with(&disk, without_device(Bypass::Device(Rollback::Lazy)), Tuning::tiny());
        assert!(matches!(missing, Err(Error::InvalidInput { message }) if message.contains("kv_device")));
        let there = device_on(&disk, CAPACITY);
        let with_device = || Options::new().kv_device(there.clone());
        let db = open_with(&disk, with_device(), Tuning::tiny()).unwrap();
        let open_second = || testing::open(Arc::new(disk.clone()), Path::new("/second"), with_device(), Tuning::tiny());
        assert!(matches!(open_second(), Err(Error::Locked { .. })));
        db.close().unwrap();
        let error = open_second().expect_err("the first one owns it");
        assert!(matches!(&error, Error::InvalidInput { message } if message.contains("another database")), "{error}");
        // Pairs of another program are left alone.
        there.reset().unwrap();
        there.store(b"theirs", b"1").unwrap();
        let error = open_second().expect_err("the device is not empty");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!(there.retrieve(b"theirs").unwrap().as_deref(), Some(&b"1"[..]));
    });
}
