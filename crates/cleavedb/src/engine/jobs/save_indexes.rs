//! Saves the indexes of hash keyspaces in a file, so that the next open reads that and not all of their logs. The checkpoint is
//! fuzzy: writers and the collection of logs go on, and what they change is in logs that are read after it. So a log that
//! the file names may be gone before it is complete, as it may be later (`engine/recovery/indexes.rs`).
//!
//! Due once as much was written to hash keyspaces as would take long to read; a close does the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, FileId, FileKey, FileKind, Result, Seqno};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Look, Offer, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::shortages::Need;
use crate::engine::tuning::sizes::Canary;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::format::edit::Edit;
use crate::format::index_file::{BlockWriter, FORMAT, SavedPlace, append_end};
use crate::hash::place::{Place, PlaceKind};
use crate::hash::store::HashStore;
use crate::io::append::{Appender, WriteBuffer};
use crate::io::file_guard::FileGuard;

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;
/// A clean close leaves no more to read than this part of the indexes.
const CLOSE_PART: u64 = 16;

/// Due while much was written since the indexes were saved; in a thread that does not collect logs, which may be due all the time.
pub(crate) const KIND: JobKind = JobKind { priority: Priority::Garbage, duties: &[Duty::MoreValues], next };

/// Saves all indexes.
struct SaveIndexes;

fn next(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    saving_is_due(core, state, look.now).then(|| JobKind::begin(SaveIndexes)).flatten()
}

/// Much was written since the indexes were saved, and the job may begin.
pub(super) fn saving_is_due(core: &Core, state: &WorkState, now: Duration) -> bool {
    let written = core.hash.unsaved_bytes.load(Ordering::Relaxed);
    written > 0
        && !state.has(Sole::SavedIndexes)
        && state.shortages.may_try(Need::Collection, now)
        && written > core.unsaved_bytes_max()
}

impl Job for SaveIndexes {
    fn profile(&self, core: &Core) -> Profile {
        Profile {
            name: "save indexes",
            claims: Claims::sole(Sole::SavedIndexes),
            binds: Binds::write(core.dirs.slow_tier()),
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Collection,
            meets_need: false,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| match core.save_indexes() {
            Ok(saved) => Ok(saved.outcome()),
            Err(Error::Closed) => Ok(Outcome::nothing()),
            Err(error) => Err(error),
        })))
    }
}

/// A file with all indexes, not yet named by the manifest.
pub(crate) struct SavedIndexes {
    guard: FileGuard,
    /// Up to where logs must be durable before the manifest names it.
    pub until: Seqno,
    pub edit: Edit,
    /// Bytes written to hash keyspaces that it covers.
    covered: u64,
}

impl SavedIndexes {
    fn outcome(self) -> Outcome<'static> {
        let SavedIndexes { guard, until, edit, covered } = self;
        Outcome::edit(until, edit, |_| ()).then(move |core, installed| core.note_saved(guard, covered, installed))
    }
}

impl Core {
    /// Indexes are saved once so many bytes were written to hash keyspaces.
    fn unsaved_bytes_max(&self) -> u64 {
        let tuning = &self.settings.tuning;
        tuning.index_save_bytes.max(tuning.index_save_part * self.keyspaces.index_bytes() as u64)
    }

    /// Saves the indexes at a close, unless there is little to read behind those that are saved.
    pub fn save_indexes_at_close(&self) -> Result<()> {
        let part = self.keyspaces.index_bytes() as u64 / CLOSE_PART;
        if self.hash.unsaved_bytes.load(Ordering::Relaxed) <= part.max(self.settings.tuning.close_flush_bytes) {
            return Ok(());
        }
        self.conclude(self.save_indexes()?.outcome())
    }

