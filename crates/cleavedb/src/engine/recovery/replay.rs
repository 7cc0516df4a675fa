//! Recovery of the front: replays the logs from the watermark on into index tables (rule 3).
//!
//! Reading stops at the first gap in history; all later records are dropped, so that a prefix remains that holds every
//! `Sync` write. A gap before a frame that says it was synced is damage, and is reported instead of cut. Before
//! anything new is written, frames found only in the ring are written to their log, the logs are synced, and the cut is
//! committed; after a crash in between, recovery repeats this.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::base::limits::SEPARATION_BYTES_DEFAULT;
use crate::base::{DirId, Error, FileId, KeyspaceId, Result, Seqno};
use crate::device::is_device_path;
use crate::engine::manifest::ManifestState;
use crate::engine::manifest::file_names::RING;
use crate::engine::manifest::files::Dirs;
use crate::engine::recovery::device_frames::{FoundFrames, Tier};
use crate::engine::recovery::found_records::FoundInLogs;
use crate::engine::recovery::indexes::{FoundIndexes, find_indexes};
use crate::engine::tuning::sizes::Tuning;
use crate::format::edit::Edit;
use crate::format::frame::{FrameHeader, FrameKind, HEADER_BYTES, LOG_HEADER_BYTES};
use crate::format::keyspace_record::{KeyspaceKind, KeyspaceRecord};
use crate::format::record::Record;
use crate::format::references::References;
use crate::format::values::ValuePlace;
use crate::format::watermarks::{Consumer, Watermarks};
use crate::front::index_table::{IndexTable, RecordPlace, SeparationThresholds};
use crate::front::log::LogFile;
use crate::front::log_reader::{LogReader, Opened};
use crate::hash::store::HashStore;
use crate::io::file_guard::FileGuard;
use crate::io::pending_deletions::PendingDeletions;
use crate::io::split_file::SplitFile;
use crate::io::{File, Mapping, MappingImage, Storage, read_whole};
use crate::levels::readers::Readers;

/// Frames are rewritten in writes of about this size.
pub(super) const REWRITE_BYTES: usize = 1 << 20;

/// The result of the replay.
pub(crate) struct Recovered {
    /// The newest table takes new writes; the others are full. Newest first.
    pub tables: Vec<Arc<IndexTable>>,
    /// Logs that tables reference.
    pub logs: BTreeMap<FileId, Arc<LogFile>>,
    /// The end of history.
    pub last_seqno: Seqno,
    /// The indexes of hash keyspaces.
    pub indexes: BTreeMap<KeyspaceId, Arc<HashStore>>,
    /// The edit to commit before the first write; `None` after a clean close.
    pub edit: Option<Edit>,
}

/// The contents of the ring's file, if it exists; a link or directory of that name is not ours.
pub(crate) fn read_ring(storage: &dyn Storage, fast: &Path) -> Result<Option<Vec<u8>>> {
    match storage.list(fast)?.iter().any(|entry| entry.name == RING && entry.is_file) {
        true => read_whole(storage, &fast.join(RING)).map(Some),
        false => Ok(None),
    }
}

