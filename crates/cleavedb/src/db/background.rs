//! Background work: which job is next, the threads that run jobs, and the writers that wait for them.
//!
//! All decisions are taken under one lock, which is never held while a job runs. The first thread keeps to the front
//! (seal, flush, index merge, logs) if there is another for compaction, so that a long compaction never stops a flush.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::core::{Core, guard_panic};
use super::view::View;
use crate::base::versions::{Horizon, Retention};
use crate::base::{Cursor, Error, FileId, Merging, Result, Seqno};
use crate::front::index_table::IndexTable;
use crate::front::merge_policy;
use crate::front::run::Run;
use crate::levels::picker::{Choice, Running};
use crate::sched::clock::now;
use crate::sched::sync::{Condvar, Mutex, MutexGuard};
use crate::sched::thread::{JoinHandle, spawn};

/// Writers wait while this many index tables are waiting to become runs.
const SEALED_MAX: usize = 4;
/// After a full disk, jobs are tried again this often.
const NO_SPACE_RETRY: Duration = Duration::from_millis(100);

/// The state of background work.
#[derive(Default)]
pub(crate) struct Work {
    state: Mutex<WorkState>,
    /// There may be a new job.
    changed: Condvar,
    /// A job has ended.
    progress: Condvar,
    stalled: AtomicBool,
    flushed: AtomicU64,
    threads: Mutex<Vec<JoinHandle>>,
}

/// What is running, and what was asked for.
#[derive(Default)]
pub(crate) struct WorkState {
    sealing: bool,
    /// How many of the oldest runs are being flushed.
    flushing: usize,
    merging: Vec<Arc<Run>>,
    preparing_log: bool,
    emptying_trash: bool,
    /// What compactions write.
    pub compacting: Vec<Running>,
    /// Tables that compactions read.
    pub busy_tables: BTreeSet<FileId>,
    /// Everything up to here is to be flushed now.
    flush_target: Seqno,
    /// Jobs started so far.
    started: u64,
    /// A job found the disk full, and nothing has succeeded since: which job, and what could not grow.
    no_space: Option<(u64, PathBuf)>,
    stop: bool,
}

impl WorkState {
    /// An error if a job that was started after number `since` found the disk full.
    fn check_space(&self, since: u64) -> Result<()> {
        match &self.no_space {
            Some((number, path)) if *number > since => Err(Error::NoSpace { path: path.clone() }),
            _ => Ok(()),
        }
    }
}

/// Something to do.
enum Job {
    Seal(Arc<IndexTable>),
    Flush(Vec<Arc<Run>>),
    MergeRuns(Vec<Arc<Run>>),
    PrepareLog,
    EmptyTrash,
    Compact(Choice),
}

impl Work {
    pub fn lock(&self) -> MutexGuard<'_, WorkState> {
        self.state.lock()
    }

    /// There may be a new job.
    pub fn wake(&self) {
        // The lock makes sure that a thread that found nothing is already waiting.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Something changed for everyone.
    pub fn wake_all(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
        self.progress.notify_all();
    }

    /// True once the threads are told to end.
    pub fn is_stopping(&self, state: &WorkState) -> bool {
        state.stop
    }

    /// Waits until a job has ended.
    pub fn wait_for_progress(&self, state: &mut MutexGuard<'_, WorkState>) {
        self.progress.wait(state);
    }

    /// Everything up to `seqno` is in tables.
    pub fn note_flushed(&self, seqno: Seqno) {
        self.flushed.fetch_max(seqno.0, Ordering::AcqRel);
    }

    /// Everything up to here is in tables.
    pub fn flushed(&self) -> Seqno {
        Seqno(self.flushed.load(Ordering::Acquire))
    }
}

