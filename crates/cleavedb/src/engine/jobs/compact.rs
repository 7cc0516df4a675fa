//! Compaction: merges, moves down or drops tables, as the picker (`levels/picker.rs`) chooses. A merge is split into
//! subtasks over key ranges, with yield points.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::key_bounds::Between;
use crate::base::ranges::{KeyRange, cut};
use crate::base::tombstones::{Fragment, clip, fragment, survivors, unfold};
use crate::base::versions::{DeltaFigures, Horizon, Retention, VersionRef};
use crate::base::{Address, Cursor, Error, FileId, FileKey, KeyspaceId, Merging, Result, Seqno, Slice, Stamp, Tier};
use crate::engine::activity::Activity;
use crate::engine::binds::Binds;
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::collect_garbage::victims;
use crate::engine::jobs::collection::remove_unreferenced;
use crate::engine::jobs::folded_values::{FoldWriter, FoldedExtents, FoldedValues, is_worth_folding};
use crate::engine::jobs::job::{Duty, Job, JobKind, Look, Offer, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::jobs::refreshed_addresses::RefreshedAddresses;
use crate::engine::jobs::reorder::reorder_candidates;
use crate::engine::jobs::subtasks::{Interrupt, SubtaskJob, SubtaskWork, WithYieldPoints, YieldPoints};
use crate::engine::jobs::write_tables::discard_rejected;
use crate::engine::jobs::yielding::Yielding;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::pacer::{DrainProgress, Watched};
use crate::engine::read::bounds::Bounds;
use crate::engine::referrers::{Referrer, Tables};
use crate::engine::shortages::Need;
use crate::engine::snapshots::JobHorizon;
use crate::engine::tuning::tuner::Setting;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::format::edit::Edit;
use crate::format::meta::TableMeta;
use crate::levels::level_cursor::LevelCursor;
use crate::levels::picker::{Choice, Compact, Figures, LevelTargets, choose, choose_range, wanted_snapshot};
use crate::levels::reference_cursor::ReferenceCursor;
use crate::levels::table::Table;
use crate::sched::clock::now;
use crate::values::record_notes::RecordNotes;

/// A subtask is not worth a thread of its own below this many output tables...
const SUBTASK_TABLES: u64 = 2;
/// ...or this part of one if it merges HL0, for which writers and value GC wait.
const SUBTASK_PART: u64 = 4;

/// Due whenever the picker chooses a compaction.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Room,
    duties: &[Duty::All],
    next: |core, state, look| if may_be_urgent(core, state) { None } else { next(core, state, look) },
};

/// As above while no thread compacts: what writers wait for is urgent then. Constant writes keep the front busy, and HL0 would
/// fill up meanwhile. On a full slow tier the front comes first: it needs less space, and writers stop without it.
pub(crate) const KIND_WHILE_NONE_RUNS: JobKind = JobKind {
    priority: Priority::Urgent,
    duties: &[Duty::All],
    next: |core, state, look| if may_be_urgent(core, state) { next(core, state, look) } else { None },
};

fn may_be_urgent(core: &Core, state: &WorkState) -> bool {
    !state.shortages.any_on(core.dirs.slow_tier()) && state.compacting_threads() == 0
}

fn next(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    if !state.shortages.may_try_on(Need::Compaction, Tier::Fast, look.now) {
        return None;
    }
    let mut priority = Priority::Order;
    let choice = core.choose_with(state, &state.quarantined, |figures| {
        let choice = choose(figures);
        priority = priority_of(&choice, figures);
        Some(choice)
    })?;
    // To drop or move tables only the manifest is written.
    let needs_slow = matches!(choice, Choice::Compact(_));
    if needs_slow && !state.shortages.may_try_on(Need::Compaction, core.dirs.slow_tier(), look.now) {
        return None;
    }
    if may_be_urgent(core, state) && matches!(priority, Priority::Room | Priority::Hl0) {
        priority = Priority::Urgent;
    }
    (choice != Choice::Nothing).then(|| JobKind::begin(Compaction { choice, priority })).flatten()
}

