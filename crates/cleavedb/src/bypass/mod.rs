//! Floor 2: the bypass (KVAccel, IPDPS 2025). While background work is behind, writers go around it in place of waiting for it.
//! Here are its policies alone, as pure functions: when to go around, and where the next log is born. `engine/bypass.rs` keeps
//! their state, `engine/write/redirect.rs` applies them.

pub mod detector;
pub mod birthplace;
