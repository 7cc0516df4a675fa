//! Floor 1: bytes. How records, blocks, tables and edits look on storage, and nothing about where they are kept. Every
//! decoder treats its input as hostile: bad bytes are an error that names file and offset.

pub mod record;
pub mod frame;
pub mod edit;
pub mod checksum;
pub mod file_header;
pub mod compression;
pub mod block;
mod packed;
pub mod filter;
pub mod range_block;
pub mod table;
pub mod meta;
pub mod interval;
pub mod group;
pub mod reorder_credit;
pub mod values;
pub mod watermarks;
pub mod stats_page;
