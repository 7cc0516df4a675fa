//! Opens the database of a command. Commands that only read open it read-only: they never create a database, write nothing,
//! and any number of them may run concurrently.

use std::io;

use cleavedb::{Db, Error};

use crate::args::Database;
use crate::failure::{Failure, Result, not_a_directory};
use crate::{live, progress};

/// Opens an existing database read-only.
pub fn to_read(database: &Database) -> Result<Db> {
    let opened = database.options().and_then(|options| options.read_only(true).open(&database.path));
    opened.map_err(|error| failure_of(database, error))
}

/// Opens an existing database for writing.
pub fn to_write(database: &Database) -> Result<Db> {
    let opened = database.options().and_then(|options| options.create_if_missing(false).open(&database.path));
    opened.map_err(|error| failure_of(database, error))
}

/// Opens a database for writing. If it does not exist it is created, which is reported on stderr.
pub fn existing_or_new(database: &Database) -> Result<Db> {
    match to_write(database) {
        Err(Failure::Engine(Error::NotFound { .. })) => {
            let opened = database.options().and_then(|options| options.open(&database.path));
            let db = opened.map_err(|error| failure_of(database, error))?;
            progress::note(&format!("created the database {database}"));
            Ok(db)
        }
        opened => opened,
    }
}

/// Turns an error of the engine into a failure with advice for the user; if the database is open in another process, with
/// its process id.
pub fn failure_of(database: &Database, error: Error) -> Failure {
    match error {
        Error::Locked { .. } => {
            let owner = match live::read(database) {
                Ok(Some(live)) => format!(", in process {}", live.process),
                _ => String::new(),
            };
            Failure::OpenElsewhere(format!("the database {database} is open elsewhere{owner}"))
        }
        Error::Io { ref path, ref source, .. } => match (path.parent(), source.kind()) {
            (Some(dir), io::ErrorKind::NotADirectory) => not_a_directory(dir),
            (Some(dir), io::ErrorKind::NotFound) if !dir.exists() => {
                Failure::new(format!("not found: directory {} of database {database}", dir.display()))
            }
            (Some(dir), io::ErrorKind::NotFound) if path.ends_with("LOCK") => Failure::new(format!(
                "{} has no file LOCK, which read-only commands need to exclude writers; create it with `touch {}`",
                dir.display(),
                path.display()
            )),
            _ => Failure::Engine(error),
        },
        other => Failure::Engine(other),
    }
}
