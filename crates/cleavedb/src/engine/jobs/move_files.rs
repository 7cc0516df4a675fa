//! Moves whole files between the directories of a database: demotes logs where the fast tier needs room, and brings files
//! where they belong after an open that declared other directories. A file keeps its number and its bytes, so that no address
//! changes; nothing in it is judged, sorted or decoded.
//!
//! The copy is synced before the edit that makes it the file; the old one is removed after its last reader. A crash before
//! the edit leaves a copy, and one after it the old file, that the next open removes (decision record 046).
//!
//! A job that makes no room which somebody may wait for yields to reads: it copies on one thread, half of the time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{DirId, Error, FileId, FileKey, FileKind, Result, Seqno};
use crate::engine::activity::Activity;
use crate::engine::binds::Binds;
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::core::Core;
use crate::engine::fast_tier::Occupant;
use crate::engine::job_usage::{note_cpu_of_helper, note_records};
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::jobs::roll_back::rollback_due;
use crate::engine::shortages::Need;
use crate::engine::throttle::Throttle;
use crate::engine::tuning::sizes::Canary;
use crate::engine::tuning::tiers::{FastFill, FastLog, to_demote};
use crate::engine::view::{Sources, View, records_of};
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::format::edit::Edit;
use crate::format::values::{EXTENT_ALIGN, ValuePlace};
use crate::front::log::LogFile;
use crate::io::copy::copy_file;
use crate::io::file_guard::FileGuard;
use crate::io::pending_deletions::{FileRange, Obsolete};
use crate::io::{Access, File};
use crate::levels::table::Table;
use crate::sched::clock::now;
use crate::sched::sync::Mutex;
use crate::values::files::{Entry, Layout, ValueFiles};

/// A job that makes no room moves one file, or several small ones up to this part of a log.
const TOGETHER_PART: u64 = 8;

/// Due while the fast tier needs room, or files lie where they do not belong.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Room,
    duties: &[Duty::Moves],
    next: |core, state, _| JobKind::begin(moves_due(core, state)?),
};

/// The next files to move, unless such a job is running.
pub(crate) fn moves_due(core: &Core, state: &WorkState) -> Option<MoveFiles> {
    let has_one_directory = core.dirs.others().next().is_none();
    if has_one_directory || state.has(Sole::Moves) || !state.shortages.may_try(Need::Move, now()) {
        return None;
    }
    if core.fast.take_more_room() {
        core.has_misplaced.store(true, Ordering::Release);
    }
    let (fill, to) = (core.fast_fill(), core.dirs.slow_id());
    if to != DirId::HOME && fill.wants_room() {
        let mut logs = core.fast_logs(&core.published.view());
        logs.retain(|log| {
            let is_claimed = state.is_claimed(&Claims(vec![Claim::ValueFile(log.key.id)]));
            !is_claimed && !core.is_name_taken(log.key, to) && !state.quarantined.contains(&log.key.id)
        });
        let moved = |log: FastLog| MovedFile { key: log.key, parts: whole(log.bytes) };
        let files: Vec<MovedFile> = to_demote(fill, &logs).into_iter().map(moved).collect();
        let had_nothing = core.fast.has_nothing_to_demote.swap(files.is_empty(), Ordering::Relaxed);
        if !files.is_empty() {
            return Some(MoveFiles { files, to, purpose: Purpose::Demote });
        }
        if !had_nothing {
            // From now on HL0 does not belong there. Once, because a job that finds no space is not tried again at once.
            core.has_misplaced.store(true, Ordering::Release);
        }
    }
    rollback_due(core, state).or_else(|| misplaced(core, state))
}

/// Files that lie where they do not belong: the first ones with a common destination.
fn misplaced(core: &Core, state: &WorkState) -> Option<MoveFiles> {
    // New files are made where they belong, and an edit that may take a table out of HL0 without a rewrite says so, after
    // its view is there.
    if matches!(state.activity(), Activity::Full | Activity::Closing)
        || !core.has_misplaced.swap(false, Ordering::AcqRel)
    {
        return None;
    }
    let view = core.published.view();
    let files = core.misplaced_files(&view);
    if !files.is_empty() {
        core.has_misplaced.store(true, Ordering::Release);
    }
    core.choose_moves(state, &view, files, core.settings.tuning.log_bytes / TOGETHER_PART, Purpose::Place)
}

