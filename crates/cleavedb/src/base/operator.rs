//! Merge operators, which turn deltas (merge operands) into values. Operators are registered by name when the database
//! is opened, and selected per keyspace when the keyspace is created.
//!
//! Called by reads, and by jobs that merge versions ([`versions`](super::versions)).

use std::sync::Arc;

use super::key::KeyspaceId;

/// Combines deltas (merge operands) with the value below them.
///
/// Both functions must be pure: the same input gives the same output, in any process. Panics are caught: the operands
/// are kept, and only reads of that key fail (rule 11 of `docs/ARCHITECTURE.md`).
pub trait MergeOperator: Send + Sync + 'static {
    /// The name, which the manifest stores with every keyspace that uses the operator; never change its meaning.
    fn name(&self) -> &str;

    /// The value of `key` after `operands`, oldest first, are applied to `base` (`None`: the key has no value).
    ///
    /// # Errors
    /// A sentence that describes the problem; the read of this key fails with it, and the operands are kept.
    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String>;

    /// One operand with the effect of `older` followed by `newer`; `None` if they cannot be combined.
    fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>>;
}

/// Looks up merge operators by keyspace.
pub trait OperatorSource: Send + Sync {
    /// The operator of `keyspace`; `None` if it has none, or if its operator is not registered.
    fn operator(&self, keyspace: KeyspaceId) -> Option<Arc<dyn MergeOperator>>;
}

/// Calls `full_merge` and converts a panic into an error.
pub fn full_merge(
    operator: &dyn MergeOperator,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Vec<u8>, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| operator.full_merge(key, base, operands)))
        .unwrap_or_else(|_| Err(format!("merge operator {:?} panicked", operator.name())))
}

/// Calls `partial_merge`; a panic means that the operands cannot be combined.
pub fn partial_merge(operator: &dyn MergeOperator, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| operator.partial_merge(key, older, newer))).unwrap_or(None)
}
