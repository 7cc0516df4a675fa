//! Estimates of the size of ranges and keyspaces.

use cleavedb::testing::SimDisk;
use cleavedb::{Compression, KeyspaceOptions};

use crate::support::{open, value, with_each_log};

#[test]
fn size_estimates_cover_the_front_and_the_tables() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        let plain = || KeyspaceOptions::new().compression(Compression::None).separation(None);
        let (large, small) = (db.create_keyspace("l", plain()).unwrap(), db.create_keyspace("s", plain()).unwrap());
        let empty = db.create_keyspace("e", plain()).unwrap();
        let key = |number: usize| format!("{number:04}").into_bytes();
        for number in 0..1000 {
            large.put(key(number), value("v", 300)).unwrap();
            if number % 10 == 0 {
                small.put(key(number), value("v", 100)).unwrap();
            }
        }
        for round in 0..3 {
            let (all, half) = (large.stats().unwrap(), large.approximate_size(..key(500)).unwrap() as f64);
            let bytes = (all.table_bytes + all.bytes_separated + all.front_bytes) as f64;
            assert!((280e3..400e3).contains(&bytes), "round {round}: {all:?}");
            assert!((0.4..0.6).contains(&(half / bytes)), "round {round}: {half} of {bytes}");
            assert!((850..=1100).contains(&all.entries), "round {round}: {all:?}");
            let few = small.stats().unwrap();
            // Some of the tables have a part of each, at a place that depends on when they were flushed.
            assert!((60..=200).contains(&few.entries), "round {round}: {few:?}");
            assert!((8_000..60_000).contains(&(few.table_bytes + few.front_bytes)), "round {round}: {few:?}");
            assert!(empty.stats().unwrap().entries < 30, "round {round}: {:?}", empty.stats());
            assert_eq!(large.approximate_size(key(7)..key(3)).unwrap(), 0);
            match round {
                0 => db.flush().unwrap(),
                _ => db.compact_range(&large, ..).unwrap(),
            }
        }
        assert_eq!(large.stats().unwrap().front_bytes, 0);
    });
}
