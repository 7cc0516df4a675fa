//! How background work is scheduled while a database runs: settings that follow the load and return, and the limit on background
//! I/O.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Compression, Db, DecisionStats, Error, JobStats, Options, Scheduling, SchedulingStats, Stats, Tier};

use crate::support::{in_world, open_with, value};

const KEYS: u64 = 300;

/// A disk on which each operation on files takes as long as many writes to memory, logs apart.
fn slow_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.set_latency(Path::new("/slow"), Duration::from_millis(1));
    disk
}

/// One thread for merges, so that they are what the load waits for.
fn options() -> Options {
    Options::new().slow_dir("/slow").background_threads(1)
}

/// Inline values, many decisions, and little room before writers wait.
fn inline() -> Tuning {
    let mut tuning = Tuning::tiny();
    tuning.separation_bytes = usize::MAX;
    (tuning.index_table_bytes, tuning.front_bytes_max) = (2 << 10, 64 << 10);
    (tuning.logs_bytes_max, tuning.replay_bytes_max) = (128 << 10, 128 << 10);
    tuning.tune_interval = Duration::from_micros(200);
    tuning
}

fn write(db: &Db, rounds: u64) {
    for number in 0..rounds * KEYS {
        db.put(format!("{:04}", number * 7919 % KEYS), value(&number.to_string(), 300)).unwrap();
    }
}

/// The statistics after writes that background work cannot follow.
fn under_load(seed: u64, scheduling: Scheduling, tuning: Tuning) -> Stats {
    in_world(seed, move || {
        let db = open_with(&slow_disk(), options().scheduling(scheduling), tuning).unwrap();
        write(&db, 10);
        let stats = db.stats();
        assert_eq!(db.iter().unwrap().count() as u64, KEYS);
        db.close().unwrap();
        stats
    })
}

#[test]
fn settings_follow_the_load_by_policy_and_say_why() {
    let seeds = 0..4;
    let decisions_of = |scheduling| -> Vec<SchedulingStats> {
        seeds.clone().map(|seed| under_load(seed, scheduling, inline()).scheduling).collect()
    };
    let auto = decisions_of(Scheduling::Auto);
    let decisions: Vec<_> = auto.iter().flat_map(|stats| &stats.decisions).collect();
    assert!(!decisions.is_empty(), "nothing was decided");
    for decision in &decisions {
        assert!((2..=16).contains(&decision.setting.merge_runs), "{decision:?}");
        // A simulated machine does not say how busy it is.
        assert!(decision.processors_busy.is_none() && decision.devices.is_empty(), "{decision:?}");
        let is_long = match &decision.bottleneck[..] {
            "processors" => decision.merge_queue >= 4,
            "devices" => decision.flush_queue >= 3.0,
            "both" => false,
            _ => continue,
        };
        assert!(is_long && decision.writers_waiting > 0.0, "{decision:?}");
    }
    let grows = |stats: &SchedulingStats| stats.decisions.iter().any(|it| it.setting.level_base_bytes > 64 << 10);
    assert!(auto.iter().any(grows), "no level grew: {decisions:?}");
    // Compactions of HL0 write to the slow directory.
    let waits = |decision: &&&DecisionStats| decision.setting.hl0_trigger > Tuning::tiny().hl0_compact_tables;
    assert!(decisions.iter().filter(waits).any(|decision| decision.tier == Some(Tier::Slow)), "{decisions:?}");
    assert!(!decisions_of(Scheduling::AutoFixedLevels).iter().any(grows));
    assert!(decisions_of(Scheduling::Static { merge_runs: None, flush_bytes: None }).iter().all(|stats| {
        stats.decisions.is_empty() && (stats.setting.merge_runs, stats.setting.flush_bytes) == (2, 16 << 10)
    }));
    let sizes = |stats: SchedulingStats| stats.decisions.into_iter().map(|it| it.setting.flush_bytes);
    let by_overflow: Vec<u64> = decisions_of(Scheduling::Adoc).into_iter().flat_map(sizes).collect();
    assert!(by_overflow.iter().any(|bytes| *bytes != 16 << 10), "{by_overflow:?}");
}

