//! Compaction jobs: what the picker chose, carried out and committed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::key_bounds::Between;
use crate::base::ranges::{KeyRange, cut};
use crate::base::tombstones::{Fragment, clip, fragment, survivors, unfold};
use crate::base::versions::{Horizon, Retention};
use crate::base::{Cursor, Error, FileId, KeyspaceId, Merging, Result, Seqno, Slice, Stamp};
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::jobs::flush::discard_rejected;
use crate::engine::jobs::retry::Need;
use crate::engine::jobs::scheduler::{WorkState, unreadable};
use crate::engine::jobs::subtasks::{Interrupt, SubtaskWork, WithYieldPoints, YieldPoints};
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::pacer::{DrainProgress, Watched};
use crate::engine::read::bounds::Bounds;
use crate::engine::referrers::{Referrer, Tables};
use crate::engine::snapshots::JobHorizon;
use crate::engine::value_files::RefreshedAddresses;
use crate::engine::view::View;
use crate::format::edit::Edit;
use crate::format::meta::TableMeta;
use crate::levels::level_cursor::LevelCursor;
use crate::levels::picker::{Choice, Compact, Figures, LevelTargets, choose, choose_range, wanted_snapshot};
use crate::levels::table::Table;
use crate::sched::clock::now;

/// A part is not worth a thread of its own below this many output tables.
const SUBTASK_TABLES: u64 = 2;

impl Core {
    /// The most urgent compaction, marked as running.
    pub fn choose_compaction(&self, state: &mut WorkState) -> Option<Choice> {
        let quarantined = state.quarantined.clone();
        self.choose_with(state, &quarantined, |figures| Some(choose(figures)))
    }

    /// The shape that the levels should have.
    pub fn level_targets(&self) -> LevelTargets {
        let tuning = &self.settings.tuning;
        LevelTargets { hl0_trigger: tuning.hl0_compact_tables, base_bytes: tuning.level_base_bytes, multiplier: 10 }
    }

    fn choose_with(
        &self,
        state: &mut WorkState,
        quarantined: &BTreeSet<FileId>,
        choose: impl FnOnce(&Figures<'_>) -> Option<Choice>,
    ) -> Option<Choice> {
        let tuning = &self.settings.tuning;
        // Each thread that compacts has its part of the memory for jobs.
        if state.compacting_threads >= tuning.compactions_max {
            return None;
        }
        let view = self.published.view();
        let (version, values) = (&view.version, &view.values);
        let dropped: Vec<KeyspaceId> = self.keyspaces.dropped().into_keys().collect();
        let mut figures = Figures {
            levels: version.figures(&|id| state.busy_tables.contains(&id) || quarantined.contains(&id)),
            targets: self.level_targets(),
            dropped: &dropped,
            running: &state.compacting,
            oldest_snapshot: self.snapshots.oldest(&self.published),
            stale: &state.stale.due,
            stale_when_idle: &state.stale.when_idle,
            uncovers: false,
            when_idle: self.is_in_order(state),
        };
        self.snapshots.notify_from(wanted_snapshot(&figures));
        // What was released before that is seen now; what is released later, tells.
        figures.oldest_snapshot = self.snapshots.oldest(&self.published);
        // What is known to be dead is removed first, unless it is the smaller part.
        let is_emptied = values.victims.iter().any(|file| !state.quarantined.contains(file));
        figures.uncovers = self.hides_too_much(&view, &figures) && (!is_emptied || self.hides_much(values));
        let choice = choose(&figures)?;
        let uncovers = figures.uncovers;
        drop(figures);
        if uncovers && choice == Choice::Nothing && state.compacting.is_empty() {
            self.work.space.nothing_to_uncover();
        }
        state.busy_tables.extend(inputs_of(&choice));
        if let Choice::Compact(compact) = &choice {
            state.compacting.push(compact.running());
        }
        Some(choice)
    }

    /// Carries out a choice that needs no merge.
    pub fn run_choice(&self, choice: &Choice) -> Result<()> {
        match choice {
            Choice::Nothing => Ok(()),
            Choice::Drop { tables, .. } => {
                self.replace_tables(Seqno::ZERO, tables, Vec::new())?;
                self.forget_dropped_keyspaces()
            }
            Choice::Move { to, table, .. } => {
                let version = self.published.view().version.clone();
                let found = version.find(*table).map(|(_, table)| table.clone());
                let moved = found.expect("a table that a job has marked stays in the version");
                self.replace_tables(Seqno::ZERO, &[*table], vec![(*to, moved)])
            }
            Choice::Compact(_) => unreachable!("a merge of tables is done in parts"),
        }
    }

    /// The job is over: its tables may be chosen again.
    pub fn release_choice(&self, state: &mut WorkState, choice: &Choice) {
        for id in inputs_of(choice) {
            state.busy_tables.remove(&id);
        }
        if let Choice::Compact(compact) = choice {
            let running = compact.running();
            let index = state.compacting.iter().position(|other| *other == running);
            state.compacting.swap_remove(index.expect("a running compaction is listed until it ends"));
        }
    }

    /// The table of a choice that lies at `path`.
    pub fn unreadable_table(&self, choice: &Choice, path: &Path) -> Option<FileId> {
        let version = self.published.view().version.clone();
        let lies_there = |id: &FileId| version.find(*id).is_some_and(|(_, table)| **table.path() == *path);
        inputs_of(choice).into_iter().find(lies_there)
    }

    /// Commits that `added` take the place of `removed`.
    fn replace_tables(&self, seqno: Seqno, removed: &[FileId], added: Vec<(usize, Arc<Table>)>) -> Result<()> {
        let kept = |id: &FileId| added.iter().any(|(_, table)| table.meta().id == *id);
        let version = self.published.view().version.clone();
        let gone = removed.iter().filter(|id| !kept(id));
        let gone: Vec<_> = gone.filter_map(|id| version.find(*id)).map(|(_, table)| table.clone()).collect();
        let new = added.iter().filter(|(_, table)| !removed.contains(&table.meta().id));
        let new: Vec<_> = new.map(|(_, table)| table.clone()).collect();
        let edit = Edit {
            tables_removed: removed.to_vec(),
            files_added: new.iter().map(|table| table.key()).collect(),
            tables_added: added.iter().map(|(level, table)| (*level as u8, table.meta().clone())).collect(),
            referenced: Tables::each(&new).references()?,
            released: Tables::each(&gone).references()?,
            ..Edit::default()
        };
        self.install(seqno, edit, |now| {
            for id in removed.iter().filter(|id| !kept(id)) {
                if let Some((_, table)) = now.version.find(*id) {
                    table.mark_obsolete();
                }
            }
            View { version: Arc::new(now.version.apply(&added, removed)), ..now.clone() }
        })
    }

    /// Merges everything in a range down to the lowest level that holds some of it; waits. Called by users.
    pub fn compact_range(&self, keyspace: &KeyspaceState, range: Between<'_>) -> Result<()> {
        self.check_writable()?;
        keyspace.check(self.database)?;
        self.flush()?;
        let bounds = Bounds::of_range(keyspace.record.id, range);
        if bounds.is_empty() {
            return Ok(());
        }
        let end = bounds.upper.unwrap_or_else(|| vec![0xff; crate::base::limits::KEY_BYTES_MAX + 5]);
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
            // Everything lies in one level already: what snapshots kept there may go now.
            self.compact_level_range(lowest, lowest, &bounds.lower, &end)?;
        }
        Ok(())
    }

