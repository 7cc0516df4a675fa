//! Writers go around background work that is behind (`Bypass::Spill`): what they wait for, what it leaves, and that nothing is lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Bypass, Db, Event, Listener, Options, Stats};

use crate::support::{in_world, open_with};

/// Keys of a burst.
const KEYS: u64 = 1500;
const VALUE_BYTES: usize = 300;

/// A disk on which operations on files take so long that flushes and compactions cannot follow a burst; logs are fast.
fn slow_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.set_latency(Path::new("/slow"), Duration::from_millis(20));
    disk
}

fn options(bypass: Bypass) -> Options {
    Options::new().slow_dir("/slow").background_threads(1).bypass(bypass)
}

/// Values that go through the levels; memory for the keys of a whole burst, but little room in logs.
fn inline() -> Tuning {
    let mut tuning = Tuning::tiny();
    tuning.separation_bytes = usize::MAX;
    (tuning.logs_bytes_max, tuning.replay_bytes_max) = (96 << 10, 96 << 10);
    tuning
}

/// Writes each key once, a part of them with pauses as a client would make them.
fn burst(db: &Db) {
    for number in 0..KEYS {
        db.put(format!("{:05}", number * 7919 % KEYS), noise(number)).unwrap();
        testing::sleep(Duration::from_micros(400));
    }
}

/// A value that does not compress.
fn noise(of: u64) -> Vec<u8> {
    let mut state = of.wrapping_add(1);
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..VALUE_BYTES).map(next).collect()
}

fn assert_whole(db: &Db) {
    assert_eq!(db.iter().unwrap().filter(|record| record.is_ok()).count() as u64, KEYS);
    for number in (0..KEYS).step_by(37) {
        let found = db.get(format!("{:05}", number * 7919 % KEYS)).unwrap();
        assert_eq!(found.as_deref(), Some(&noise(number)[..]), "{number}");
    }
}

fn waited(stats: &Stats) -> Duration {
    stats.paced_time + stats.stall_time
}

#[test]
fn a_burst_goes_around_a_slow_tier_and_nothing_of_it_is_lost() {
    let run = |bypass| {
        in_world(5, move || {
            let db = open_with(&slow_disk(), options(bypass), inline()).unwrap();
            burst(&db);
            let stats = db.stats();
            assert_whole(&db);
            db.wait_for_background().unwrap();
            assert_whole(&db);
            db.close().unwrap();
            stats
        })
    };
    let (paced, spilled) = (run(Bypass::Off), run(Bypass::Spill));
    assert!(waited(&paced) > Duration::from_millis(100), "writers never waited: {:?}", waited(&paced));
    assert_eq!(paced.bypass, Default::default());
    assert!(waited(&spilled) * 4 < waited(&paced), "{:?} and {:?}", waited(&spilled), waited(&paced));
    let bypass = &spilled.bypass;
    assert!(bypass.redirects_begun > 0 && bypass.bytes_redirected > 100 << 10, "{bypass:?}");
    assert!(bypass.waiting_prevented > Duration::ZERO, "{bypass:?}");
}

#[test]
fn unflushed_logs_stay_within_the_limit_of_redirects() {
    in_world(6, || {
        let mut tuning = inline();
        tuning.redirect_bytes_max = 64 << 10;
        let limit = tuning.replay_bytes_max + tuning.redirect_bytes_max;
        let log_bytes = tuning.log_bytes;
        let disk = slow_disk();
        disk.set_latency(Path::new("/slow"), Duration::from_millis(100));
        // HL0 has no room on the fast tier, so flushes are slow too.
        let db = open_with(&disk, options(Bypass::Spill).fast_bytes(512 << 10), tuning).unwrap();
        let mut most = 0;
        for number in 0..KEYS {
            db.put(format!("{number:05}"), noise(number)).unwrap();
            testing::sleep(Duration::from_micros(400));
            most = most.max(db.stats().logs.iter().map(|log| log.bytes).sum::<u64>());
        }
        // The last log is flushed with what follows it.
        assert!(most <= limit + log_bytes, "{most} bytes of {limit}");
        assert!(db.stats().paced + db.stats().stalls > 0, "the limit was not reached: {most} of {limit}");
        db.close().unwrap();
    });
}

/// The logs that files show, each with the directories in which it was seen, in this order.
type LogPlaces = BTreeMap<PathBuf, Vec<PathBuf>>;

fn look_for_logs(disk: &SimDisk, places: &mut LogPlaces) {
    for (path, _) in disk.files() {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let seen = if path.extension().is_some_and(|end| end == "log") { places.entry(name.into()) } else { continue };
        let seen = seen.or_default();
        if !seen.iter().any(|before| before == dir) {
            seen.push(dir.to_owned());
        }
    }
}