/// How much depends on a choice of the picker.
fn priority_of(choice: &Choice, figures: &Figures<'_>) -> Priority {
    match choice {
        Choice::Drop { .. } => Priority::Room,
        Choice::Compact(compact) if compact.is_idle_compaction => Priority::Order,
        Choice::Compact(_) if figures.uncovers => Priority::Room,
        Choice::Compact(compact) if compact.from == compact.to => Priority::Garbage,
        Choice::Move { from: level, .. } | Choice::Compact(Compact { from: level, .. }) => match *level {
            0 => Priority::Hl0,
            level if figures.is_far_behind(level) => Priority::Hl0,
            _ => Priority::Deep,
        },
        Choice::Nothing => Priority::Order,
    }
}

/// Runs a choice of the picker.
struct Compaction {
    choice: Choice,
    priority: Priority,
}

impl Job for Compaction {
    fn profile(&self, core: &Core) -> Profile {
        let inputs = inputs_of(&self.choice);
        let tables = Claims(inputs.iter().copied().map(Claim::Table).collect());
        let (claims, binds, class) = match &self.choice {
            Choice::Compact(compact) => {
                let claims = tables.and(Claim::LevelRange(compact.running()));
                let binds = core.reads_of_tables(&inputs) | Binds::CPU | Binds::write(core.dirs.slow_tier());
                match compact.is_idle_compaction {
                    true => (claims.and(Claim::Only(Sole::IdleTime)), binds, Class::Idle),
                    false => (claims, binds, Class::Mandatory),
                }
            }
            // Only the edit is written.
            Choice::Nothing | Choice::Drop { .. } | Choice::Move { .. } => {
                (tables, Binds::write(Tier::Fast), Class::Mandatory)
            }
        };
        let (memory, need) = (MemoryShare::Compaction, Need::Compaction);
        Profile { name: "compaction", claims, binds, class, memory, need, meets_need: true }
    }

    fn plan(&self, core: &Core) -> Result<Plan<'_>> {
        Ok(match &self.choice {
            Choice::Nothing => Plan::Whole(Box::new(|_| Ok(Outcome::nothing()))),
            Choice::Drop { tables, .. } => Plan::Whole(Box::new(|core| {
                let outcome = replace_tables(core, Seqno::ZERO, tables.clone(), Vec::new(), FoldedExtents::default())?;
                let coming = core.current_survey.expect_deaths(&core.published);
                Ok(outcome.then(|core, installed| {
                    core.current_survey.note_dead(coming, vec![RecordNotes::missed()]);
                    installed
                }))
            })),
            Choice::Move { to, table, .. } => Plan::Whole(Box::new(|core| {
                let version = core.published.view().version.clone();
                let found = version.find(*table).map(|(_, table)| table.clone());
                let moved = found.expect("a table that a job has claimed stays in the version");
                replace_tables(core, Seqno::ZERO, vec![*table], vec![(*to, moved)], FoldedExtents::default())
            })),
            Choice::Compact(compact) => Plan::Subtasks(Box::new(SubtaskJob::new(TableMerge::plan(core, compact)?))),
        })
    }

    fn priority(&self) -> Option<Priority> {
        Some(self.priority)
    }

    /// The table at `path`.
    fn unreadable_inputs(&self, core: &Core, path: &Path) -> Vec<FileId> {
        let version = core.published.view().version.clone();
        let lies_there = |id: &FileId| version.find(*id).is_some_and(|(_, table)| **table.path() == *path);
        inputs_of(&self.choice).into_iter().filter(lies_there).collect()
    }
}

/// True in idle time once values are in order: tables may then be compacted to refresh stale addresses.
pub(super) fn may_compact_when_idle(core: &Core, state: &WorkState) -> bool {
    state.activity() == Activity::Idle
        && core.settings.tuning.compacts_when_idle
        && !state.collects_values()
        && !state.shortages.any_on(core.dirs.slow_tier())
        && reorder_candidates(core, state).is_none()
}