/// Replays the logs that the manifest references.
pub(crate) fn recover(
    storage: &dyn Storage,
    dirs: &Dirs,
    state: &ManifestState,
    tuning: &Tuning,
    pending_deletions: &Arc<PendingDeletions>,
    readers: &Readers,
    read_only: bool,
) -> Result<Recovered> {
    let unsettled = state.logs.values().any(|end| end.is_none());
    let ring = if unsettled { read_ring(storage, dirs.fast())? } else { None };
    let separation = |keyspace: &KeyspaceRecord| keyspace.separation.bytes(tuning.separation_bytes);
    let known = |keyspace: &KeyspaceRecord| (keyspace.id, (keyspace.kind, separation(keyspace)));
    let keyspaces: BTreeMap<_, _> = state.keyspaces.values().map(known).collect();
    let separations = keyspaces.values().map(|(_, separation)| *separation);
    let in_front = separations.min().unwrap_or(usize::MAX).min(SEPARATION_BYTES_DEFAULT);
    let found = find_indexes(readers, dirs, state, tuning.hash_spread);
    let mut replay = Replay {
        tuning,
        watermarks: &state.watermarks,
        consumed: state.watermarks.least(),
        expected: state.watermarks.least().next(),
        durable: Seqno::ZERO,
        cut: false,
        tables: vec![Arc::new(IndexTable::new())],
        logs: BTreeMap::new(),
        edit: Edit::default(),
        read_only,
        tier: Tier { storage, dirs, readers, pending_deletions },
        referenced: &state.values.referenced,
        logs_whole: &state.logs_whole,
        in_front,
        keyspaces,
        found_in_logs: FoundInLogs::new(&found.indexes, found.were_saved, tuning.hash_found_bytes),
        found,
    };
    replay.index_logs_before_front(readers, dirs, state)?;
    let image = ring.clone().filter(|ring| read_only && !ring.is_empty());
    let image = image.map(|ring| Arc::new(MappingImage::new(ring)) as Arc<dyn Mapping>);
    replay.durable = state.last_seqno;
    for (&id, &end) in &state.logs {
        let key = state.file(id);
        let path = dirs.path(key);
        if !storage.exists(&path)? {
            return Err(Error::corruption(&path, 0, "the manifest references this log, but it is missing"));
        }
        let repairs = end.is_none() && !read_only;
        let file = open_log(storage, readers, &path, key.dir, repairs)?;
        let in_order = readers.in_order(file.clone(), key.dir);
        let guard = FileGuard::new(key, path, pending_deletions.clone());
        let ring = ring.as_deref().filter(|ring| !ring.is_empty());
        replay.log(id, end, &*in_order, (file, guard), ring, image.clone())?;
    }
    let last_seqno = Seqno(replay.expected.0 - 1).max(state.watermarks.greatest());
    if last_seqno < state.last_seqno {
        let message = format!(
            "history ends at {}, but {} was durable: a log is damaged or cut",
            last_seqno.0, state.last_seqno.0
        );
        return Err(Error::corruption(dirs.fast(), 0, message));
    }
    replay.found_in_logs.end();
    replay.edit.last_seqno = Some(last_seqno);
    replay.tables.reverse();
    Ok(Recovered {
        tables: replay.tables,
        logs: replay.logs,
        last_seqno,
        indexes: replay.found.indexes,
        edit: unsettled.then_some(replay.edit),
    })
}

/// A log, to be read and perhaps repaired. Repairs go through the page cache, since frames are no whole blocks; it is read
/// as other files of its directory are, and on the fast tier through the page cache if it is repaired, which may have more of
/// it than storage.
pub(super) fn open_log(
    storage: &dyn Storage,
    readers: &Readers,
    path: &Path,
    dir: DirId,
    repairs: bool,
) -> Result<Arc<dyn File>> {
    let open_read = || storage.open_read(path, readers.access_in(dir));
    match repairs {
        false => open_read(),
        true if dir == DirId::HOME => storage.open(path),
        true => Ok(Arc::new(SplitFile::new(open_read()?, storage.open(path)?))),
    }
}

struct Replay<'a> {
    tuning: &'a Tuning,
    watermarks: &'a Watermarks,
    /// The lowest of these watermarks.
    consumed: Seqno,
    /// The next sequence number of history.
    expected: Seqno,
    /// Known to be on storage, not only in the page cache.
    durable: Seqno,
    /// History has ended; later frames are only checked for sync marks.
    cut: bool,
    tables: Vec<Arc<IndexTable>>,
    logs: BTreeMap<FileId, Arc<LogFile>>,
    edit: Edit,
    /// The records that tables reference.
    referenced: &'a References,
    /// Up to where logs must be whole although consumers have got further.
    logs_whole: &'a BTreeMap<FileId, u64>,
    /// Values of at least this size are not stored in index tables.
    in_front: usize,
    /// The kind of each keyspace, and from which size on its values are separated for good.
    keyspaces: BTreeMap<KeyspaceId, (KeyspaceKind, usize)>,
    /// The index of each hash keyspace.
    found: FoundIndexes,
    /// What is to be put into them.
    found_in_logs: FoundInLogs,
    /// Nothing is written: what only the ring has is read from a copy of it.
    read_only: bool,
    /// Where logs of a full device go.
    tier: Tier<'a>,
}

/// Frames to be rewritten to the file; adjacent ones in one write.
#[derive(Default)]
pub(super) struct Rewrite {
    offset: u64,
    bytes: Vec<u8>,
}

impl Rewrite {
    pub fn add(&mut self, file: &dyn File, offset: u64, frame: &[u8]) -> Result<()> {
        if offset != self.offset + self.bytes.len() as u64 || self.bytes.len() + frame.len() > REWRITE_BYTES {
            self.flush(file)?;
            self.offset = offset;
        }
        self.bytes.extend_from_slice(frame);
        Ok(())
    }

