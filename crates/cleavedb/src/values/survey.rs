//! The survey: which records of value files live. It is kept up to date as the database runs: flushes note the records that
//! tables begin to reference, collections those that they write, and compactions those that tables reference no more
//! ([`RecordNotes`](super::record_notes::RecordNotes)). So what it costs to find a live record does not grow with the number
//! of keys (decision 042). What was there before is unknown until a walk through the tables finds it (decision 041).
//!
//! Every live record of a file is in its list. A record may be listed that is dead, because nobody noted its death: it is
//! copied in vain. Once that has cost as much as another walk, there is one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::candidate::Candidate;
use super::live_records::LiveRecords;
use super::record_notes::NotedRecord;
use crate::base::FileId;

/// Passing an entry of a table costs as much as copying this many bytes of values.
const COPIED_PER_ENTRY: u64 = 10;

/// The live bytes of a loose list exceed the estimate of the ledger by this part of it at most.
const LOOSE_PART: u64 = 8;

/// The live records of files.
#[derive(Debug, Default)]
pub struct Survey {
    /// `None` if the records of a file were known and are no longer.
    files: BTreeMap<FileId, Option<Surveyed>>,
    /// Bytes of all lists.
    list_bytes: usize,
    /// Files up to this one were there before the survey.
    newest_unknown: FileId,
    /// Memory for the lists, in bytes.
    bytes_max: usize,
    /// What a walk would cost, in bytes that could be copied instead.
    cost: u64,
    /// Bytes copied in vain since the last walk.
    excess: u64,
    /// Number of walks.
    walks: u64,
}

/// The live records of a file, and their bytes.
#[derive(Debug, Clone, Default)]
pub struct Surveyed {
    /// Which they are.
    pub live: Arc<LiveRecords>,
    /// Their bytes, estimated.
    pub bytes: u64,
    /// Records may have died that are still listed.
    pub is_loose: bool,
}

impl Surveyed {
    /// Adds records, which ascend.
    fn add(&mut self, records: &[NotedRecord]) {
        let before = self.live.count();
        self.live = Arc::new(self.live.with(records.iter().map(|record| record.offset())));
        // Some may have been listed before.
        self.bytes += share_of(records, self.live.count() - before);
    }

    /// Removes records, which ascend.
    fn remove(&mut self, records: &[NotedRecord]) {
        let before = self.live.count();
        self.live = Arc::new(self.live.without(records.iter().map(|record| record.offset())));
        let removed = before - self.live.count();
        let bytes = match records.iter().all(|record| record.len() > 0) {
            true => share_of(records, removed),
            false => share(self.bytes, removed, before),
        };
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The bytes of `count` of some records.
fn share_of(records: &[NotedRecord], count: u64) -> u64 {
    share(records.iter().map(|record| u64::from(record.len())).sum(), count, records.len() as u64)
}

/// `bytes * part / whole`.
fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    (u128::from(bytes) * u128::from(part) / u128::from(whole.max(1))) as u64
}

/// What is known of the records of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownLive {
    /// Those that may live.
    Listed(Arc<LiveRecords>),
    /// All of them may live: the file was written of live records alone, and has no list.
    All,
}

impl Survey {
    /// A survey that knows nothing of the files up to `newest`, with `bytes_max` bytes of memory for lists.
    pub fn new(newest: FileId, bytes_max: usize) -> Survey {
        Survey { newest_unknown: newest, bytes_max, ..Survey::default() }
    }

    /// How many walks there were.
    pub fn walks(&self) -> u64 {
        self.walks
    }

    /// Notes how many entries a walk would pass.
    pub fn note_entries(&mut self, entries: u64) {
        self.cost = entries.saturating_mul(COPIED_PER_ENTRY);
    }

    /// Notes what a walk found in some files. What it did not look at stays as it is.
    pub fn note_walk(&mut self, files: BTreeMap<FileId, Surveyed>, entries: u64) {
        let walked: Vec<FileId> = files.keys().copied().collect();
        files.into_iter().for_each(|(file, surveyed)| self.set(file, Some(surveyed)));
        self.note_entries(entries);
        (self.excess, self.walks) = (0, self.walks + 1);
        self.fit(&walked);
    }

    /// Notes records of a file that tables begin to reference, or that a collection wrote. Every live record of the file is
    /// noted once it can be collected. The records ascend.
    pub fn note_born(&mut self, file: FileId, records: &[NotedRecord]) {
        if file > self.newest_unknown
            && let Some(surveyed) = self.files.entry(file).or_insert_with(|| Some(Surveyed::default()))
        {
            let before = surveyed.live.bytes();
            surveyed.add(records);
            self.list_bytes = self.list_bytes - before + surveyed.live.bytes();
        }
    }

    /// Notes records of a file that no table references any more; they ascend.
    pub fn note_dead(&mut self, file: FileId, records: &[NotedRecord]) {
        if let Some(Some(surveyed)) = self.files.get_mut(&file) {
            let before = surveyed.live.bytes();
            surveyed.remove(records);
            self.list_bytes = self.list_bytes - before + surveyed.live.bytes();
        }
    }

