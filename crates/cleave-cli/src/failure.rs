//! Why a command did not do its work: one sentence for stderr.

use std::fmt;
use std::io;
use std::path::Path;

use crate::live;

/// The result of a command or a part of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command stopped.
#[derive(Debug)]
pub enum Failure {
    /// The engine refused or failed.
    Engine(cleavedb::Error),
    /// Standard output (or the file standing for it) could not be written.
    Output(io::Error),
    /// Another process has the database open; the sentence says which, if that is known.
    OpenElsewhere(String),
    /// Anything else, said in one sentence.
    Message(String),
}

impl Failure {
    /// A failure that is this sentence.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure::Message(message.into())
    }

    /// What the engine said about the database at `path`; if it is open elsewhere, by whom.
    pub fn of_database(path: &Path, error: cleavedb::Error) -> Failure {
        if !matches!(error, cleavedb::Error::Locked { .. }) {
            return Failure::Engine(error);
        }
        let owner = match live::read(path) {
            Ok(Some(live)) => format!(", in process {}", live.process),
            _ => String::new(),
        };
        Failure::OpenElsewhere(format!("the database {} is open elsewhere{owner}", path.display()))
    }

    /// `path` could not be `verb` ("read", "create").
    pub fn file(path: &Path, verb: &str, error: &io::Error) -> Failure {
        Failure::Message(format!("cannot {verb} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Engine(error) => write!(f, "{error}"),
            Failure::Output(error) => write!(f, "cannot write the output: {error}"),
            Failure::OpenElsewhere(message) => write!(f, "{message}"),
            Failure::Message(message) => write!(f, "{message}"),
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
