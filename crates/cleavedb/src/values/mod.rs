//! The store of values that lie apart from their keys (DESIGN sections 1, 2 and 4): logs that have left the front and keep
//! their live records, segments that records were moved to, redirect tables that lead from the old places to the new, and
//! which file is emptied next.
//!
//! What is live is known from the ledger ([`ValueState`](crate::format::values::ValueState)): a record is live as long as a
//! table names it. Called by `db/`, which commits.

pub mod value_file;
pub mod segment;
pub mod redirect;
pub mod files;
pub mod victim;
pub mod stale;
