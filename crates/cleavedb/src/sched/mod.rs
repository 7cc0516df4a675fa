//! Floor 1: threads, locks and time. In production these are thin names for parking_lot and std; inside a simulation
//! (`sim`, with the feature `testing`) the same calls hand a baton around, so that one thread runs at a time, in an order
//! drawn from a seed.
//!
//! The engine starts threads, waits and reads clocks only through here. An object that simulated threads share
//! belongs to one world: a thread outside it must not hold its locks while the world runs.

pub mod sync;
pub mod thread;
pub mod clock;
pub mod allocator;
#[cfg(any(test, feature = "testing"))]
pub mod sim;
#[cfg(any(test, feature = "testing"))]
mod world;
#[cfg(not(any(test, feature = "testing")))]
#[path = "no_world.rs"]
mod world;
pub mod random;