/// `added` and the extents that they reference replace `removed`.
fn replace_tables<'a>(
    core: &Core,
    seqno: Seqno,
    removed: Vec<FileId>,
    added: Vec<(usize, Arc<Table>)>,
    folded: FoldedExtents,
) -> Result<Outcome<'a>> {
    let kept = |id: &FileId| added.iter().any(|(_, table)| table.meta().id == *id);
    let version = core.published.view().version.clone();
    let gone: Vec<FileId> = removed.iter().copied().filter(|id| !kept(id)).collect();
    let gone_tables: Vec<_> = gone.iter().filter_map(|id| version.find(*id)).map(|(_, table)| table.clone()).collect();
    let new = added.iter().filter(|(_, table)| !removed.contains(&table.meta().id));
    let new: Vec<_> = new.map(|(_, table)| table.clone()).collect();
    let edit = Edit {
        tables_removed: removed.clone(),
        files_added: new.iter().map(|table| table.key()).chain(folded.files).collect(),
        tables_added: added.iter().map(|(level, table)| (*level as u8, table.meta().clone())).collect(),
        referenced: Tables::each(&new).references()?,
        released: Tables::each(&gone_tables).references()?,
        values_placed: folded.places,
        ..Edit::default()
    };
    Ok(Outcome::edit(seqno, edit, move |sources| {
        for id in gone {
            if let Some((_, table)) = sources.version.find(id) {
                table.mark_obsolete();
            }
        }
        sources.version = Arc::new(sources.version.apply(&added, &removed));
    }))
}

impl Core {
    /// The target shape of the levels.
    pub fn level_targets(&self) -> LevelTargets {
        let Setting { hl0_trigger, level_base_bytes: base_bytes, .. } = self.scheduler.setting();
        let hl0_trigger_if_small = self.settings.tuning.hl0_trigger_if_small(hl0_trigger);
        LevelTargets { hl0_trigger, hl0_trigger_if_small, base_bytes, multiplier: 10 }
    }

