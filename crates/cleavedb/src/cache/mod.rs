//! Floor 1: the block cache, the value cache and the operand cache, and how they share memory.

pub mod block_cache;
pub mod value_cache;
pub mod operand_cache;
pub(crate) mod balance;
mod ghosts;
mod weight;
