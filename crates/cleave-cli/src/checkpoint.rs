//! `cleave checkpoint`: a copy of a database in another directory, usable at once.

use crate::args::Checkpoint;
use crate::failure::{Result, not_a_directory};
use crate::{open, progress};

/// `cleave checkpoint`. What makes a directory a database comes last, so a copy that was cut short is none.
pub fn run(args: &Checkpoint) -> Result<()> {
    if args.target.is_file() {
        return Err(not_a_directory(&args.target));
    }
    let db = open::to_write(&args.database)?;
    db.checkpoint(&args.target)?;
    db.close()?;
    progress::note(&format!("{} is a copy of {} now", args.target.display(), args.database));
    Ok(())
}
