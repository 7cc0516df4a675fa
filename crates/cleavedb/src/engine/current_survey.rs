//! The survey of the running database: value GC and reordering choose files by it, and use its lists of live records; jobs
//! keep it up to date. Its memory comes from the caches.
//!
//! Compactions commit while collections copy. What they find dead in the files of one is kept until its copies are noted, and
//! is removed from their lists; if a compaction notes deaths only after that, the new lists are loose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::base::memory::Counted;
use crate::base::{FileId, Result};
use crate::engine::published::Published;
use crate::engine::view::View;
use crate::format::references::References;
use crate::sched::sync::Mutex;
use crate::values::candidate::{Candidate, Choice};
use crate::values::files::{Entry, ValueFiles};
use crate::values::placement::Placement;
use crate::values::placement::choice::choose;
use crate::values::record_notes::{NotedRecord, RecordNotes};
use crate::values::survey::{KnownLive, Survey, Surveyed};

/// What the survey says of value files.
#[derive(Clone)]
pub(crate) struct Judgement {
    /// The files to collect next.
    pub choice: Arc<Choice>,
    /// The bytes of all files.
    pub file_bytes: u64,
    /// Of these, live bytes.
    pub live_bytes: u64,
}

impl Judgement {
    fn new(placement: &dyn Placement, files: &[Candidate], survey: &Survey, live_bytes: u64) -> Judgement {
        let choice = Arc::new(choose(placement, files, survey));
        Judgement { choice, file_bytes: files.iter().map(|file| file.bytes).sum(), live_bytes }
    }

    /// Bytes that can be freed.
    pub fn garbage(&self) -> u64 {
        self.file_bytes - self.live_bytes
    }
}

/// The survey, and what goes on beside it.
pub(crate) struct CurrentSurvey(Mutex<State>);

struct State {
    survey: Survey,
    memory: Counted,
    /// The last judgement, and the files that it is about.
    judged: Option<(Weak<ValueFiles>, Judgement)>,
    /// The last one without some of the files, which are these.
    judged_without: Option<(Weak<ValueFiles>, BTreeSet<FileId>, Judgement)>,
    /// The records that died in the files of each running collection.
    died: BTreeMap<RunningCollection, DiedMeanwhile>,
    /// How many collections have begun.
    begun: u64,
    /// How many compactions have begun to commit and have not noted yet what died.
    coming: usize,
}

/// A collection that has begun. No two of them have a file in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub(crate) struct RunningCollection(u64);

/// What died in files while they were collected.
struct DiedMeanwhile {
    /// By file; each of the collected files has an entry.
    records: BTreeMap<FileId, Vec<NotedRecord>>,
    /// This many may follow.
    left: usize,
    is_complete: bool,
}

impl State {
    /// True if it matters what dies in a file.
    fn notes_deaths_of(&self, file: FileId) -> bool {
        self.survey.lists(file) || self.died.values().any(|died| died.records.contains_key(&file))
    }
}

impl DiedMeanwhile {
    fn note(&mut self, file: FileId, records: &[NotedRecord]) {
        let Some(noted) = self.records.get_mut(&file) else { return };
        let room = records.len().min(self.left);
        noted.extend(&records[..room]);
        self.left -= room;
        self.is_complete &= room == records.len();
    }

    fn bytes(&self) -> usize {
        self.records.values().map(|records| records.capacity() * size_of::<NotedRecord>()).sum()
    }
}

/// A compaction that will note what died, with the value files before its edit: after it, some of those that the addresses
/// lead through may be gone.
#[must_use]
pub(crate) struct ComingDeaths(Arc<ValueFiles>);

impl CurrentSurvey {
    /// A survey that knows nothing of the files up to `newest`, with at most `bytes_max` bytes, counted in `memory`.
    pub fn new(newest: FileId, bytes_max: usize, memory: Counted) -> CurrentSurvey {
        let survey = Survey::new(newest, bytes_max);
        CurrentSurvey(Mutex::new(State {
            survey,
            memory,
            judged: None,
            judged_without: None,
            died: BTreeMap::new(),
            begun: 0,
            coming: 0,
        }))
    }

