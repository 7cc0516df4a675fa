//! The survey of the running database: value GC and reordering choose files by it, and use its lists of live records; jobs
//! keep it up to date. Its memory comes from the caches.

use std::collections::BTreeMap;

use crate::base::memory::Counted;
use crate::base::{FileId, Result};
use crate::engine::view::View;
use crate::format::references::References;
use crate::sched::sync::Mutex;
use crate::values::candidate::{Candidate, Choice};
use crate::values::files::{Entry, ValueFiles};
use crate::values::placement::Placement;
use crate::values::placement::choice::choose;
use crate::values::record_notes::{NotedRecord, RecordNotes};
use crate::values::survey::{KnownLive, Survey, Surveyed};

/// The survey, and its memory.
pub(crate) struct CurrentSurvey(Mutex<(Survey, Counted)>);

impl CurrentSurvey {
    /// A survey that knows nothing of the files up to `newest`, with at most `bytes_max` bytes, counted in `memory`.
    pub fn new(newest: FileId, bytes_max: usize, memory: Counted) -> CurrentSurvey {
        CurrentSurvey(Mutex::new((Survey::new(newest, bytes_max), memory)))
    }

    fn change(&self, change: impl FnOnce(&mut Survey)) {
        let (survey, memory) = &mut *self.0.lock();
        change(survey);
        memory.set(survey.bytes());
    }

    /// What is known of each of some files, with whether it is an extent; `None` if it does not know them all.
    pub fn known(&self, files: &[(FileId, bool)]) -> Option<Vec<KnownLive>> {
        let (survey, _) = &*self.0.lock();
        files.iter().map(|(file, is_extent)| survey.known(*file, *is_extent)).collect()
    }

    /// The files to collect next, of some.
    pub fn choose(&self, placement: &dyn Placement, candidates: &[Candidate]) -> Choice {
        choose(placement, candidates, &self.0.lock().0)
    }

    /// The files to collect next, of all. O(1) except for the first call after an edit.
    pub fn choice<'a>(&self, placement: &dyn Placement, values: &'a ValueFiles) -> &'a Choice {
        if let Some(choice) = values.last_choice() {
            return choice;
        }
        // Locked first: nobody waits for a lock while others wait for the choice.
        let (survey, _) = &*self.0.lock();
        values.choice(|candidates| choose(placement, candidates, survey))
    }

    /// How many walks there were.
    pub fn walks(&self) -> u64 {
        self.0.lock().0.walks()
    }

    /// Notes what a walk found, which passed this many entries.
    pub fn note_walk(&self, files: BTreeMap<FileId, Surveyed>, entries: u64) {
        self.change(|survey| survey.note_walk(files, entries));
    }

    /// Notes the records that new tables reference: `references` of them in each file. To be called before the view has the
    /// tables; if it never gets them, the lists have records that are dead.
    pub fn note_flushed(&self, view: &View, born: RecordNotes, references: &References) {
        let is_complete = born.is_complete();
        let mut born = born.into_files();
        let entries = view.version.levels().iter().flat_map(|level| level.tables().iter());
        let entries = entries.map(|table| table.meta().entries).sum();
        let newest = view.logs.keys().chain(view.values.files.keys()).max().copied().unwrap_or_default();
        for (file, referenced) in references.0.iter() {
            let records = born.remove(file).unwrap_or_default();
            let all = is_complete && records.len() as u64 == referenced.records;
            self.note_born(*file, all.then_some(records));
        }
        let is_there = |file| view.logs.contains_key(&file) || view.values.files.contains_key(&file);
        self.change(|survey| {
            survey.retain(|file| file > newest || is_there(file));
            survey.note_entries(entries);
            survey.fit(&[]);
        });
    }

    /// Notes new records of a file; `None` if they are not all known. One file at a time: users wait for the lock.
    fn note_born(&self, file: FileId, records: Option<Vec<NotedRecord>>) {
        let records = records.map(|mut records| {
            records.sort_unstable();
            records.dedup();
            records
        });
        self.change(|survey| match records {
            Some(records) => survey.note_born(file, &records),
            None => survey.give_up(file),
        });
    }

    /// Notes the records of new extents.
    pub fn note_written(&self, written: RecordNotes) {
        let is_complete = written.is_complete();
        let files = written.into_files().into_iter();
        files.for_each(|(file, records)| self.note_born(file, is_complete.then_some(records)));
        self.change(|survey| survey.fit(&[]));
    }

    /// Notes records that no table references any more, by the addresses that tables had. Those whose places cannot be read
    /// stay in the lists.
    pub fn note_dead(&self, values: &ValueFiles, dead: RecordNotes) {
        let is_complete = dead.is_complete();
        if self.note_each_dead(values, dead).is_err() || !is_complete {
            self.miss_deaths();
        }
    }

    /// Records died that were not noted.
    pub fn miss_deaths(&self) {
        self.change(Survey::miss_deaths);
    }

    fn note_each_dead(&self, values: &ValueFiles, dead: RecordNotes) -> Result<()> {
        let mut files = dead.into_files();
        // Records only move into files with higher numbers.
        while let Some((file, mut records)) = files.pop_first() {
            records.sort_unstable();
            match values.files.get(&file) {
                Some(Entry::Moved(redirect)) => {
                    let leads_on = |to: &FileId| matches!(values.files.get(to), Some(Entry::Moved(_)));
                    if !redirect.to().iter().any(|to| leads_on(to) || self.0.lock().0.lists(*to)) {
                        continue;
                    }
                    let offsets: Vec<u64> = records.iter().map(|record| record.offset()).collect();
                    redirect.follow_all(&offsets, &mut |to, offset| {
                        files.entry(to).or_default().extend(NotedRecord::new(offset, 0));
                    })?;
                }
                _ => self.change(|survey| survey.note_dead(file, &records)),
            }
        }
        Ok(())
    }

    /// Files were collected. That may have copied some bytes in vain because there was no walk before.
    pub fn note_collected(&self, choice: &Choice, values: &ValueFiles) {
        let is_here = |file| matches!(values.files.get(&file), Some(Entry::Here(_)));
        self.change(|survey| {
            survey.retain(|file| !choice.files.contains(&file) || is_here(file));
            if survey.walks() == choice.walks {
                survey.charge(choice.excess.unwrap_or_default());
            }
        });
    }
}
