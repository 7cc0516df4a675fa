//! Opening the database that a command names. Commands that read open it for reading only: they never create one, write
//! nothing, and any number of them may run at once.

use cleavedb::{Db, Error};

use crate::args::Database;
use crate::failure::{Failure, Result};
use crate::progress;

/// An existing database, for reading only.
pub fn to_read(database: &Database) -> Result<Db> {
    let opened = database.options().read_only(true).open(&database.path);
    opened.map_err(|error| Failure::of_database(database, error))
}

/// An existing database, for writing.
pub fn to_write(database: &Database) -> Result<Db> {
    let opened = database.options().create_if_missing(false).open(&database.path);
    opened.map_err(|error| Failure::of_database(database, error))
}

/// A database for writing; if there is none, a new one, and a line on stderr that says so.
pub fn existing_or_new(database: &Database) -> Result<Db> {
    match to_write(database) {
        Err(Failure::Engine(Error::NotFound { .. })) => {
            let opened = database.options().open(&database.path);
            let db = opened.map_err(|error| Failure::of_database(database, error))?;
            progress::note(&format!("created the database {database}"));
            Ok(db)
        }
        opened => opened,
    }
}