    fn note_saved(&self, guard: FileGuard, covered: u64, installed: Result<()>) -> Result<()> {
        if let Err(error) = installed {
            // After any other error the manifest may name it.
            if error.is_transient() {
                guard.mark_obsolete();
            }
            return Err(error);
        }
        let before = self.hash.saved.lock().replace(guard);
        before.into_iter().for_each(|before| before.mark_obsolete());
        self.hash.unsaved_bytes.fetch_sub(covered, Ordering::Relaxed);
        self.hash.saves.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes all indexes into a new file.
    fn save_indexes(&self) -> Result<SavedIndexes> {
        let (covered, from_log) = {
            let _commit = self.commit.lock();
            let view = self.published.view();
            // All records so far lie in these logs; later ones do not lie in logs with lower numbers.
            let newest = view.logs.keys().next_back().or(view.values.state.indexed.last()).copied();
            (self.hash.unsaved_bytes.load(Ordering::Relaxed), newest.unwrap_or_default())
        };
        let key = self.new_file(FileKind::Index, self.dirs.of_new(FileKind::Index))?;
        let guard = self.guard(key);
        let written = self.write_indexes(key);
        let bytes = written.inspect_err(|_| guard.mark_obsolete())?;
        self.background_io.note(bytes);
        let syncs_first = self.settings.tuning.canary != Some(Canary::IndexSavedBeforeSync);
        let until = if syncs_first { self.published.seqno() } else { Seqno::ZERO };
        let edit = Edit { files_added: vec![key], indexes_saved: Some((key.id, from_log)), ..Edit::default() };
        Ok(SavedIndexes { guard, until, edit, covered })
    }

    fn write_indexes(&self, key: FileKey) -> Result<u64> {
        let access = self.readers.slow_access;
        let file = self.with_descriptors(|| self.storage.create(&self.dirs.path(key), access))?;
        let mut writer = IndexWriter {
            buffer: WriteBuffer::new(file.clone(), access, WRITE_BYTES),
            appender: Appender::new(0),
            block: BlockWriter::default(),
            keys: 0,
            saved_bytes: &self.hash.saved_bytes,
            counted: 0,
        };
        writer.appender.pending.extend_from_slice(&FORMAT.encode(key.id));
        for keyspace in self.keyspaces.hashed() {
            let Some(index) = &keyspace.hash else { continue };
            let mut from = Some(0);
            while let Some(hash) = from {
                self.check_poison()?;
                from = self.save_bucket(&keyspace, index, hash, &mut writer)?;
            }
        }
        let bytes = writer.finish()?;
        self.guarded(file.sync())?;
        self.guarded(self.with_descriptors(|| self.storage.sync_dir(self.dirs.of(key.dir))))?;
        Ok(bytes)
    }

    fn save_bucket(
        &self,
        keyspace: &Arc<KeyspaceState>,
        index: &HashStore,
        from: u64,
        writer: &mut IndexWriter<'_>,
    ) -> Result<Option<u64>> {
        let mut chained = Vec::new();
        // Nobody publishes meanwhile, so that chains fit their newest operands.
        let gate = self.hash.gate.read();
        let next = index.scan(from, &mut |key, place| match place.kind {
            PlaceKind::Operand => chained.push(key.to_vec()),
            _ => writer.add(keyspace, key, std::iter::once(place)),
        });
        for key in chained {
            if let Some(records) = index.find(&key, None) {
                let places: Vec<Place> = records.places().collect();
                writer.add(keyspace, &key, places.into_iter());
            }
        }
        drop(gate);
        writer.write_if_full()?;
        Ok(next)
    }
}

/// Writes entries in blocks.
struct IndexWriter<'a> {
    buffer: WriteBuffer,
    appender: Appender,
    block: BlockWriter,
    keys: u64,
    /// Counts bytes as they are written: a save takes long enough to be looked at while it runs.
    saved_bytes: &'a AtomicU64,
    /// Those of this file that were counted.
    counted: u64,
}

impl IndexWriter<'_> {
    fn add(&mut self, keyspace: &KeyspaceState, key: &[u8], places: impl ExactSizeIterator<Item = Place>) {
        self.keys += 1;
        self.block.add(keyspace.record.id, key, places.map(saved), &mut self.appender.pending);
    }

    fn write_if_full(&mut self) -> Result<()> {
        if self.appender.pending.len() >= WRITE_BYTES {
            self.appender.write(&mut self.buffer)?;
            self.count_to(self.appender.end() - self.appender.pending.len() as u64);
        }
        Ok(())
    }

    fn count_to(&mut self, end: u64) {
        self.saved_bytes.fetch_add(end - self.counted, Ordering::Relaxed);
        self.counted = end;
    }

    fn finish(mut self) -> Result<u64> {
        self.block.finish(&mut self.appender.pending);
        append_end(self.keys, &mut self.appender.pending);
        self.appender.finish(&mut self.buffer)?;
        self.buffer.finish()?;
        let bytes = self.appender.end().next_multiple_of(BLOCK_IO_BYTES as u64);
        self.count_to(bytes);
        Ok(bytes)
    }
}

fn saved(place: Place) -> SavedPlace {
    let kind = match place.kind {
        PlaceKind::Value => 0,
        PlaceKind::Tombstone => 1,
        PlaceKind::Operand => 2,
    };
    SavedPlace { kind, file: FileId(place.file.0), offset: place.offset, len: place.len }
}
