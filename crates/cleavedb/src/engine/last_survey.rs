//! The survey that was made last: value GC and reordering choose files by it, and use its lists of live records. Its memory
//! comes from the caches.

use crate::base::FileId;
use crate::base::memory::Counted;
use crate::sched::sync::Mutex;
use crate::values::candidate::{Candidate, Choice};
use crate::values::placement::Placement;
use crate::values::placement::choice::choose;
use crate::values::survey::{KnownLive, Survey};

/// The last survey, if there is one.
#[derive(Default)]
pub(crate) struct LastSurvey(Mutex<Option<(Survey, Counted)>>);

impl LastSurvey {
    /// What is known of each of some files, with whether it is an extent; `None` if it does not know them all.
    pub fn known(&self, files: &[(FileId, bool)]) -> Option<Vec<KnownLive>> {
        let last = self.0.lock();
        let (survey, _) = last.as_ref()?;
        files.iter().map(|(file, is_extent)| survey.known(*file, *is_extent)).collect()
    }

    /// The files to collect next.
    pub fn choose(&self, placement: &dyn Placement, candidates: &[Candidate]) -> Choice {
        choose(placement, candidates, self.0.lock().as_ref().map(|(survey, _)| survey))
    }

    /// Replaces the survey.
    pub fn put(&self, survey: Survey, memory: Counted) {
        *self.0.lock() = Some((survey, memory));
    }

    /// Forgets the survey.
    pub fn forget(&self) {
        self.0.lock().take();
    }

    /// Files were collected, and some bytes copied in vain because the survey was not made anew.
    pub fn note_collected(&self, files: &[FileId], excess: u64) {
        if let Some((survey, memory)) = &mut *self.0.lock() {
            files.iter().for_each(|file| survey.forget(*file));
            survey.charge(excess);
            memory.set(survey.bytes());
        }
    }
}
