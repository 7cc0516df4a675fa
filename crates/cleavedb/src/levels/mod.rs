//! Floor 2: the levels. Sorted tables on disk, the version that lists them, and the compaction that keeps them in shape.
//! This store knows versions of keys and where tables lie; which versions may die is decided in `base/versions.rs`, and
//! what becomes durable when, in `db/`.

pub mod table;
pub mod table_cursor;
pub mod builder;
#[cfg(test)]
mod memory_storage;

pub use builder::{TableBuilder, TableOptions};
pub use table::Table;
pub use table_cursor::TableCursor;