    /// The choice of `choose` for the current figures; `None` if no more threads may compact.
    fn choose_with(
        &self,
        state: &WorkState,
        quarantined: &BTreeSet<FileId>,
        choose: impl FnOnce(&Figures<'_>) -> Option<Choice>,
    ) -> Option<Choice> {
        // Each compacting thread needs its share of the memory for jobs.
        if state.compacting_threads() >= self.scheduler.setting().compactions {
            return None;
        }
        let view = self.published.view();
        let (version, values) = (&view.version, &view.values);
        let dropped: Vec<KeyspaceId> = self.keyspaces.dropped().into_keys().collect();
        let (claimed, running) = (state.claimed_tables(), state.claimed_ranges());
        let when_idle = may_compact_when_idle(self, state);
        // Value GC would make addresses stale again. While users are busy it may never end.
        let is_idle = state.activity() == Activity::Idle;
        let collects = || state.collects_values() || victims(self, state, true).is_some();
        let may_refresh = !is_idle || !collects();
        let none = BTreeSet::new();
        let mut figures = Figures {
            levels: version.figures(&|id| claimed.contains(&id) || quarantined.contains(&id)),
            targets: self.level_targets(),
            dropped: &dropped,
            running: &running,
            oldest_snapshot: self.snapshots.oldest(&self.published),
            stale: if may_refresh { &state.stale.due } else { &none },
            stale_when_idle: if when_idle && may_refresh { &state.stale.when_idle } else { &none },
            uncovers: false,
            when_idle,
        };
        for table in figures.levels.iter_mut().flatten().filter(|table| table.deletes + table.range_deletes > 0) {
            table.covers_buckets = view.directory.may_hold(table.smallest, table.end, table.seqno_max);
        }
        self.snapshots.notify_from(wanted_snapshot(&figures));
        // Snapshots released before this point are seen here; later releases notify the scheduler.
        figures.oldest_snapshot = self.snapshots.oldest(&self.published);
        // What is known to be dead is removed first, unless it is the smaller part.
        let choice = self.victims_of(values, false);
        let is_emptied = choice.is_some_and(|it| it.files.iter().any(|file| !state.quarantined.contains(file)));
        figures.uncovers = self.hides_too_much(&view, &figures) && (!is_emptied || self.hides_much(values));
        let choice = choose(&figures)?;
        if figures.uncovers && choice == Choice::Nothing && running.is_empty() {
            self.work.space.nothing_to_uncover();
        }
        Some(choice)
    }

    /// Compacts a range down to the lowest level that holds any of it, rewrites the buckets that overlap it, and waits. Called by users.
    pub fn compact_range(self: &Arc<Core>, keyspace: &KeyspaceState, range: Between<'_>) -> Result<()> {
        self.check_writable()?;
        keyspace.check(self.database)?;
        self.flush()?;
        let bounds = Bounds::of_range(keyspace.record.id, range);
        if bounds.is_empty() {
            return Ok(());
        }
        let end = bounds.upper.unwrap_or_else(|| vec![0xff; crate::base::limits::KEY_BYTES_MAX + 5]);
        // First, so that tombstones are not kept for operands that they cover.
        self.rewrite_buckets_within(&bounds.lower, &end)?;
        let version = self.published.view().version.clone();
        let holds = |level: &usize| !version.overlapping(*level, &bounds.lower, &end).is_empty();
        let Some(lowest) = (0..version.levels().len()).rev().find(holds) else {
            return Ok(());
        };
        let mut moved = false;
        for from in 0..lowest.max(1) {
            moved |= self.compact_level_range(from, from + 1, &bounds.lower, &end)?;
        }
        if !moved && lowest > 0 {
            // Everything is in one level already: versions that snapshots kept there may be dropped now.
            self.compact_level_range(lowest, lowest, &bounds.lower, &end)?;
        }
        Ok(())
    }

    /// Returns false if there was nothing to do.
    fn compact_level_range(self: &Arc<Core>, from: usize, to: usize, start: &[u8], end: &[u8]) -> Result<bool> {
        self.run_as_caller(|state| {
            // A compaction requested by a caller retries quarantined tables.
            let choice =
                self.choose_with(state, &BTreeSet::new(), |figures| choose_range(figures, from, to, start, end))?;
            // Its caller's thread runs it, whatever else is due.
            let priority = Priority::Urgent;
            Some((choice != Choice::Nothing).then_some(Compaction { choice, priority }))
        })
    }
}

/// A merge of tables.
pub(crate) struct TableMerge {
    from: usize,
    to: usize,
    /// Tables of HL0 one by one (or with the others of their ingest), newest first; those of another level as one
    /// sequence.
    sources: Vec<Arc<[Arc<Table>]>>,
    /// The newest version in the sources: only what is not newer may be under one of their tombstones.
    newest: Seqno,
    horizon: JobHorizon,
    /// The range tombstones of all sources, and those to be written.
    tombstones: Vec<Fragment>,
    tombstones_left: Vec<Fragment>,
    ranges: Vec<KeyRange>,
    began: Duration,
}

impl TableMerge {
    /// Captures the horizon and splits the job into one subtask per available thread, if it is large enough.
    pub fn plan(core: &Core, compact: &Compact) -> Result<TableMerge> {
        let horizon = core.job_horizon().of_tables();
        let version = &horizon.view.version;
        let find = |id: &FileId| {
            let found = version.find(*id).map(|(_, table)| table.clone());
            found.expect("a table that a job has claimed stays in the version")
        };
        let upper = compact.inputs.iter().map(find);
        let mut sources: Vec<Arc<[Arc<Table>]>> = match compact.from {
            0 => in_rows(upper.collect()),
            _ => vec![upper.collect()],
        };
        sources.push(compact.inputs_below.iter().map(find).collect());
        let tables = || sources.iter().flat_map(|tables| tables.iter());
        let bytes: u64 = tables().map(|table| table.meta().size).sum();
        let table_bytes = core.table_bytes();
        let bytes_min = if compact.from == 0 { table_bytes / SUBTASK_PART } else { table_bytes * SUBTASK_TABLES };
        let threads = core.settings.background_threads.min(core.scheduler.setting().compactions);
        let mut marks = Vec::new();
        if threads > 1 && bytes >= 2 * bytes_min {
            for table in tables() {
                marks.extend(table.cursor(false).marks()?);
            }
        }
        let ranges = cut(marks, threads, bytes_min);
        let mut tombstones = Vec::new();
        for table in tables().filter(|table| table.has_ranges()) {
            tombstones.extend(unfold(&table.fragments()?));
        }
        let tombstones = fragment(&tombstones, &horizon.snapshots);
        let newest = tables().map(|table| table.meta().seqno_max).max().unwrap_or_default();
        let (to, version) = (compact.to, &horizon.view.version);
        let view = &horizon.view;
        let holds = |start: &[u8], end: &[u8]| {
            version.may_hold_range_from(to + 1, start, end) || view.buckets_may_hold_range(start, end, newest)
        };
        let bottom = |start: &[u8], end: &[u8]| !holds(start, end);
        let dropped = |keyspace| horizon.dropped.contains_key(&keyspace);
        let tombstones_left = survivors(&tombstones, &horizon.snapshots, &bottom, &dropped);
        // Nothing fails from here on; the thread that ends the job reports its end.
        if compact.from == 0 {
            let upper = &sources[..sources.len() - 1];
            let upper_bytes = upper.iter().flat_map(|tables| tables.iter()).map(|table| table.meta().size).sum();
            core.pacer.hl0.begin(upper_bytes, tables().map(|table| table.meta().entries).sum());
        }
        core.events.raise(Event::CompactionBegun { from: compact.from, to: compact.to, bytes });
        let (from, began) = (compact.from, now());
        Ok(TableMerge { from, to, sources, newest, horizon, tombstones, tombstones_left, ranges, began })
    }

