//! Floor 1: blocks of tables and values of records in memory, and how both share it.

pub mod block_cache;
pub mod value_cache;
pub(crate) mod balance;
mod ghosts;
mod weight;
