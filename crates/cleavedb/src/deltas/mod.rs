//! Floor 2: the delta store. Merge operands of keyspaces that ask for it leave the levels and lie in buckets, one key range
//! each, so that a read finds all operands of a key in one place (KDSep, ICDE 2024). Here are the directory of buckets and
//! the policy of their upkeep; their bytes are tables, which `engine/` reads and writes.

pub mod directory;
pub mod policy;
pub mod crowds;
