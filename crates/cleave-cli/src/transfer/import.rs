//! `cleave import`: the records of a file into a keyspace, in batches.

use std::time::Instant;

use indicatif::HumanCount;

use super::batches::Batches;
use super::input::Input;
use crate::args::{Import, Separation};
use crate::failure::{Failure, Result};
use crate::{open, progress};

/// `cleave import`. Records before an invalid one are kept; the error gives their number.
pub fn import(args: &Import) -> Result<()> {
    let start = Instant::now();
    let mut input = Input::open(&args.source, "importing")?;
    let db = open::existing_or_new(&args.place.database)?;
    let keyspace = db.keyspace(&args.place.keyspace)?;
    if let Some(Separation(bytes)) = args.separation {
        keyspace.set_separation(bytes)?;
    }
    let mut batches = Batches::new(&db, &keyspace);
    let mut count = 0u64;
    let outcome = loop {
        match input.next() {
            Ok(Some((key, value))) => batches.put(&key, &value)?,
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        }
        count += 1;
    };
    batches.write()?;
    db.close()?;
    input.bar.finish_and_clear();
    outcome
        .map_err(|failure| Failure::new(format!("{failure} (records imported before it: {})", HumanCount(count))))?;
    progress::note(&progress::moved("imported", count, "into", keyspace.name(), start));
    Ok(())
}
