//! Why a command did not do its work: one sentence for stderr.

use std::fmt;
use std::io;
use std::path::Path;

use indicatif::HumanCount;

use crate::args::Database;
use crate::{live, progress};

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

    /// What the engine said about a database, with what a user of the program can do about it; if it is open elsewhere,
    /// by whom.
    pub fn of_database(database: &Database, error: cleavedb::Error) -> Failure {
        match error {
            cleavedb::Error::Locked { .. } => {
                let owner = match live::read(database) {
                    Ok(Some(live)) => format!(", in process {}", live.process),
                    _ => String::new(),
                };
                Failure::OpenElsewhere(format!("the database {database} is open elsewhere{owner}"))
            }
            cleavedb::Error::Io { ref path, ref source, .. } => match (path.parent(), source.kind()) {
                (Some(dir), io::ErrorKind::NotADirectory) => not_a_directory(dir),
                (Some(dir), io::ErrorKind::NotFound) if !dir.exists() => {
                    Failure::new(format!("not found: directory {} of the database {database}", dir.display()))
                }
                (Some(dir), io::ErrorKind::NotFound) if path.ends_with("LOCK") => Failure::new(format!(
                    "{} has no file LOCK, without which readers cannot keep writers away: `touch {}` makes one",
                    dir.display(),
                    path.display()
                )),
                _ => Failure::Engine(error),
            },
            other => Failure::Engine(other),
        }
    }

    /// Another process has the database, or where a copy of it is to go, open.
    pub fn is_open_elsewhere(&self) -> bool {
        matches!(self, Failure::OpenElsewhere(_) | Failure::Engine(cleavedb::Error::Locked { .. }))
    }

    /// `path` could not be `verb` ("read", "create").
    pub fn file(path: &Path, verb: &str, error: &io::Error) -> Failure {
        Failure::Message(format!("cannot {verb} {}: {error}", path.display()))
    }
}

/// `path`, or something above it, is a file where a directory is needed.
pub fn not_a_directory(path: &Path) -> Failure {
    let file = path.ancestors().find(|path| path.is_file()).unwrap_or(path);
    Failure::new(format!("{} is a file, and the directory of a database is needed", file.display()))
}

/// Counts the keys that are left out because their merge operator fails: one such key is no reason to hide the others.
#[derive(Debug, Default)]
pub struct LeftOut {
    count: u64,
}

impl LeftOut {
    /// What was read; `None`, with a line on stderr, if it could not be merged.
    pub fn sift<T>(&mut self, read: cleavedb::Result<T>) -> Result<Option<T>> {
        match read {
            Err(error @ cleavedb::Error::MergeFailed { .. }) => {
                self.count += 1;
                progress::note(&format!("cleave: {error}"));
                Ok(None)
            }
            read => Ok(Some(read?)),
        }
    }

    /// How a command ends that ended with `done`: what was left out counts for more than a reader who went away.
    pub fn end<T>(self, done: Result<T>) -> Result<T> {
        match (self.count, done) {
            (1.., Ok(_) | Err(Failure::Output(_))) => {
                Err(Failure::new(format!("left out, because they cannot be merged: {}", HumanCount(self.count))))
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
