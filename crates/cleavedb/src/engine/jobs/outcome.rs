//! The outcome of a job: an edit of the manifest with the corresponding view, one of the two, or neither. One function
//! applies it after the job's own work is done; no job commits an edit itself (`tests/architecture/`).

use crate::base::{Result, Seqno};
use crate::engine::core::Core;
use crate::engine::view::Sources;
use crate::format::edit::Edit;

/// Called after the edit of a job is committed, or has failed.
type Then<'a> = Box<dyn FnOnce(&Core, Result<()>) -> Result<()> + 'a>;

/// What a job changes.
enum OutcomeChange<'a> {
    /// Neither the manifest nor the view.
    Nothing,
    /// Only the view; the manifest is unchanged.
    View(ViewChange<'a>),
    /// Only the manifest; the view is unchanged. The edit gets none of the reserve for a full disk.
    Manifest(Box<Edit>),
    /// The manifest, after the logs are synced up to the sequence number, and the view.
    Edit(Seqno, Box<Edit>, ViewChange<'a>),
}

type ViewChange<'a> = Box<dyn FnOnce(&mut Sources) + 'a>;

/// How a job ends: [`Core::conclude`] applies its change in one step.
pub(crate) struct Outcome<'a> {
    change: OutcomeChange<'a>,
    then: Option<Then<'a>>,
}

impl<'a> Outcome<'a> {
    /// Neither the manifest nor the view changes.
    pub fn nothing() -> Outcome<'a> {
        Outcome { change: OutcomeChange::Nothing, then: None }
    }

    /// A new view; the manifest is unchanged.
    pub fn view(change: impl FnOnce(&mut Sources) + 'a) -> Outcome<'a> {
        Outcome { change: OutcomeChange::View(Box::new(change)), then: None }
    }

    /// An edit; the view is unchanged.
    pub fn manifest(edit: Edit) -> Outcome<'a> {
        Outcome { change: OutcomeChange::Manifest(Box::new(edit)), then: None }
    }

    /// An edit, committed after the logs are synced up to `seqno`, and the corresponding view.
    pub fn edit(seqno: Seqno, edit: Edit, change: impl FnOnce(&mut Sources) + 'a) -> Outcome<'a> {
        Outcome { change: OutcomeChange::Edit(seqno, Box::new(edit), Box::new(change)), then: None }
    }

    /// Called once the change is applied, or has failed. Its result is that of the job.
    pub fn then(self, then: impl FnOnce(&Core, Result<()>) -> Result<()> + 'a) -> Outcome<'a> {
        Outcome { then: Some(Box::new(then)), ..self }
    }
}

impl Core {
    /// Applies the outcome of a job.
    pub fn conclude(&self, outcome: Outcome<'_>) -> Result<()> {
        let result = match outcome.change {
            OutcomeChange::Nothing => Ok(()),
            OutcomeChange::View(change) => {
                self.published.update(|view| view.with(change));
                Ok(())
            }
            OutcomeChange::Manifest(edit) => self.commit_to_manifest(*edit),
            OutcomeChange::Edit(seqno, edit, change) => self.install(seqno, *edit, change),
        };
        match outcome.then {
            Some(then) => then(self, result),
            None => result,
        }
    }
}
