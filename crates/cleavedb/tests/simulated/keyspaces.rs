//! Keyspaces are created and dropped; their ids and bytes never reappear.

use std::time::Duration;

use cleavedb::testing::{self, SimDisk};
use cleavedb::{Error, KeyspaceOptions};

use crate::support::{open, value, with_each_log};

#[test]
fn dropping_a_keyspace_releases_its_space_and_its_id_is_not_reused() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let big = db.create_keyspace("big", KeyspaceOptions::new()).unwrap();
        let id = big.id();
        for number in 0..600 {
            big.put(format!("{number:05}"), cleave_sim::material::Value { seed: 2 * number + 1, len: 2000 }.bytes())
                .unwrap();
        }
        db.put("small", "stays").unwrap();
        db.flush().unwrap();
        let full = disk.used();
        db.drop_keyspace("big").unwrap();
        db.flush().unwrap();
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        testing::sleep(Duration::from_secs(5));
        let left = disk.used();
        assert!(full > 1_000_000 && left < full / 4, "{full} bytes before, {left} after");

        assert!(big.get("00000").is_err());
        let again = db.create_keyspace("big", KeyspaceOptions::new()).unwrap();
        assert!(again.id() != id);
        assert_eq!(again.iter().unwrap().count(), 0);
        db.drop_keyspace("big").unwrap();
        let last = again.id();
        db.close().unwrap();

        let db = open(&disk, backend).unwrap();
        assert_eq!(db.keyspaces(), ["default"]);
        let new = db.create_keyspace("new", KeyspaceOptions::new()).unwrap();
        assert!(new.id() > last, "ids are not reused after a restart");
        assert_eq!(db.get("small").unwrap().unwrap(), "stays");
    });
}

#[test]
fn keyspaces_are_created_opened_and_dropped_by_name() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        db.create_keyspace("b", KeyspaceOptions::new()).unwrap();
        db.keyspace("a").unwrap();
        assert_eq!(db.keyspaces(), ["a", "b", "default"]);
        assert!(matches!(db.create_keyspace("a", KeyspaceOptions::new()), Err(Error::InvalidInput { .. })));
        assert!(matches!(db.open_keyspace("c"), Err(Error::NotFound { .. })));
        assert!(matches!(db.drop_keyspace("c"), Err(Error::NotFound { .. })));
        assert!(matches!(db.drop_keyspace("default"), Err(Error::InvalidInput { .. })));
        assert!(db.keyspace(&"x".repeat(256)).is_err() && db.keyspace("").is_err());
        assert_eq!(db.keyspaces(), ["a", "b", "default"]);
        let image = disk.power_loss(1);
        assert_eq!(open(&image, backend).unwrap().keyspaces(), ["a", "b", "default"]);
    });
}

#[test]
fn handles_of_a_dropped_keyspace_return_errors() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        let handle = db.keyspace("gone").unwrap();
        handle.put("k", "v").unwrap();
        db.drop_keyspace("gone").unwrap();
        assert!(matches!(handle.put("k", "v"), Err(Error::NotFound { .. })));
        assert!(handle.get("k").is_err() && handle.iter().is_err());
        let mut batch = cleavedb::WriteBatch::new();
        batch.put(&db.default_keyspace(), "other", "v");
        batch.put(&handle, "k", "v");
        assert!(db.write(batch).is_err());
        assert_eq!(db.get("other").unwrap(), None);
    });
}

#[test]
fn equal_keys_in_many_keyspaces_do_not_mix() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for number in 0..120 {
            let keyspace = db.keyspace(&format!("{number:03}")).unwrap();
            for key in [&b"\x00"[..], b"k", b"\xff\xff"] {
                keyspace.put(key, value(&format!("{number:03}"), 60)).unwrap();
            }
        }
        db.flush().unwrap();
        db.close().unwrap();
        let db = open(&disk, backend).unwrap();
        for number in 0..120 {
            let keyspace = db.open_keyspace(&format!("{number:03}")).unwrap();
            let forward: Vec<_> = keyspace.iter().unwrap().map(|item| item.unwrap()).collect();
            let mut backward: Vec<_> = keyspace.iter().unwrap().rev().map(|item| item.unwrap()).collect();
            backward.reverse();
            assert_eq!(forward.len(), 3);
            assert_eq!(forward, backward);
            assert!(forward.iter().all(|(_, found)| *found == value(&format!("{number:03}"), 60)));
        }
    });
}