    /// False if there was nothing to do.
    fn compact_level_range(&self, from: usize, to: usize, start: &[u8], end: &[u8]) -> Result<bool> {
        let mut state = self.work.lock();
        let choice = loop {
            if self.work.is_stopping(&state) {
                return Err(Error::Closed);
            }
            self.check_poison()?;
            // A pause that began after the level before this one is waited out.
            let choice = match self.is_paused(&state) {
                true => None,
                // Tables that could not be read are tried again when a user asks.
                false => self
                    .choose_with(&mut state, &BTreeSet::new(), |figures| choose_range(figures, from, to, start, end)),
            };
            match choice {
                Some(choice) => break choice,
                None => self.work.wait_for_progress(&mut state),
            }
        };
        state.compacting_threads += 1;
        drop(state);
        let result = self.run_and_wait(&choice);
        let result = match &result {
            Err(error) if unreadable(error).and_then(|path| self.unreadable_table(&choice, path)).is_some() => result,
            _ => self.guarded(result),
        };
        let mut state = self.work.lock();
        if result.is_ok() {
            state.shortages.clear(Need::Compaction);
        }
        state.compacting_threads -= 1;
        self.release_choice(&mut state, &choice);
        drop(state);
        self.update_pace();
        self.work.wake_all();
        result.map(|()| choice != Choice::Nothing)
    }
}

/// A merge of tables.
pub(crate) struct TableWork {
    from: usize,
    to: usize,
    /// The tables of HL0 each by itself (or with the others of its load), newest first; those of another level one after
    /// the other.
    sources: Vec<Arc<[Arc<Table>]>>,
    horizon: JobHorizon,
    /// The range tombstones of all sources, and what is to be written of them.
    tombstones: Vec<Fragment>,
    tombstones_left: Vec<Fragment>,
    ranges: Vec<KeyRange>,
    began: Duration,
}

