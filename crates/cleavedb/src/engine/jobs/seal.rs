//! Seal: the oldest full index table is sorted into a run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::ranges::{KeyRange, Mark};
use crate::base::tombstones::{Fragment, fragment};
use crate::base::{Cursor, Result, Seqno};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::build_run::{RunSources, plan};
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::shortages::Need;
use crate::engine::view::Sources;
use crate::engine::work::{Class, MemoryShare, Profile};
use crate::front::index_table::IndexTable;
use crate::front::run::Run;

/// Due as soon as a full index table is waiting.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Flush,
    duties: &[Duty::Front, Duty::FrontAndSubtasks, Duty::All],
    next: |_, _, look| look.view.sealed.last().and_then(|table| JobKind::begin(Seal(table.clone()))),
};

/// Sorts the oldest sealed index table.
#[derive(Clone)]
struct Seal(Arc<IndexTable>);

impl Job for Seal {
    fn profile(&self, _: &Core) -> Profile {
        Profile {
            name: "seal",
            claims: Claims::sole(Sole::SealedTables),
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

impl RunSources for Seal {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn marks(&self) -> Vec<Mark> {
        self.0.marks()
    }

    fn tombstones(&self, snapshots: &[Seqno]) -> Result<Vec<Fragment>> {
        if self.0.has_ranges() { Ok(fragment(&self.0.tombstones(), snapshots)) } else { Ok(Vec::new()) }
    }

    fn cursor(&self, range: &KeyRange) -> Result<impl Cursor> {
        let mut cursor = self.0.sealed_cursor(range);
        cursor.seek_first()?;
        Ok(cursor)
    }

    fn seqnos(&self) -> (Seqno, Seqno) {
        self.0.seqnos().expect("only tables with versions are sealed")
    }

    fn kept_bytes(&self) -> u64 {
        self.0.kept_bytes()
    }

    fn replace_by(&self, run: &Arc<Run>, sources: &mut Sources) {
        let oldest = sources.sealed.pop();
        assert!(oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, &self.0)), "index tables become runs in order of age");
        sources.runs.insert(0, run.clone());
    }

    fn count(&self, core: &Core) {
        core.counters.seals.fetch_add(1, Ordering::Relaxed);
    }
}
