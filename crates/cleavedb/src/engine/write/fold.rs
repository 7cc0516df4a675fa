//! Folds buckets: writes the values of their keys as new bases, so that the operands are covered and can be dropped. A fold is
//! a conditional put at a fresh sequence number (rule 8): it is refused if the key has changed since its value was read.
//!
//! Called by the job that rewrites buckets, which runs while no flush does. So a fold never waits for room in the front.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::key_versions::{KeyVersion, KeyVersions};
use crate::base::{Cursor, Error, Kind, Result, Seqno, Slice, Stamp, limits, split_key};
use crate::deltas::directory::Bucket;
use crate::engine::batch::Batch;
use crate::engine::buckets::BucketCursor;
use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::layer::collect_versions;
use crate::engine::view::View;
use crate::levels::point_reads::OneKey;
use crate::sched::clock::now;

/// Values of this many bytes are committed together.
const TOGETHER_BYTES: usize = 64 << 10;

/// A value to be put, unless its key has changed.
struct Fold {
    keyspace: Arc<KeyspaceState>,
    full: Vec<u8>,
    value: Slice,
}

impl Core {
    /// Folds all keys of neighbouring buckets that can be folded now. False if writers wait for room, so that it should be
    /// tried again.
    pub fn fold_buckets(&self, buckets: &[Arc<Bucket>]) -> Result<bool> {
        let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return Ok(true) };
        let (view, seen) = self.published.read();
        let Some(source) = view.buckets() else { return Ok(true) };
        let mut cursor = BucketCursor::new(source.clone(), false).until(last);
        cursor.seek(&first.lower, Stamp::NEWEST)?;
        let (mut folds, mut bytes) = (Vec::new(), 0);
        while cursor.valid() && last.ends_after(cursor.key()) {
            let (key, versions) = cursor.take_key()?;
            if let Some(fold) = self.fold_of(&view, key, &versions, seen) {
                bytes += fold.value.len();
                folds.push(fold);
            }
            if bytes >= TOGETHER_BYTES && !self.write_folds(&std::mem::take(&mut folds), seen)? {
                return Ok(false);
            }
            bytes = if folds.is_empty() { 0 } else { bytes };
        }
        self.write_folds(&folds, seen)
    }

    /// The value of a key with these versions in its bucket. `None` if they are all covered, or cannot be merged.
    fn fold_of(&self, view: &View, key: Vec<u8>, versions: &[KeyVersion], seen: Seqno) -> Option<Fold> {
        let keyspace = self.keyspaces.with_id(split_key(&key)?.0)?;
        let mut found = KeyVersions::default();
        collect_versions(view.layers(), &key, seen, &mut OneKey::default(), &mut found).ok()?;
        let is_live = versions.iter().any(|(stamp, _)| {
            let is_base = found.base().is_some_and(|(base, _)| base == stamp);
            is_base || found.deltas().iter().any(|(delta, _)| delta == stamp)
        });
        let value = if is_live { self.value_of(view, &keyspace, &key, &found, None).ok()?? } else { return None };
        (value.len() < limits::VALUE_BYTES_LIMIT).then_some(Fold { keyspace, full: key, value })
    }

    /// Puts values whose keys have not changed since `seen`. False if writers have to wait.
    fn write_folds(&self, folds: &[Fold], seen: Seqno) -> Result<bool> {
        if folds.is_empty() {
            return Ok(true);
        }
        let bytes = folds.iter().map(|fold| fold.full.len() + fold.value.len()).sum::<usize>();
        match self.wait_for_room(bytes as u64, Some(now())).and_then(|()| self.commit_folds(folds, seen)) {
            Err(Error::WouldStall) => Ok(false),
            // The keyspace was dropped, or the database closes, or is full: the operands stay until something changes.
            Ok(())
            | Err(Error::NotFound { .. } | Error::Closed | Error::NoSpace { .. } | Error::InvalidInput { .. }) => {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn commit_folds(&self, folds: &[Fold], seen: Seqno) -> Result<()> {
        let mut commit = self.commit.lock();
        self.check_open()?;
        self.check_poison()?;
        // Nothing is added while the lock is held.
        let view = self.published.view();
        let mut batch = Batch::default();
        for fold in folds {
            let Some((_, key)) = split_key(&fold.full) else { continue };
            // A layer that cannot be read refuses the fold; its readers report why.
            match has_changed(&view, &fold.full, seen).unwrap_or(true) {
                true => drop(self.counters.folds_refused.fetch_add(1, Ordering::Relaxed)),
                false => batch.push(&fold.keyspace, Kind::Put, key, &fold.value),
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        batch.check(self.database)?;
        self.append_guarded(&mut commit, &[&batch])?;
        self.counters.folds.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// True if a layer has a version of the key newer than `seen`, or a range tombstone that covers it. Layers without anything so
/// new are not read; flushes wait for the job, so only an ingest adds tables with newer versions.
fn has_changed(view: &View, key: &[u8], seen: Seqno) -> Result<bool> {
    for layer in view.layers() {
        if layer.interval().is_none_or(|(_, last)| last <= seen) {
            continue;
        }
        let mut versions = KeyVersions::default();
        collect_versions(std::slice::from_ref(layer), key, Seqno::MAX, &mut OneKey::default(), &mut versions)?;
        let newest = versions.deltas().first().map_or(Seqno::ZERO, |(stamp, _)| stamp.seqno());
        if newest.max(versions.base_seqno()) > seen {
            return Ok(true);
        }
    }
    Ok(false)
}
