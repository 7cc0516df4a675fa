//! One error type, grouped by what the caller should do about it ([`Action`]). Every message names the file, offset,
//! key or option it is about.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible call in the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. [`Error::action`] says what to do about it. A clone says the same: all callers that wait for one commit,
/// sync or close get the same error.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A key, value, batch, name or option is outside the limits; nothing was written.
    InvalidInput {
        /// What is wrong, and the limit it breaks.
        message: String,
    },
    /// A keyspace, database or merge operator that was asked for does not exist.
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// Another handle or process has the database open.
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// Storage is full. Reads go on; writes work again when space is back.
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The write would have had to wait longer for background work than it may. Nothing was written; try again later.
    WouldStall,
    /// An earlier append or sync failed, so no later write can be promised. Reads go on; reopen to write.
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// The database was closed through another handle.
    Closed,
    /// The merge operator failed, panicked or is not registered; only this key is affected.
    MergeFailed {
        /// The keyspace, key and reason.
        message: String,
    },
    /// Bytes on storage are not what was written. Restore the file from a copy.
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What was expected.
        message: String,
    },
    /// The file was written by a newer version, or by another program.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What was found and what is understood.
        message: String,
    },
    /// The operating system refused an operation.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried, as a verb ("read", "create").
        operation: &'static str,
        /// The system's answer.
        source: Arc<io::Error>,
    },
}

/// What the caller should do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Change what was passed in.
    FixInput,
    /// Try again later; nothing is wrong with the database.
    Retry,
    /// Make room on storage, then go on.
    FreeSpace,
    /// Open the database again.
    Reopen,
    /// Restore damaged files from a copy.
    Restore,
}

impl Error {
    /// What the caller should do.
    pub fn action(&self) -> Action {
        match self {
            Error::InvalidInput { .. } | Error::NotFound { .. } | Error::MergeFailed { .. } => Action::FixInput,
            Error::Locked { .. } | Error::WouldStall => Action::Retry,
            Error::NoSpace { .. } => Action::FreeSpace,
            Error::Io { .. } if self.is_too_many_files() => Action::Retry,
            Error::Poisoned { .. } | Error::Closed | Error::Io { .. } => Action::Reopen,
            Error::Corruption { .. } | Error::Unsupported { .. } => Action::Restore,
        }
    }

    /// The process, or the system, had no file descriptor left.
    pub(crate) fn is_too_many_files(&self) -> bool {
        let Error::Io { source, .. } = self else { return false };
        // ENFILE and EMFILE, the same numbers on every Unix; the standard library has no name for them.
        matches!(source.raw_os_error(), Some(23 | 24))
    }

    /// There was no space or no file descriptor: nothing was done, and a later try may work.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Error::NoSpace { .. }) || self.is_too_many_files()
    }

    /// An input error with this message.
    pub(crate) fn input(message: impl Into<String>) -> Error {
        Error::InvalidInput { message: message.into() }
    }

    /// Damage in `path` at `offset`.
    pub(crate) fn corruption(path: &Path, offset: u64, message: impl Into<String>) -> Error {
        Error::Corruption { path: path.to_owned(), offset, message: message.into() }
    }

    /// A failed sync, for whatever reason: even a full device means that earlier writes may be lost.
    pub(crate) fn sync(path: &Path, source: io::Error) -> Error {
        Error::Io { path: path.to_owned(), operation: "sync", source: Arc::new(source) }
    }

    /// A failed system call; a full device becomes [`Error::NoSpace`].
    pub(crate) fn io(path: &Path, operation: &'static str, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace { path: path.to_owned() },
            _ => Error::Io { path: path.to_owned(), operation, source: Arc::new(source) },
        }
    }

    /// The same failure where it leaves in doubt what storage holds, so that no later try may follow: what
    /// [`is_passing`](Error::is_passing) becomes a failed `operation` on `path`.
    pub(crate) fn lasting(self, path: &Path, operation: &'static str) -> Error {
        match self.is_passing() {
            true => {
                let source = Arc::new(io::Error::other(self.to_string()));
                Error::Io { path: path.to_owned(), operation, source }
            }
            false => self,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidInput { message } => write!(f, "{message}"),
            Error::NotFound { what } => write!(f, "not found: {what}"),
            Error::Locked { path } => {
                write!(f, "the database is open elsewhere (lock held on {})", path.display())
            }
            Error::NoSpace { path } => write!(f, "no space left for {}", path.display()),
            Error::WouldStall => write!(f, "the write would have to wait for background work longer than it may"),
            Error::Poisoned { cause } => {
                write!(f, "writes are refused until the database is reopened, after: {cause}")
            }
            Error::Closed => write!(f, "the database is closed"),
            Error::MergeFailed { message } => write!(f, "merge failed: {message}"),
            Error::Corruption { path, offset, message } => {
                write!(f, "corruption in {} at offset {offset}: {message}", path.display())
            }
            Error::Unsupported { path, message } => write!(f, "cannot use {}: {message}", path.display()),
            Error::Io { path, operation, source } => write!(f, "cannot {operation} {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_clone_is_of_the_same_kind_with_the_same_path_offset_and_source() {
        let path = Path::new("/db/1.table");
        let damaged = Error::corruption(path, 17, "bad");
        assert!(matches!(damaged.clone(), Error::Corruption { path: same, offset: 17, .. } if same == path));
        let refused = Error::io(path, "read", io::Error::from_raw_os_error(5));
        let clone = refused.clone();
        assert_eq!((clone.to_string(), clone.action()), (refused.to_string(), refused.action()));
        let source = clone.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(5));
    }

    #[test]
    fn only_a_passing_failure_is_changed_where_it_must_last() {
        let path = Path::new("/db/1.log");
        let full = Error::io(path, "write", io::ErrorKind::StorageFull.into());
        assert!(full.is_passing());
        let lasting = full.lasting(path, "write");
        assert!(!lasting.is_passing() && lasting.action() == Action::Reopen, "{lasting}");
        assert!(lasting.to_string().contains("no space"), "{lasting}");
        let damaged = Error::corruption(path, 17, "bad").lasting(path, "write");
        assert!(matches!(damaged, Error::Corruption { offset: 17, .. }), "{damaged}");
    }
}