/// The claim of a job that moves a file.
fn claim_of(file: FileKey) -> Claim {
    match file.kind {
        FileKind::Table => Claim::Table(file.id),
        // The indexes are not saved meanwhile.
        FileKind::Index => Claim::Only(Sole::SavedIndexes),
        _ => Claim::ValueFile(file.id),
    }
}

impl Core {
    /// Of files in the order in which they should move, each with its destination, the first ones with a common one: one file, or
    /// several of at most `most` bytes together.
    pub(super) fn choose_moves(
        &self,
        state: &WorkState,
        view: &View,
        files: Vec<(FileKey, DirId)>,
        most: u64,
        purpose: Purpose,
    ) -> Option<MoveFiles> {
        let is_free = |file: FileKey| {
            let is_quarantined = state.quarantined.contains(&file.id);
            !is_quarantined && !state.is_claimed(&Claims(vec![claim_of(file)]))
        };
        let (mut chosen, mut to, mut bytes) = (Vec::new(), None, 0);
        for (key, destination) in files.into_iter().filter(|(file, _)| is_free(*file)) {
            if self.is_name_taken(key, destination) {
                continue;
            }
            let Some(parts) = self.parts_to_move(view, key) else { continue };
            let file = MovedFile { key, parts };
            if bytes > 0 && bytes + file.bytes() > most {
                break;
            }
            let room = self.room_in(view, key.kind, destination);
            if bytes + file.bytes() > room || *to.get_or_insert(destination) != destination {
                continue;
            }
            bytes += file.bytes();
            chosen.push(file);
        }
        let to = to.filter(|_| !chosen.is_empty())?;
        Some(MoveFiles { files: chosen, to, purpose })
    }

    /// How full the fast tier is, with what its file system has left.
    pub fn fast_fill(&self) -> FastFill {
        let bytes = self.fast.bytes();
        let budget = match self.dirs.are_apart() {
            true => self.fast.budget().min(bytes.saturating_add(self.storage.free_bytes(self.dirs.fast()))),
            false => u64::MAX,
        };
        FastFill { budget, bytes }
    }

    /// The closed logs on the fast tier that can be moved, oldest first.
    pub fn fast_logs(&self, view: &View) -> Vec<FastLog> {
        let newest = self.writable_log(view);
        let unflushed = view.logs.values().filter(|log| is_closed(log, newest) && log.key().dir == DirId::HOME);
        let unflushed = unflushed.map(|log| FastLog { key: log.key(), bytes: log.end(), live: None });
        let flushed = view.values.figures().candidates.iter().filter_map(|candidate| {
            let Some(Entry::Here(file)) = view.values.files.get(&candidate.file) else { return None };
            let is_fast_log = matches!(file.layout(), Layout::Log) && file.stored().key().dir == DirId::HOME;
            let live = Some(candidate.live_bytes());
            is_fast_log.then(|| FastLog { key: file.stored().key(), bytes: candidate.bytes, live })
        });
        // Those that hash indexes reference are no candidates of value GC.
        let indexed = view.values.state.indexed.iter().filter_map(|file| match view.values.files.get(file) {
            Some(Entry::Here(log)) if log.stored().key().dir == DirId::HOME => {
                // They are moved whole: what is dead in them is for their own collection.
                Some(FastLog { key: log.stored().key(), bytes: log.end(), live: Some(log.end()) })
            }
            _ => None,
        });
        let mut logs: Vec<FastLog> = flushed.chain(unflushed).chain(indexed).collect();
        logs.sort_by_key(|log| log.key.id);
        logs
    }

    /// The file in which the indexes of hash keyspaces are saved.
    pub fn saved_indexes(&self) -> Option<FileKey> {
        self.hash.saved.lock().as_ref().map(|saved| saved.key())
    }

