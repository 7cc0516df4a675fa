//! A batch of operations, across keyspaces, that become visible and durable atomically.

use crate::api::keyspace::Keyspace;
use crate::base::{KeyBounds, Kind};
use crate::engine::batch::Batch;

/// Operations that are written atomically. On the same key, a later operation overrides an earlier one.
///
/// Adding an operation never fails: if one exceeds a limit, writing the batch fails.
#[derive(Clone, Default)]
pub struct WriteBatch(pub(crate) Batch);

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.0.push(keyspace.state(), Kind::Put, key.as_ref(), value.as_ref());
    }

    /// Removes `key`; no error if it does not exist.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.0.push(keyspace.state(), Kind::Delete, key.as_ref(), &[]);
    }

    /// Adds a merge operand for `key`; as [`Keyspace::merge`].
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.0.push(keyspace.state(), Kind::Delta, key.as_ref(), operand.as_ref());
    }

    /// Removes all keys within `range`; as [`Keyspace::delete_range`].
    pub fn delete_range<R: KeyBounds>(&mut self, keyspace: &Keyspace, range: R) {
        let (start, end) = range.key_bounds();
        self.0.delete_range(keyspace.state(), start, end);
    }

    /// The number of operations in the batch.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all operations and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
