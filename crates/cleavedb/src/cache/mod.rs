//! Floor 1: the block cache and the value cache, and how they share memory.

pub mod block_cache;
pub mod value_cache;
pub(crate) mod balance;
mod ghosts;
mod weight;
