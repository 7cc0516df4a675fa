//! The file system of the fast tier is smaller than its budget, or there is none: it is full before a claim is refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{LogBackend, Options};

use crate::support::{BACKENDS, in_world, unflushed, value};
use crate::tiers::{check_rounds, open_at, small_logs, write_round};

/// What the file system of the fast tier holds.
const CAPACITY: u64 = 300 << 10;

/// Writes several times as much as the fast file system holds, without a budget or with one that it does not have room for.
fn write_beyond(seed: u64, backend: LogBackend, tuning: Tuning, budget: Option<u64>) {
    in_world(seed, move || {
        let disk = SimDisk::new();
        // Room is made slowly.
        disk.set_latency(Path::new("/slow"), Duration::from_millis(1));
        disk.set_directory_capacity(Path::new("/db"), Some(CAPACITY));
        let options = Options::new().slow_dir("/slow").log_backend(backend);
        let options = budget.map_or(options.clone(), |budget| options.fast_bytes(budget));
        let db = open_at(&disk, options.clone(), tuning.clone()).unwrap();
        for round in 0..6 {
            write_round(&db, round);
            // Larger than the file system.
            db.put("huge", value("huge", 2 * CAPACITY as usize)).unwrap();
            db.delete("huge").unwrap();
            check_rounds(&db, round + 1);
        }
        let tiers = db.stats().tiers;
        assert_eq!(tiers.fast_bytes_limit, budget);
        assert!(tiers.bytes_moved > 0, "nothing made room: {tiers:?}");
        let image = disk.process_crash();
        // Room returns, and is used.
        disk.set_directory_capacity(Path::new("/db"), None);
        db.wait_for_background().unwrap();
        for round in 6..9 {
            write_round(&db, round);
        }
        check_rounds(&db, 9);
        let used = disk.used_in(Path::new("/db"));
        // Logs stay there until they are flushed.
        assert!(used > CAPACITY || tuning.flush_bytes < CAPACITY, "{used}");
        db.close().unwrap();
        // The file system may be as small at the next open.
        image.set_directory_capacity(Path::new("/db"), Some(CAPACITY));
        for (disk, rounds) in [(disk, 9), (image, 6)] {
            let db = open_at(&disk, options.clone(), tuning.clone()).unwrap();
            check_rounds(&db, rounds);
            write_round(&db, rounds);
            db.wait_for_background().unwrap();
            check_rounds(&db, rounds + 1);
            db.close().unwrap();
            let report = testing::check(Arc::new(disk), Path::new("/db"), &options).unwrap();
            assert_eq!(report.problems, []);
        }
    });
}

#[test]
fn a_fast_file_system_without_room_fails_no_write_and_is_used_again_once_it_has_some() {
    for budget in [None, Some(64 << 20)] {
        for (seed, backend) in BACKENDS.into_iter().cycle().take(4).enumerate() {
            let (tuning, _) = small_logs(if seed < 2 { unflushed() } else { Tuning::tiny() });
            write_beyond(seed as u64, backend, tuning, budget);
        }
    }
}
