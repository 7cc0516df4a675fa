//! Collection of the logs in which records of hash keyspaces lie: logs of which nothing is live go, and the one with the smallest
//! live part is emptied when garbage nears its limit. The indexes know at once what is live, so nothing has to be looked for:
//! the log is read once, in order, and each record that an index still names is written to the log again
//! (`engine/write/hashed_moves.rs`). What tables reference in such a log is left for value GC, which finds it once no index
//! refers to the log any more.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, FileId, KeyspaceId, Kind, Result, Slice, Tier};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::hashed::{IndexedFiles, place_of};
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Look, Offer, Plan, unreadable};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::shortages::Need;
use crate::engine::view::View;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::engine::write::hashed_moves::{Move, TOGETHER_BYTES};
use crate::format::edit::Edit;
use crate::format::frame::{FrameKind, HEADER_BYTES};
use crate::format::record::{Operation, Record};
use crate::front::log_reader::{LogReader, Opened};
use crate::hash::place::{Place, PlaceKind};
use crate::hash::policy::{Demand, LogSpace};
use crate::hash::store::{HashStore, KEYS_TOGETHER, Records};
use crate::sched::clock::now;
use crate::values::files::Entry;

/// A log has so much that is no record, however it was written: its header, and the rest of the block at its end and at a few
/// syncs. It does not count as garbage, or small logs would be moved for ever.
const UNAVOIDABLE_BYTES: u64 = 4 * BLOCK_IO_BYTES as u64;

/// Bytes of the frames whose records are looked up together.
const GATHERED_BYTES: usize = 64 << 10;

/// Due when logs were written since the last look, or a snapshot was released, and something can go.
pub(crate) const KIND: JobKind = JobKind { priority: Priority::Garbage, duties: &[Duty::Values], next };

/// Frees logs, or empties one, but for those that could not be read.
struct CollectLogs {
    quarantined: BTreeSet<FileId>,
}

fn next(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    let begin = || JobKind::begin(CollectLogs { quarantined: state.quarantined.clone() });
    collection_is_due(core, state, look.now).then(begin).flatten()
}

/// There may be logs to free or to empty, and a job that looks may begin.
pub(super) fn collection_is_due(core: &Core, state: &WorkState, now: Duration) -> bool {
    core.hash.is_due.load(Ordering::Acquire)
        && !state.has(Sole::HashedLogs)
        && state.shortages.may_try(Need::LogCollection, now)
}

impl Job for CollectLogs {
    fn profile(&self, core: &Core) -> Profile {
        Profile {
            name: "collect logs",
            claims: Claims::sole(Sole::HashedLogs),
            binds: core.reads_of_values(&core.published.view().values.state.indexed) | Binds::write(Tier::Fast),
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::LogCollection,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::WithReserve(Box::new(|core| match core.collect_logs(&self.quarantined) {
            // What was moved by now stays moved.
            Err(Error::Closed) => Ok(Outcome::nothing()),
            // It is tried again when there is space.
            Err(error) => {
                core.note_hashed_change();
                Err(error)
            }
            collected => collected,
        })))
    }

    fn unreadable_inputs(&self, core: &Core, path: &Path) -> Vec<FileId> {
        let view = core.published.view();
        let files = view.values.state.indexed.iter().filter_map(|file| view.values.stored.get(file));
        files.filter(|stored| **stored.path() == *path).map(|stored| stored.id()).collect()
    }
}

