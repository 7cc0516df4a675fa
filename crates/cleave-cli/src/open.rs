//! Opening the database that a command names. Commands that read never create one.

use std::path::Path;

use cleavedb::{Db, Error, Options};

use crate::failure::{Failure, Result};
use crate::progress;

/// The database at `path`, which must exist.
pub fn existing(path: &Path) -> Result<Db> {
    Options::new().create_if_missing(false).open(path).map_err(|error| Failure::of_database(path, error))
}

/// The database at `path`; if there is none, a new one, and a line on stderr that says so.
pub fn existing_or_new(path: &Path) -> Result<Db> {
    match Options::new().create_if_missing(false).open(path) {
        Err(Error::NotFound { .. }) => {
            let db = Options::new().open(path)?;
            progress::note(&format!("created the database {}", path.display()));
            Ok(db)
        }
        opened => opened.map_err(|error| Failure::of_database(path, error)),
    }
}
