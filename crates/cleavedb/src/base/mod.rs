//! Floor 0: the basic types of the engine. Keys, sequence numbers, kinds, addresses, errors, limits, merge operators,
//! and the pure logic that all stores share: cursors over sorted versions, ranges of keys, and the rules by which
//! versions are dropped.
//!
//! Nothing here uses a file, a clock or a thread.

pub mod limits;
pub mod error;
pub mod panics;
pub mod key;
pub mod key_bounds;
pub mod kind;
pub mod address;
pub mod tier;
pub mod file_key;
pub mod cell;
pub mod slice;
pub mod varint;
pub mod cursor;
pub mod merging;
pub mod ranges;
pub mod operator;
pub mod operators;
pub mod patches;
pub mod tombstones;
pub mod versions;
pub mod key_versions;
pub mod memory;
pub mod shared_map;
pub mod file_set;

pub use address::{Address, FileId};
pub use cursor::Cursor;
pub use error::{Error, Result};
pub use file_key::{DirId, FileKey, FileKind};
pub use key::{KeyspaceId, full_key, split_key};
pub use key_bounds::KeyBounds;
pub use kind::{Kind, Seqno, Stamp};
pub use memory::Gauge;
pub use merging::Merging;
pub use operator::{MergeOperator, OperatorSource};
pub use shared_map::SharedMap;
pub use slice::{Bytes, Slice};
pub use tier::Tier;

/// Checks an invariant that is too costly for production: on in tests, in debug builds and under simulation.
///
/// A failed check is a bug of the engine, so it panics; a check never changes the path taken.
macro_rules! verify {
    ($condition:expr, $($message:tt)+) => {
        if cfg!(debug_assertions) {
            assert!($condition, $($message)+);
        }
    };
}
pub(crate) use verify;