    /// Estimates how many versions of the output have an older one in other tables: as many as of the input, less those that
    /// were dropped.
    fn note_covering(&self, core: &Core, written: &[Arc<Table>]) {
        let entries = |table: &Arc<Table>| table.meta().entries;
        // Older versions lie below.
        let version = &self.horizon.view.version;
        let above = |table: &Arc<Table>| match version.may_hold_range_from(
            self.to + 1,
            &table.meta().smallest,
            &table.meta().end,
        ) {
            true => entries(table),
            false => 0,
        };
        let (last, upper) = self.sources.split_last().expect("a merge has sources");
        let unknown = |count: u64| core.work.space.found_of(count);
        let upper = upper.iter().flat_map(|tables| tables.iter());
        let covering: u64 = upper.map(|table| table.covering().unwrap_or_else(|| unknown(entries(table)))).sum::<u64>()
            + last.iter().map(|table| table.covering().unwrap_or_else(|| unknown(above(table)))).sum::<u64>();
        let before: u64 = self.inputs().map(|meta| meta.entries).sum();
        let left = covering.saturating_sub(before.saturating_sub(written.iter().map(entries).sum()));
        let all: u64 = written.iter().map(above).sum();
        let share_of = |table: &Arc<Table>| u128::from(left) * u128::from(above(table)) / u128::from(all.max(1));
        written.iter().for_each(|table| table.note_covering(share_of(table) as u64));
    }

