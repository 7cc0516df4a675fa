//! `cleave checkpoint`: copies a database to another directory, where it can be opened at once.

use crate::args::Checkpoint;
use crate::failure::{Result, not_a_directory};
use crate::{open, progress};

/// `cleave checkpoint`. The file that makes a directory a database is written last, so an incomplete copy cannot be
/// opened.
pub fn run(args: &Checkpoint) -> Result<()> {
    if args.target.is_file() {
        return Err(not_a_directory(&args.target));
    }
    let db = open::to_write(&args.database)?;
    db.checkpoint(&args.target)?;
    db.close()?;
    progress::note(&format!("copied {} to {}", args.database, args.target.display()));
    Ok(())
}
