//! Merge of runs: joins runs that are adjacent in age, using the CPU only, so that fewer are searched by reads and
//! flushed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::ranges::{KeyRange, Mark};
use crate::base::tombstones::Fragment;
use crate::base::{Cursor, Merging, Result, Seqno, Stamp};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::build_run::{RunSources, claim_of, fragments_of_runs, plan, seqnos_of};
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Look, Offer, Plan};
use crate::engine::shortages::Need;
use crate::engine::view::{Sources, View};
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::front::merge_policy;
use crate::front::run::Run;

/// Due when enough adjacent runs are of similar size.
pub(crate) const KIND: JobKind =
    JobKind { priority: Priority::Merge, duties: &[Duty::Front, Duty::FrontAndSubtasks, Duty::All], next };

/// Merges runs, oldest first.
#[derive(Clone)]
struct MergeRuns(Vec<Arc<Run>>);

fn next(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    if state.has(Sole::MergedRun) {
        return None;
    }
    // The oldest runs may be being flushed.
    let is_claimed = |run: &&Arc<Run>| state.is_claimed(&Claims(vec![claim_of(&[Arc::clone(run)])]));
    let free: Vec<&Arc<Run>> = look.view.runs.iter().rev().skip_while(is_claimed).collect();
    let sizes: Vec<u64> = free.iter().map(|run| run.weight()).collect();
    let range = core.pick_runs(&look.view, &sizes)?;
    JobKind::begin(MergeRuns(free[range].iter().map(|run| Arc::clone(run)).collect()))
}

impl Core {
    /// The runs to merge next, of runs with these weights, oldest first.
    pub fn pick_runs(&self, view: &View, sizes: &[u64]) -> Option<Range<usize>> {
        let setting = self.scheduler.setting();
        // A merged run has memory of its own; a larger flush takes several.
        let bytes_max = setting.flush_bytes.min(self.front_room(view).flush_bytes_max);
        merge_policy::pick(sizes, setting.merge_runs, bytes_max)
    }
}

impl Job for MergeRuns {
    fn profile(&self, _: &Core) -> Profile {
        Profile {
            name: "merge runs",
            claims: Claims::sole(Sole::MergedRun).and(claim_of(&self.0)),
            binds: Binds::CPU,
            class: Class::Mandatory,
            memory: MemoryShare::Own,
            need: Need::Flush,
            meets_need: false,
        }
    }

    fn plan(&self, core: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Subtasks(plan(core, self)?))
    }
}

impl RunSources for MergeRuns {
    fn bytes(&self) -> usize {
        self.0.iter().map(|run| run.bytes()).sum()
    }

    fn marks(&self) -> Vec<Mark> {
        self.0.iter().flat_map(|run| run.marks()).collect()
    }

    fn tombstones(&self, snapshots: &[Seqno]) -> Result<Vec<Fragment>> {
        fragments_of_runs(&self.0, snapshots)
    }

    fn cursor(&self, range: &KeyRange) -> Result<impl Cursor> {
        let mut cursor = Merging::new(self.0.iter().rev().map(|run| run.cursor()).collect());
        match &range.from {
            Some(from) => cursor.seek(from, Stamp::NEWEST)?,
            None => cursor.seek_first()?,
        }
        Ok(cursor)
    }

    fn seqnos(&self) -> (Seqno, Seqno) {
        seqnos_of(&self.0)
    }

    fn kept_bytes(&self) -> u64 {
        self.0.iter().map(|run| run.kept_bytes()).sum()
    }

    fn replace_by(&self, run: &Arc<Run>, sources: &mut Sources) {
        let newest = &self.0[self.0.len() - 1];
        let first = sources.runs.iter().position(|run| Arc::ptr_eq(run, newest));
        let first = first.expect("runs that are being merged stay in the view");
        sources.runs.splice(first..first + self.0.len(), [run.clone()]);
    }

    fn count(&self, core: &Core) {
        core.counters.index_merges.fetch_add(1, Ordering::Relaxed);
    }
}