    /// Called once the tables are part of the database, or never will be.
    fn note_end(&self, core: &Core, written: &[Arc<Table>], segments: &[FileKey], error: Option<&Error>) {
        self.progress(core).iter().for_each(|progress| progress.end(error.is_none()));
        self.report_end(core, written.iter().map(|table| table.meta().size).sum(), error.is_none());
        if let Some(error) = error {
            discard_rejected(error, written);
            if error.is_transient() {
                remove_unreferenced(core, segments);
            }
        }
    }

    /// Reports the end of the job; a failed one leaves no files.
    fn report_end(&self, core: &Core, bytes_written: u64, succeeded: bool) {
        core.events.raise(Event::CompactionEnded {
            from: self.from,
            to: self.to,
            bytes: self.inputs().map(|meta| meta.size).sum(),
            bytes_written: if succeeded { bytes_written } else { 0 },
            duration: now().saturating_sub(self.began),
            succeeded,
        });
    }

    /// The progress of draining HL0, by which writers are paced; `None` for other levels.
    fn progress<'a>(&self, core: &'a Core) -> Option<&'a DrainProgress> {
        (self.from == 0).then_some(&core.pacer.hl0)
    }

    fn inputs(&self) -> impl Iterator<Item = &TableMeta> {
        self.sources.iter().flat_map(|tables| tables.iter()).map(|table| table.meta())
    }
}

/// The output of one subtask.
pub(crate) struct MergedPart {
    tables: Vec<Arc<Table>>,
    /// Records that the inputs reference and the tables do not.
    dead: RecordNotes,
    /// Values that were folded and are separated.
    folded: FoldedExtents,
}

impl SubtaskWork for TableMerge {
    type Output = MergedPart;

    fn count(&self) -> usize {
        self.ranges.len()
    }