impl Core {
    /// Starts the threads.
    pub fn start_background(self: &Arc<Core>) {
        let count = self.settings.background_threads;
        let mut threads = self.work.threads.lock();
        for index in 0..count {
            let core = self.clone();
            let front_only = index == 0 && count > 1;
            threads.push(spawn(&format!("cleave-work-{index}"), move || core.run_background(front_only)));
        }
    }

    /// Ends the threads after the jobs they are in.
    pub fn stop_background(&self) {
        self.work.lock().stop = true;
        self.work.wake_all();
        // Compactions that users asked for run in their threads.
        let mut state = self.work.lock();
        while !state.busy_tables.is_empty() {
            self.work.progress.wait(&mut state);
        }
        drop(state);
        for thread in std::mem::take(&mut *self.work.threads.lock()) {
            // Jobs catch their own panics, so there is nothing to hear.
            let _ = thread.join();
        }
    }

    fn run_background(&self, front_only: bool) {
        let mut state = self.work.lock();
        while !state.stop {
            let job = if self.check_poison().is_ok() { self.next_job(&mut state, front_only) } else { None };
            state.started += 1;
            let number = state.started;
            let Some(job) = job else {
                if state.no_space.is_some() {
                    self.work.changed.wait_for(&mut state, NO_SPACE_RETRY);
                } else {
                    self.work.changed.wait(&mut state);
                }
                continue;
            };
            drop(state);
            let result = self.run_job_safely(&job);
            // What went wrong is known before anyone can see that the job is over.
            if let Err(error) = &result
                && !matches!(error, Error::NoSpace { .. })
            {
                // Storage or our own files cannot be trusted; going on could make it worse.
                self.poison(error);
            }
            state = self.work.lock();
            self.finish_job(&mut state, &job, number, result);
            self.work.changed.notify_all();
            self.work.progress.notify_all();
        }
    }

    fn finish_job(&self, state: &mut MutexGuard<'_, WorkState>, job: &Job, number: u64, result: Result<()>) {
        match job {
            Job::Seal(_) => state.sealing = false,
            Job::Flush(_) => state.flushing = 0,
            Job::MergeRuns(_) => state.merging.clear(),
            Job::PrepareLog => state.preparing_log = false,
            Job::EmptyTrash => state.emptying_trash = false,
            Job::Compact(choice) => self.release_choice(state, choice),
        }
        self.fit_cache();
        self.update_stall();
        match result {
            Err(Error::NoSpace { path }) => {
                state.no_space = Some((number, path));
                // Not at once again: something has to make room first.
                self.work.progress.notify_all();
                self.work.changed.wait_for(state, NO_SPACE_RETRY);
            }
            _ => state.no_space = None,
        }
    }

    /// The next job, marked as running.
    fn next_job(&self, state: &mut WorkState, front_only: bool) -> Option<Job> {
        let view = self.published.view();
        if !state.emptying_trash && !self.trash.is_empty() {
            state.emptying_trash = true;
            return Some(Job::EmptyTrash);
        }
        // On a full disk what gives space back comes first.
        if state.no_space.is_none() && self.wants_log(state) {
            return Some(Job::PrepareLog);
        }
        if let Some(table) = view.sealed.last().filter(|_| !state.sealing) {
            state.sealing = true;
            return Some(Job::Seal(table.clone()));
        }
        if let Some(runs) = self.runs_to_flush(state, &view) {
            state.flushing = runs.len();
            return Some(Job::Flush(runs));
        }
        if let Some(runs) = self.runs_to_merge(state, &view) {
            state.merging = runs.clone();
            return Some(Job::MergeRuns(runs));
        }
        let compaction = match front_only {
            true => None,
            false => self.choose_compaction(state).filter(|choice| *choice != Choice::Nothing),
        };
        compaction.map(Job::Compact).or_else(|| self.wants_log(state).then_some(Job::PrepareLog))
    }

    /// The next log is not ready, and nobody makes it: the caller does.
    fn wants_log(&self, state: &mut WorkState) -> bool {
        let wants = !state.preparing_log && self.logs.wants_spare();
        state.preparing_log |= wants;
        wants
    }

