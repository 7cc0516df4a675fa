//! A panic is a broken invariant. The code that runs jobs, commits and syncs turns it into an error, after which no write is
//! promised.

use crate::base::{Error, Result};

/// Turns a panic, a broken invariant of ours, into the error after which no write is promised.
pub(crate) fn guard_panic<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::Poisoned { cause: format!("{what} panicked: {}", text.unwrap_or("no message")) })
    })
}