    fn subtask(&self, core: &Core, index: usize, yield_points: &YieldPoints<'_>) -> Result<MergedPart, Interrupt> {
        let range = &self.ranges[index];
        let within = |table: &&Arc<Table>| range.overlaps(&table.meta().smallest, &table.meta().end);
        let cursors = self.sources.iter().filter_map(|tables| {
            let tables: Arc<[Arc<Table>]> = tables.iter().filter(within).cloned().collect();
            (!tables.is_empty()).then(|| LevelCursor::new(tables, false))
        });
        let mut cursor = Merging::new(cursors.collect());
        match &range.from {
            Some(from) => cursor.seek(from, Stamp::NEWEST)?,
            None => cursor.seek_first()?,
        }
        // All of HL0 is always taken, and tables flushed meanwhile are newer.
        let view = &self.horizon.view;
        let bottom =
            |key: &[u8]| !view.version.may_hold_below(self.to, key) && !view.buckets_may_hold(key, self.newest);
        let dropped = |keyspace| self.horizon.dropped.contains_key(&keyspace);
        let fetch = |(key, stamp, payload): VersionRef<'_>, deltas: DeltaFigures| {
            let is_worth_it = |base: Address| is_worth_folding(deltas, base.value_len as usize);
            match Address::decode(payload).is_some_and(is_worth_it) {
                // The present view has what the tables that are being merged reference.
                true => {
                    let (present, payload) = (core.published.view(), Slice::copy_from(payload));
                    core.payload(&present, key, stamp, payload, None).map(Some)
                }
                false => Ok(None),
            }
        };
        let horizon = Horizon { fetch: Some(&fetch), ..self.horizon.over(&bottom, &dropped, &core.keyspaces) };
        let mut dead = RecordNotes::at_most(core.settings.tuning.noted_records_max() / self.count());
        let mut note = |stamp: Stamp, payload: Option<&[u8]>| match payload {
            Some(payload) => ReferenceCursor::address_in(stamp, payload).into_iter().for_each(|it| dead.note(it)),
            None => dead.miss(),
        };
        let source = Retention::new(cursor, horizon).until(range.to.as_deref()).with_ranges(&self.tombstones);
        let mut writer = FoldWriter::new(core);
        let source = FoldedValues::new(source.showing_dead(&mut note), &mut writer);
        let source = RefreshedAddresses::new(source, &view.values);
        let source = Watched::new(source, self.progress(core));
        let tombstones = clip(&self.tombstones_left, range);
        let source = Yielding::new(core, source);
        let mut source = WithYieldPoints { source, yield_points };
        let tables = core.write_tables(&mut source, tombstones, self.to, core.table_bytes())?;
        drop(source);
        let folded = writer.finish().inspect_err(|_| tables.iter().for_each(|table| table.mark_obsolete()))?;
        Ok(MergedPart { tables, dead, folded })
    }

    fn join(&self, core: &Core, outputs: Vec<MergedPart>) -> Result<Outcome<'_>> {
        let subtasks = outputs.len() as u64;
        let (mut written, mut dead, mut folded) = (Vec::new(), Vec::new(), FoldedExtents::default());
        for part in outputs {
            written.extend(part.tables);
            dead.push(part.dead);
            folded.add(core, part.folded);
        }
        let made = folded.files.clone();
        let held = core.memory.jobs.hold(dead.iter().map(RecordNotes::bytes).sum());
        self.note_covering(core, &written);
        let seqno = self.inputs().map(|meta| meta.seqno_max).max().unwrap_or_default();
        let inputs: Vec<FileId> = self.inputs().map(|meta| meta.id).collect();
        let read: u64 = self.inputs().map(|meta| meta.size).sum();
        core.counters.bytes_read.fetch_add(read, Ordering::Relaxed);
        let added = written.iter().map(|table| (self.to, table.clone())).collect();
        let outcome = replace_tables(core, seqno, inputs, added, folded);
        let outcome = outcome.inspect_err(|error| self.note_end(core, &written, &made, Some(error)))?;
        let coming = core.current_survey.expect_deaths(&core.published);
        Ok(outcome.then(move |core, installed| {
            core.review_hidden();
            self.note_end(core, &written, &made, installed.as_ref().err());
            core.current_survey.note_dead(coming, if installed.is_ok() { dead } else { Vec::new() });
            drop(held);
            installed?;
            core.counters.compactions.fetch_add(1, Ordering::Release);
            core.counters.compaction_subtasks.fetch_add(subtasks, Ordering::Relaxed);
            Ok(())
        }))
    }

    fn discard(&self, core: &Core, outputs: Vec<MergedPart>) {
        self.progress(core).iter().for_each(|progress| progress.end(false));
        self.report_end(core, 0, false);
        // No edit references them.
        for MergedPart { tables, folded, .. } in outputs {
            tables.iter().for_each(|table| table.mark_obsolete());
            remove_unreferenced(core, &folded.files);
        }
    }
}

/// Groups tables of HL0: each on its own, but those of one ingest together. Tables of an ingest share a sequence number
/// and do not overlap, so one cursor serves all of them.
fn in_rows(mut newest_first: Vec<Arc<Table>>) -> Vec<Arc<[Arc<Table>]>> {
    let of_one_ingest = |one: &Arc<Table>, other: &Arc<Table>| {
        let (one, other) = (one.meta(), other.meta());
        (one.seqno_min, one.seqno_max) == (other.seqno_min, other.seqno_max) && one.seqno_min == one.seqno_max
    };
    let rows = newest_first.chunk_by_mut(of_one_ingest).map(|row| {
        row.sort_by(|one, other| one.meta().smallest.cmp(&other.meta().smallest));
        Arc::from(&*row)
    });
    rows.collect()
}

fn inputs_of(choice: &Choice) -> Vec<FileId> {
    match choice {
        Choice::Nothing => Vec::new(),
        Choice::Drop { tables, .. } => tables.clone(),
        Choice::Move { table, .. } => vec![*table],
        Choice::Compact(compact) => compact.inputs.iter().chain(&compact.inputs_below).copied().collect(),
    }
}

#[cfg(test)]
#[path = "compact_test.rs"]
mod tests;
