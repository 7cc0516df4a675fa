//! The first failure after which the durability of writes can no longer be guaranteed (rule 9). Set by failed appends,
//! syncs and edits; checked by writes and jobs.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Error, Result};
use crate::sched::sync::Mutex;

/// The first failure after which all writes fail until the database is reopened.
#[derive(Default)]
pub(crate) struct Poison {
    pub set: AtomicBool,
    pub cause: Mutex<Option<String>>,
}

impl Poison {
    pub fn check(&self) -> Result<()> {
        if !self.set.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.cause.lock().clone().unwrap_or_default();
        Err(Error::Poisoned { cause })
    }

    /// Poisons writes; true for the first failure.
    pub fn set(&self, error: &Error) -> bool {
        let cause = match error {
            Error::Poisoned { cause } => cause.clone(),
            other => other.to_string(),
        };
        self.cause.lock().get_or_insert(cause);
        !self.set.swap(true, Ordering::AcqRel)
    }
}
