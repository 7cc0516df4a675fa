//! Merges for stores without a merge: read the value, patch it, write it back. Concurrent merges of one key would lose
//! updates, so they take a lock, which several keys share.

use cleavedb::MergeOperator;
use cleavedb::operators::Patches;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::engine::Engine;
use crate::failure::{Failure, Result};

/// Locks that keys share.
#[derive(Default)]
pub struct Locks([Mutex<()>; 32]);

impl Locks {
    /// Applies `operand` to the value of `key`.
    pub fn merge(&self, engine: &dyn Engine, key: &[u8], operand: &[u8]) -> Result<()> {
        let _guard = self.0[xxh3_64(key) as usize % self.0.len()].lock();
        let mut base = None;
        engine.get(key, &mut |value| base = Some(value.to_vec()))?;
        let value = Patches.full_merge(key, base.as_deref(), &[operand]).map_err(Failure::new)?;
        engine.put(key, &value)
    }
}
