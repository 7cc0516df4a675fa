//! The pauses of value GC, with work that takes time in a simulated world.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::engine::jobs::collect_garbage::victims;
use crate::engine::pacer::Pace;
use crate::engine::tuning::sizes::Tuning;
use crate::io::SimDisk;
use crate::sched::sim::simulate;
use crate::sched::thread::{sleep, spawn};
use crate::{Db, Options};

fn in_world(seed: u64, test: impl FnOnce() + Send + 'static) {
    simulate(seed, test).unwrap_or_else(|failure| panic!("{failure}"))
}

fn open() -> Db {
    let options = Options::new().background_threads(1);
    crate::api::db::open(Arc::new(SimDisk::new()), Path::new("/db"), options, Some(Tuning::tiny())).unwrap()
}

/// Works for 100 ms in steps of one; returns the time spent in pauses.
fn work(db: &Db) -> Duration {
    work_with(Throttle::of_gc(&db.inner.core))
}

fn work_with(mut throttle: Throttle<'_>) -> Duration {
    for _ in 0..100 {
        sleep(Duration::from_millis(1));
        throttle.pause();
    }
    throttle.paused()
}

/// Runs `test` while another thread reads.
fn while_reading(db: &Db, test: impl FnOnce()) {
    db.put("key", vec![b'v'; 300]).unwrap();
    db.flush().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let reader = {
        let (db, over) = (db.clone(), over.clone());
        spawn("reader", move || {
            while !over.load(Ordering::SeqCst) {
                assert!(db.get("key").unwrap().is_some());
                sleep(Duration::from_millis(1));
            }
        })
    };
    test();
    over.store(true, Ordering::SeqCst);
    reader.join().unwrap();
}

#[test]
fn value_gc_pauses_while_users_read_and_not_while_they_are_idle() {
    in_world(1, || {
        let db = open();
        let core = &db.inner.core;
        while_reading(&db, || {
            let began = now();
            let paused = work(&db);
            assert!((90..120).contains(&paused.as_millis()), "{paused:?}");
            // The reader's look-ups leave the share at its least: 19 parts of pauses and rests for each of work.
            core.work.space.gc_pace.lock().note_ended(began, paused, now());
            let rest = core.gc_rests_for(&core.work.lock());
            assert!(rest + paused > Duration::from_millis(1500), "{rest:?}");
            core.work.lock().begin_waiting();
            assert_eq!(core.gc_rests_for(&core.work.lock()), Duration::ZERO);
            core.work.lock().end_waiting();
        });
        sleep(Duration::from_millis(100));
        assert_eq!(core.gc_rests_for(&core.work.lock()), Duration::ZERO);
        let paused = work(&db);
        assert!(paused < Duration::from_millis(50), "{paused:?}");
    });
}

#[test]
fn a_job_that_yields_to_reads_leaves_them_half_of_the_time() {
    in_world(4, || {
        let db = open();
        while_reading(&db, || {
            let paused = work_with(Throttle::beside_reads(&db.inner.core));
            assert!((90..120).contains(&paused.as_millis()), "{paused:?}");
            assert!(db.inner.core.gc_share() < 1.0 && db.inner.core.users_read());
        });
        sleep(Duration::from_millis(1100));
        assert!(db.inner.core.gc_share() > 0.0 && !db.inner.core.users_read());
        // Nobody has read for a second, and writers do not count.
        db.put("other", "value").unwrap();
        let paused = work_with(Throttle::beside_reads(&db.inner.core));
        assert!(paused < Duration::from_millis(5), "{paused:?}");
    });
}