/// The fast tier would soon have to give up the next log: it is made on the slow one, and needs no copy.
#[test]
fn a_log_that_is_born_on_the_slow_tier_is_read_there_and_never_copied() {
    in_world(12, || {
        let disk = slow_disk();
        let spill = || options(Bypass::Spill).fast_bytes(512 << 10);
        let db = open_with(&disk, spill(), inline()).unwrap();
        let mut places = LogPlaces::new();
        for number in 0..KEYS {
            db.put(format!("{:05}", number * 7919 % KEYS), noise(number)).unwrap();
            testing::sleep(Duration::from_micros(400));
            look_for_logs(&disk, &mut places);
        }
        let stats = db.stats();
        let born_slow = stats.bypass.logs_born_slow;
        let slow_at_first = |places: &LogPlaces| -> Vec<PathBuf> {
            let is_slow = |(_, seen): &(&PathBuf, &Vec<PathBuf>)| seen[0] == Path::new("/slow");
            places.iter().filter(is_slow).map(|(name, _)| name.clone()).collect()
        };
        let slow = slow_at_first(&places);
        assert!(born_slow > 1 && slow.len() as u64 >= born_slow, "{born_slow} of {places:?}");
        assert_whole(&db);
        db.sync().unwrap();
        // Recovery needs them.
        let unflushed = |db: &Db| -> Vec<PathBuf> {
            db.stats().logs.iter().map(|log| PathBuf::from(format!("{:08}.log", log.id))).collect()
        };
        let needed = unflushed(&db);
        assert!(slow.iter().filter(|name| needed.contains(name)).count() > 1, "{slow:?} of {needed:?}");
        for image in [disk.process_crash(), disk.power_loss(1), disk.power_loss(2)] {
            let reopened = open_with(&image, options(Bypass::Off).fast_bytes(512 << 10), inline()).unwrap();
            assert_whole(&reopened);
            reopened.close().unwrap();
        }
        db.wait_for_background().unwrap();
        assert_whole(&db);
        look_for_logs(&disk, &mut places);
        assert_eq!(db.stats().tiers.bytes_moved, 0);
        for name in slow {
            assert_eq!(places[&name], [Path::new("/slow")], "{name:?} was copied");
        }
        db.close().unwrap();
    });
}

#[test]
fn a_close_during_a_redirect_is_quick_and_the_next_open_has_all() {
    for (seed, next) in [(7, Bypass::Off), (8, Bypass::Spill)] {
        in_world(seed, move || {
            let disk = slow_disk();
            let db = open_with(&disk, options(Bypass::Spill), inline()).unwrap();
            burst(&db);
            assert!(db.stats().bypass.redirects);
            let began = testing::now();
            db.close().unwrap();
            let took = testing::now() - began;
            let db = open_with(&disk, options(next), inline()).unwrap();
            assert_whole(&db);
            let began = testing::now();
            db.wait_for_background().unwrap();
            assert!(took * 2 < testing::now() - began, "the close took {took:?}");
            db.put("more", "v").unwrap();
            db.close().unwrap();
        });
    }
}

#[test]
fn a_crash_during_a_redirect_loses_nothing_that_was_synced() {
    in_world(9, || {
        let disk = slow_disk();
        let db = open_with(&disk, options(Bypass::Spill), inline()).unwrap();
        burst(&db);
        assert!(db.stats().bypass.redirects);
        db.sync().unwrap();
        for image in [disk.process_crash(), disk.power_loss(1), disk.power_loss(2)] {
            let reopened = open_with(&image, options(Bypass::Off), inline()).unwrap();
            assert_whole(&reopened);
            reopened.close().unwrap();
        }
        db.close().unwrap();
    });
}

#[test]
fn flushes_wait_for_hl0_during_a_redirect_but_not_for_ever() {
    in_world(10, || {
        let mut tuning = inline();
        tuning.hl0_stop_tables = 6;
        let db = open_with(&slow_disk(), options(Bypass::Spill), tuning).unwrap();
        for number in 0..KEYS {
            db.put(format!("{:05}", number * 7919 % KEYS), noise(number)).unwrap();
            assert!(db.stats().levels[0].tables <= 6, "{:?}", db.stats().levels[0]);
        }
        db.flush().unwrap();
        assert!(db.stats().levels[0].tables <= 6, "a caller's flush waits too");
        assert_whole(&db);
        db.close().unwrap();
    });
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Listener for Heard {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

#[test]
fn listeners_hear_of_redirects() {
    let heard = Arc::new(Heard::default());
    let listener = heard.clone();
    in_world(11, move || {
        let tuning = inline();
        assert_eq!(tuning.stats_interval, None);
        let db = open_with(&slow_disk(), options(Bypass::Spill).listener(listener), tuning).unwrap();
        burst(&db);
        db.wait_for_background().unwrap();
        // Nothing but time ends it, and nobody asks for statistics.
        testing::sleep(Duration::from_secs(3));
        assert!(!db.stats().bypass.redirects);
        db.close().unwrap();
    });
    let heard = heard.0.lock().unwrap();
    let begun = heard.iter().filter(|event| **event == Event::RedirectBegun).count();
    let bytes: Vec<u64> = heard
        .iter()
        .filter_map(|event| if let Event::RedirectEnded { bytes, .. } = event { Some(*bytes) } else { None })
        .collect();
    assert!(begun > 0 && !bytes.is_empty() && bytes[0] > 100 << 10, "{begun} begun, ended with {bytes:?}");
}