impl Core {
    fn collect_logs(&self, quarantined: &BTreeSet<FileId>) -> Result<Outcome<'static>> {
        // What changes from here on is looked at by the next job.
        self.hash.is_due.store(false, Ordering::Release);
        self.trim_undo();
        // A log of this view is full, so no index gets references to it after this.
        let view = self.published.view();
        let indexed = self.indexed_files();
        let gone: Vec<FileId> =
            view.values.state.indexed.iter().copied().filter(|file| !indexed.refers_to(*file)).collect();
        if !gone.is_empty() {
            let count = gone.len() as u64;
            let edit = Edit { unindexed: gone, ..Edit::default() };
            return Ok(Outcome::edit(indexed.until, edit, |_| ()).then(move |core, installed| {
                core.note_hashed_change();
                installed?;
                core.hash.logs_freed.fetch_add(count, Ordering::Relaxed);
                Ok(())
            }));
        }
        let (victim, fill) = self.log_demand(&view, &indexed, quarantined);
        // With nothing to collect it is no use to wait.
        let fill = if victim.is_some() { (fill * 1000.0) as u64 } else { 0 };
        self.hash.garbage_fill.store(fill, Ordering::Relaxed);
        let Some(victim) = victim else { return Ok(Outcome::nothing()) };
        let began = now();
        self.empty_log(&view, victim)?;
        let freed = match view.values.files.get(&victim) {
            Some(Entry::Here(log)) => log.end().saturating_sub(indexed.of(victim).bytes),
            _ => 0,
        };
        // Whatever the reason: it would be the same again (rule 12).
        if self.indexed_files().of(victim).records > 0 {
            self.hash.immovable.lock().insert(victim);
        }
        let seconds = now().saturating_sub(began).as_secs_f64().max(1e-3);
        self.hash.drain.store((freed as f64 / seconds) as u64, Ordering::Relaxed);
        self.note_hashed_change();
        Ok(Outcome::nothing())
    }

    /// The log to empty next, and how far garbage has grown, of 1 at its limit.
    fn log_demand(&self, view: &View, indexed: &IndexedFiles, quarantined: &BTreeSet<FileId>) -> (Option<FileId>, f64) {
        let state = &view.values.state;
        let mut immovable = self.hash.immovable.lock();
        immovable.retain(|file| state.indexed.contains(file));
        let immovable = &*immovable;
        let space = |file: &FileId| match view.values.files.get(file) {
            Some(Entry::Here(log)) => {
                let live = indexed.of(*file);
                let by_tables = state.referenced.of(*file).bytes;
                let live_bytes = live.bytes + by_tables;
                let bytes = log.end().saturating_sub(UNAVOIDABLE_BYTES).max(live_bytes);
                Some(LogSpace {
                    file: *file,
                    bytes,
                    live: live_bytes,
                    is_pinned: live.pinned > 0 || quarantined.contains(file) || immovable.contains(file),
                })
            }
            _ => None,
        };
        let logs: Vec<LogSpace> = state.indexed.iter().filter_map(space).collect();
        // What ordered keyspaces have in the logs of the front is judged once they have left it.
        let front_live = view.logs.keys().map(|log| indexed.of(*log).bytes).sum();
        let front_bytes = view.logs.values().map(|log| log.indexed_bytes()).sum::<u64>().max(front_live);
        let keyspaces = self.keyspaces.hashed();
        let sum = |of: fn(&HashStore) -> usize| {
            keyspaces.iter().filter_map(|keyspace| keyspace.hash.as_deref()).map(|index| of(index) as u64).sum()
        };
        let demand = Demand {
            logs: &logs,
            front_bytes,
            front_live,
            slack: self.settings.tuning.hash_slack_logs * self.settings.tuning.log_bytes_for(self.stored_bytes()),
            keys: sum(HashStore::keys),
            tombstones: sum(HashStore::tombstones),
        };
        (demand.victim(), demand.fill())
    }

    /// Writes every record that an index names in a log once more.
    fn empty_log(&self, view: &Arc<View>, victim: FileId) -> Result<()> {
        let Some(Entry::Here(log)) = view.values.files.get(&victim) else { return Ok(()) };
        let file = log.stored().file_in_order()?;
        let Opened::Log(mut reader) = LogReader::open(&*file, victim, None)? else {
            return Err(Error::corruption(file.path(), 0, "the log has no header"));
        };
        // Deleted keys are forgotten if no log is left that is older than their deletion, but for the victim.
        let now = self.published.view();
        let others = now.values.state.indexed.iter().chain(now.logs.keys());
        let oldest = others.copied().filter(|other| *other != victim).min().unwrap_or(FileId(u64::MAX));
        let path = file.path();
        let mut emptying = Emptying {
            core: self,
            path,
            victim,
            oldest,
            keyspace: None,
            frames: Frames::default(),
            moves: Vec::new(),
            bytes: 0,
        };
        while reader.offset() < log.end() {
            let offset = reader.offset();
            let Some(frame) = reader.next_frame()? else {
                return Err(Error::corruption(file.path(), offset, "a frame is damaged"));
            };
            self.limit_io((HEADER_BYTES + frame.body.len()) as u64);
            if frame.header.kind != FrameKind::Records {
                continue;
            }
            self.check_open()?;
            emptying.gather(frame.body, offset + HEADER_BYTES as u64)?;
        }
        emptying.look_at_gathered()?;
        emptying.write()
    }
}

/// Frames of a log whose records have not been looked up.
#[derive(Default)]
struct Frames {
    /// Their bodies.
    bytes: Vec<u8>,
    /// For each its length, and the offset of its body in the log.
    each: Vec<(usize, u64)>,
}

impl Frames {
    /// Their bodies, each with its offset in the log.
    fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut rest = &self.bytes[..];
        self.each.iter().map(move |(len, offset)| {
            let (body, after) = rest.split_at(*len);
            rest = after;
            (body, *offset)
        })
    }
}

/// The records of a log that are to be moved.
struct Emptying<'a> {
    core: &'a Core,
    /// The log.
    path: &'a Path,
    victim: FileId,
    oldest: FileId,
    /// The keyspace of the record before.
    keyspace: Option<(KeyspaceId, Option<Arc<KeyspaceState>>)>,
    frames: Frames,
    moves: Vec<Move>,
    bytes: usize,
}