#[test]
fn a_compaction_yields_to_reads_while_writers_have_room() {
    in_world(5, || {
        let db = open();
        let core = &db.inner.core;
        while_reading(&db, || {
            let paused = work_with(Throttle::of_compaction(core));
            assert!((270..330).contains(&paused.as_millis()), "{paused:?}");
            // A caller compacts a range.
            let call = core.work.begin_call();
            assert_eq!(work_with(Throttle::of_compaction(core)), Duration::ZERO);
            drop(call);
            // Writers are stopped.
            let pause = db.pause_background().unwrap();
            let mut state = core.pacer.state.lock();
            (state.pace, state.reviewed) = (Pace::Stopped, now());
            core.pacer.is_limited.store(true, Ordering::Relaxed);
            drop(state);
            assert_eq!(core.compaction_share(), 1.0);
            core.pacer.is_limited.store(false, Ordering::Relaxed);
            drop(pause);
            assert!(core.compaction_share() < 1.0);
            // Other work at a yield point does not make a pause longer.
            let mut throttle = Throttle::of_compaction(core);
            sleep(Duration::from_secs(2));
            throttle.pause();
            assert!((20..25).contains(&throttle.paused().as_millis()), "{:?}", throttle.paused());
            // A writer has waited for its pace.
            core.counters.paced.fetch_add(1, Ordering::Relaxed);
            let paused = work_with(Throttle::of_compaction(core));
            assert_eq!(paused, Duration::ZERO);
            sleep(Duration::from_millis(1100));
            let paused = work_with(Throttle::of_compaction(core));
            assert!((270..330).contains(&paused.as_millis()), "{paused:?}");
        });
    });
}

#[test]
fn the_share_of_a_compaction_grows_with_hl0() {
    for (fill, share) in [(0.0, 0.25), (0.3, 0.25), (0.4, 0.625), (0.5, 1.0), (1.2, 1.0)] {
        assert!((yielding(fill) - share).abs() < 1e-9, "{fill}");
    }
}

#[test]
fn value_gc_goes_on_after_its_rest_while_users_only_read() {
    in_world(6, || {
        let db = open();
        let core = &db.inner.core;
        // A job that worked for a second and paused for another: 18 s of rest at the least share.
        let begin_rest = || {
            let second = Duration::from_secs(1);
            core.work.space.gc_pace.lock().note_ended(now().saturating_sub(2 * second), second, now());
        };
        sleep(Duration::from_secs(2));
        while_reading(&db, || {
            for number in 0..1_200 {
                if number % 100 == 0 {
                    begin_rest();
                }
                db.put(format!("key {:02}", number % 50), vec![b'v'; 300]).unwrap();
            }
            db.flush().unwrap();
            begin_rest();
            let (collected, begun) = (|| db.stats().value_gcs, now());
            assert_eq!(collected(), 0);
            assert!(victims(core, &core.work.lock(), false).is_some());
            // Nobody writes, and no other job wakes the threads up.
            while collected() == 0 {
                assert!(now() - begun < Duration::from_secs(60), "{:?}", db.stats());
                sleep(Duration::from_millis(10));
            }
            assert!((17..20).contains(&(now() - begun).as_secs()), "{:?}", now() - begun);
        });
    });
}

#[test]
fn a_pause_ends_when_somebody_waits_for_the_job() {
    in_world(2, || {
        let db = open();
        while_reading(&db, || {
            let begun = now();
            let core = db.inner.core.clone();
            core.work.lock().begin_waiting();
            let paused = work(&db);
            assert_eq!(paused, Duration::ZERO, "{:?}", now().saturating_sub(begun));
            core.work.lock().end_waiting();
            // In the middle of a pause.
            let mut throttle = Throttle::of_gc(&core);
            sleep(Duration::from_secs(1));
            let waiter = {
                let core = core.clone();
                spawn("waiter", move || {
                    sleep(Duration::from_millis(50));
                    core.work.lock().begin_waiting();
                })
            };
            throttle.pause();
            waiter.join().unwrap();
            assert!(throttle.paused() < Duration::from_millis(100), "{:?}", throttle.paused());
            core.work.lock().end_waiting();
        });
    });
}

#[test]
fn reordering_and_other_jobs_do_not_pause() {
    in_world(3, || {
        let mut throttle = Throttle::none();
        sleep(Duration::from_secs(1));
        throttle.pause();
        assert_eq!(throttle.paused(), Duration::ZERO);
    });
}
