//! The store of separated values: logs that have left the front and keep their live records, segment extents that
//! records were moved to, redirect tables that map old locations to new ones, and placements, which decide which values
//! lie together and which files are collected next.
//!
//! Liveness comes from the ledger ([`ValueState`](crate::format::value_state::ValueState)): a record is live as long as a
//! table references it and no newer base covers it. Called by `engine/`, which commits.

pub mod segment;
pub mod record_compressor;
pub mod redirect;
pub mod candidate;
pub mod live_records;
pub mod record_notes;
pub mod survey;
pub mod files;
pub mod present_addresses;
pub mod placement;
pub mod newest;
pub mod stale;