    /// The log that may still be written: the newest, unless recovery left it and none was taken since.
    pub fn writable_log(&self, view: &View) -> Option<FileId> {
        let has_taken = self.logs.inner.lock().newest_taken != FileId::default();
        view.logs.keys().next_back().copied().filter(|_| has_taken)
    }

    /// How much is copied to move a file; `None` if it cannot be moved now.
    pub(super) fn bytes_to_move(&self, view: &View, key: FileKey) -> Option<u64> {
        Some(MovedFile { key, parts: self.parts_to_move(view, key)? }.bytes())
    }

    /// The parts of a file that are copied to move it: of a segment those that hold extents. `None` for a file that cannot be
    /// moved now.
    fn parts_to_move(&self, view: &View, file: FileKey) -> Option<Vec<Range<u64>>> {
        match file.kind {
            FileKind::Table => view.version.find(file.id).map(|(_, table)| whole(table.meta().size)),
            FileKind::Log if view.logs.contains_key(&file.id) => {
                let newest = self.writable_log(view);
                let log = view.logs.get(&file.id).filter(|log| is_closed(log, newest))?;
                Some(whole(log.end()))
            }
            FileKind::Segment => {
                let header = std::iter::once(0..EXTENT_ALIGN);
                Some(header.chain(extents_of(&view.values, file.id)).collect())
            }
            FileKind::Index => self.storage.file_len(&self.dirs.path(file)).ok().flatten().map(whole),
            _ => {
                let stored = view.values.stored.get(&file.id)?;
                self.storage.file_len(stored.path()).ok().flatten().map(whole)
            }
        }
    }
}

/// Where the extents of a segment lie, in order. O(value files).
fn extents_of(values: &ValueFiles, of: FileId) -> Vec<Range<u64>> {
    let extents = values.state.places.values().filter_map(|place| match place {
        ValuePlace::Extent { segment, start, end, .. } if *segment == of => Some(*start..*end),
        _ => None,
    });
    let mut extents: Vec<_> = extents.collect();
    extents.sort_by_key(|extent| extent.start);
    extents
}

/// All of a file of `len` bytes.
fn whole(len: u64) -> Vec<Range<u64>> {
    std::iter::once(0..len).collect()
}

/// No more is written to the log, and its file has all of it.
fn is_closed(log: &LogFile, newest: Option<FileId>) -> bool {
    Some(log.id()) != newest && log.last_seqno() != Seqno::ZERO && log.is_written(log.end())
}

/// A file that is moved.
struct MovedFile {
    /// Where it lies now.
    key: FileKey,
    /// What is copied of it, in order; each part begins at a block.
    parts: Vec<Range<u64>>,
}

impl MovedFile {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }

    /// The extents of a segment that were copied to `path` and are not among these value files any more.
    fn dead_ranges(&self, values: &ValueFiles, path: &Arc<Path>) -> Vec<FileRange> {
        if self.key.kind != FileKind::Segment {
            return Vec::new();
        }
        let live = extents_of(values, self.key.id);
        let dead = self.parts.iter().filter(|part| part.start > 0 && !live.contains(part));
        let range = |part: &Range<u64>| FileRange {
            path: path.clone(),
            offset: part.start,
            len: part.end.next_multiple_of(EXTENT_ALIGN) - part.start,
        };
        dead.map(range).collect()
    }
}

/// Moves files to a directory.
pub(crate) struct MoveFiles {
    files: Vec<MovedFile>,
    to: DirId,
    purpose: Purpose,
}

/// Why files move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The fast tier needs their room.
    Demote,
    /// They lie on the KV device, and writers do not need it now.
    RollBack,
    /// They do not belong where they lie.
    Place,
}

/// What the view gets in place of a file that moved.
enum Arrived {
    Log(Arc<LogFile>),
    Table(Arc<Table>),
    /// Value files are opened by the edit.
    Values {
        path: Arc<Path>,
    },
    /// Saved indexes, which no view has.
    Indexes(FileGuard),
}

