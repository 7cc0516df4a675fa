//! The room in HL0 as the pace of writers depends on it, and what counts as a wait for the pace.

use std::path::Path;

use super::*;
use crate::Options;
use crate::engine::pacer::{PACE_MIN, Pace, Stage, pace};
use crate::io::SimDisk;
use crate::sched::sim::simulate;
use crate::sched::thread::{sleep, spawn};

#[test]
fn a_writer_that_waits_for_a_lock_has_not_waited_for_its_pace() {
    simulate(1, || {
        let options = Options::new().background_threads(1);
        let tuning = Some(Tuning::tiny());
        let db = crate::api::db::open(Arc::new(SimDisk::new()), Path::new("/db"), options, tuning).unwrap();
        let core = db.inner.core.clone();
        let waits = || core.counters.paced.load(Ordering::Relaxed);
        let holder = {
            let core = core.clone();
            spawn("holder", move || {
                let state = core.work.lock();
                sleep(Duration::from_millis(20));
                drop(state);
            })
        };
        sleep(Duration::from_millis(5));
        // A pace that nobody reaches.
        core.pacer.is_limited.store(true, Ordering::Relaxed);
        let begun = now();
        core.wait_for_room(100, None).unwrap();
        assert!(now() - begun > Duration::from_millis(10));
        assert_eq!(waits(), 0);
        holder.join().unwrap();
        // One that is slower than the writer. No job determines it anew.
        let _pause = db.pause_background().unwrap();
        let mut state = core.pacer.state.lock();
        (state.pace, state.reviewed) = (Pace::Limited(PACE_MIN), now());
        core.pacer.is_limited.store(true, Ordering::Relaxed);
        drop(state);
        core.wait_for_room(1_000_000, None).unwrap();
        assert_eq!(waits(), 1);
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn unflushed_bytes_reduce_the_room_in_hl0() {
    assert_eq!(hl0_room(3, 32, 0), 96.0);
    assert_eq!(hl0_room(3, 32, 40), 56.0);
    // With no room left, writers go at the slowest pace; they stop only when HL0 is full.
    assert_eq!(hl0_room(3, 32, 1000), 0.0);
    let stage = Stage { fill: 0.4, drain: 100e6, room: 0.0, left: 1e6, is_full: false };
    assert_eq!(pace(&[stage]), Pace::Limited(PACE_MIN));
}

#[test]
fn writers_are_slowed_while_a_compaction_of_hl0_waits_for_a_thread() {
    // None is due; it waits; it runs.
    assert_eq!(
        [left_in_hl0(None, false, 80), left_in_hl0(None, true, 80), left_in_hl0(Some(30), true, 80)],
        [0, 80, 30]
    );
    let pace_with = |tables: usize, left: u64| {
        let room = hl0_room(13 - tables, 10, 0);
        pace(&[Stage { fill: tables as f64 / 13.0, drain: 100e6, room, left: left as f64, is_full: false }])
    };
    // With the room for as much as is there, writers go at the rate of the compaction, and slower as HL0 fills.
    assert_eq!(pace_with(5, left_in_hl0(None, false, 50)), Pace::Free);
    assert_eq!(pace_with(5, left_in_hl0(None, true, 50)), Pace::Limited(160e6));
    assert_eq!(pace_with(6, left_in_hl0(None, true, 70)), Pace::Limited(100e6));
}
