//! The survey that was made last: value GC and reordering choose files by it, and use its lists of live records. Its memory
//! comes from the caches.

use crate::base::FileId;
use crate::base::memory::Counted;
use crate::sched::sync::Mutex;
use crate::values::candidate::{Candidate, Choice};
use crate::values::files::ValueFiles;
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

    /// The files to collect next, of some.
    pub fn choose(&self, placement: &dyn Placement, candidates: &[Candidate]) -> Choice {
        choose(placement, candidates, self.0.lock().as_ref().map(|(survey, _)| survey))
    }

    /// The files to collect next, of all. O(1) except for the first call after an edit.
    pub fn choice<'a>(&self, placement: &dyn Placement, values: &'a ValueFiles) -> &'a Choice {
        // Locked first: nobody waits for a lock while others wait for the choice.
        let last = self.0.lock();
        values.choice(|candidates| choose(placement, candidates, last.as_ref().map(|(survey, _)| survey)))
    }

    /// Replaces the survey.
    pub fn put(&self, survey: Survey, memory: Counted) {
        *self.0.lock() = Some((survey, memory));
    }

    /// Forgets the survey.
    pub fn forget(&self) {
        self.0.lock().take();
    }

    /// The number of the survey; 0 if there is none.
    pub fn number(&self) -> u64 {
        self.0.lock().as_ref().map_or(0, |(survey, _)| survey.number())
    }

    /// Files were collected. That may have copied some bytes in vain because the survey that they were chosen by was not made
    /// anew.
    pub fn note_collected(&self, choice: &Choice) {
        if let Some((survey, memory)) = &mut *self.0.lock() {
            choice.files.iter().for_each(|file| survey.forget(*file));
            if survey.number() == choice.survey {
                survey.charge(choice.excess.unwrap_or_default());
            }
            memory.set(survey.bytes());
        }
    }
}
