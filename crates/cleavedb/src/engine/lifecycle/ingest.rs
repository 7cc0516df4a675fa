//! Ingest: sorted pairs are written directly into tables, bypassing log, index table and runs.
//!
//! The tables are written and synced while other threads read and write; their versions have no sequence number yet
//! (the file says 0). Then the front is flushed, so that no older version in it is searched before the ingested ones
//! (rule 1). In one step under the commit lock, the ingest gets the next sequence number, an edit adds its tables with
//! that number, and the view shows them. The edit also records that everything up to that number is in tables: the log
//! has no record of the number, so recovery must not expect one. If writers keep refilling the front before that step,
//! they wait for the length of one flush.
//!
//! Each table is placed in the lowest level that it can reach without passing a table that overlaps it; if there is
//! none, in HL0.
//!
//! Hash keyspaces have no tables: an ingest there is a sequence of batches, each of which is atomic.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::panics::guard_panic;
use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Cursor, Error, FileId, Kind, Result, Stamp, limits};
use crate::engine::batch::Batch;
use crate::engine::claims::{Claim, Claims};
use crate::engine::commit_queue::CommitState;
use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::tuning::settings::{Durability, WriteOptions};
use crate::engine::work::WorkState;
use crate::engine::write::pacing::Gate;
use crate::format::edit::Edit;
use crate::format::keyspace_record::KeyspaceKind;
use crate::format::watermarks::{Consumer, Watermarks};
use crate::levels::picker::RunningCompaction;
use crate::levels::table::Table;
use crate::levels::version::{LEVELS_MAX, Version};

/// An ingest into a hash keyspace writes batches of about this many bytes.
const HASHED_BATCH_BYTES: u64 = 1 << 20;

/// The placeholder in the file for the sequence number that the ingest will get.
const UNPLACED: Stamp = Stamp(Kind::Put as u64);

/// What is known of the pairs so far, which must ascend.
#[derive(Default)]
struct Ascent {
    key: Vec<u8>,
    count: u64,
    bytes: u64,
}

impl Ascent {
    /// Checks the next pair.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if a limit is exceeded, or if the key does not come after the one before.
    fn check(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let refuse = |what: String| Err(Error::input(format!("key {:?} {what}", key.escape_ascii().to_string())));
        limits::check_key(key.len())?;
        if value.len() >= limits::VALUE_BYTES_LIMIT {
            let (bytes, limit) = (value.len(), limits::VALUE_BYTES_LIMIT);
            return refuse(format!("has a value of {bytes} bytes, and the limit is {limit}"));
        }
        if self.count > 0 && key <= &self.key[..] {
            let before = self.key.escape_ascii().to_string();
            return refuse(format!("comes after key {before:?}, but the keys of an ingest must ascend"));
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.count += 1;
        self.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }
}

/// The caller's pairs, checked to ascend, as a stream of versions.
struct Load<'a, I> {
    core: &'a Core,
    pairs: I,
    /// The current full key of the stream.
    key: Vec<u8>,
    prefix_len: usize,
    value: Vec<u8>,
    ascent: Ascent,
}

impl<I, K, V> VersionSource for Load<'_, I>
where
    I: Iterator<Item = (K, V)>,
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    type Error = Error;

    fn advance(&mut self) -> Result<bool> {
        // A close waits for the ingest to end.
        self.core.check_open()?;
        let Some((key, value)) = self.pairs.next() else {
            return Ok(false);
        };
        let (key, value) = (key.as_ref(), value.as_ref());
        self.ascent.check(key, value)?;
        self.key.truncate(self.prefix_len);
        self.key.extend_from_slice(key);
        self.value.clear();
        self.value.extend_from_slice(value);
        Ok(true)
    }

    fn current(&self) -> VersionRef<'_> {
        (&self.key, UNPLACED, &self.value)
    }
}