impl Job for MoveFiles {
    fn profile(&self, core: &Core) -> Profile {
        let from = self.files.iter().map(|file| file.key.dir);
        Profile {
            name: match self.purpose {
                Purpose::Demote => "demote logs",
                Purpose::RollBack => "roll back",
                Purpose::Place => "move files",
            },
            claims: self.files.iter().fold(Claims::sole(Sole::Moves), |claims, file| claims.and(claim_of(file.key))),
            binds: Binds::reads_of(&core.dirs, from) | Binds::write(core.dirs.tier(self.to)),
            class: if self.purpose == Purpose::Demote { Class::Mandatory } else { Class::Idle },
            memory: MemoryShare::Own,
            need: Need::Move,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| self.run(core))))
    }

    fn unreadable_inputs(&self, core: &Core, path: &Path) -> Vec<FileId> {
        // A copy that cannot be read either: the original stays.
        let is_at = |file: FileKey| core.dirs.path(file) == path || core.dirs.path(self.moved(file)) == path;
        self.files.iter().filter(|file| is_at(file.key)).map(|file| file.key.id).collect()
    }
}

impl MoveFiles {
    /// The file in the other directory.
    fn moved(&self, file: FileKey) -> FileKey {
        FileKey { dir: self.to, ..file }
    }

    fn run(&self, core: &Core) -> Result<Outcome<'_>> {
        if !self.claim_room(core) {
            return Ok(Outcome::nothing());
        }
        core.note_made_in(self.to);
        let written: u64 = self.files.iter().map(MovedFile::bytes).sum();
        if self.purpose == Purpose::Demote {
            core.pacer.moves.begin(written, written);
        }
        let copied = self.copy_all(core).inspect_err(|error| {
            core.pacer.moves.end(false);
            self.remove_copies(core, |_| true);
            if self.purpose == Purpose::RollBack {
                core.bypass.note_rollback_failed(now());
            }
            if self.purpose == Purpose::Place && matches!(error, Error::NoSpace { .. }) {
                // Tried again after the next edit of tables, when something else leaves the fast tier, or at the next open.
                core.fast.take_more_room();
                core.has_misplaced.store(false, Ordering::Release);
            }
        })?;
        let logs = copied.iter().filter_map(|arrived| match arrived {
            Arrived::Log(log) => Some(log),
            _ => None,
        });
        // An edit of a log that is not synced would leave a gap before it.
        let durable = logs.clone().map(|log| log.last_seqno()).max().unwrap_or_default();
        let edit = Edit {
            files_moved: self.files.iter().map(|file| self.moved(file.key)).collect(),
            logs_ended: logs.map(|log| (log.id(), log.end())).collect(),
            ..Edit::default()
        };
        // Files and extents may become obsolete until the edit is committed; which ones are left, the view then says.
        let kept = Arc::new(Mutex::new(BTreeMap::new()));
        let into = kept.clone();
        let indexes = Arc::new(Mutex::new(None));
        let arrived = indexes.clone();
        let former: Vec<_> = self.files.iter().map(|file| core.dirs.path(file.key)).collect();
        core.former_places.lock().extend(former.iter().cloned());
        let change = move |sources: &mut Sources| {
            let kept = self.replace(sources, copied, &mut arrived.lock());
            *into.lock() = kept;
        };
        Ok(Outcome::edit(durable, edit, change).then(move |core, installed| {
            core.pacer.moves.end(installed.is_ok());
            match &installed {
                Ok(()) => {
                    core.counters.moved_bytes.fetch_add(written, Ordering::Relaxed);
                    if self.purpose == Purpose::RollBack {
                        core.bypass.rolled_back_bytes.fetch_add(written, Ordering::Relaxed);
                    }
                    let mut kept = std::mem::take(&mut *kept.lock());
                    if let Some(guard) = indexes.lock().take()
                        && core.replace_saved_indexes(guard)
                    {
                        kept.insert(core.saved_indexes().expect("it was there just now").id, Vec::new());
                    }
                    self.remove_copies(core, |file| !kept.contains_key(&file));
                    self.forget_unsynced(core);
                    kept.into_values().flatten().for_each(|dead| core.pending_deletions.add(Obsolete::Range(dead)));
                }
                // After any other error the manifest may reference them.
                Err(error) if error.is_transient() => {
                    core.former_places.lock().retain(|path| !former.contains(path));
                    self.remove_copies(core, |_| true);
                }
                Err(_) => {}
            }
            installed
        }))
    }

    /// Claims the space of the copies if they are on the fast tier; false if it has no room for them any more.
    fn claim_room(&self, core: &Core) -> bool {
        if self.to != DirId::HOME {
            return true;
        }
        let refused = self.files.iter().position(|file| !core.fast.claim(Occupant::File(file.key.id), file.bytes()));
        let claimed = &self.files[..refused.unwrap_or_default()];
        claimed.iter().for_each(|file| core.fast.release(Occupant::File(file.key.id)));
        refused.is_none()
    }

    fn copy_all(&self, core: &Core) -> Result<Vec<Arrived>> {
        let view = core.published.view();
        let mut copied = Vec::new();
        let held = core.memory.jobs.hold(2 * core.settings.tuning.write_bytes);
        let yields = self.purpose != Purpose::Demote;
        for file in &self.files {
            let yields = yields && core.share_beside_reads() < 1.0;
            let throttle = yields.then(|| Throttle::beside_reads(core));
            core.copy_file(file, self.moved(file.key), throttle)?;
            copied.push(core.arrive(&view, self.moved(file.key))?);
        }
        drop(held);
        note_records(self.files.iter().map(|file| records_of(&view, core.work.flushed(), file.key.id)).sum());
        core.guarded(core.storage.sync_dir(core.dirs.of(self.to)))?;
        Ok(copied)
    }

    /// The copies are synced, and so were the records in them before the edit. The next sync, which may never come, must not hold
    /// the files that they replace.
    fn forget_unsynced(&self, core: &Core) {
        let is_moved = |log: &Arc<LogFile>| self.files.iter().any(|file| file.key == log.key());
        core.commit.lock().unsynced.retain(|log| !is_moved(log));
    }

    fn remove_copies(&self, core: &Core, is_left: impl Fn(FileId) -> bool) {
        for file in self.files.iter().filter(|file| is_left(file.key.id)) {
            core.remove_file(&core.dirs.path(self.moved(file.key)));
        }
    }
}

