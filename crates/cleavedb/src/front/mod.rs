//! Floor 2: the front, which contains the newest data: the write-ahead logs, the index tables (memtables whose larger
//! values stay in the log) and the runs (sealed, immutable memtables), and the merging of runs. Nothing here depends on
//! levels or on the manifest.

pub mod log;
pub mod log_writer;
pub mod chunk_writer;
pub mod log_reader;
pub mod log_check;
pub mod index_table;
mod index_pieces;
mod index_cursor;
pub mod tombstone_index;
pub mod run;
pub mod merge_policy;
