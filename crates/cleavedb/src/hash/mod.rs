//! Floor 2: the hash store. An index in memory that has, for each key of a keyspace for point access, the place of its newest
//! record in the logs and segments (REXIO). Here is the index alone: an extendible hashing directory over buckets that split by
//! themselves. Who writes it, makes its checkpoints and rebuilds it is in `engine/`.

pub mod bulk;
pub mod found;
pub mod index;
pub mod place;
pub mod policy;
pub mod store;
mod shard;
mod directory;
mod bucket;
#[cfg(test)]
mod index_test;
