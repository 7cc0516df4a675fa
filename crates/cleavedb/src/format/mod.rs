//! Floor 1: the on-disk formats of records, frames, blocks, tables and manifest edits, without any I/O. Every decoder
//! treats its input as untrusted: malformed bytes are an error whose message says what is wrong, and callers add file
//! and offset.

pub mod record;
pub mod frame;
pub mod checksum;
pub mod compression;
pub mod file_header;
pub mod block;
pub mod block_builder;
mod packed;
pub mod filter;
pub mod range_block;
pub mod table;
pub mod references;
pub mod properties;
pub mod meta;
pub mod interval;
pub mod group;
pub mod reorder_credit;
pub mod values;
pub mod watermarks;
pub mod buckets;
pub mod keyspace_record;
pub mod edit;
pub mod value_state;
pub mod stats_page;
pub mod index_file;
