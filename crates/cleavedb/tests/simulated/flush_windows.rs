//! How much of the logs a flush reads for the values that it writes into tables.

use cleavedb::testing::{SimDisk, Tuning};
use cleavedb::{LogBackend, Options};

use crate::support::{in_world, open_with, text, value};

const KEYS: u64 = 400;
const VALUE_BYTES: usize = 300;

/// Values that flushes carry, in windows of an eighth of a flush; nothing else reads.
fn carried() -> Tuning {
    let mut tuning = Tuning::tiny();
    tuning.separation_bytes = usize::MAX;
    (tuning.fetch_bytes, tuning.flush_bytes) = (16 << 10, 1 << 20);
    (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (100, 200);
    (tuning.compacts_when_idle, tuning.collects_when_idle) = (false, false);
    tuning
}

/// Bytes that a flush of `KEYS` values reads, for each byte of the values; their keys are in no order in the log.
fn read_for_each_byte(options: Options, tuning: Tuning) -> f64 {
    in_world(1, || {
        let disk = SimDisk::new();
        // Records are in their files, so that none is read from the ring.
        let db = open_with(&disk, options.log_backend(LogBackend::Plain), tuning).unwrap();
        for number in 0..KEYS {
            db.put(format!("{:04}", number * 7919 % KEYS), value(&number.to_string(), VALUE_BYTES)).unwrap();
        }
        let before = db.stats().bytes_read;
        db.flush().unwrap();
        let read = db.stats().bytes_read - before;
        (0..KEYS).for_each(|number| {
            let stored = text(&db, &format!("{:04}", number * 7919 % KEYS));
            assert_eq!(stored.map(String::into_bytes), Some(value(&number.to_string(), VALUE_BYTES)));
        });
        db.close().unwrap();
        read as f64 / (KEYS * VALUE_BYTES as u64) as f64
    })
}

/// Each window is all over the logs, so one after the other would read them again and again.
#[test]
fn a_flush_past_the_page_cache_reads_its_logs_once_if_the_caches_have_memory_for_that() {
    let direct = || Options::new().direct_io(true);
    let once = read_for_each_byte(direct(), carried());
    assert!((1.0..1.5).contains(&once), "{once}");
    // Through the page cache, it is not worth the memory of the caches.
    let cached = read_for_each_byte(Options::new(), carried());
    assert!(cached > 2.5, "{cached}");
    // Without memory there are as many windows as before.
    let mut tuning = carried();
    tuning.cache_bytes_min = tuning.cache_bytes;
    let without = read_for_each_byte(direct(), tuning);
    assert!(without > 2.5, "{without}");
}