    /// Records died, in any of the files, that were not noted.
    pub fn miss_deaths(&mut self) {
        self.files.values_mut().flatten().for_each(|surveyed| surveyed.is_loose = true);
    }

    /// Records died in some files that were not noted.
    pub fn miss_deaths_in(&mut self, files: &[FileId]) {
        for file in files {
            if let Some(Some(surveyed)) = self.files.get_mut(file) {
                surveyed.is_loose = true;
            }
        }
    }

    /// The records of a file are no longer known.
    pub fn give_up(&mut self, file: FileId) {
        self.set(file, None);
    }

    fn set(&mut self, file: FileId, surveyed: Option<Surveyed>) {
        self.list_bytes += surveyed.as_ref().map_or(0, |surveyed| surveyed.live.bytes());
        let before = match surveyed.is_some() || file > self.newest_unknown {
            true => self.files.insert(file, surveyed),
            false => self.files.remove(&file),
        };
        self.list_bytes -= before.flatten().map_or(0, |surveyed| surveyed.live.bytes());
    }

    /// True if the records of a file are listed.
    pub fn lists(&self, file: FileId) -> bool {
        matches!(self.files.get(&file), Some(Some(_)))
    }

    /// True if all records of a file are listed that live, and no others.
    pub fn is_exact(&self, file: FileId) -> bool {
        matches!(self.files.get(&file), Some(Some(Surveyed { is_loose: false, .. })))
    }

    /// Forgets files that are no longer there.
    pub fn retain(&mut self, is_there: impl Fn(FileId) -> bool) {
        self.files.retain(|file, surveyed| {
            let stays = is_there(*file);
            if let (false, Some(surveyed)) = (stays, surveyed) {
                self.list_bytes -= surveyed.live.bytes();
            }
            stays
        });
    }

    /// Gives up the oldest lists, except those of `kept`, until the others fit into the memory.
    pub fn fit(&mut self, kept: &[FileId]) {
        let mut excess = self.bytes().saturating_sub(self.bytes_max);
        let mut given_up = Vec::new();
        for (file, surveyed) in self.files.iter().filter(|(file, _)| !kept.contains(file)) {
            if excess == 0 {
                break;
            }
            if let Some(Surveyed { live, .. }) = surveyed {
                excess = excess.saturating_sub(live.bytes());
                given_up.push(*file);
            }
        }
        given_up.into_iter().for_each(|file| self.give_up(file));
    }

    /// What is known of a file, with the bytes of its live records if they are listed; `is_extent` if it is not a log.
    fn find(&self, file: FileId, is_extent: bool) -> Option<(KnownLive, Option<u64>)> {
        match self.files.get(&file) {
            Some(Some(Surveyed { live, bytes, .. })) => Some((KnownLive::Listed(live.clone()), Some(*bytes))),
            _ if is_extent && file > self.newest_unknown => Some((KnownLive::All, None)),
            _ => None,
        }
    }

    /// What is known of a file; `is_extent` if it is not a log.
    pub fn known(&self, file: FileId, is_extent: bool) -> Option<KnownLive> {
        self.find(file, is_extent).map(|(known, _)| known)
    }

    /// True if `excess` more bytes copied in vain cost less than a walk.
    pub fn affords(&self, excess: u64) -> bool {
        self.excess.saturating_add(excess) <= self.cost
    }

    /// Counts bytes that were copied in vain.
    pub fn charge(&mut self, excess: u64) {
        self.excess = self.excess.saturating_add(excess);
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.list_bytes + self.files.len() * size_of::<(FileId, Option<Surveyed>)>()
    }

    /// The live bytes of a file: of an extent, those of its list, if it has one. What the ledger knows of an extent is an
    /// estimate; what it knows of a log is exact. A loose list may have dead records, so it corrects the estimate by a part of
    /// it at most.
    pub fn live_bytes(&self, candidate: &Candidate) -> u64 {
        let listed = self.files.get(&candidate.file).and_then(|surveyed| surveyed.as_ref());
        let live = match listed.filter(|_| candidate.part.is_some()) {
            Some(Surveyed { bytes, is_loose: true, .. }) => {
                candidate.live.saturating_add(candidate.live / LOOSE_PART).min(*bytes)
            }
            Some(Surveyed { bytes, .. }) => *bytes,
            None => candidate.live,
        };
        live.min(candidate.bytes)
    }

    /// A file with the live bytes of its list.
    pub fn corrected(&self, candidate: &Candidate) -> Candidate {
        Candidate { live: self.live_bytes(candidate), ..candidate.clone() }
    }