#[test]
fn settings_and_the_shape_for_reads_return_once_it_is_calm() {
    let (mut returned, mut shrunk) = (0, 0);
    for seed in 0..4 {
        let (changed, grew) = in_world(seed, || {
            let mut tuning = inline();
            tuning.stats_interval = Some(Duration::from_millis(5));
            let rest = tuning.level_base_bytes;
            let options = options().compression(Compression::None);
            let db = open_with(&slow_disk(), options, tuning).unwrap();
            write(&db, 10);
            let Stats { scheduling: SchedulingStats { decisions, .. }, levels, .. } = db.stats();
            let (changed, grew) = (!decisions.is_empty(), levels[1].bytes > rest);
            db.wait_for_background().unwrap();
            // Nothing but time ends a calm.
            testing::sleep(Duration::from_secs(1));
            let Stats { scheduling: stats, levels, .. } = db.stats();
            let setting = stats.setting;
            assert_eq!((setting.merge_runs, setting.flush_bytes, setting.level_base_bytes), (2, 16 << 10, rest));
            assert_eq!(setting.hl0_trigger, Tuning::tiny().hl0_compact_tables);
            assert!(stats.merge_queue <= 2 && stats.flush_queue < 1.0, "{stats:?}");
            // The levels had room for more during the load: compactions have made them as they are without one.
            assert!(levels[1].bytes <= rest && levels[2].bytes <= 10 * rest, "{levels:?}");
            assert_eq!(db.iter().unwrap().count() as u64, KEYS);
            (changed, grew)
        });
        returned += u64::from(changed);
        shrunk += u64::from(grew);
    }
    assert!(returned > 0, "nothing had changed");
    assert!(shrunk > 0, "no level was larger than without a load");
}

/// The decisions under load with devices that say how busy they are.
fn decisions_with_devices(slow: Duration) -> Vec<DecisionStats> {
    let of_seed = move |seed| {
        in_world(seed, move || {
            let disk = SimDisk::new();
            disk.set_latency(Path::new("/db"), Duration::from_micros(2));
            disk.set_latency(Path::new("/slow"), slow);
            disk.set_device_usage(true);
            let mut tuning = inline();
            if slow.is_zero() {
                // More runs to merge, or there is no queue.
                (tuning.index_table_bytes, tuning.hl0_stop_tables) = (512, 200);
            }
            let db = open_with(&disk, options(), tuning).unwrap();
            write(&db, 10);
            let decisions = db.stats().scheduling.decisions;
            db.close().unwrap();
            decisions
        })
    };
    (0..4).flat_map(of_seed).collect()
}

#[test]
fn a_device_is_a_bottleneck_only_while_it_is_busy() {
    let decisions = decisions_with_devices(Duration::from_millis(1));
    let is_by_slow = |decision: &&DecisionStats| decision.bottleneck == "devices" && decision.tier == Some(Tier::Slow);
    for decision in &decisions {
        let [fast, slow] = &decision.devices[..] else { panic!("{decision:?}") };
        assert_eq!((fast.tier, slow.tier), (Tier::Fast, Tier::Slow));
        assert!((0.0..=1.0).contains(&fast.busy) && (0.0..=1.0).contains(&slow.busy), "{decision:?}");
        assert!(fast.latency.is_none_or(|latency| latency == Duration::from_micros(2)), "{decision:?}");
        assert!(slow.latency.is_none_or(|latency| latency == Duration::from_millis(1)), "{decision:?}");
        let named = match decision.tier {
            Some(Tier::Fast) => fast.busy,
            Some(Tier::Slow) => slow.busy,
            _ => 1.0,
        };
        assert!(named >= 0.8, "{decision:?}");
    }
    assert!(decisions.iter().any(|decision| is_by_slow(&decision)), "{decisions:?}");
    // One that takes no time is never busy, however long the queue is.
    let decisions = decisions_with_devices(Duration::ZERO);
    assert!(!decisions.iter().any(|decision| is_by_slow(&decision)), "{decisions:?}");
    let is_idle = |decision: &DecisionStats| decision.devices.iter().any(|of| of.tier == Tier::Slow && of.busy == 0.0);
    assert!(!decisions.is_empty() && decisions.iter().all(is_idle), "{decisions:?}");
}

/// How often the threads of the pool were seen to use different resources at once.
#[derive(Debug, Default)]
struct Together {
    /// Processors alone beside a device.
    computes_beside_io: u32,
    /// Writes to one tier beside writes to the other.
    writes_to_both: u32,
}

impl Together {
    fn note(&mut self, jobs: &[JobStats]) {
        // Values, logs and moves have threads of their own.
        let of_pool = ["seal", "merge runs", "flush", "compaction"];
        let binds: Vec<&str> =
            jobs.iter().filter(|job| of_pool.contains(&job.kind)).map(|job| &job.binds[..]).collect();
        let writes = |tier: &str| binds.iter().any(|of| of.contains(tier));
        self.computes_beside_io += u32::from(binds.contains(&"cpu") && binds.iter().any(|of| of.contains("writes")));
        self.writes_to_both += u32::from(binds.len() > 1 && writes("fast writes") && writes("slow writes"));
    }
}

