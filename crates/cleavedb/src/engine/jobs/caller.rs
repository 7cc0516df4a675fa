//! Jobs that a user asks for and waits for. They run in the thread of the caller.

use std::sync::Arc;

use crate::base::{Error, Result};
use crate::engine::core::Core;
use crate::engine::jobs::job::{Job, unreadable};
use crate::engine::work::{Owner, WorkState};
use crate::sched::clock::now;

impl Core {
    /// Runs the job that `next` returns, once no running job conflicts with it. `next` returns `None` while it has to wait for the
    /// end of another job, and `Some(None)` if there is nothing to do. Returns false in that case.
    pub fn run_as_caller<J: Job + 'static>(
        self: &Arc<Core>,
        mut next: impl FnMut(&WorkState) -> Option<Option<J>>,
    ) -> Result<bool> {
        let _call = self.work.begin_call();
        let mut state = self.work.lock();
        let (job, number) = loop {
            if state.is_stopped() {
                return Err(Error::Closed);
            }
            self.check_poison()?;
            // If a pause has begun, wait until it ends.
            match if state.is_paused() { None } else { next(&state) } {
                Some(None) => return Ok(false),
                Some(Some(job)) if !state.is_claimed(&job.profile(self).claims) => {
                    let number = state.begin(job.profile(self), Owner::Caller);
                    break (Arc::new(job), number);
                }
                _ => self.work.wait_for_progress(&mut state),
            }
        };
        self.work.note_compacting(&state);
        drop(state);
        self.fit_cache();
        let result = self.run_for_caller(job.clone(), number).map_err(|error| self.on_tier(error));
        let is_unreadable =
            |error: &Error| unreadable(error).is_some_and(|path| !job.unreadable_inputs(self, path).is_empty());
        let result = match &result {
            Err(error) if is_unreadable(error) => result,
            _ => self.guarded(result),
        };
        let mut state = self.work.lock();
        if result.is_ok() {
            self.clear_shortages(&mut state, &job.profile(self));
        }
        state.end(number, &result, now());
        self.work.note_compacting(&state);
        drop(state);
        self.fit_cache();
        self.update_pace();
        self.work.wake_all();
        result.map(|()| true)
    }
}