    /// The oldest runs, oldest first, if it is time to flush them.
    fn runs_to_flush(&self, state: &WorkState, view: &View) -> Option<Vec<Arc<Run>>> {
        if state.flushing > 0 {
            return None;
        }
        let tuning = &self.settings.tuning;
        // A full index table shrinks a little when it becomes a run, and is still worth a flush.
        let flush_bytes = tuning.flush_bytes / 4 * 3;
        let merging = |run: &&Arc<Run>| state.merging.iter().any(|other| Arc::ptr_eq(other, run));
        let mut total = 0;
        let mut oldest = Vec::new();
        for run in view.runs.iter().rev().take_while(|run| !merging(run)) {
            if total >= flush_bytes {
                break;
            }
            total += run.weight();
            oldest.push(run.clone());
        }
        let asked = oldest.first().is_some_and(|run| run.seqnos().0 <= state.flush_target);
        // However little of them is still live, logs do not pile up.
        let due = total >= flush_bytes
            || asked
            || view.front_bytes() > tuning.front_bytes_max
            || unflushed_log_bytes(view, self.work.flushed()) > tuning.logs_bytes_max / 2;
        (due && !oldest.is_empty()).then_some(oldest)
    }

    /// Neighbours in age to merge, oldest first.
    fn runs_to_merge(&self, state: &WorkState, view: &View) -> Option<Vec<Arc<Run>>> {
        if !state.merging.is_empty() {
            return None;
        }
        let idle: Vec<&Arc<Run>> = view.runs.iter().rev().skip(state.flushing).collect();
        let sizes: Vec<u64> = idle.iter().map(|run| run.weight()).collect();
        let tuning = &self.settings.tuning;
        let range = merge_policy::pick(&sizes, tuning.index_merge_runs, tuning.flush_bytes)?;
        Some(idle[range].iter().map(|run| Arc::clone(run)).collect())
    }

    /// Runs a job; a panic is a broken invariant of ours, after which no write can be promised.
    fn run_job_safely(&self, job: &Job) -> Result<()> {
        guard_panic("a background job", || self.run_job(job))
    }

    fn run_job(&self, job: &Job) -> Result<()> {
        match job {
            Job::Seal(table) => self.seal_to_run(table),
            Job::Flush(runs) => self.flush_runs(runs),
            Job::MergeRuns(runs) => self.merge_runs(runs),
            Job::PrepareLog => self.prepare_spare_log(),
            Job::EmptyTrash => self.empty_trash(),
            Job::Compact(choice) => self.run_choice(choice),
        }
    }

