//! Writes through to the operand cache (`cache/operand_cache.rs`): what a flush adds to buckets, and what the job that
//! rewrites them leaves. Only keys that are in the cache are looked at.

use std::sync::Arc;

use crate::base::key_versions::KeyVersion;
use crate::base::memory::Counted;
use crate::base::{FileId, Kind, OperatorSource, Seqno, Slice, Stamp, split_key};
use crate::cache::operand_cache::{Added, Flushing, OperandCache, OperandList};
use crate::deltas::directory::Directory;
use crate::engine::core::Core;

/// Passes on the operands and bases of a flush, in the order of its versions.
pub(crate) struct FlushThrough<'a> {
    core: &'a Core,
    directory: &'a Directory,
    flushing: Flushing,
    /// Lists that are cached later are none of this flush's business.
    is_followed: bool,
    /// The current key, and whether it is cached.
    key: Vec<u8>,
    is_cached: bool,
    /// Its operands for the bucket and their segment, and its newest base.
    versions: Vec<KeyVersion>,
    bytes: usize,
    segment: Option<FileId>,
    base: Seqno,
}

impl<'a> FlushThrough<'a> {
    pub fn new(core: &'a Core, directory: &'a Directory) -> FlushThrough<'a> {
        let flushing = core.memory.operands.begin_flush();
        // Asked after the flush has begun: what is inserted from now on does not count on it.
        let is_followed = !core.memory.operands.is_empty();
        FlushThrough {
            core,
            directory,
            flushing,
            is_followed,
            key: Vec::new(),
            is_cached: false,
            versions: Vec::new(),
            bytes: 0,
            segment: None,
            base: Seqno::ZERO,
        }
    }

    /// Begins with a version of the flush; true if its key is cached.
    fn begin(&mut self, key: &[u8]) -> bool {
        if self.is_followed && self.key != key {
            self.end_key();
            self.key.clear();
            self.key.extend_from_slice(key);
            self.is_cached = self.core.memory.operands.holds(key);
        }
        self.is_cached
    }

    /// A version that goes to the tables.
    pub fn passes(&mut self, key: &[u8], stamp: Stamp) {
        if self.is_followed && stamp.kind().is_some_and(Kind::is_base) && self.begin(key) {
            self.base = self.base.max(stamp.seqno());
        }
    }

    /// An operand that goes to a bucket. If the operands of a key are more than a list of the cache may have, its list goes, and
    /// no more of them is copied.
    pub fn adds(&mut self, segment: FileId, key: &[u8], stamp: Stamp, operand: &[u8]) {
        if !self.begin(key) {
            return;
        }
        self.bytes += self.core.memory.operands.bytes_of(operand);
        if self.bytes > self.core.memory.operands.list_bytes_max() {
            self.core.memory.operands.remove(key);
            self.is_cached = false;
            (self.versions, self.bytes, self.base) = (Vec::new(), 0, Seqno::ZERO);
            return;
        }
        self.segment = Some(segment);
        self.versions.push((stamp, Slice::copy_from(operand)));
    }

    fn end_key(&mut self) {
        if !std::mem::take(&mut self.is_cached) {
            return;
        }
        let bucket = self.directory.find(&self.key);
        let segments: Vec<FileId> =
            bucket.iter().flat_map(|bucket| &bucket.extents).map(|extent| extent.segment).collect();
        let (versions, base) = (std::mem::take(&mut self.versions), std::mem::take(&mut self.base));
        self.bytes = 0;
        if let Some((keyspace, user_key)) = split_key(&self.key)
            && (!versions.is_empty() || base > Seqno::ZERO)
        {
            let segment = self.segment.take().unwrap_or_default();
            let added = Added { user_key, segment, versions: &versions, base };
            let operator = self.core.keyspaces.operator(keyspace);
            self.core.memory.operands.add(&self.key, &segments, &added, operator.as_deref());
        }
    }

    /// Ends the last key. The guard is held until the segment is published.
    pub fn finish(mut self) -> Flushing {
        self.end_key();
        self.flushing
    }
}

/// What is left of cached keys whose buckets were rewritten, to be cached once that is published.
pub(crate) struct RewrittenLists {
    operands: Arc<OperandCache>,
    lists: Vec<(Vec<u8>, Vec<KeyVersion>)>,
    memory: Counted,
    bytes_max: usize,
}

impl RewrittenLists {
    /// Keeps lists of at most `bytes_max`; others are read again.
    pub fn new(core: &Core, bytes_max: usize) -> RewrittenLists {
        let memory = core.memory.jobs.hold(0);
        RewrittenLists { operands: core.memory.operands.clone(), lists: Vec::new(), memory, bytes_max }
    }

    /// The versions that are left of a key, newest first.
    pub fn note(&mut self, key: &[u8], kept: &[KeyVersion]) {
        if !self.operands.holds(key) {
            return;
        }
        let bytes = key.len() + kept.iter().map(|(_, payload)| payload.len() + size_of::<KeyVersion>()).sum::<usize>();
        if self.operands.admits(kept) && self.memory.bytes() + bytes <= self.bytes_max {
            self.memory.set(self.memory.bytes() + bytes);
            let copied = kept.iter().map(|(stamp, payload)| (*stamp, Slice::copy_from(payload)));
            self.lists.push((key.to_vec(), copied.collect()));
        }
    }

    /// Caches the lists; all of them are in `segment` now, which is published.
    pub fn publish(self, segment: FileId) {
        for (key, kept) in &self.lists {
            self.operands.replace(key, OperandList::new(segment, Seqno::ZERO, kept));
        }
    }
}
