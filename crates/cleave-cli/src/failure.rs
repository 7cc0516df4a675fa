//! Why a command failed: one sentence, which `main.rs` prints on stderr and turns into an exit code.

use std::fmt;
use std::io;
use std::path::Path;

use indicatif::HumanCount;

use crate::progress;

/// The result of a command or of one of its steps.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The engine returned an error.
    Engine(cleavedb::Error),
    /// Standard output, or the output file, could not be written.
    Output(io::Error),
    /// Another process has the database open; the sentence gives its process id if that is known.
    OpenElsewhere(String),
    /// The arguments are wrong in a way that their parser cannot know; one sentence.
    Usage(String),
    /// Any other failure, as one sentence.
    Message(String),
}

impl Failure {
    /// A failure with this sentence.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// The exit code; `main.rs` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::OpenElsewhere(_) | Failure::Engine(cleavedb::Error::Locked { .. }) => 3,
            Failure::Usage(_) => 2,
            Failure::Engine(_) | Failure::Output(_) | Failure::Message(_) => 1,
        }
    }

    /// The operation `verb` ("read", "create") on `path` failed.
    pub fn file(path: &Path, verb: &str, error: &io::Error) -> Failure {
        Failure::Message(format!("cannot {verb} {}: {error}", path.display()))
    }
}

/// `path` or one of its ancestors is a file, not a directory.
pub fn not_a_directory(path: &Path) -> Failure {
    let file = path.ancestors().find(|path| path.is_file()).unwrap_or(path);
    Failure::new(format!("{} is a file, but a database needs a directory", file.display()))
}

/// Counts the keys that are skipped because their merge fails; the other keys are still printed or exported.
#[derive(Debug, Default)]
pub struct SkippedKeys {
    count: u64,
}

impl SkippedKeys {
    /// The record that was read; `None` if its merge failed, which is reported on stderr.
    pub fn check<T>(&mut self, read: cleavedb::Result<T>) -> Result<Option<T>> {
        match read {
            Err(error @ cleavedb::Error::MergeFailed { .. }) => {
                self.count += 1;
                progress::note(&format!("cleave: {error}"));
                Ok(None)
            }
            read => Ok(Some(read?)),
        }
    }

    /// The result of a command whose own result is `done`: skipped keys are a failure, even if stdout was closed.
    pub fn end<T>(self, done: Result<T>) -> Result<T> {
        match (self.count, done) {
            (1.., Ok(_) | Err(Failure::Output(_))) => {
                Err(Failure::new(format!("skipped keys whose merge failed: {}", HumanCount(self.count))))
            }
            (_, done) => done,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Engine(error) => write!(f, "{error}"),
            Failure::Output(error) => write!(f, "cannot write the output: {error}"),
            Failure::OpenElsewhere(message) => write!(f, "{message}"),
            Failure::Usage(message) | Failure::Message(message) => write!(f, "{message}"),
        }
    }
}

impl From<cleavedb::Error> for Failure {
    fn from(error: cleavedb::Error) -> Failure {
        Failure::Engine(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}
