//! The room in HL0 as the pace of writers depends on it.

use super::*;
use crate::engine::pacer::{PACE_MIN, Pace, Stage, pace};

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