impl TableWork {
    /// Captures the horizon and cuts the job into as many parts as there are threads for it, if it is large enough.
    pub fn plan(core: &Core, compact: &Compact) -> Result<TableWork> {
        let horizon = core.job_horizon();
        let version = &horizon.view.version;
        let find = |id: &FileId| {
            let found = version.find(*id).map(|(_, table)| table.clone());
            found.expect("a table that a job has marked stays in the version")
        };
        let upper = compact.inputs.iter().map(find);
        let mut sources: Vec<Arc<[Arc<Table>]>> = match compact.from {
            0 => in_rows(upper.collect()),
            _ => vec![upper.collect()],
        };
        sources.push(compact.inputs_below.iter().map(find).collect());
        let tables = || sources.iter().flat_map(|tables| tables.iter());
        let bytes: u64 = tables().map(|table| table.meta().size).sum();
        let bytes_min = core.table_bytes() * SUBTASK_TABLES;
        let threads = core.settings.background_threads.min(core.settings.tuning.compactions_max);
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
        let (to, version) = (compact.to, &horizon.view.version);
        let bottom = |start: &[u8], end: &[u8]| !version.may_hold_range_from(to + 1, start, end);
        let dropped = |keyspace| horizon.dropped.contains_key(&keyspace);
        let tombstones_left = survivors(&tombstones, &horizon.snapshots, &bottom, &dropped);
        // From here on nothing fails, and whoever ends the job tells of it.
        if compact.from == 0 {
            let upper = &sources[..sources.len() - 1];
            let upper_bytes = upper.iter().flat_map(|tables| tables.iter()).map(|table| table.meta().size).sum();
            core.pacer.hl0.begin(upper_bytes, tables().map(|table| table.meta().entries).sum());
        }
        core.events.raise(Event::CompactionBegun { from: compact.from, to: compact.to, bytes });
        let (from, began) = (compact.from, now());
        Ok(TableWork { from, to, sources, horizon, tombstones, tombstones_left, ranges, began })
    }

    /// Tells that the job is over; of one that failed nothing is left.
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

    /// What writers pace themselves by, if it is HL0 that gets emptier.
    fn progress<'a>(&self, core: &'a Core) -> Option<&'a DrainProgress> {
        (self.from == 0).then_some(&core.pacer.hl0)
    }

    fn inputs(&self) -> impl Iterator<Item = &TableMeta> {
        self.sources.iter().flat_map(|tables| tables.iter()).map(|table| table.meta())
    }
}

impl SubtaskWork for TableWork {
    type Output = Vec<Arc<Table>>;

    fn parts(&self) -> usize {
        self.ranges.len()
    }

    fn part(&self, core: &Core, index: usize, yield_points: &YieldPoints<'_>) -> Result<Vec<Arc<Table>>, Interrupt> {
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
        // HL0 is always taken whole, and what a flush brings meanwhile is newer.
        let bottom = |key: &[u8]| !self.horizon.view.version.may_hold_below(self.to, key);
        let dropped = |keyspace| self.horizon.dropped.contains_key(&keyspace);
        let view = &self.horizon.view;
        let fetch =
            |key: &[u8], stamp: Stamp, payload: &[u8]| core.payload(view, key, stamp, Slice::copy_from(payload), None);
        let horizon = Horizon { fetch: Some(&fetch), ..self.horizon.over(&bottom, &dropped, &core.keyspaces) };
        let source = Retention::new(cursor, horizon).until(range.to.as_deref()).with_ranges(&self.tombstones);
        let source = Watched::new(RefreshedAddresses::new(source, &view.values), self.progress(core));
        let tombstones = clip(&self.tombstones_left, range);
        core.write_tables(&mut WithYieldPoints { source, yield_points }, tombstones, self.to, core.table_bytes())
    }

    fn join(&self, core: &Core, outputs: Vec<Vec<Arc<Table>>>) -> Result<()> {
        let parts = outputs.len() as u64;
        let written = outputs.concat();
        let seqno = self.inputs().map(|meta| meta.seqno_max).max().unwrap_or_default();
        let inputs: Vec<FileId> = self.inputs().map(|meta| meta.id).collect();
        let read: u64 = self.inputs().map(|meta| meta.size).sum();
        core.counters.bytes_read.fetch_add(read, Ordering::Relaxed);
        let added = written.iter().map(|table| (self.to, table.clone())).collect();
        let installed = core.replace_tables(seqno, &inputs, added);
        self.progress(core).iter().for_each(|progress| progress.end(installed.is_ok()));
        self.report_end(core, written.iter().map(|table| table.meta().size).sum(), installed.is_ok());
        installed.inspect_err(|error| discard_rejected(error, &written))?;
        let rows = self.sources.iter().map(|tables| tables.iter().map(|table| table.meta().bytes_separated).sum());
        core.work.space.note_merge(rows, written.iter().map(|table| table.meta().bytes_separated).sum());
        core.counters.compactions.fetch_add(1, Ordering::Relaxed);
        core.counters.compaction_subtasks.fetch_add(parts, Ordering::Relaxed);
        core.forget_dropped_keyspaces()
    }

    fn discard(&self, core: &Core, outputs: Vec<Vec<Arc<Table>>>) {
        self.progress(core).iter().for_each(|progress| progress.end(false));
        self.report_end(core, 0, false);
        // No edit names them.
        outputs.iter().flatten().for_each(|table| table.mark_obsolete());
    }
}

/// Tables of HL0 each by itself, but those of one load in a row: they share a sequence number, so they do not overlap, and
/// one cursor does for all of them, however many they are.
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
