//! How logs leave the front: once everything in them is in tables, or in the index of a hash keyspace, which is made anew from
//! them at each open. Logs that tables or indexes reference stay for their records; the others are removed.
//!
//! Part of each flush. Logs that hold nothing to be flushed, because everything in them went to hash keyspaces, leave by a job of
//! its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::{DirId, FileId, Result, Seqno, Tier};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::fast_tier::Occupant;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Look, Offer, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::referrers::{Referrer, Tables};
use crate::engine::shortages::Need;
use crate::engine::view::{Sources, View};
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::format::edit::Edit;
use crate::format::values::ValuePlace;
use crate::format::watermarks::{Consumer, Watermarks};
use crate::front::log::LogFile;
use crate::levels::table::Table;

/// Due when logs are full and the front holds no versions of them: there is nothing that a flush would carry.
pub(crate) const KIND: JobKind =
    JobKind { priority: Priority::Flush, duties: &[Duty::Front, Duty::FrontAndSubtasks, Duty::All], next };

/// Each time something is synced, and an edit is committed; so it is not done for a single log.
const FULL_LOGS_MIN: usize = 2;

/// Lets full logs leave the front.
struct SettleLogs;

fn next(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    let busy = state.has(Sole::FrontExit) || !state.shortages.may_try(Need::Flush, look.now);
    if busy || look.view.logs.len() <= FULL_LOGS_MIN || !core.keyspaces.has_hashed() {
        return None;
    }
    let settled = look.view.settled_without(&[], core.published.seqno());
    // The newest log may be the active log; one without records stays as it is.
    let is_settled = |log: &&Arc<LogFile>| log.last_seqno() != Seqno::ZERO && log.last_seqno() <= settled;
    let is_due = look.view.logs.values().rev().skip(1).filter(is_settled).count() >= FULL_LOGS_MIN;
    is_due.then(|| JobKind::begin(SettleLogs)).flatten()
}

impl Job for SettleLogs {
    fn profile(&self, _: &Core) -> Profile {
        Profile {
            name: "settle logs",
            claims: Claims::sole(Sole::FrontExit),
            binds: Binds::write(Tier::Fast),
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Flush,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| core.settle_logs())))
    }
}

/// An edit with which logs leave the front, and up to where everything must be durable before it is committed.
pub(crate) struct FrontExit {
    pub edit: Edit,
    pub until: Seqno,
}

/// Takes the logs that an edit removes or adopts out of the front.
pub(crate) fn logs_leave(edit: &Edit) -> impl FnOnce(&mut Sources) + use<> {
    let removed: BTreeSet<FileId> = edit.logs_removed.iter().copied().collect();
    let adopted: BTreeSet<FileId> = edit.values_placed.iter().map(|(id, _)| *id).collect();
    move |sources| {
        let mut logs = (*sources.logs).clone();
        logs.retain(|id, log| {
            if removed.contains(id) {
                log.mark_obsolete();
            }
            !removed.contains(id) && !adopted.contains(id)
        });
        sources.logs = Arc::new(logs);
    }
}

impl Core {
    fn settle_logs(&self) -> Result<Outcome<'static>> {
        let (view, seqno) = self.published.read();
        let settled = view.settled_without(&[], seqno);
        let FrontExit { edit, until } = self.front_exit(&view, settled, &[])?;
        if edit.logs_removed.is_empty() && edit.values_placed.is_empty() {
            return Ok(Outcome::nothing());
        }
        self.cut_logs(&view, until, &edit)?;
        let leave = logs_leave(&edit);
        Ok(Outcome::edit(until, edit, leave).then(move |core, installed| {
            installed?;
            core.work.note_flushed(settled);
            core.note_hashed_change();
            Ok(())
        }))
    }

    /// The edit with the new tables, and with the logs that leave the front: those in which everything up to `flushed`
    /// is in tables or indexes and no other consumer needs a record. Logs that tables or indexes reference stay for their
    /// records; the others are removed.
    pub(super) fn front_exit(&self, view: &View, flushed: Seqno, tables: &[Arc<Table>]) -> Result<FrontExit> {
        let referenced = Tables::each(tables).references()?;
        let now = self.published.view();
        let watermarks = Watermarks::only(Consumer::Levels, flushed);
        let consumed = self.manifest.lock().state().watermarks.raised(&watermarks).least();
        let done = |log: &&Arc<LogFile>| log.last_seqno() != Seqno::ZERO && log.last_seqno() <= consumed;
        let newest = view.logs.keys().next_back().copied();
        // The newest log may be the active log.
        let done = view.logs.values().filter(done).filter(|log| Some(log.id()) != newest);
        let indexed = self.indexed_files();
        // Only flushes add references to logs, and no other flush is running; an index gets none in a log that is full.
        let is_referenced = |log: &&Arc<LogFile>| {
            let by_tables = [&referenced, &now.values.state.referenced];
            by_tables.into_iter().any(|names| names.of(log.id()).records > 0) || indexed.refers_to(log.id())
        };
        let (adopted, removed): (Vec<_>, Vec<_>) = done.partition(is_referenced);
        let is_indexed = |log: &FileId| indexed.refers_to(*log);
        let edit = Edit {
            files_added: tables.iter().map(|table| table.key()).collect(),
            tables_added: tables.iter().map(|table| (0, table.meta().clone())).collect(),
            logs_removed: removed.into_iter().map(|log| log.id()).collect(),
            indexed: adopted.iter().map(|log| log.id()).filter(is_indexed).collect(),
            values_placed: adopted.into_iter().map(|log| (log.id(), ValuePlace::Log { end: log.end() })).collect(),
            referenced,
            watermarks,
            ..Edit::default()
        };
        let needs_all = self.keyspaces.has_hashed();
        Ok(FrontExit { edit, until: if needs_all { flushed.max(indexed.until) } else { flushed } })
    }

    /// Frees the space reserved after the ends of logs that stay for their values, before they can be held as value
    /// files.
    pub(super) fn cut_logs(&self, view: &View, until: Seqno, edit: &Edit) -> Result<()> {
        if edit.values_placed.is_empty() {
            return Ok(());
        }
        self.sync_to(until)?;
        for (id, _) in &edit.values_placed {
            if let Some(log) = view.logs.get(id) {
                // If this fails, the space stays reserved.
                if log.file().truncate(log.end()).is_ok() && log.key().dir == DirId::HOME {
                    self.fast.note(Occupant::File(log.id()), log.end());
                }
            }
        }
        Ok(())
    }
}