    /// Sorts the oldest sealed index table into a run.
    fn seal_to_run(&self, table: &Arc<IndexTable>) -> Result<()> {
        let _building = self.hold_merging(table.bytes());
        let cursor = table.sealed_cursor();
        let run = self.build_run(cursor, table.seqnos().expect("only tables with versions are sealed"))?;
        self.published.update(|now| {
            let mut next = now.clone();
            let oldest = next.sealed.pop();
            assert!(
                oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, table)),
                "index tables become runs in order of age"
            );
            next.runs.insert(0, run.clone());
            next
        });
        self.counters.seals.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Merges neighbouring runs, given oldest first, into one.
    fn merge_runs(&self, runs: &[Arc<Run>]) -> Result<()> {
        let _building = self.hold_merging(runs.iter().map(|run| run.bytes()).sum());
        let newest_first: Vec<_> = runs.iter().rev().map(|run| run.cursor()).collect();
        let (oldest, newest) = (&runs[0], &runs[runs.len() - 1]);
        let run = self.build_run(Merging::new(newest_first), (oldest.seqnos().0, newest.seqnos().1))?;
        self.published.update(|now| {
            let mut next = now.clone();
            let first = next.runs.iter().position(|run| Arc::ptr_eq(run, newest));
            let first = first.expect("runs that are being merged stay in the view");
            next.runs.splice(first..first + runs.len(), [run.clone()]);
            next
        });
        self.counters.index_merges.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn build_run(&self, mut cursor: impl Cursor, seqnos: (Seqno, Seqno)) -> Result<Arc<Run>> {
        let (_, snapshots) = self.snapshots.capture(&self.published);
        let dropped = self.keyspaces.dropped();
        let horizon = Horizon {
            snapshots,
            bottom: &|_| false,
            dropped: &|keyspace| dropped.contains_key(&keyspace),
            operators: &self.keyspaces,
        };
        cursor.seek_first()?;
        let mut source = Retention::new(cursor, horizon);
        Ok(Arc::new(Run::build(&mut source, seqnos, &self.memory.runs)?))
    }

    /// Removes files that the manifest has forgotten and nothing reads any more.
    pub fn empty_trash(&self) -> Result<()> {
        for path in self.trash.take() {
            // Nothing depends on it: what cannot be removed now is removed by the next open.
            let _ = self.storage.remove(&path);
        }
        Ok(())
    }

    /// Writes everything in the front to tables and waits for it.
    pub fn flush(&self) -> Result<()> {
        self.check_open()?;
        self.flush_front()
    }

    /// As [`flush`](Core::flush), also while closing.
    pub fn flush_front(&self) -> Result<()> {
        let target = {
            let commit = self.commit.lock();
            self.check_poison()?;
            self.seal();
            commit.last_seqno
        };
        let mut state = self.work.lock();
        let since = state.started;
        state.flush_target = state.flush_target.max(target);
        self.work.changed.notify_all();
        let in_front = || {
            let view = self.published.view();
            !view.sealed.is_empty() || view.runs.iter().any(|run| run.seqnos().0 <= target)
        };
        while self.work.flushed() < target && in_front() {
            if state.stop {
                return Err(Error::Closed);
            }
            self.check_poison()?;
            state.check_space(since)?;
            self.work.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Waits while the front or HL0 is over its limits.
    pub fn wait_for_room(&self) -> Result<()> {
        if !self.work.stalled.load(Ordering::Relaxed) {
            return Ok(());
        }
        let started = now();
        let mut state = self.work.lock();
        let since = state.started;
        let mut waited = false;
        while self.is_stalled() {
            self.check_open()?;
            self.check_poison()?;
            state.check_space(since)?;
            waited = true;
            self.work.progress.wait(&mut state);
        }
        if waited {
            self.counters.stalls.fetch_add(1, Ordering::Relaxed);
            self.counters.stall_us.fetch_add((now() - started).as_micros() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Looks again whether writers must wait.
    pub fn update_stall(&self) {
        self.work.stalled.store(self.is_stalled(), Ordering::Relaxed);
    }

    fn is_stalled(&self) -> bool {
        let view = self.published.view();
        let tuning = &self.settings.tuning;
        view.sealed.len() >= SEALED_MAX
            || view.front_bytes() > tuning.front_bytes_max + tuning.index_table_bytes
            || is_flush_behind(&view, self.work.flushed(), tuning.logs_bytes_max)
            || view.version.levels()[0].tables().len() >= tuning.hl0_stop_tables
    }
}

/// Logs hold too much that flushes under way or waiting will free. What only the active table leads to is not behind.
fn is_flush_behind(view: &View, flushed: Seqno, bytes_max: u64) -> bool {
    let has_work = !view.sealed.is_empty() || !view.runs.is_empty();
    has_work && unflushed_log_bytes(view, flushed) > bytes_max
}

/// Bytes of the logs that hold anything not yet in tables: what recovery would read.
fn unflushed_log_bytes(view: &View, flushed: Seqno) -> u64 {
    view.logs.values().filter(|log| log.last_seqno() > flushed).map(|log| log.end()).sum()
}
