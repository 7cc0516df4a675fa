//! Builds a run: the sorted versions of one or more sources of the front, without those that no reader can see. A seal
//! and a merge of runs both do this in subtasks over key ranges; the run appears in the view when its last subtask has
//! ended, and readers never wait for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::memory::Counted;
use crate::base::ranges::{KeyRange, Mark, cut};
use crate::base::tombstones::{Fragment, fragment, survivors, unfold};
use crate::base::versions::Retention;
use crate::base::{Cursor, Result, Seqno};
use crate::engine::claims::Claim;
use crate::engine::core::Core;
use crate::engine::jobs::outcome::Outcome;
use crate::engine::jobs::route::stays;
use crate::engine::jobs::subtasks::{Interrupt, SubtaskJob, SubtaskWork, Subtasks, YieldPoints};
use crate::engine::snapshots::JobHorizon;
use crate::engine::view::Sources;
use crate::front::run::{Run, RunPart};

/// A subtask is not worth a thread of its own below this share of an index table.
const SUBTASKS_PER_INDEX_TABLE: usize = 2;

/// The sources of a run.
pub(crate) trait RunSources: Clone + Send + Sync {
    /// Memory of the sources; an upper bound on the memory of the run.
    fn bytes(&self) -> usize;
    /// Keys at which the job may be split.
    fn marks(&self) -> Vec<Mark>;
    /// The range tombstones of all sources, merged where no snapshot separates them.
    fn tombstones(&self, snapshots: &[Seqno]) -> Result<Vec<Fragment>>;
    /// A cursor at the first version of a range of keys.
    fn cursor(&self, range: &KeyRange) -> Result<impl Cursor>;
    /// The range of sequence numbers that the sources cover.
    fn seqnos(&self) -> (Seqno, Seqno);
    /// Bytes of their records in logs.
    fn kept_bytes(&self) -> u64;
    /// The view with the run in place of its sources.
    fn replace_by(&self, run: &Arc<Run>, sources: &mut Sources);
    /// Counts the finished run.
    fn count(&self, core: &Core);
}

/// The subtasks that build a run of `sources`.
pub(crate) fn plan<S: RunSources + 'static>(core: &Core, sources: &S) -> Result<Box<dyn Subtasks>> {
    Ok(Box::new(SubtaskJob::new(RunBuild::new(core, sources.clone())?)))
}

/// A run being built.
struct RunBuild<S> {
    sources: S,
    horizon: JobHorizon,
    /// The range tombstones of all sources.
    tombstones: Vec<Fragment>,
    ranges: Vec<KeyRange>,
    /// The memory of the run.
    _building: Counted,
}

impl<S: RunSources> RunBuild<S> {
    /// Captures the horizon and splits the job into one subtask per thread, if it is large enough.
    fn new(core: &Core, sources: S) -> Result<RunBuild<S>> {
        let bytes_min = (core.settings.tuning.index_table_bytes / SUBTASKS_PER_INDEX_TABLE) as u64;
        let threads = core.settings.background_threads;
        let marks = if threads == 1 { Vec::new() } else { sources.marks() };
        let _building = core.hold_merging(sources.bytes());
        let horizon = core.job_horizon();
        let tombstones = sources.tombstones(&horizon.snapshots)?;
        Ok(RunBuild { sources, horizon, tombstones, ranges: cut(marks, threads, bytes_min), _building })
    }
}

impl<S: RunSources> SubtaskWork for RunBuild<S> {
    type Output = RunPart;

    fn count(&self) -> usize {
        self.ranges.len()
    }

    fn subtask(&self, core: &Core, index: usize, _: &YieldPoints<'_>) -> Result<RunPart, Interrupt> {
        let range = &self.ranges[index];
        let cursor = self.sources.cursor(range)?;
        let dropped = |keyspace| self.horizon.dropped.contains_key(&keyspace);
        let horizon = self.horizon.over(&|_| false, &dropped, &core.keyspaces);
        let mut source = Retention::new(cursor, horizon).until(range.to.as_deref()).with_ranges(&self.tombstones);
        let mut separations = core.keyspaces.separations();
        let mut stays = |key: &[u8], kind, address| stays(&mut separations, key, kind, address);
        Ok(RunPart::build(&mut source, &mut stays, &core.memory.runs)?)
    }

    fn join(&self, core: &Core, outputs: Vec<RunPart>) -> Result<Outcome<'_>> {
        let dropped = |keyspace| self.horizon.dropped.contains_key(&keyspace);
        let ranges = survivors(&self.tombstones, &self.horizon.snapshots, &|_, _| false, &dropped);
        core.counters.run_subtasks.fetch_add(outputs.len() as u64, Ordering::Relaxed);
        let (seqnos, kept) = (self.sources.seqnos(), self.sources.kept_bytes());
        let run = Arc::new(Run::join(outputs, &ranges, seqnos, kept, &core.memory.runs));
        let outcome = Outcome::view(move |sources| self.sources.replace_by(&run, sources));
        Ok(outcome.then(|core, result| {
            self.sources.count(core);
            result
        }))
    }

    fn discard(&self, _: &Core, _: Vec<RunPart>) {}
}

/// The range tombstones of runs as one list, merged where none of `snapshots` separates them.
pub(crate) fn fragments_of_runs(runs: &[Arc<Run>], snapshots: &[Seqno]) -> Result<Vec<Fragment>> {
    let mut tombstones = Vec::new();
    for run in runs.iter().filter(|run| run.has_ranges()) {
        tombstones.extend(unfold(&run.fragments()?));
    }
    Ok(fragment(&tombstones, snapshots))
}

/// The range of sequence numbers that runs cover together.
pub(crate) fn seqnos_of(oldest_first: &[Arc<Run>]) -> (Seqno, Seqno) {
    let (oldest, newest) = (&oldest_first[0], &oldest_first[oldest_first.len() - 1]);
    (oldest.seqnos().0, newest.seqnos().1)
}

/// The claim of a job on runs that are adjacent in age.
pub(crate) fn claim_of(oldest_first: &[Arc<Run>]) -> Claim {
    let (first, last) = seqnos_of(oldest_first);
    Claim::Runs(first, last)
}
