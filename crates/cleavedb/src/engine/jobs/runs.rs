//! How runs come to be: sealed index tables are sorted, and neighbours in age are merged (DESIGN section 2, "Seal and
//! merge"). Both are jobs in parts over ranges of keys; the run appears in the view when its last part is there, and
//! readers never wait for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::memory::Counted;
use crate::base::ranges::{KeyRange, cut};
use crate::base::tombstones::{Fragment, fragment, survivors};
use crate::base::versions::Retention;
use crate::base::{Cursor, Merging, Result, Seqno, Stamp};
use crate::engine::core::Core;
use crate::engine::jobs::flush::{fragments_of_runs, stays};
use crate::engine::jobs::subtasks::{Interrupt, SubtaskWork, YieldPoints};
use crate::engine::snapshots::JobHorizon;
use crate::engine::view::View;
use crate::front::index_table::IndexTable;
use crate::front::run::{Run, RunPart};

/// A part is not worth a thread of its own below this share of an index table.
const SUBTASKS_PER_INDEX_TABLE: usize = 2;

/// What a run is made of.
pub(crate) enum RunInputs {
    /// The oldest sealed index table.
    Sealed(Arc<IndexTable>),
    /// Neighbours in age, oldest first.
    Runs(Vec<Arc<Run>>),
}

/// The making of a run.
pub(crate) struct RunWork {
    sources: RunInputs,
    horizon: JobHorizon,
    /// The range tombstones of all sources.
    tombstones: Vec<Fragment>,
    ranges: Vec<KeyRange>,
    /// The run that is being built is at most as large as what it is made of.
    _building: Counted,
}

impl RunWork {
    /// Captures the horizon and cuts the job into as many parts as there are threads, if it is large enough.
    pub fn plan(core: &Core, sources: RunInputs) -> Result<RunWork> {
        let bytes_min = (core.settings.tuning.index_table_bytes / SUBTASKS_PER_INDEX_TABLE) as u64;
        let threads = core.settings.background_threads;
        let marks = match &sources {
            _ if threads == 1 => Vec::new(),
            RunInputs::Sealed(table) => table.marks(),
            RunInputs::Runs(runs) => runs.iter().flat_map(|run| run.marks()).collect(),
        };
        let bytes = match &sources {
            RunInputs::Sealed(table) => table.bytes(),
            RunInputs::Runs(runs) => runs.iter().map(|run| run.bytes()).sum(),
        };
        let _building = core.hold_merging(bytes);
        let horizon = core.job_horizon();
        let tombstones = match &sources {
            RunInputs::Sealed(table) if !table.has_ranges() => Vec::new(),
            RunInputs::Sealed(table) => fragment(&table.tombstones(), &horizon.snapshots),
            RunInputs::Runs(runs) => fragments_of_runs(runs, &horizon.snapshots)?,
        };
        Ok(RunWork { sources, horizon, tombstones, ranges: cut(marks, threads, bytes_min), _building })
    }

    fn build(&self, core: &Core, cursor: impl Cursor, range: &KeyRange) -> Result<RunPart> {
        let dropped = |keyspace| self.horizon.dropped.contains_key(&keyspace);
        let horizon = self.horizon.over(&|_| false, &dropped, &core.keyspaces);
        let mut source = Retention::new(cursor, horizon).until(range.to.as_deref()).with_ranges(&self.tombstones);
        let mut separations = core.keyspaces.separations();
        let mut stays = |key: &[u8], kind, address| stays(&mut separations, key, kind, address);
        RunPart::build(&mut source, &mut stays, &core.memory.runs)
    }
}

impl SubtaskWork for RunWork {
    type Output = RunPart;

    fn parts(&self) -> usize {
        self.ranges.len()
    }

    fn part(&self, core: &Core, index: usize, _: &YieldPoints<'_>) -> Result<RunPart, Interrupt> {
        let range = &self.ranges[index];
        match &self.sources {
            RunInputs::Sealed(table) => {
                let mut cursor = table.sealed_cursor(range);
                cursor.seek_first()?;
                Ok(self.build(core, cursor, range)?)
            }
            RunInputs::Runs(runs) => {
                let newest_first: Vec<_> = runs.iter().rev().map(|run| run.cursor()).collect();
                let mut cursor = Merging::new(newest_first);
                match &range.from {
                    Some(from) => cursor.seek(from, Stamp::NEWEST)?,
                    None => cursor.seek_first()?,
                }
                Ok(self.build(core, cursor, range)?)
            }
        }
    }

    fn join(&self, core: &Core, outputs: Vec<RunPart>) -> Result<()> {
        let dropped = |keyspace| self.horizon.dropped.contains_key(&keyspace);
        let ranges = survivors(&self.tombstones, &self.horizon.snapshots, &|_, _| false, &dropped);
        core.counters.run_subtasks.fetch_add(outputs.len() as u64, Ordering::Relaxed);
        match &self.sources {
            RunInputs::Sealed(table) => {
                let seqnos = table.seqnos().expect("only tables with versions are sealed");
                let run = Arc::new(Run::join(outputs, &ranges, seqnos, table.kept_bytes(), &core.memory.runs));
                core.published.update(|now| with_sealed(now, table, &run));
                core.counters.seals.fetch_add(1, Ordering::Relaxed);
            }
            RunInputs::Runs(runs) => {
                let kept = runs.iter().map(|run| run.kept_bytes()).sum();
                let run = Arc::new(Run::join(outputs, &ranges, seqnos_of(runs), kept, &core.memory.runs));
                core.published.update(|now| with_merged(now, runs, &run));
                core.counters.index_merges.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn discard(&self, _: &Core, _: Vec<RunPart>) {}
}

fn seqnos_of(oldest_first: &[Arc<Run>]) -> (Seqno, Seqno) {
    let (oldest, newest) = (&oldest_first[0], &oldest_first[oldest_first.len() - 1]);
    (oldest.seqnos().0, newest.seqnos().1)
}

/// The view with a run in the place of the oldest sealed index table.
fn with_sealed(now: &View, table: &Arc<IndexTable>, run: &Arc<Run>) -> View {
    now.with(|sources| {
        let oldest = sources.sealed.pop();
        assert!(oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, table)), "index tables become runs in order of age");
        sources.runs.insert(0, run.clone());
    })
}

/// The view with a run in the place of those it was merged from.
fn with_merged(now: &View, oldest_first: &[Arc<Run>], run: &Arc<Run>) -> View {
    let newest = &oldest_first[oldest_first.len() - 1];
    let first = now.runs.iter().position(|run| Arc::ptr_eq(run, newest));
    let first = first.expect("runs that are being merged stay in the view");
    now.with(|sources| drop(sources.runs.splice(first..first + oldest_first.len(), [run.clone()])))
}
