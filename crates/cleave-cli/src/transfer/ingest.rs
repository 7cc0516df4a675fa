//! `cleave ingest`: writes a file of sorted records directly to tables, atomically.

use std::time::Instant;

use cleavedb::{Keyspace, Options};

use super::batches::Batches;
use super::input::Input;
use super::record::Record;
use crate::args::Ingest;
use crate::failure::{Failure, Result};
use crate::form::escaped;
use crate::{open, progress};

/// Memory budget of the database that sorts.
const SORT_BYTES: usize = 256 << 20;

/// `cleave ingest`.
pub fn ingest(args: &Ingest) -> Result<()> {
    let start = Instant::now();
    let mut input = Input::open(&args.source, "reading")?;
    let db = open::existing_or_new(&args.place.database)?;
    let keyspace = db.keyspace(&args.place.keyspace)?;
    let ingested = if args.sort {
        ingest_unsorted(&keyspace, &mut input)
    } else {
        ingest_sorted(&keyspace, Ascending { input: &mut input, previous: Vec::new() })
    };
    db.close()?;
    input.bar.finish_and_clear();
    let count = ingested.map_err(|failure| Failure::new(format!("{failure} (nothing was ingested)")))?;
    progress::note(&progress::moved("ingested", count, "into", keyspace.name(), start));
    Ok(())
}

/// Ingests records; a failure to read one cancels the whole ingest.
fn ingest_sorted<K, V>(keyspace: &Keyspace, records: impl Iterator<Item = Result<(K, V)>>) -> Result<u64>
where
    K: AsRef<[u8]> + Default,
    V: AsRef<[u8]> + Default,
{
    let mut failed = None;
    // The engine rejects the empty key that stands for a failure, and the whole ingest with it.
    let or_refused = |record: Result<(K, V)>| {
        record.unwrap_or_else(|failure| {
            failed = Some(failure);
            Default::default()
        })
    };
    let ingested = keyspace.ingest(records.map(or_refused));
    match failed {
        Some(failure) => Err(failure),
        None => Ok(ingested?),
    }
}

/// Sorts the records in a temporary database, which needs bounded memory, and ingests them.
fn ingest_unsorted(keyspace: &Keyspace, input: &mut Input) -> Result<u64> {
    let dir = tempfile::Builder::new().prefix("cleave-sort-").tempdir();
    let dir = dir.map_err(|error| Failure::new(format!("cannot create a temporary directory: {error}")))?;
    let sorter = Options::new().memory_budget(SORT_BYTES).open(dir.path())?;
    let records = sorter.default_keyspace();
    let mut batches = Batches::new(&sorter, &records);
    while let Some((key, value)) = input.next()? {
        batches.put(&key, &value)?;
    }
    batches.write()?;
    ingest_sorted(keyspace, records.iter()?.map(|record| Ok(record?)))
}

/// The records of a file; a key that is not greater than the previous one is a failure.
struct Ascending<'a> {
    input: &'a mut Input,
    /// The previous key; empty before the first record.
    previous: Vec<u8>,
}

impl Iterator for Ascending<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        let record = self.input.next().transpose()?;
        Some(record.and_then(|(key, value)| {
            if key <= self.previous {
                return Err(self.refuse(&key));
            }
            self.previous.clone_from(&key);
            Ok((key, value))
        }))
    }
}

impl Ascending<'_> {
    fn refuse(&self, key: &[u8]) -> Failure {
        let (place, text) = (self.input.place(), escaped(key));
        Failure::new(match key == self.previous {
            true => format!("{place}: key \"{text}\" is a duplicate; --sort keeps the last value of a key"),
            false => {
                let previous = escaped(&self.previous);
                format!("{place}: key \"{text}\" follows \"{previous}\", but keys must ascend; --sort sorts them")
            }
        })
    }
}