#[test]
fn the_pool_uses_processors_and_devices_at_once() {
    let seen = Arc::<Mutex<Together>>::default();
    for seed in 0..4 {
        let seen = seen.clone();
        in_world(seed, move || {
            let options = Options::new().slow_dir("/slow").background_threads(2);
            let db = open_with(&slow_disk(), options, inline()).unwrap();
            let done = Arc::new(AtomicBool::new(false));
            let (sampled, until) = (db.clone(), done.clone());
            let sampler = testing::spawn("sampler", move || {
                while !until.load(Ordering::SeqCst) {
                    seen.lock().unwrap().note(&sampled.stats().jobs);
                    testing::yield_point();
                }
            });
            write(&db, 10);
            done.store(true, Ordering::SeqCst);
            sampler.join().unwrap();
            db.close().unwrap();
        });
    }
    let seen = seen.lock().unwrap();
    assert!(seen.computes_beside_io > 0 && seen.writes_to_both > 0, "{seen:?}");
}

#[test]
fn fixed_settings_are_kept_within_what_memory_allows_and_impossible_ones_are_refused() {
    let fixed = |merge_runs, flush_bytes| Scheduling::Static { merge_runs, flush_bytes };
    let setting = |scheduling| under_load(1, scheduling, inline()).scheduling.setting;
    let chosen = setting(fixed(Some(5), Some(24 << 10)));
    assert_eq!((chosen.merge_runs, chosen.flush_bytes), (5, 24 << 10));
    assert_eq!(setting(fixed(None, Some(1))).flush_bytes, 2 << 10);
    assert_eq!(setting(fixed(None, Some(1 << 40))).flush_bytes, 32 << 10);
    in_world(1, move || {
        for wrong in [fixed(Some(1), None), fixed(Some(17), None), fixed(None, Some(0))] {
            let refused = open_with(&SimDisk::new(), Options::new().scheduling(wrong), Tuning::tiny());
            assert!(matches!(refused, Err(Error::InvalidInput { .. })), "{wrong:?}");
        }
        let refused = open_with(&SimDisk::new(), Options::new().background_io_limit(Some(1000)), Tuning::tiny());
        assert!(matches!(refused, Err(Error::InvalidInput { .. })));
    });
}

/// The time from the first write on until nothing is left to do, with values that value GC and compactions move, and the bytes
/// that these have read and written.
fn time_to_settle(limit: Option<u64>, waits: bool) -> (Duration, u64) {
    in_world(3, move || {
        let disk = SimDisk::new();
        // Room enough that writers need not wait for background work.
        let mut tuning = inline();
        (tuning.front_bytes_max, tuning.hl0_stop_tables, tuning.garbage_bytes) = (1 << 20, 200, 1 << 30);
        (tuning.logs_bytes_max, tuning.replay_bytes_max) = (1 << 20, 1 << 20);
        let db = open_with(&disk, Options::new().background_io_limit(limit), tuning).unwrap();
        let began = testing::now();
        write(&db, 6);
        db.flush().unwrap();
        if waits {
            db.wait_for_background().unwrap();
        }
        let mut quiet = 0;
        while quiet < 5 {
            quiet = if db.stats().jobs.is_empty() { quiet + 1 } else { 0 };
            testing::sleep(Duration::from_millis(1));
        }
        let took = testing::now() - began;
        assert_eq!(db.iter().unwrap().count() as u64, KEYS);
        assert_eq!(db.stats().paced, 0);
        let stats = db.stats().scheduling;
        assert_eq!(stats.background_bytes_per_second.is_some(), limit.is_some());
        assert!(stats.background_bytes_per_second <= limit);
        db.close().unwrap();
        (took, stats.background_bytes)
    })
}

#[test]
fn background_work_takes_its_time_under_a_limit_unless_somebody_waits_for_all_of_it() {
    const LIMIT: u64 = 1 << 20;
    let (free, _) = time_to_settle(None, false);
    let (limited, bytes) = time_to_settle(Some(LIMIT), false);
    // All but the first bytes and those of flushes are paid for.
    let least = Duration::from_secs_f64(bytes as f64 / 2.0 / LIMIT as f64);
    assert!(bytes > 100 << 10 && limited > least && limited > 2 * free, "{bytes}: {limited:?}, {free:?} without");
    let (hurried, _) = time_to_settle(Some(LIMIT), true);
    assert!(hurried < limited / 2, "{hurried:?} with somebody who waits, {limited:?} without");
}

#[test]
fn a_close_does_not_wait_for_the_limit() {
    let close = |limit| {
        in_world(5, move || {
            let disk = SimDisk::new();
            let options = Options::new().background_io_limit(limit);
            let db = open_with(&disk, options, Tuning::tiny()).unwrap();
            write(&db, 6);
            let began = testing::now();
            db.close().unwrap();
            testing::now() - began
        })
    };
    let (limited, free) = (close(Some(1 << 20)), close(None));
    assert!(limited < 4 * free + Duration::from_millis(30), "{limited:?} with a limit, {free:?} without");
}