    /// A change by a job that has more to note: the last judgement remains until [`CurrentSurvey::finish`].
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let state = &mut *self.0.lock();
        let result = change(state);
        let died: usize = state.died.values().map(DiedMeanwhile::bytes).sum();
        state.memory.set(state.survey.bytes() + died);
        result
    }

    /// The last change by a job.
    fn finish(&self, change: impl FnOnce(&mut State)) {
        self.change(|state| {
            (state.judged, state.judged_without) = (None, None);
            change(state);
        });
    }

    /// What is known of each file of a collection, with whether it is an extent; `None` if they are not all known.
    pub fn known(&self, of: RunningCollection, files: &[(FileId, bool)]) -> Option<Vec<KnownLive>> {
        let State { survey, died, .. } = &mut *self.0.lock();
        if let Some(died) = died.get_mut(&of) {
            // Dead records that are copied are in the new lists, too.
            died.is_complete &= files.iter().all(|(file, _)| survey.is_exact(*file));
        }
        files.iter().map(|(file, is_extent)| survey.known(*file, *is_extent)).collect()
    }

    /// What the survey says of some files, with the live bytes of extents by their lists, where they have one. O(n log n).
    pub fn judge_some(&self, placement: &dyn Placement, files: &[Candidate]) -> Judgement {
        let survey = &self.0.lock().survey;
        let live_bytes = files.iter().map(|file| survey.live_bytes(file)).sum();
        Judgement::new(placement, files, survey, live_bytes)
    }

    /// What the survey says of all files. O(1) except for the first call after an edit, or a change of the survey.
    pub fn judge(&self, placement: &dyn Placement, values: &Arc<ValueFiles>) -> Judgement {
        let State { survey, judged, .. } = &mut *self.0.lock();
        if let Some((known, judgement)) = judged
            && known.as_ptr() == Arc::as_ptr(values)
        {
            return judgement.clone();
        }
        let figures = values.figures();
        let judgement = Judgement::new(placement, &figures.candidates, survey, figures.live_bytes);
        *judged = Some((Arc::downgrade(values), judgement.clone()));
        judgement
    }

    /// What the survey says of all files but some. O(1) except for the first call after an edit, a change of the survey, or with
    /// others left out.
    pub fn judge_without(
        &self,
        placement: &dyn Placement,
        values: &Arc<ValueFiles>,
        left_out: &BTreeSet<FileId>,
    ) -> Judgement {
        let State { survey, judged_without, .. } = &mut *self.0.lock();
        if let Some((known, without, judgement)) = judged_without
            && known.as_ptr() == Arc::as_ptr(values)
            && without == left_out
        {
            return judgement.clone();
        }
        let kept = values.figures().candidates.iter().filter(|file| !left_out.contains(&file.file));
        let kept: Vec<Candidate> = kept.cloned().collect();
        let live_bytes = kept.iter().map(|file| survey.live_bytes(file)).sum();
        let judgement = Judgement::new(placement, &kept, survey, live_bytes);
        *judged_without = Some((Arc::downgrade(values), left_out.clone(), judgement.clone()));
        judgement
    }

    /// How many walks there were.
    pub fn walks(&self) -> u64 {
        self.0.lock().survey.walks()
    }

    /// Notes what a walk found, which passed this many entries.
    pub fn note_walk(&self, files: BTreeMap<FileId, Surveyed>, entries: u64) {
        self.finish(|state| state.survey.note_walk(files, entries));
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
        self.finish(|State { survey, .. }| {
            survey.retain(|file| file > newest || is_there(file));
            survey.note_entries(entries);
            survey.fit(&[]);
        });
    }

    /// Notes the records that a job has folded into new extents. To be called before the view has the extents; if it never
    /// gets them, their lists are forgotten.
    pub fn note_folded(&self, written: RecordNotes) {
        let is_complete = written.is_complete();
        for (file, records) in written.into_files() {
            self.note_born(file, is_complete.then_some(records));
        }
    }

    /// Notes new records of a file; `None` if they are not all known. One file at a time: users wait for the lock.
    fn note_born(&self, file: FileId, records: Option<Vec<NotedRecord>>) {
        let records = records.map(|mut records| {
            records.sort_unstable();
            records.dedup();
            records
        });
        self.change(|State { survey, .. }| match records {
            Some(records) => survey.note_born(file, &records),
            None => survey.give_up(file),
        });
    }

    /// A collection of some files begins. At most `records_max` records that die in them meanwhile are noted.
    pub fn begin_collection(&self, files: impl Iterator<Item = FileId>, records_max: usize) -> RunningCollection {
        let records = files.map(|file| (file, Vec::new())).collect();
        self.change(|state| {
            state.begun += 1;
            let of = RunningCollection(state.begun);
            state.died.insert(of, DiedMeanwhile { records, left: records_max, is_complete: true });
            of
        })
    }

    /// How many collections are running.
    pub fn collections(&self) -> usize {
        self.0.lock().died.len()
    }

    /// A collection ended without copies.
    pub fn end_collection(&self, of: RunningCollection) {
        self.change(|state| drop(state.died.remove(&of)));
    }

    /// A collection ended: notes the records of new extents, by the value files after its edit.
    pub fn note_written(&self, of: RunningCollection, values: &ValueFiles, written: RecordNotes) {
        let is_complete = written.is_complete();
        let written = written.into_files();
        let files: Vec<FileId> = written.keys().copied().collect();
        written.into_iter().for_each(|(file, records)| self.note_born(file, is_complete.then_some(records)));
        // From here on, what dies in the new extents is found by following the new redirect tables.
        let (died, is_known) = self.change(|state| (state.died.remove(&of), state.coming == 0));
        let is_exact = is_known && died.is_some_and(|died| died.is_complete && self.note_died(values, died));
        self.finish(|State { survey, died, .. }| {
            if !is_exact {
                survey.miss_deaths_in(&files);
                // Another collection may have found them exact meanwhile.
                let has_some = |died: &DiedMeanwhile| files.iter().any(|file| died.records.contains_key(file));
                died.values_mut().filter(|died| has_some(died)).for_each(|died| died.is_complete = false);
            }
            survey.fit(&[]);
        });
    }

    /// Notes in the new extents what died in collected files. False if the places of some are not known.
    fn note_died(&self, values: &ValueFiles, died: DiedMeanwhile) -> bool {
        let mut records = died.records;
        records.retain(|_, records| !records.is_empty());
        // A file that nothing references any more has no redirect table.
        let are_known = records.keys().all(|file| matches!(values.files.get(file), Some(Entry::Moved(_))));
        are_known && self.note_each_dead(values, records).is_ok()
    }

    /// A compaction is about to commit, and will note what died.
    pub fn expect_deaths(&self, published: &Published<View>) -> ComingDeaths {
        // Counted first: if a collection does not see it, its edit is in the view.
        self.change(|state| state.coming += 1);
        ComingDeaths(published.view().values.clone())
    }

    /// Notes records that no table references any more, by the addresses that tables had. Those whose places cannot be read
    /// stay in the lists.
    pub fn note_dead(&self, coming: ComingDeaths, dead: Vec<RecordNotes>) {
        for dead in dead {
            let is_complete = dead.is_complete();
            if self.note_each_dead(&coming.0, dead.into_files()).is_err() || !is_complete {
                self.change(|state| {
                    state.survey.miss_deaths();
                    state.died.values_mut().for_each(|died| died.is_complete = false);
                });
            }
        }
        self.finish(|state| state.coming -= 1);
    }

    fn note_each_dead(&self, values: &ValueFiles, mut files: BTreeMap<FileId, Vec<NotedRecord>>) -> Result<()> {
        // Records only move into files with higher numbers.
        while let Some((file, mut records)) = files.pop_first() {
            records.sort_unstable();
            self.change(|State { survey, died, .. }| {
                survey.note_dead(file, &records);
                // Also of a file that has moved meanwhile: its copies may not be noted yet.
                died.values_mut().for_each(|died| died.note(file, &records));
            });
            let Some(Entry::Moved(redirect)) = values.files.get(&file) else { continue };
            let leads_on = |to: &FileId| matches!(values.files.get(to), Some(Entry::Moved(_)));
            let matters = |to: &FileId| leads_on(to) || self.0.lock().notes_deaths_of(*to);
            if redirect.to().iter().any(matters) {
                let offsets: Vec<u64> = records.iter().map(|record| record.offset()).collect();
                redirect.follow_all(&offsets, &mut |to, offset| {
                    files.entry(to).or_default().extend(NotedRecord::new(offset, 0));
                })?;
            }
        }
        Ok(())
    }

    /// Files were collected. That may have copied some bytes in vain because there was no walk before.
    pub fn note_collected(&self, choice: &Choice, values: &ValueFiles) {
        let is_here = |file| matches!(values.files.get(&file), Some(Entry::Here(_)));
        self.finish(|State { survey, .. }| {
            survey.retain(|file| !choice.files.contains(&file) || is_here(file));
            if survey.walks() == choice.walks {
                survey.charge(choice.excess.unwrap_or_default());
            }
        });
    }
}
