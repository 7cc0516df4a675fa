//! Floor 2: the levels. Sorted tables on disk, the version that lists them, and the compaction that keeps them in shape.
//! This store knows versions of keys and where tables lie; which versions may die is decided in `base/versions.rs`, and
//! what becomes durable when, in `db/`.

pub mod version;
pub mod readers;
mod blocks;
pub mod table;
pub mod table_cursor;
pub mod point_reads;
pub mod level_cursor;
pub mod builder;
pub mod compaction;
pub mod picker;
pub mod hidden;
pub mod table_file;
pub mod table_check;