impl Core {
    /// Ingests `pairs` atomically. Returns their number.
    pub fn ingest<I, K, V>(self: &Arc<Core>, keyspace: &Arc<KeyspaceState>, pairs: I) -> Result<u64>
    where
        I: Iterator<Item = (K, V)>,
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        match keyspace.record.kind {
            KeyspaceKind::Ordered => self.ingest_ordered(keyspace, pairs),
            KeyspaceKind::Hash => self.ingest_hashed(keyspace, pairs),
        }
    }

    /// Puts the pairs in batches: what goes through the log is at its place already. Each batch is atomic and checked as a whole
    /// before it is written, the ingest of several is not: to hide what is in the log until all of it is there, recovery would
    /// have to keep as much apart.
    fn ingest_hashed<I, K, V>(self: &Arc<Core>, keyspace: &Arc<KeyspaceState>, pairs: I) -> Result<u64>
    where
        I: Iterator<Item = (K, V)>,
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.check_writable()?;
        keyspace.check(self.database)?;
        // As an ingest into an ordered keyspace. It might wait for the work that its caller has paused.
        self.check_not_paused()?;
        let (mut batch, mut ascent) = (Batch::default(), Ascent::default());
        for (key, value) in pairs {
            ascent.check(key.as_ref(), value.as_ref())?;
            batch.push(keyspace, Kind::Put, key.as_ref(), value.as_ref());
            if batch.record_bytes() >= HASHED_BATCH_BYTES {
                self.write(&mut batch, WriteOptions::new().durability(Durability::Buffered))?;
            }
        }
        self.write(&mut batch, WriteOptions::new().durability(Durability::Sync))?;
        Ok(ascent.count)
    }

    fn ingest_ordered<I, K, V>(&self, keyspace: &KeyspaceState, pairs: I) -> Result<u64>
    where
        I: Iterator<Item = (K, V)>,
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.check_writable()?;
        self.check_poison()?;
        keyspace.check(self.database)?;
        // Fail before writing tables that would be discarded.
        self.check_not_paused()?;
        let _writing = self.begin_writer("ingest")?;
        let key = keyspace.record.id.prefix().to_vec();
        let prefix_len = key.len();
        let mut load = Load { core: self, pairs, key, prefix_len, value: Vec::new(), ascent: Ascent::default() };
        let tables = self.guarded(self.write_tables(&mut load, Vec::new(), LEVELS_MAX - 1, self.table_bytes()))?;
        if tables.is_empty() {
            return Ok(0);
        }
        let Ascent { count, bytes, .. } = load.ascent;
        match self.install_ingested(keyspace, &tables) {
            Ok(()) => {
                self.counters.user_bytes.fetch_add(bytes, Ordering::Relaxed);
                self.fit_cache();
                self.update_pace();
                self.work.wake();
                Ok(count)
            }
            Err((error, is_named)) => {
                if !is_named {
                    tables.iter().for_each(|table| table.mark_obsolete());
                }
                drop(tables);
                self.work.wake();
                Err(error)
            }
        }
    }

    /// Commits an ingest. With an error, also returns whether the manifest may reference its tables.
    fn install_ingested(&self, keyspace: &KeyspaceState, tables: &[Arc<Table>]) -> Result<(), (Error, bool)> {
        let mut gate = None;
        loop {
            // The holder of a pause may be this caller, or may be waiting for it or for the gate.
            let room = match gate {
                None => self.wait_for_hl0(),
                Some(_) => Ok(()),
            };
            let flushed = room.and_then(|()| self.check_not_paused()).and_then(|()| self.flush_front(true));
            flushed.map_err(|error| (error, false))?;
            let view = self.published.view();
            let clear = clear_of(&view.version, tables);
            let mut commit = self.commit.lock();
            let usable =
                self.check_open().and_then(|()| self.check_poison()).and_then(|()| keyspace.check(self.database));
            usable.map_err(|error| (error, false))?;
            if self.published.view().front_is_empty() && self.horizon.durable() >= commit.last_seqno {
                let done = guard_panic("a load", || Ok(self.commit_ingest(&mut commit, tables, &clear)));
                return done.unwrap_or_else(|panic| {
                    self.poison(&panic);
                    Err((panic, true))
                });
            }
            drop(commit);
            // Writes that had begun when the gate closed run to their end.
            gate.get_or_insert_with(|| Gate::close(self));
        }
    }

    /// The step in which an ingest becomes visible. The front is empty, and nothing is appended meanwhile.
    fn commit_ingest(
        &self,
        commit: &mut CommitState,
        tables: &[Arc<Table>],
        clear: &BTreeSet<(FileId, FileId)>,
    ) -> Result<(), (Error, bool)> {
        let seqno = commit.last_seqno.next();
        let mut manifest = self.manifest.lock();
        let mut placed = Vec::new();
        for table in tables {
            let guard = self.guard(table.key());
            placed.push(table.place_at(&self.readers, guard, seqno).map_err(|error| (error, false))?);
        }
        let (levels, claims) = self
            .claim_for_writer("ingest", |state| self.free_levels(state, &placed, clear))
            .map_err(|error| (error, false))?;
        let added: Vec<(usize, Arc<Table>)> = levels.iter().copied().zip(placed).collect();
        let mut edit = Edit {
            files_added: added.iter().map(|(_, table)| table.key()).collect(),
            tables_added: added.iter().map(|(level, table)| (*level as u8, table.meta().clone())).collect(),
            watermarks: Watermarks::only(Consumer::Levels, seqno),
            ..Edit::default()
        };
        self.add_counters(&mut edit);
        let committed = self.commit_edit(&mut manifest, &edit);
        if committed.is_ok() {
            self.published.update(|now| now.with(|sources| sources.version = Arc::new(now.version.apply(&added, &[]))));
            commit.last_seqno = seqno;
            self.horizon.note_durable(seqno);
            self.work.note_flushed(seqno);
            self.published.publish(seqno);
        }
        drop(claims);
        committed.map_err(|error| {
            let is_named = !error.is_transient();
            (error, is_named)
        })
    }

    /// A level for each table, and claims that keep compactions from writing there.
    fn free_levels(
        &self,
        state: &WorkState,
        tables: &[Arc<Table>],
        clear: &BTreeSet<(FileId, FileId)>,
    ) -> (Vec<usize>, Claims) {
        let (claimed_tables, claimed_ranges) = (state.claimed_tables(), state.claimed_ranges());
        let version = self.published.view().version.clone();
        let deepest = self.deepest_level(&version, tables);
        let (mut levels, mut claims) = (Vec::new(), Claims::default());
        for table in tables {
            let meta = table.meta();
            let overlaps = |other: &Arc<Table>| other.meta().overlaps(&meta.smallest, &meta.end);
            let mut level = 0;
            for below in 1..=deepest {
                let above = &version.levels()[below - 1];
                // A table that a job is moving may be placed in any lower level.
                let in_the_way = |other: &&Arc<Table>| {
                    let id = other.meta().id;
                    overlaps(other) && (claimed_tables.contains(&id) || !clear.contains(&(meta.id, id)))
                };
                if above.tables().iter().any(|other| in_the_way(&other)) {
                    break;
                }
                let is_free = !version.levels()[below].tables().iter().any(overlaps);
                let is_written = claimed_ranges
                    .iter()
                    .any(|running| running.to == below && running.smallest < meta.end && meta.smallest < running.end);
                if is_free && !is_written {
                    level = below;
                }
            }
            let (smallest, end) = (meta.smallest.clone(), meta.end.clone());
            claims = claims.and(Claim::LevelRange(RunningCompaction { to: level, smallest, end }));
            levels.push(level);
        }
        (levels, claims)
    }

    /// The lowest level that has tables, or the first level large enough for the ingest if that is lower.
    fn deepest_level(&self, version: &Version, tables: &[Arc<Table>]) -> usize {
        let bytes: u64 = tables.iter().map(|table| table.meta().size).sum();
        let levels = version.levels();
        let lowest = (1..levels.len()).rev().find(|&level| !levels[level].tables().is_empty()).unwrap_or(1);
        let targets = self.level_targets();
        let roomy = (1..levels.len()).find(|&level| levels[level].bytes() + bytes <= targets.bytes(level));
        lowest.max(roomy.unwrap_or(levels.len() - 1))
    }
}

/// Pairs of an ingested table and a table of the version whose key ranges overlap although the second holds no key
/// within the range of the first. A table that cannot be read, or that has range tombstones, counts as holding one.
fn clear_of(version: &Version, load: &[Arc<Table>]) -> BTreeSet<(FileId, FileId)> {
    let mut clear = BTreeSet::new();
    for new in load {
        let (id, smallest, end) = (new.meta().id, &new.meta().smallest, &new.meta().end);
        for table in (0..version.levels().len()).flat_map(|level| version.overlapping(level, smallest, end)) {
            let mut cursor = table.cursor(true);
            let sought = cursor.seek(smallest, Stamp::NEWEST);
            if !table.has_ranges() && sought.is_ok() && (!cursor.valid() || cursor.key() >= &end[..]) {
                clear.insert((id, table.meta().id));
            }
        }
    }
    clear
}
