//! CleaveDB: an embedded, persistent key-value store that splits the index from the data.
pub mod base;
pub mod sched;
pub mod io;
pub mod format;
pub mod front;
pub mod levels;
pub mod db;
