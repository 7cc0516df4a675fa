//! The error type, grouped by what the caller should do ([`Action`]). Every message names the file, offset, key or
//! option that it is about.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::Tier;

/// The result of every fallible call in the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. [`Error::action`] says what to do about it. A clone says the same: all callers that wait for one commit,
/// sync or close get the same error.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A key, value, batch, name or option is outside the limits; nothing was written.
    InvalidInput {
        /// What is wrong, and the limit that it exceeds.
        message: String,
    },
    /// A keyspace, database or merge operator does not exist.
    NotFound {
        /// What does not exist.
        what: String,
    },
    /// Another handle or process has the database open.
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// Keyspaces of this kind do not have the operation; nothing was done.
    UnsupportedOperation {
        /// The operation and the keyspace.
        message: String,
    },
    /// The index of hash keyspaces has no memory for a new key. Nothing was written. Updates and deletes go on; new keys are
    /// accepted again once others are deleted, or with a larger memory budget.
    IndexFull {
        /// Bytes of the index now.
        bytes: usize,
        /// Its share of the memory budget, in bytes.
        limit: usize,
    },
    /// Storage is full. Reads continue; writes work again once there is space.
    NoSpace {
        /// The file that could not be extended.
        path: PathBuf,
        /// The tier that it lies on, if the database has several directories.
        tier: Option<Tier>,
    },
    /// The write would have stalled for longer than the allowed time. Nothing was written; try again later.
    WouldStall,
    /// An earlier append or sync failed, so later writes cannot be guaranteed. Reads continue; reopen the database to
    /// write.
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
    /// Bytes on storage differ from what was written. Restore the file from a backup.
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Offset of the damage in the file, in bytes.
        offset: u64,
        /// What was expected.
        message: String,
    },
    /// The file was written by a newer version, or by another program.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What was found, and what this version supports.
        message: String,
    },
    /// An operation of the operating system failed.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation, as a verb ("read", "create").
        operation: &'static str,
        /// The error of the operating system.
        source: Arc<io::Error>,
        /// The tier on which the file lies, if the database has several directories.
        tier: Option<Tier>,
    },
}

/// The operation of [`Error::name_taken`].
const TAKE_NAME: &str = "take the name of the old file";

/// What the caller should do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Change the arguments.
    FixInput,
    /// Try again later; nothing is wrong with the database.
    Retry,
    /// Free space on storage, then continue.
    FreeSpace,
    /// Open the database again.
    Reopen,
    /// Restore damaged files from a backup.
    Restore,
}

impl Error {
    /// What the caller should do.
    pub fn action(&self) -> Action {
        match self {
            Error::InvalidInput { .. }
            | Error::NotFound { .. }
            | Error::UnsupportedOperation { .. }
            | Error::MergeFailed { .. } => Action::FixInput,
            Error::IndexFull { .. } => Action::FreeSpace,
            Error::Locked { .. } | Error::WouldStall => Action::Retry,
            Error::NoSpace { .. } => Action::FreeSpace,
            Error::Io { .. } if self.is_transient() => Action::Retry,
            Error::Poisoned { .. } | Error::Closed | Error::Io { .. } => Action::Reopen,
            Error::Corruption { .. } | Error::Unsupported { .. } => Action::Restore,
        }
    }

    /// The process, or the system, has no file descriptor left.
    pub(crate) fn is_too_many_files(&self) -> bool {
        let Error::Io { source, .. } = self else { return false };
        // ENFILE and EMFILE have these numbers on every Unix; the standard library has no constants for them.
        matches!(source.raw_os_error(), Some(23 | 24))
    }

