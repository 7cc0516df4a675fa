//! Why a benchmark failed: one sentence, which `main.rs` prints on stderr.

use std::fmt;

/// The result of a step of a benchmark.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a step failed.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure with this sentence.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure(message.into())
    }

    /// A failure of `what`, with the error as the reason. For `map_err`.
    pub fn because<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> Failure {
        move |error| Failure(format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
