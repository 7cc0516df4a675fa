//! Floor 2: the front. The logs that first hold every record, the index tables and runs in memory that find them, and
//! the merging of runs. Nothing here knows of levels or the manifest.

pub mod log;
pub mod log_writer;
pub mod chunk_writer;
pub mod log_reader;
pub mod tombstone_index;
pub mod log_check;
pub mod index_table;
pub mod run;
pub mod merge_policy;
