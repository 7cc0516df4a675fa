//! `cleave ingest`: a file of sorted records straight into tables, all of it or nothing.

use std::time::Instant;

use cleavedb::{Keyspace, Options};

use super::{Batches, Input, Record, moved};
use crate::args::Ingest;
use crate::failure::{Failure, Result};
use crate::form::escaped;
use crate::{open, progress};

/// Memory for sorting.
const SORT_BYTES: usize = 256 << 20;

/// `cleave ingest`.
pub fn ingest(args: &Ingest) -> Result<()> {
    let start = Instant::now();
    let mut input = Input::open(&args.source, "reading")?;
    let db = open::existing_or_new(&args.place.database)?;
    let keyspace = db.keyspace(&args.place.keyspace)?;
    let loaded = if args.sort {
        load_sorted(&keyspace, &mut input)
    } else {
        load(&keyspace, Ascending { input: &mut input, previous: Vec::new() })
    };
    db.close()?;
    input.bar.finish_and_clear();
    let count = loaded.map_err(|failure| Failure::new(format!("{failure} (nothing was ingested)")))?;
    progress::note(&moved("ingested", count, "into", &keyspace, start));
    Ok(())
}

/// Ingests records up to the first failure, which then leaves nothing of the load.
fn load<K, V>(keyspace: &Keyspace, records: impl Iterator<Item = Result<(K, V)>>) -> Result<u64>
where
    K: AsRef<[u8]> + Default,
    V: AsRef<[u8]> + Default,
{
    let mut failed = None;
    // The engine refuses an empty key, and the whole load with it.
    let or_refused = |record: Result<(K, V)>| {
        record.unwrap_or_else(|failure| {
            failed = Some(failure);
            Default::default()
        })
    };
    let loaded = keyspace.ingest(records.map(or_refused));
    match failed {
        Some(failure) => Err(failure),
        None => Ok(loaded?),
    }
}

/// Sorts by what sorts any number of records within bounded memory: a database.
fn load_sorted(keyspace: &Keyspace, input: &mut Input) -> Result<u64> {
    let dir = tempfile::Builder::new().prefix("cleave-sort-").tempdir();
    let dir = dir.map_err(|error| Failure::new(format!("cannot create a temporary directory: {error}")))?;
    let sorter = Options::new().memory_budget(SORT_BYTES).open(dir.path())?;
    let records = sorter.default_keyspace();
    let mut batches = Batches::new(&sorter, &records);
    while let Some((key, value)) = input.next()? {
        batches.put(&key, &value)?;
    }
    batches.write()?;
    load(keyspace, records.iter()?.map(|record| Ok(record?)))
}

/// The records of a file whose keys ascend.
struct Ascending<'a> {
    input: &'a mut Input,
    /// Empty, which no key is, before the first.
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
            true => format!("{place}: key \"{text}\" comes twice; with --sort, its last value is taken"),
            false => {
                let previous = escaped(&self.previous);
                format!("{place}: key \"{text}\" comes after \"{previous}\", but keys must ascend; --sort sorts them")
            }
        })
    }
}
