//! Compaction jobs: what the picker chose, carried out and committed.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::background::WorkState;
use super::core::Core;
use super::flush::doom_refused;
use super::iter::Bounds;
use super::keyspace::KeyspaceState;
use super::view::View;
use crate::base::versions::{Horizon, Retention};
use crate::base::{Cursor, Error, FileId, KeyspaceId, Merging, Result, Seqno};
use crate::format::edit::Edit;
use crate::levels::picker::{Choice, Compact, Figures, LevelTargets, choose, choose_range};
use crate::levels::table::Table;
use crate::levels::version::Version;

impl Core {
    /// The most urgent compaction, marked as running.
    pub fn choose_compaction(&self, state: &mut WorkState) -> Option<Choice> {
        self.choose_with(state, |figures| Some(choose(figures)))
    }

    fn choose_with(
        &self,
        state: &mut WorkState,
        choose: impl FnOnce(&Figures<'_>) -> Option<Choice>,
    ) -> Option<Choice> {
        let version = self.published.view().version.clone();
        let dropped: Vec<KeyspaceId> = self.keyspaces.dropped().into_keys().collect();
        let tuning = &self.settings.tuning;
        let figures = Figures {
            levels: version.figures(&|id| state.busy_tables.contains(&id)),
            targets: LevelTargets {
                hl0_trigger: tuning.hl0_compact_tables,
                base_bytes: tuning.level_base_bytes,
                multiplier: 10,
            },
            dropped: &dropped,
            running: &state.compacting,
        };
        let choice = choose(&figures)?;
        state.busy_tables.extend(inputs_of(&choice));
        if let Choice::Compact(compact) = &choice {
            state.compacting.push(compact.running());
        }
        Some(choice)
    }

    /// Carries out a choice.
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
            Choice::Compact(compact) => self.compact_tables(compact),
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

    fn compact_tables(&self, compact: &Compact) -> Result<()> {
        let (view, snapshots) = self.snapshots.capture(&self.published);
        let version = &view.version;
        let inputs: Vec<FileId> = inputs_of(&Choice::Compact(compact.clone()));
        let find = |id: &FileId| version.find(*id).map(|(_, table)| table.clone());
        let tables: Vec<Arc<Table>> =
            inputs.iter().map(|id| find(id).expect("a table that a job has marked stays in the version")).collect();
        let dropped = self.keyspaces.dropped();
        let horizon = Horizon {
            snapshots,
            bottom: &|key| !version.may_hold_below(compact.to, key) && !older_in_hl0(version, compact, key),
            dropped: &|keyspace| dropped.contains_key(&keyspace),
            operators: &self.keyspaces,
        };
        let mut cursor = Merging::new(tables.iter().map(|table| table.cursor(false)).collect());
        cursor.seek_first()?;
        let mut source = Retention::new(cursor, horizon);
        let written = self.write_tables(&mut source, self.settings.tuning.table_bytes)?;
        let seqno = tables.iter().map(|table| table.meta().seqno_max).max().unwrap_or_default();
        let read: u64 = tables.iter().map(|table| table.meta().size).sum();
        self.counters.bytes_read.fetch_add(read, Ordering::Relaxed);
        let added = written.iter().map(|table| (compact.to, table.clone())).collect();
        self.replace_tables(seqno, &inputs, added).inspect_err(|error| doom_refused(error, &written))?;
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.forget_dropped_keyspaces()
    }

    /// Commits that `added` take the place of `removed`.
    fn replace_tables(&self, seqno: Seqno, removed: &[FileId], added: Vec<(usize, Arc<Table>)>) -> Result<()> {
        let edit = Edit {
            tables_removed: removed.to_vec(),
            tables_added: added.iter().map(|(level, table)| (*level as u8, table.meta().clone())).collect(),
            ..Edit::default()
        };
        let kept = |id: &FileId| added.iter().any(|(_, table)| table.meta().id == *id);
        self.install(seqno, edit, |now| {
            for id in removed.iter().filter(|id| !kept(id)) {
                if let Some((_, table)) = now.version.find(*id) {
                    table.doom();
                }
            }
            View { version: Arc::new(now.version.apply(&added, removed)), ..now.clone() }
        })
    }

    /// Merges everything in a range down to the lowest level that holds some of it; waits. Called by users.
    pub fn compact_range<R: RangeBounds<Vec<u8>>>(&self, keyspace: &KeyspaceState, range: &R) -> Result<()> {
        self.check_open()?;
        keyspace.check(self.database)?;
        self.flush()?;
        let bounds = Bounds::of_range(keyspace.record.id, range);
        // Inclusive: one key too many does no harm.
        let largest = bounds.upper.unwrap_or_else(|| vec![0xff; crate::base::limits::KEY_BYTES_MAX + 4]);
        let version = self.published.view().version.clone();
        let holds = |level: &usize| !version.overlapping(*level, &bounds.lower, &largest).is_empty();
        let Some(lowest) = (0..version.levels().len()).rev().find(holds) else {
            return Ok(());
        };
        for from in 0..lowest.max(1) {
            self.compact_level_range(from, &bounds.lower, &largest)?;
        }
        Ok(())
    }

    fn compact_level_range(&self, from: usize, smallest: &[u8], largest: &[u8]) -> Result<()> {
        let mut state = self.work.lock();
        let choice = loop {
            if self.work.is_stopping(&state) {
                return Err(Error::Closed);
            }
            self.check_poison()?;
            let choice =
                self.choose_with(&mut state, |figures| choose_range(figures, from, from + 1, smallest, largest));
            match choice {
                Some(choice) => break choice,
                None => self.work.wait_for_progress(&mut state),
            }
        };
        drop(state);
        let result = self.guarded(self.run_choice(&choice));
        self.release_choice(&mut self.work.lock(), &choice);
        self.update_stall();
        self.work.wake_all();
        result
    }
}

/// HL0 tables that stay behind and may hold older versions of `key`: none, as HL0 is always taken whole, unless a flush
/// came in between, and what a flush brings is newer.
fn older_in_hl0(version: &Version, compact: &Compact, key: &[u8]) -> bool {
    let taken = |id: FileId| compact.inputs.contains(&id) || compact.inputs_below.contains(&id);
    let oldest_taken = version.levels()[0].tables().iter().rposition(|table| taken(table.meta().id));
    let Some(oldest_taken) = oldest_taken else { return false };
    version.levels()[0].tables()[oldest_taken + 1..].iter().any(|table| table.meta().overlaps(key, key))
}

fn inputs_of(choice: &Choice) -> Vec<FileId> {
    match choice {
        Choice::Nothing => Vec::new(),
        Choice::Drop { tables, .. } => tables.clone(),
        Choice::Move { table, .. } => vec![*table],
        Choice::Compact(compact) => compact.inputs.iter().chain(&compact.inputs_below).copied().collect(),
    }
}
