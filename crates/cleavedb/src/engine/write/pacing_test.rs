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
