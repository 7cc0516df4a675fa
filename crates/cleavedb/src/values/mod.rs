//! The store of values that lie apart from their keys (DESIGN sections 1, 2 and 4): logs that have left the front and keep
//! their live records, extents of segments that records were moved to, redirect tables that lead from the old places to the
//! new, and placements, which decide what lies together and what is emptied next.
//!
//! What is live is known from the ledger ([`ValueState`](crate::format::value_state::ValueState)): a record is live as long as a
//! table names it and no newer base makes it dead. Called by `db/`, which commits.

pub mod value_file;
pub mod segment;
pub mod shrinker;
pub mod redirect;
pub mod files;
pub mod placement;
pub mod newest;
pub mod stale;