    /// There was no space or no file descriptor, or a name is still taken: nothing was done, and a retry may work later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Error::NoSpace { .. }) || self.is_too_many_files() || self.is_name_taken()
    }

    /// The name that a file is to get belongs to an old file, which could not be removed because of `failure`.
    pub(crate) fn name_taken(path: &Path, failure: &Error) -> Error {
        let source = Arc::new(io::Error::other(failure.to_string()));
        Error::Io { path: path.to_owned(), operation: TAKE_NAME, source, tier: None }
    }

    fn is_name_taken(&self) -> bool {
        matches!(self, Error::Io { operation, .. } if *operation == TAKE_NAME)
    }

    /// An input error with this message.
    pub(crate) fn input(message: impl Into<String>) -> Error {
        Error::InvalidInput { message: message.into() }
    }

    /// Damage in `path` at `offset`.
    pub(crate) fn corruption(path: &Path, offset: u64, message: impl Into<String>) -> Error {
        Error::Corruption { path: path.to_owned(), offset, message: message.into() }
    }

    /// A failed sync, for any reason: even on a full device earlier writes may be lost.
    pub(crate) fn sync(path: &Path, source: io::Error) -> Error {
        Error::Io { path: path.to_owned(), operation: "sync", source: Arc::new(source), tier: None }
    }

    /// A failed system call; [`Error::NoSpace`] if the device is full.
    pub(crate) fn io(path: &Path, operation: &'static str, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::no_space(path),
            _ => Error::Io { path: path.to_owned(), operation, source: Arc::new(source), tier: None },
        }
    }

    /// There is no space left for this file.
    pub(crate) fn no_space(path: &Path) -> Error {
        Error::NoSpace { path: path.to_owned(), tier: None }
    }

    /// As it is, with the tier that `tier_of` gives for its file, if it is an error of storage that names none yet.
    pub(crate) fn on_tier(mut self, tier_of: impl FnOnce(&Path) -> Option<Tier>) -> Error {
        if let Error::NoSpace { path, tier: tier @ None } | Error::Io { path, tier: tier @ None, .. } = &mut self {
            *tier = tier_of(path);
        }
        self
    }

    /// The same failure where it leaves in doubt what storage holds, so that no later try may follow: what
    /// [`is_transient`](Error::is_transient) becomes a failed `operation` on `path`.
    pub(crate) fn lasting(self, path: &Path, operation: &'static str) -> Error {
        match self.is_transient() {
            true => {
                let source = Arc::new(io::Error::other(self.to_string()));
                Error::Io { path: path.to_owned(), operation, source, tier: None }
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
            Error::UnsupportedOperation { message } => write!(f, "unsupported: {message}"),
            Error::IndexFull { bytes, limit } => write!(
                f,
                "the index of hash keyspaces takes {bytes} B of memory; its share is {limit} B, so there is no room for new keys"
            ),
            Error::NoSpace { path, tier } => write!(f, "no space left for {}{}", path.display(), on(*tier)),
            Error::WouldStall => write!(f, "the write would stall for longer than the allowed time"),
            Error::Poisoned { cause } => {
                write!(f, "writes are rejected until the database is reopened, because of an earlier failure: {cause}")
            }
            Error::Closed => write!(f, "the database is closed"),
            Error::MergeFailed { message } => write!(f, "merge failed: {message}"),
            Error::Corruption { path, offset, message } => {
                write!(f, "corruption in {} at offset {offset}: {message}", path.display())
            }
            Error::Unsupported { path, message } => write!(f, "cannot use {}: {message}", path.display()),
            Error::Io { path, operation, source, tier } => {
                write!(f, "cannot {operation} {}{}: {source}", path.display(), on(*tier))
            }
        }
    }
}

fn on(tier: Option<Tier>) -> &'static str {
    match tier {
        Some(Tier::Fast) => " on the fast tier",
        Some(Tier::Slow) => " on the slow tier",
        None => "",
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
    fn an_error_of_storage_names_its_tier_once_it_is_known() {
        let full = Error::no_space(Path::new("/slow/1.table"));
        assert_eq!(full.to_string(), "no space left for /slow/1.table");
        let full = full.on_tier(|path| path.starts_with("/slow").then_some(Tier::Slow));
        assert_eq!(full.to_string(), "no space left for /slow/1.table on the slow tier");
        let failed = Error::io(Path::new("/fast/1.log"), "write", io::Error::other("gone"));
        let failed = failed.on_tier(|_| Some(Tier::Fast)).on_tier(|_| Some(Tier::Slow));
        assert_eq!(failed.to_string(), "cannot write /fast/1.log on the fast tier: gone");
        assert!(matches!(Error::Closed.on_tier(|_| Some(Tier::Fast)), Error::Closed));
    }

    #[test]
    fn only_a_passing_failure_is_changed_where_it_must_last() {
        let path = Path::new("/db/1.log");
        let full = Error::io(path, "write", io::ErrorKind::StorageFull.into());
        assert!(full.is_transient());
        let lasting = full.lasting(path, "write");
        assert!(!lasting.is_transient() && lasting.action() == Action::Reopen, "{lasting}");
        assert!(lasting.to_string().contains("no space"), "{lasting}");
        let damaged = Error::corruption(path, 17, "bad").lasting(path, "write");
        assert!(matches!(damaged, Error::Corruption { offset: 17, .. }), "{damaged}");
    }
}
