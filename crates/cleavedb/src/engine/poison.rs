//! The first failure after which no write can be promised (rule 9).

use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Error, Result};
use crate::sched::sync::Mutex;

/// The first failure after which no write can be promised (rule 9).
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

    /// True the first time.
    pub fn set(&self, error: &Error) -> bool {
        let cause = match error {
            Error::Poisoned { cause } => cause.clone(),
            other => other.to_string(),
        };
        self.cause.lock().get_or_insert(cause);
        !self.set.swap(true, Ordering::AcqRel)
    }
}