impl MoveFiles {
    /// Puts the moved files into the view, if they are still in it; returns those that are, each with the ranges of its copy
    /// in which nothing lies any more. No view with the copy has had them.
    fn replace(
        &self,
        sources: &mut Sources,
        copied: Vec<Arrived>,
        indexes: &mut Option<FileGuard>,
    ) -> BTreeMap<FileId, Vec<FileRange>> {
        let mut logs = (*sources.logs).clone();
        let mut kept = BTreeMap::new();
        for (file, arrived) in self.files.iter().zip(copied) {
            let id = file.key.id;
            match arrived {
                Arrived::Log(log) if logs.contains_key(&id) => {
                    let before = logs.insert(id, log);
                    before.iter().for_each(|before| before.mark_obsolete());
                    kept.insert(id, Vec::new());
                }
                Arrived::Table(table) => {
                    if let Some((level, before)) = sources.version.find(id).map(|(level, of)| (level, of.clone())) {
                        before.mark_obsolete();
                        sources.version = Arc::new(sources.version.apply(&[(level, table)], &[id]));
                        kept.insert(id, Vec::new());
                    }
                }
                Arrived::Indexes(guard) => *indexes = Some(guard),
                // The edit replaces the value files, after this; a log may have become one meanwhile.
                Arrived::Log(_) | Arrived::Values { .. } if !sources.values.stored.contains_key(&id) => {}
                Arrived::Log(_) => drop(kept.insert(id, Vec::new())),
                Arrived::Values { path } => drop(kept.insert(id, file.dead_ranges(&sources.values, &path))),
            }
        }
        sources.logs = Arc::new(logs);
        kept
    }
}