impl Emptying<'_> {
    /// Adds a frame. Small ones are looked at together.
    fn gather(&mut self, body: &[u8], offset: u64) -> Result<()> {
        if self.frames.bytes.len() + body.len() > GATHERED_BYTES {
            self.look_at_gathered()?;
        }
        if body.len() > GATHERED_BYTES {
            return self.look_at_frames(std::iter::once((body, offset)));
        }
        self.frames.bytes.extend_from_slice(body);
        self.frames.each.push((body.len(), offset));
        Ok(())
    }

    fn look_at_gathered(&mut self) -> Result<()> {
        let mut frames = std::mem::take(&mut self.frames);
        self.look_at_frames(frames.iter())?;
        frames.bytes.clear();
        frames.each.clear();
        self.frames = frames;
        Ok(())
    }

    fn look_at_frames<'f>(&mut self, frames: impl Iterator<Item = (&'f [u8], u64)>) -> Result<()> {
        let mut together: Vec<(Operation<'f>, Place)> = Vec::new();
        for (mut body, mut at) in frames {
            while let Ok(record) = Record::take(&mut body) {
                let operation = record.operation;
                let len = operation.record_bytes();
                if let Some(place) = place_of(operation.kind, self.victim, at, len) {
                    let is_of_another = |(other, _): &(Operation<'_>, Place)| other.keyspace != operation.keyspace;
                    if together.len() == KEYS_TOGETHER || together.first().is_some_and(is_of_another) {
                        self.look_up(&together)?;
                        together.clear();
                    }
                    together.push((operation, place));
                }
                at += len as u64;
            }
        }
        self.look_up(&together)
    }

    /// Looks at records of one keyspace.
    fn look_up(&mut self, records: &[(Operation<'_>, Place)]) -> Result<()> {
        let Some((first, _)) = records.first() else { return Ok(()) };
        let id = first.keyspace;
        if self.keyspace.as_ref().is_none_or(|(known, _)| *known != id) {
            self.keyspace = Some((id, self.core.keyspaces.with_id(id)));
        }
        let Some((_, Some(keyspace))) = &self.keyspace else { return Ok(()) };
        let keyspace = keyspace.clone();
        let Some(index) = &keyspace.hash else { return Ok(()) };
        let keys: Vec<&[u8]> = records.iter().map(|(operation, _)| operation.key).collect();
        let newest = index.newest_many(&keys);
        let each = records.iter().zip(newest);
        each.into_iter()
            .try_for_each(|((operation, place), newest)| self.look_at(&keyspace, index, (operation, *place), newest))
    }

    /// Looks at a record of a key that had this newest one a moment ago.
    fn look_at(
        &mut self,
        keyspace: &Arc<KeyspaceState>,
        index: &HashStore,
        (operation, place): (&Operation<'_>, Place),
        newest: Option<Place>,
    ) -> Result<()> {
        let key = operation.key;
        let is_here = |other: Place| (other.file, other.offset) == (place.file, place.offset);
        let is_alone = |newest: &Place| newest.kind != PlaceKind::Operand;
        // Most records are dead, or the only ones of their keys; of these nothing but the newest has to be known.
        match newest.filter(is_alone) {
            Some(newest) if !is_here(newest) => return Ok(()),
            Some(newest) if newest.kind == PlaceKind::Value => {
                let writes = vec![(Kind::Put, Slice::copy_from(operation.value))];
                let records = Records { newest, older: Vec::new() };
                return self.add(Move { keyspace: keyspace.clone(), key: key.to_vec(), records, writes });
            }
            _ => {}
        }
        let gate = self.core.hash.gate.read();
        let records = index.find(key, None).filter(|records| records.places().any(is_here));
        let view = self.core.published.view();
        drop(gate);
        let Some(records) = records else { return Ok(()) };
        let newest = records.newest;
        if newest.kind == PlaceKind::Tombstone && self.oldest.0 > u64::from(newest.len) {
            self.core.forget_deleted(keyspace, &[(key.to_vec(), newest)]);
            if index.newest(key) != Some(newest) {
                return Ok(());
            }
        }
        // A key with several records here is moved once: what is refused the second time has moved.
        match self.core.move_of(&view, keyspace, key, records) {
            Ok(found) => self.add(found),
            Err(error) if self.must_stay(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The key stays where it is because of this error, which no repetition would mend. If it is this log that cannot be read, the
    /// job fails, and the log is quarantined.
    fn must_stay(&self, error: &Error) -> bool {
        if matches!(error, Error::MergeFailed { .. }) {
            return true;
        }
        let elsewhere = unreadable(error).filter(|path| *path != self.path);
        if let Some(path) = elsewhere {
            let (path, cause) = (path.to_owned(), error.to_string());
            self.core.events.raise(Event::TableQuarantined { path, cause });
        }
        elsewhere.is_some()
    }

    fn add(&mut self, found: Move) -> Result<()> {
        self.bytes += found.bytes();
        self.moves.push(found);
        if self.bytes >= TOGETHER_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.core.limit_io(std::mem::take(&mut self.bytes) as u64);
        self.core.commit_moves(&std::mem::take(&mut self.moves))
    }
}
