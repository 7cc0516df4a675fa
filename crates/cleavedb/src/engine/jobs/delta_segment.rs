//! Writes a delta segment: one file in the format of tables, with an extent for each bucket that gets some of it. Called by
//! flushes, which route merge operands here, and by the job that rewrites buckets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::memory::Counted;
use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Error, FileId, FileKey, FileKind, KeyspaceId, Kind, Result, Stamp, split_key};
use crate::cache::operand_cache::Flushing;
use crate::deltas::crowds::CrowdCount;
use crate::deltas::directory::{Change, Directory};
use crate::deltas::policy::Filling;
use crate::engine::core::Core;
use crate::engine::jobs::write_through::FlushThrough;
use crate::engine::tuning::sizes::{SEGMENT_PAGE_BYTES, SEGMENT_WRITE_BYTES};
use crate::format::buckets::{Extent, SEGMENT_LEVEL};
use crate::format::edit::Edit;
use crate::format::keyspace_record::DeltaPlacement;
use crate::levels::builder::{TableBuilder, TableOptions};
use crate::levels::table::Table;

/// A segment that was written and synced, and what lies in it.
pub(crate) struct Segment {
    pub table: Arc<Table>,
    /// The extents by the lower bounds of their buckets, in the order of keys.
    pub extents: Vec<(Vec<u8>, Extent)>,
}

impl Segment {
    /// Adds the file to an edit; its buckets are set by [`change_directory`].
    pub fn add_to(&self, edit: &mut Edit) {
        edit.files_added.push(self.table.key());
        edit.tables_added.push((SEGMENT_LEVEL, self.table.meta().clone()));
    }
}

/// Adds a change of buckets to an edit.
pub(crate) fn change_directory(edit: &mut Edit, change: &Change) {
    edit.buckets_removed.extend(change.removed.iter().cloned());
    edit.buckets_set.extend(change.set.iter().cloned());
}

/// Collects versions in the order of cursors. The file is made with the first one, and removed unless it is finished.
pub(crate) struct SegmentWriter<'a> {
    core: &'a Core,
    open: Option<OpenSegment>,
    extents: Vec<(Vec<u8>, Extent)>,
}

struct OpenSegment {
    builder: TableBuilder,
    key: FileKey,
    path: PathBuf,
    keyspace: Option<KeyspaceId>,
    _memory: Counted,
}

impl<'a> SegmentWriter<'a> {
    pub fn new(core: &'a Core) -> SegmentWriter<'a> {
        SegmentWriter { core, open: None, extents: Vec::new() }
    }

    fn open(&self) -> Result<OpenSegment> {
        let (core, settings) = (self.core, &self.core.settings);
        let key = core.new_file(FileKind::Table, core.dirs.of_new(FileKind::Table))?;
        let options = TableOptions {
            block_size: settings.block_size.min(SEGMENT_PAGE_BYTES),
            filter_bits: settings.filter_bits,
            compression: settings.compression_at(0),
            write_bytes: settings.tuning.write_bytes.min(SEGMENT_WRITE_BYTES),
            access: core.readers.access_in(key.dir),
        };
        let bytes = TableOptions::builder_bytes(options.block_size, options.filter_bits, options.write_bytes);
        let memory = core.memory.jobs.hold(bytes);
        let path = core.dirs.path(key);
        let builder = TableBuilder::create(&*core.storage, &path, key.id, options)?;
        Ok(OpenSegment { builder, key, path, keyspace: None, _memory: memory })
    }

    /// Adds a version to the extent of the bucket that begins at `lower`. Returns the segment.
    pub fn add(&mut self, lower: &[u8], key: &[u8], stamp: Stamp, payload: &[u8]) -> Result<FileId> {
        if self.open.is_none() {
            self.open = Some(self.open()?);
        }
        let open = self.open.as_mut().expect("a segment was opened just now");
        let keyspace = split_key(key).map(|(keyspace, _)| keyspace);
        if keyspace != open.keyspace {
            open.keyspace = keyspace;
            let chosen = keyspace.and_then(|keyspace| self.core.keyspaces.compression(keyspace));
            open.builder.set_compression(chosen.unwrap_or(self.core.settings.compression_at(0)))?;
        }
        open.builder.add(key, stamp, payload)?;
        let (segment, bytes, seqno) = (open.key.id, (key.len() + payload.len()) as u64, stamp.seqno());
        match self.extents.last_mut().filter(|(last, _)| last == lower) {
            Some((_, extent)) => {
                extent.entries += 1;
                extent.bytes += bytes;
                extent.seqno_min = extent.seqno_min.min(seqno);
                extent.seqno_max = extent.seqno_max.max(seqno);
            }
            None => {
                let extent = Extent { segment, entries: 1, bytes, seqno_min: seqno, seqno_max: seqno };
                self.extents.push((lower.to_vec(), extent));
            }
        }
        Ok(segment)
    }

    /// Syncs the file and its directory entry, and opens it. `None` if nothing was added.
    pub fn finish(mut self) -> Result<Option<Segment>> {
        let Some(OpenSegment { builder, key, path, .. }) = self.open.take() else { return Ok(None) };
        let core = self.core;
        let opened = builder.finish().and_then(|meta| {
            core.guarded(core.with_descriptors(|| core.storage.sync_dir(core.dirs.of(key.dir))))?;
            Table::open(&core.readers, core.guard(key), meta)
        });
        let table = opened.inspect_err(|_| core.remove_file(&path))?;
        core.counters.table_bytes.fetch_add(table.meta().size, Ordering::Relaxed);
        Ok(Some(Segment { table, extents: std::mem::take(&mut self.extents) }))
    }
}

impl Drop for SegmentWriter<'_> {
    /// The error that led here is the one to report. A file that cannot be removed now is removed by the next open.
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let path = open.path.clone();
            drop(open);
            self.core.remove_file(&path);
        }
    }
}