    pub fn flush(&mut self, file: &dyn File) -> Result<()> {
        if !self.bytes.is_empty() {
            file.write_at(&self.bytes, self.offset)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// How far one log was read.
struct LogEnd {
    /// The end of the last frame that belongs to history.
    offset: u64,
    last_seqno: Seqno,
    /// A consumer still needs a record of it.
    is_needed: bool,
    /// If nothing is written back: frames from here on may exist only in the ring.
    ring_from: Option<u64>,
    /// Frames of a log on a device that may exist only in the ring.
    to_store: FoundFrames,
}

impl Replay<'_> {
    fn log(
        &mut self,
        id: FileId,
        settled_end: Option<u64>,
        in_order: &dyn File,
        (file, guard): (Arc<dyn File>, FileGuard),
        ring: Option<&[u8]>,
        image: Option<Arc<dyn Mapping>>,
    ) -> Result<()> {
        let end = self.frames(id, settled_end, in_order, ring)?;
        let (mut file, mut guard) = (file, guard);
        let referenced = self.referenced.of(id);
        if referenced.end > end.offset {
            // Records that tables reference were durable before the tables.
            let message = format!("a frame is damaged; tables reference records of this log up to {}", referenced.end);
            return Err(Error::corruption(file.path(), end.offset, message));
        }
        let whole = self.logs_whole.get(&id).copied().filter(|_| !self.found.indexes.is_empty()).unwrap_or_default();
        if whole > end.offset {
            let message =
                format!("a frame is damaged; writes to hash keyspaces were durable in this log up to {whole}");
            return Err(Error::corruption(file.path(), end.offset, message));
        }
        if settled_end.is_none() {
            if end.is_needed || referenced.records > 0 {
                let moved = end.to_store.store(&self.tier, &file, guard.key(), end.offset)?;
                if let Some((key, on_tier)) = moved {
                    (file, guard) = (on_tier, self.tier.guard(key));
                    self.edit.files_moved.push(key);
                }
            }
            if end.is_needed {
                if !self.read_only {
                    file.sync()?;
                }
                self.edit.logs_ended.push((id, end.offset));
            } else if referenced.records > 0 && !self.read_only {
                // The log stays for its values, although no record of it is replayed. If the space after them cannot be
                // freed, it stays reserved.
                let _ = file.truncate(end.offset);
                file.sync()?;
                self.edit.values_placed.push((id, ValuePlace::Log { end: end.offset }));
                return Ok(());
            } else if referenced.records == 0 {
                self.edit.logs_removed.push(id);
                return Ok(());
            }
        }
        let image = image.filter(|_| settled_end.is_none());
        let log = LogFile::new(id, guard, file, image, end.offset, end.offset, end.last_seqno);
        if let Some(from) = end.ring_from {
            log.set_written(from);
        }
        self.logs.insert(id, Arc::new(log));
        Ok(())
    }

    /// Reads the frames of one log, and rewrites those that may not be on storage: frames found only in the ring, and
    /// frames that may exist only in the page cache (after a failed sync it returns bytes that no later sync would
    /// write). A device has no page cache: a sync covers what it returns. Its frames are stored once the log is known to be needed.
    fn frames(&mut self, id: FileId, settled_end: Option<u64>, file: &dyn File, ring: Option<&[u8]>) -> Result<LogEnd> {
        let mut end = LogEnd {
            offset: LOG_HEADER_BYTES as u64,
            last_seqno: Seqno::ZERO,
            is_needed: false,
            ring_from: None,
            to_store: FoundFrames::default(),
        };
        let ring = if settled_end.is_some() { None } else { ring };
        let mut rewrite = Rewrite::default();
        let Opened::Log(mut reader) = LogReader::open(file, id, ring)? else {
            return Err(Error::corruption(file.path(), 0, "the log has no header"));
        };
        let is_cached = !is_device_path(file.path());
        while settled_end.is_none_or(|end| reader.offset() < end) {
            let Some(frame) = reader.next_frame()? else { break };
            let (header, offset, from_ring) = (frame.header, frame.offset, frame.from_ring);
            if self.belongs(file.path(), &header, offset)? {
                self.durable = self.durable.max(header.sync_point);
                if header.kind == FrameKind::Records {
                    end.last_seqno = Seqno(header.first_seqno.0 + header.count as u64 - 1);
                    let is_new = end.last_seqno > self.consumed;
                    if is_new || !self.found.indexes.is_empty() {
                        end.is_needed |= self.replay(id, offset, frame.body) || is_new;
                    }
                    if is_new {
                        self.expected = end.last_seqno.next();
                    }
                }
                end.offset = offset + header.frame_bytes();
                let doubtful = header.kind == FrameKind::Padding || end.last_seqno > self.durable;
                if self.read_only {
                    end.ring_from = end.ring_from.or(from_ring.then_some(offset));
                } else if from_ring && !is_cached {
                    end.to_store.add(offset, reader.frame_bytes(offset, &header));
                } else if from_ring || (settled_end.is_none() && doubtful && is_cached) {
                    rewrite.add(file, offset, &reader.frame_bytes(offset, &header))?;
                }
            }
        }
        rewrite.flush(file)?;
        self.check_end(&mut reader, settled_end, file.path())?;
        Ok(end)
    }

    /// True if the frame continues history. A frame after a gap must not say that a lost frame was durable.
    fn belongs(&mut self, path: &Path, header: &FrameHeader, offset: u64) -> Result<bool> {
        let follows = header.first_seqno == self.expected || header.first_seqno <= self.consumed;
        if header.kind == FrameKind::Records && !follows {
            self.cut = true;
        }
        if self.cut && header.sync_point >= self.expected {
            return Err(self.lost(path, offset));
        }
        Ok(!self.cut)
    }

    fn lost(&self, path: &Path, offset: u64) -> Error {
        let message =
            format!("a frame here says that write {} was durable, but it is damaged or gone", self.expected.0);
        Error::corruption(path, offset, message)
    }

    fn check_end(&self, reader: &mut LogReader<'_>, settled_end: Option<u64>, path: &Path) -> Result<()> {
        let offset = reader.offset();
        match settled_end {
            Some(end) if offset != end => {
                let message = format!("a frame is damaged; the log is whole up to {end}");
                Err(Error::corruption(path, offset, message))
            }
            Some(_) if self.cut => Err(Error::corruption(path, 0, "an earlier log has lost its end")),
            Some(_) => Ok(()),
            None => match reader.find_sync_mark(self.expected)? {
                Some(mark) => Err(self.lost(path, mark)),
                None => Ok(()),
            },
        }
    }

    /// Passes each record of a frame to its consumer, unless it is at or below that consumer's watermark; true if some
    /// belong to hash keyspaces.
    fn replay(&mut self, log: FileId, frame_offset: u64, mut body: &[u8]) -> bool {
        let mut has_hashed = false;
        let mut place = RecordPlace { log, offset: frame_offset + HEADER_BYTES as u64 };
        let table = self.tables.last().expect("there is always a table to fill").clone();
        let mut inserter = table.insert();
        while let Ok(record) = Record::take(&mut body) {
            // What is left of a dropped keyspace goes where the versions of ordered ones go, which drops it.
            let known = self.keyspaces.get(&record.operation.keyspace).copied();
            let (kind, after_flush) = known.unwrap_or((KeyspaceKind::Ordered, usize::MAX));
            let len = record.operation.record_bytes();
            match kind {
                KeyspaceKind::Hash => {
                    if log >= self.found.from_log {
                        self.found_in_logs.add(&record, log, place.offset);
                    }
                    has_hashed = true;
                    place.offset += len as u64;
                }
                KeyspaceKind::Ordered if record.seqno <= self.watermarks.of(Consumer::Levels) => {
                    place.offset += len as u64;
                }
                KeyspaceKind::Ordered => {
                    let apart = SeparationThresholds { in_front: self.in_front, after_flush };
                    inserter.add_record(&record.operation, record.seqno, &mut place, apart);
                }
            }
        }
        drop(inserter);
        if self.tuning.is_full(&table) {
            self.tables.push(Arc::new(IndexTable::new()));
        }
        has_hashed
    }

    /// Puts the records of hash keyspaces into their indexes that lie in logs which have left the front.
    fn index_logs_before_front(&mut self, readers: &Readers, dirs: &Dirs, state: &ManifestState) -> Result<()> {
        if self.found.indexes.is_empty() {
            return Ok(());
        }
        for &id in state.values.indexed.range(self.found.from_log..) {
            let Some(ValuePlace::Log { end }) = state.values.places.get(&id) else { continue };
            let key = state.file(id);
            let file = readers.open_in_order(&dirs.path(key), key.dir)?;
            let Opened::Log(mut reader) = LogReader::open(&*file, id, None)? else {
                return Err(Error::corruption(file.path(), 0, "the log has no header"));
            };
            while reader.offset() < *end {
                let at = reader.offset();
                let Some(frame) = reader.next_frame()? else {
                    let message = format!("a frame is damaged; hash indexes reference records up to {end}");
                    return Err(Error::corruption(file.path(), at, message));
                };
                if frame.header.kind != FrameKind::Records {
                    continue;
                }
                let (mut body, mut offset) = (frame.body, frame.offset + HEADER_BYTES as u64);
                while let Ok(record) = Record::take(&mut body) {
                    self.found_in_logs.add(&record, id, offset);
                    offset += record.operation.record_bytes() as u64;
                }
            }
        }
        Ok(())
    }
}
