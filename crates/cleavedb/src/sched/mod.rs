//! Layer 1: threads, locks, time and randomness. In production these are thin wrappers of parking_lot and std. Inside a
//! simulation (`sim`, with the feature `testing`) the same calls switch between threads, so that one thread runs at a time,
//! in an order that a seed determines.
//!
//! The engine starts threads, waits and reads clocks only through this module. An object that simulated threads share
//! belongs to one world: a thread outside that world must not hold its locks while the world runs.

pub mod sync;
pub mod thread;
pub mod clock;
pub mod allocator;
#[cfg(any(test, feature = "testing"))]
pub mod sim;
#[cfg(any(test, feature = "testing"))]
pub mod failure;
#[cfg(any(test, feature = "testing"))]
mod world;
#[cfg(not(any(test, feature = "testing")))]
#[path = "no_world.rs"]
mod world;
pub mod random;