/// What a flush has written to buckets.
pub(crate) struct FlushedOperands {
    /// `None` if no operand was for a bucket.
    pub segment: Option<Segment>,
    /// The buckets that got many operands of one key, with their number.
    pub crowds: Vec<(Vec<u8>, usize)>,
    /// Held until the segment is published.
    pub flushing: Flushing,
}

/// The stream of versions of a flush without the operands that belong in buckets, which go to a segment.
///
/// An operand goes to a bucket if its keyspace asks for that. It also does if the bucket of its key has others: so all
/// operands of a key that are not in buckets are older than those that are, and compactions may merge them.
pub(crate) struct BucketRoute<'a, S> {
    source: S,
    writer: SegmentWriter<'a>,
    filling: Filling<'a>,
    directory: &'a Directory,
    through: FlushThrough<'a>,
    crowds: CrowdCount,
    /// The last keyspace, and whether it asks for buckets.
    keyspace: Option<(KeyspaceId, bool)>,
}

impl<'a, S> BucketRoute<'a, S> {
    pub fn new(core: &'a Core, source: S, directory: &'a Directory) -> BucketRoute<'a, S> {
        let filling = Filling::new(directory, core.settings.tuning.bucket_sizes());
        let (writer, through) = (SegmentWriter::new(core), FlushThrough::new(core, directory));
        BucketRoute { source, writer, filling, directory, through, crowds: CrowdCount::default(), keyspace: None }
    }

    fn is_for_bucket(&mut self, key: &[u8]) -> bool {
        let Some((keyspace, _)) = split_key(key) else { return false };
        let asks = match self.keyspace {
            Some((known, asks)) if known == keyspace => asks,
            _ => {
                let asks = self.writer.core.keyspaces.delta_placement(keyspace) == DeltaPlacement::Buckets;
                self.keyspace.insert((keyspace, asks)).1
            }
        };
        asks || self.directory.find(key).is_some_and(|bucket| !bucket.extents.is_empty())
    }

    /// Ends the segment.
    pub fn finish(self) -> Result<FlushedOperands> {
        let flushing = self.through.finish();
        Ok(FlushedOperands { segment: self.writer.finish()?, crowds: self.crowds.finish(), flushing })
    }
}

impl<S: VersionSource> VersionSource for BucketRoute<'_, S> {
    type Error = S::Error;

    fn advance(&mut self) -> Result<bool, S::Error> {
        while self.source.advance()? {
            let (key, stamp, _) = self.source.current();
            if stamp.kind() != Some(Kind::Delta) {
                self.through.passes(key, stamp);
                return Ok(true);
            }
            // The borrow of the source ends before the decision, which takes all of `self`.
            let key = key.to_vec();
            if !self.is_for_bucket(&key) {
                return Ok(true);
            }
            let (_, stamp, payload) = self.source.current();
            let lower = self.filling.bucket_of(&key, payload.len() as u64);
            let segment = self.writer.add(lower, &key, stamp, payload)?;
            self.crowds.note(lower, &key);
            self.through.adds(segment, &key, stamp, payload);
        }
        Ok(false)
    }

    fn current(&self) -> VersionRef<'_> {
        self.source.current()
    }
}

/// The buckets after a flush: each extent is the newest of its bucket.
pub(crate) fn with_newest(directory: &Directory, extents: &[(Vec<u8>, Extent)]) -> Change {
    let set = extents.iter().map(|(lower, newest)| {
        let before = directory.find(lower).filter(|bucket| bucket.lower == *lower);
        let older = before.into_iter().flat_map(|bucket| bucket.extents.iter().copied());
        (lower.clone(), std::iter::once(*newest).chain(older).collect())
    });
    Change { removed: Vec::new(), set: set.collect() }
}

/// Removes a segment whose edit was never begun; after any other error the edit may be on storage, so it stays.
pub(crate) fn discard_rejected_segment(error: &Error, segment: Option<&Segment>) {
    if let Some(segment) = segment.filter(|_| error.is_transient()) {
        segment.table.mark_obsolete();
    }
}
