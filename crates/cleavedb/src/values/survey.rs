//! A survey: which records of value files live, as one walk through the tables found them. Many collections use one survey, so
//! what it costs to find a live record does not grow with the number of keys (decision 041). As it ages, records that it
//! lists die: then files are chosen and copied less well than the ledger would allow. Once that has cost as much as another
//! walk, a new survey is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::candidate::Candidate;
use super::live_records::LiveRecords;
use crate::base::FileId;

/// Passing an entry of a table costs as much as copying this many bytes of values.
const COPIED_PER_ENTRY: u64 = 10;

/// The live records of some files.
#[derive(Debug, Default)]
pub struct Survey {
    files: BTreeMap<FileId, Surveyed>,
    /// The newest file when the survey was made.
    newest: FileId,
    /// What another survey would cost, in bytes that could be copied instead.
    cost: u64,
    /// Bytes copied in vain because the survey was not made anew.
    excess: u64,
    /// Tells it apart from other surveys; not 0.
    number: u64,
}

/// The live records of a file, and their bytes.
#[derive(Debug, Clone, Default)]
pub struct Surveyed {
    /// Which they are.
    pub live: Arc<LiveRecords>,
    /// Their bytes, estimated.
    pub bytes: u64,
}

/// What is known of the records of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownLive {
    /// Those that may live.
    Listed(Arc<LiveRecords>),
    /// All of them may live: the file was written after the survey, of live records alone.
    All,
}

impl Survey {
    /// A survey of files, for which `entries` entries of tables were passed; `newest` is the newest file of all.
    pub fn new(files: BTreeMap<FileId, Surveyed>, newest: FileId, entries: u64, number: u64) -> Survey {
        Survey { files, newest, cost: entries.saturating_mul(COPIED_PER_ENTRY), excess: 0, number }
    }

    /// Tells it apart from other surveys.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What is known of a file, with the bytes of its live records if they are listed; `is_extent` if it is not a log.
    fn find(&self, file: FileId, is_extent: bool) -> Option<(KnownLive, Option<u64>)> {
        match self.files.get(&file) {
            Some(Surveyed { live, bytes }) => Some((KnownLive::Listed(live.clone()), Some(*bytes))),
            None if is_extent && file > self.newest => Some((KnownLive::All, None)),
            None => None,
        }
    }

    /// What is known of a file; `is_extent` if it is not a log.
    pub fn known(&self, file: FileId, is_extent: bool) -> Option<KnownLive> {
        self.find(file, is_extent).map(|(known, _)| known)
    }

    /// Forgets a file that is no longer there.
    pub fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// True if `excess` more bytes copied in vain cost less than another survey.
    pub fn affords(&self, excess: u64) -> bool {
        self.excess.saturating_add(excess) <= self.cost
    }

    /// Counts bytes that were copied in vain.
    pub fn charge(&mut self, excess: u64) {
        self.excess = self.excess.saturating_add(excess);
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.files.values().map(|surveyed| surveyed.live.bytes() + size_of::<(FileId, Surveyed)>()).sum()
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

    #[test]
    fn extents_newer_than_the_survey_hold_what_lives_and_logs_are_unknown() {
        let surveyed = Surveyed { live: Arc::default(), bytes: 1 };
        let known = Survey::new([(FileId(4), surveyed)].into_iter().collect(), FileId(7), 0, 1);
        let log = |file| Candidate { file: FileId(file), bytes: 1000, live: 10, part: None };
        assert!(matches!(known.known(FileId(4), false), Some(KnownLive::Listed(_))));
        assert_eq!(known.known(FileId(8), true), Some(KnownLive::All));
        assert_eq!([(8, false), (7, true)].map(|(file, is_extent)| known.known(FileId(file), is_extent)), [None, None]);
        let extent = Candidate { part: Some((Group::ALL, Temperature::Hot)), ..log(8) };
        assert_eq!(
            [extent, log(8), log(4)].map(|file| known.seen(&file).map(|file| file.live)),
            [Some(1000), None, Some(1)]
        );
    }
}
