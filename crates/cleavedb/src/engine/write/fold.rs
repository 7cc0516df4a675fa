//! Folds buckets: writes the values of their keys as new bases, so that the operands are covered and can be dropped. A fold is
//! a conditional put at a fresh sequence number (rule 8): it is refused if the key has changed since its value was read.
//!
//! Called by the job that rewrites buckets, which runs while no flush does. So a fold never waits for room in the front.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::key_versions::{KeyVersion, KeyVersions};
use crate::base::{Error, Kind, Result, Seqno, Slice, limits, split_key};
use crate::deltas::directory::Bucket;
use crate::engine::batch::Batch;
use crate::engine::bucket_window::BucketWindows;
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
    /// tried again. Keys are looked up, and values read, for many keys together.
    pub fn fold_buckets(&self, buckets: &[Arc<Bucket>]) -> Result<bool> {
        let (view, seen) = self.published.read();
        let Some(source) = view.buckets() else { return Ok(true) };
        let windows = BucketWindows::over(source, buckets, &self.memory.jobs)?;
        let Some(mut windows) = windows else { return Ok(true) };
        let mut memory = self.memory.jobs.hold(0);
        while windows.advance()? {
            let keys = windows.keys.iter().map(|(key, _)| &key[..]);
            let found = self.collect_many(view.layers(), keys, seen);
            let mut live: Vec<(Vec<u8>, KeyVersions)> = windows.keys.drain(..).zip(found).filter_map(live).collect();
            // The values that the operands apply to are read together, for as many keys as are committed together.
            while !live.is_empty() {
                let mut bytes = 0;
                let fits = live.iter().take_while(|(_, versions)| {
                    bytes += versions.bytes();
                    bytes <= TOGETHER_BYTES
                });
                let count = fits.count().max(1);
                let mut some: Vec<_> = live.drain(..count).collect();
                memory.set(2 * bytes);
                let separated = some.iter_mut().flat_map(|(key, versions)| {
                    let key = &key[..];
                    versions.separated().map(move |version| (key, version))
                });
                self.fetch_together(&view, separated, false, None);
                let folds = some.into_iter().filter_map(|(key, versions)| self.fold_of(&view, key, &versions));
                if !self.write_folds(&folds.collect::<Vec<_>>(), seen)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The value of a key. `None` if its operands cannot be merged.
    fn fold_of(&self, view: &View, key: Vec<u8>, versions: &KeyVersions) -> Option<Fold> {
        let keyspace = self.keyspaces.with_id(split_key(&key)?.0)?;
        let value = self.value_of(view, &keyspace, &key, versions, None).ok()??;
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
        let (mut batch, mut refused) = (Batch::default(), Vec::new());
        for fold in folds {
            let Some((_, key)) = split_key(&fold.full) else { continue };
            // A layer that cannot be read refuses the fold; its readers report why.
            match has_changed(&view, &fold.full, seen).unwrap_or(true) {
                true => refused.push(&fold.full[..]),
                false => batch.push(&fold.keyspace, Kind::Put, key, &fold.value),
            }
        }
        self.counters.folds_refused.fetch_add(refused.len() as u64, Ordering::Relaxed);
        self.upkeep.lock().note_refused(&refused);
        if batch.is_empty() {
            return Ok(());
        }
        batch.check(self.database)?;
        self.append_guarded(&mut commit, &[&batch])?;
        self.counters.folds.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let mut memory = self.upkeep.lock();
        folds.iter().filter(|fold| !refused.contains(&&fold.full[..])).for_each(|fold| memory.note_folded(&fold.full));
        Ok(())
    }
}

/// A key with what all layers hold of it, unless all of its versions in its bucket are covered.
fn live(
    ((key, in_bucket), found): ((Vec<u8>, Vec<KeyVersion>), Result<KeyVersions>),
) -> Option<(Vec<u8>, KeyVersions)> {
    let found = found.ok()?;
    let is_live = in_bucket.iter().any(|(stamp, _)| {
        let is_base = found.base().is_some_and(|(base, _)| base == stamp);
        is_base || found.deltas().iter().any(|(delta, _)| delta == stamp)
    });
    is_live.then_some((key, found))
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
