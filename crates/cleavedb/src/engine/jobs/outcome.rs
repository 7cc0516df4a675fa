//! How a job ends: with an edit of the manifest and the view that goes with it, with another view alone, or with nothing. One
//! function makes it true, after the job's own work is done.

use crate::base::{Result, Seqno};
use crate::engine::core::Core;
use crate::engine::view::Sources;
use crate::format::edit::Edit;

/// What follows when the edit of a job is committed, or could not be.
type Then<'a> = Box<dyn FnOnce(&Core, Result<()>) -> Result<()> + 'a>;

/// What a job changes.
enum Change<'a> {
    /// Nothing of the database, or the job has seen to it.
    Nothing,
    /// What readers see; the manifest stays as it is.
    View(ViewChange<'a>),
    /// The manifest, once the logs are synced up to the sequence number, and what readers see.
    Edit(Seqno, Box<Edit>, ViewChange<'a>),
}

type ViewChange<'a> = Box<dyn FnOnce(&mut Sources) + 'a>;

/// How a job ends: what it changes becomes true in one step ([`Core::conclude`]).
pub(crate) struct Outcome<'a> {
    change: Change<'a>,
    then: Option<Then<'a>>,
}

impl<'a> Outcome<'a> {
    /// Nothing of the database has changed, or the job has seen to it.
    pub fn nothing() -> Outcome<'a> {
        Outcome { change: Change::Nothing, then: None }
    }

    /// Readers see another view; the manifest stays as it is.
    pub fn view(change: impl FnOnce(&mut Sources) + 'a) -> Outcome<'a> {
        Outcome { change: Change::View(Box::new(change)), then: None }
    }

    /// An edit, once the logs are synced up to `seqno`, and the view that goes with it.
    pub fn edit(seqno: Seqno, edit: Edit, change: impl FnOnce(&mut Sources) + 'a) -> Outcome<'a> {
        Outcome { change: Change::Edit(seqno, Box::new(edit), Box::new(change)), then: None }
    }

    /// What is to be done when it is true, or could not be made true. Its result is that of the job.
    pub fn then(self, then: impl FnOnce(&Core, Result<()>) -> Result<()> + 'a) -> Outcome<'a> {
        Outcome { then: Some(Box::new(then)), ..self }
    }
}

impl Core {
    /// Makes the outcome of a job true.
    pub fn conclude(&self, outcome: Outcome<'_>) -> Result<()> {
        let result = match outcome.change {
            Change::Nothing => Ok(()),
            Change::View(change) => {
                self.published.update(|view| view.with(change));
                Ok(())
            }
            Change::Edit(seqno, edit, change) => self.install(seqno, *edit, change),
        };
        match outcome.then {
            Some(then) => then(self, result),
            None => result,
        }
    }
}
