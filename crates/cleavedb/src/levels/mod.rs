//! Floor 2: the levels. Sorted tables on disk, the version that lists them, and the compactions that keep them in
//! shape. This store knows versions of keys and the location of tables; `base/versions.rs` decides which versions may
//! be dropped, and `engine/` commits.

pub mod version;
pub mod readers;
mod blocks;
pub mod table;
pub mod table_cursor;
pub mod point_reads;
pub mod level_cursor;
pub mod reference_cursor;
pub mod builder;
pub mod compaction;
pub mod table_figures;
pub mod picker;
pub mod hidden;
pub mod table_file;
pub mod table_check;