impl Core {
    /// Copies a file into another directory, and syncs the copy.
    fn copy_file(&self, from: &MovedFile, to: FileKey, mut throttle: Option<Throttle<'_>>) -> Result<()> {
        let (path, target) = (self.dirs.path(from.key), self.dirs.path(to));
        let access = self.readers.access_in(to.dir);
        let open = |access| self.with_descriptors(|| self.storage.open_read(&path, access));
        // Read once, and not soon again.
        let source = open(Access::Direct).or_else(|_| open(Access::Buffered))?;
        let copy = self.with_descriptors(|| self.create_copy(&target, access))?;
        let alone = throttle.is_some() || self.background_io.rate().is_some();
        let progress = |bytes| {
            self.pacer.moves.steps_done.fetch_add(bytes, Ordering::Relaxed);
            // Read and written.
            let waited = self.limit_io(2 * bytes);
            if let Some(throttle) = &mut throttle {
                throttle.note_waited(waited);
                throttle.pause();
            }
        };
        let piece_bytes = self.settings.tuning.write_bytes.next_multiple_of(BLOCK_IO_BYTES);
        // A source that cannot be read is left where it is, and nothing else.
        let helped = copy_file(source, (copy.clone(), access), &from.parts, (piece_bytes, alone), progress)?;
        note_cpu_of_helper(helped);
        let syncs = self.settings.tuning.canary != Some(Canary::MoveCommittedBeforeSync);
        if syncs { self.guarded(copy.sync()) } else { Ok(()) }
    }

    /// Creates a copy. Whatever has its name is removed first: an earlier copy, or what was left when the file moved away,
    /// and could not be removed. It is ours, since the number is, and the manifest names the file in another directory.
    fn create_copy(&self, target: &Path, access: Access) -> Result<Arc<dyn File>> {
        match self.storage.create(target, access) {
            Err(error) if !error.is_transient() && matches!(self.storage.exists(target), Ok(true)) => {
                self.storage.remove(target).map_err(|failure| Error::name_taken(target, &failure))?;
                self.storage.create(target, access)
            }
            created => created,
        }
    }

    /// The name that a file would get is that of one that the database has not made, or that readers still hold.
    fn is_name_taken(&self, file: FileKey, to: DirId) -> bool {
        let path = || self.dirs.path(FileKey { dir: to, ..file });
        !self.unknown_files.is_empty() && self.unknown_files.contains(&path())
            || self.former_places.lock().contains(&path())
    }

    /// What is read in place of a file once its copy is the file.
    fn arrive(&self, view: &View, key: FileKey) -> Result<Arrived> {
        match key.kind {
            FileKind::Table => match view.version.find(key.id) {
                Some((_, before)) => {
                    let table = Table::open(&self.readers, self.guard(key), before.meta().clone())?;
                    before.covering().into_iter().for_each(|count| table.note_covering(count));
                    Ok(Arrived::Table(table))
                }
                None => Ok(Arrived::Values { path: self.dirs.path(key).into() }),
            },
            FileKind::Log if view.logs.contains_key(&key.id) => {
                let before = &view.logs[&key.id];
                let path = self.dirs.path(key);
                let file = self.with_descriptors(|| self.storage.open_read(&path, self.readers.access_in(key.dir)))?;
                let (end, last) = (before.end(), before.last_seqno());
                Ok(Arrived::Log(Arc::new(LogFile::new(key.id, self.guard(key), file, None, end, end, last))))
            }
            FileKind::Index => Ok(Arrived::Indexes(self.guard(key))),
            _ => Ok(Arrived::Values { path: self.dirs.path(key).into() }),
        }
    }

    /// Puts saved indexes that were moved in place of the same ones elsewhere; false if others were saved meanwhile.
    fn replace_saved_indexes(&self, guard: FileGuard) -> bool {
        let mut saved = self.hash.saved.lock();
        let is_same = saved.as_ref().is_some_and(|before| before.key().id == guard.key().id);
        if is_same {
            saved.replace(guard).into_iter().for_each(|before| before.mark_obsolete());
        }
        is_same
    }
}
