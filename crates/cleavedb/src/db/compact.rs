//! Compaction jobs: what the picker chose, carried out and committed.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::background::WorkState;
use super::core::{Core, guard_panic};
use super::flush::doom_refused;
use super::iter::Bounds;
use super::keyspace::KeyspaceState;
use super::view::View;
use crate::base::versions::{Horizon, Retention};
use crate::base::{Cursor, Error, FileId, KeyspaceId, Merging, Result, Seqno};
use crate::format::edit::Edit;
use crate::levels::level_cursor::LevelCursor;
use crate::levels::picker::{Choice, Compact, Figures, LevelTargets, choose, choose_range};
use crate::levels::table::Table;

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
        let tuning = &self.settings.tuning;
        // Each compaction has its part of the memory for jobs.
        if state.compacting.len() >= tuning.compactions_max {
            return None;
        }
        let version = self.published.view().version.clone();
        let dropped: Vec<KeyspaceId> = self.keyspaces.dropped().into_keys().collect();
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
        let find = |id: &FileId| {
            let found = version.find(*id).map(|(_, table)| table.clone());
            found.expect("a table that a job has marked stays in the version")
        };
        let upper: Arc<[Arc<Table>]> = compact.inputs.iter().map(find).collect();
        let lower: Arc<[Arc<Table>]> = compact.inputs_below.iter().map(find).collect();
        let dropped = self.keyspaces.dropped();
        let horizon = Horizon {
            snapshots,
            // HL0 is always taken whole, and what a flush brings meanwhile is newer.
            bottom: &|key| !version.may_hold_below(compact.to, key),
            dropped: &|keyspace| dropped.contains_key(&keyspace),
            operators: &self.keyspaces,
        };
        // Tables of HL0 overlap and need a cursor each; the tables of a level below are read one after the other.
        let mut cursors: Vec<Box<dyn Cursor>> = match compact.from {
            0 => upper.iter().map(|table| Box::new(table.cursor(false)) as _).collect(),
            _ => vec![Box::new(LevelCursor::new(upper.clone(), false))],
        };
        cursors.push(Box::new(LevelCursor::new(lower.clone(), false)));
        let mut cursor = Merging::new(cursors);
        cursor.seek_first()?;
        let mut source = Retention::new(cursor, horizon);
        let written = self.write_tables(&mut source, self.table_bytes())?;
        let tables = || upper.iter().chain(&*lower).map(|table| table.meta());
        let seqno = tables().map(|meta| meta.seqno_max).max().unwrap_or_default();
        let inputs: Vec<FileId> = tables().map(|meta| meta.id).collect();
        let read: u64 = tables().map(|meta| meta.size).sum();
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
        let mut moved = false;
        for from in 0..lowest.max(1) {
            moved |= self.compact_level_range(from, from + 1, &bounds.lower, &largest)?;
        }
        if !moved && lowest > 0 {
            // Everything lies in one level already: what snapshots kept there may go now.
            self.compact_level_range(lowest, lowest, &bounds.lower, &largest)?;
        }
        Ok(())
    }

    /// False if there was nothing to do.
    fn compact_level_range(&self, from: usize, to: usize, smallest: &[u8], largest: &[u8]) -> Result<bool> {
        let mut state = self.work.lock();
        let choice = loop {
            if self.work.is_stopping(&state) {
                return Err(Error::Closed);
            }
            self.check_poison()?;
            let choice = self.choose_with(&mut state, |figures| choose_range(figures, from, to, smallest, largest));
            match choice {
                Some(choice) => break choice,
                None => self.work.wait_for_progress(&mut state),
            }
        };
        drop(state);
        let result = self.guarded(guard_panic("a compaction", || self.run_choice(&choice)));
        self.release_choice(&mut self.work.lock(), &choice);
        self.update_stall();
        self.work.wake_all();
        result.map(|()| choice != Choice::Nothing)
    }
}

fn inputs_of(choice: &Choice) -> Vec<FileId> {
    match choice {
        Choice::Nothing => Vec::new(),
        Choice::Drop { tables, .. } => tables.clone(),
        Choice::Move { table, .. } => vec![*table],
        Choice::Compact(compact) => compact.inputs.iter().chain(&compact.inputs_below).copied().collect(),
    }
}
