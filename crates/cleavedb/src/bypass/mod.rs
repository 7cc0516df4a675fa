//! Floor 2: the bypass (KVAccel, IPDPS 2025). While background work is behind, writers go around it in place of waiting for it.
//! Here are its policies alone, as pure functions: when to go around, where the next log is born, and when logs leave a device.
//! `engine/bypass.rs` keeps their state, `engine/write/redirect.rs` and `engine/jobs/roll_back.rs` apply them.

pub mod detector;
pub mod birthplace;
pub mod rollback;
