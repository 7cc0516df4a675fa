//! The program as a user runs it, at a tiny size.

#![allow(clippy::unwrap_used)] // A failed step is a failed test.

mod common;
mod run;
mod load;
mod input;
mod places;
mod sustained;
mod tiers;