    /// A file as collections see it that use this survey.
    pub fn seen(&self, candidate: &Candidate) -> Option<Candidate> {
        let (_, listed) = self.find(candidate.file, candidate.part.is_some())?;
        Some(Candidate { live: listed.unwrap_or(candidate.bytes), ..candidate.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::group::Group;
    use crate::format::values::Temperature;

    fn records(offsets: &[u64]) -> Vec<NotedRecord> {
        offsets.iter().map(|offset| NotedRecord::new(*offset, 100).unwrap()).collect()
    }

    fn listed(survey: &Survey, file: u64) -> Option<Vec<u64>> {
        match survey.known(FileId(file), false) {
            Some(KnownLive::Listed(live)) => Some(live.iter().collect()),
            _ => None,
        }
    }

    fn log(file: u64) -> Candidate {
        Candidate { file: FileId(file), bytes: 1000, live: 10, part: None }
    }

    #[test]
    fn files_that_were_there_before_are_unknown_until_a_walk_finds_them() {
        let mut survey = Survey::new(FileId(7), 1 << 20);
        survey.note_born(FileId(4), &records(&[1]));
        survey.note_born(FileId(8), &records(&[100, 500]));
        survey.note_born(FileId(8), &records(&[100, 300]));
        assert_eq!([4, 8].map(|file| listed(&survey, file)), [None, Some(vec![100, 300, 500])]);
        let surveyed = Surveyed { live: Arc::new(LiveRecords::of(vec![5, 6])), bytes: 200, is_loose: false };
        survey.note_walk([(FileId(4), surveyed)].into_iter().collect(), 0);
        survey.note_dead(FileId(4), &records(&[6]));
        survey.note_dead(FileId(8), &records(&[300, 301]));
        assert_eq!([4, 8].map(|file| listed(&survey, file)), [Some(vec![5]), Some(vec![100, 500])]);
        assert_eq!([log(4), log(8)].map(|file| survey.seen(&file).map(|file| file.live)), [Some(100), Some(200)]);
        survey.retain(|file| file != FileId(4));
        survey.note_born(FileId(4), &records(&[1]));
        assert_eq!(listed(&survey, 4), None);
    }

    #[test]
    fn new_extents_without_a_list_hold_what_lives_and_other_files_are_unknown() {
        let mut survey = Survey::new(FileId(7), 1 << 20);
        assert_eq!(survey.known(FileId(8), true), Some(KnownLive::All));
        assert_eq!(
            [(8, false), (7, true)].map(|(file, is_extent)| survey.known(FileId(file), is_extent)),
            [None, None]
        );
        let extent = Candidate { part: Some((Group::ALL, Temperature::Hot)), ..log(8) };
        assert_eq!([extent.clone(), log(8)].map(|file| survey.seen(&file).map(|file| file.live)), [Some(1000), None]);
        survey.note_born(FileId(8), &records(&[100, 200]));
        assert_eq!(survey.seen(&extent).map(|file| file.live), Some(200));
        assert_eq!([&extent, &log(8)].map(|file| survey.corrected(file).live), [200, 10]);
        survey.miss_deaths();
        assert_eq!(survey.corrected(&extent).live, 10 + 10 / LOOSE_PART);
        survey.note_born(FileId(9), &records(&[100]));
        assert_eq!(survey.corrected(&Candidate { file: FileId(9), ..extent }).live, 100);
    }

    #[test]
    fn bytes_are_exact_unless_some_records_were_noted_before_or_have_no_length() {
        let noted = |offsets: &[(u64, u32)]| -> Vec<NotedRecord> {
            offsets.iter().map(|(offset, len)| NotedRecord::new(*offset, *len).unwrap()).collect()
        };
        let mut list = Surveyed::default();
        list.add(&noted(&[(10, 7), (20, 1000), (2000, 13)]));
        assert_eq!((list.live.count(), list.bytes), (3, 1020));
        list.add(&noted(&[(2000, 13), (3000, 15)]));
        assert_eq!((list.live.count(), list.bytes), (4, 1034));
        list.remove(&noted(&[(20, 1000)]));
        assert_eq!((list.live.count(), list.bytes), (3, 34));
        list.remove(&noted(&[(10, 0), (11, 0)]));
        assert_eq!((list.live.count(), list.bytes), (2, 23));
    }

    #[test]
    fn the_oldest_lists_are_given_up_and_never_begun_again() {
        let many: Vec<u64> = (1..500).map(|number| number * 1000).collect();
        let mut survey = Survey::new(FileId(1), 2500);
        for file in [5, 6, 7] {
            survey.note_born(FileId(file), &records(&many));
        }
        survey.fit(&[FileId(5)]);
        assert_eq!([5, 6, 7].map(|file| survey.lists(FileId(file))), [true, false, true]);
        survey.note_born(FileId(6), &records(&[7]));
        assert_eq!(survey.known(FileId(6), false), None);
        assert!(survey.bytes() <= 2500);
        survey.note_dead(FileId(7), &records(&many[..100]));
        survey.note_walk([(FileId(7), Surveyed::default())].into_iter().collect(), 0);
        survey.retain(|file| file != FileId(5));
        assert_eq!(survey.bytes(), 2 * size_of::<(FileId, Option<Surveyed>)>());
    }
}
