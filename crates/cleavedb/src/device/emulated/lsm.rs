//! The LSM tree of an emulated device: a sorted map in memory with a log, and sorted runs. A run is written when the map is full, and
//! runs are merged when most of their bytes are dead, or when there are many.
//!
//! Pieces of logs come with new keys in rising order, and go all at once, so there is nothing that has to be sorted over and over.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{Current, log_path, run_path};
use super::pair_log::PairLog;
use super::run::{Entry, Run, ValueRange};
use super::timing::Timing;
use crate::base::Result;
use crate::device::KvPair;
use crate::device::block_side::Medium;
use crate::io::{Access, File, Storage};

/// With more runs, the newest ones of similar size are merged.
const RUNS_MAX: usize = 32;
/// A merge reads this much of the medium together.
const MERGE_READ_BYTES: u64 = 512 << 10;

/// The newest pairs; `None` for a delete.
type Memtable = BTreeMap<Box<[u8]>, Option<Arc<[u8]>>>;

/// The tree.
pub(super) struct Lsm {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    timing: Arc<Timing>,
    memtable_bytes_max: usize,
    current: Current,
    log: PairLog,
    memtable: Memtable,
    memtable_bytes: usize,
    /// Oldest first.
    runs: Vec<Run>,
    /// Bytes of the values of all keys.
    used_bytes: u64,
}

/// Where the newest version of a key is.
enum Found<'a> {
    Memory(Option<&'a Arc<[u8]>>),
    Run(&'a Run, Option<ValueRange>),
}

impl Found<'_> {
    fn value_bytes(&self) -> Option<u64> {
        match self {
            Found::Memory(value) => value.map(|value| value.len() as u64),
            Found::Run(_, value) => value.map(|value| u64::from(value.len)),
        }
    }
}

impl Lsm {
    /// Opens the tree in a directory, or makes one.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: PathBuf,
        timing: Arc<Timing>,
        memtable_bytes_max: usize,
    ) -> Result<Lsm> {
        let before = match Current::read(&*storage, &dir)? {
            Some(current) => current,
            None => Current { identity: storage.unique_number()?, next_number: 1, log: 0, runs: Vec::new() },
        };
        let is_new = before.log == 0;
        if !is_new {
            before.remove_others(&*storage, &dir)?;
        }
        let (memtable, mut memtable_bytes) = (Memtable::new(), 0);
        let runs = before.runs.iter().map(|run| Run::open(&*storage, &run_path(&dir, *run), *run));
        let runs = runs.collect::<Result<Vec<_>>>()?;
        let mut memtable = memtable;
        if !is_new {
            let file = storage.open_read(&log_path(&dir, before.log), Access::Buffered)?;
            PairLog::replay(&*file, &mut |key, value| {
                memtable_bytes += key.len() + value.map_or(0, <[u8]>::len);
                memtable.insert(key.into(), value.map(Arc::from));
            })?;
        }
        // Every open begins a log of its own: what the one before has behind its last whole record is never read again.
        let log = before.next_number;
        let path = log_path(&dir, log);
        if storage.exists(&path)? {
            storage.remove(&path)?;
        }
        let mut lsm = Lsm {
            log: PairLog::create(&*storage, path)?,
            current: before,
            storage,
            dir,
            timing,
            memtable_bytes_max,
            memtable,
            memtable_bytes,
            runs,
            used_bytes: 0,
        };
        lsm.current.next_number += 1;
        lsm.write_memtable(log)?;
        let mut used = 0;
        lsm.visit(&mut |_, bytes| used += bytes);
        lsm.used_bytes = used;
        Ok(lsm)
    }

    /// Tells the device from others.
    pub fn identity(&self) -> u64 {
        self.current.identity
    }

    /// Bytes of the values of all keys.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// What a sync makes durable.
    pub fn log_file(&self) -> Arc<dyn File> {
        self.log.file.clone()
    }

    fn find(&self, key: &[u8]) -> Option<Found<'_>> {
        if let Some(value) = self.memtable.get(key) {
            return Some(Found::Memory(value.as_ref()));
        }
        self.runs.iter().rev().find_map(|run| run.find(key).map(|entry| Found::Run(run, entry.value)))
    }

    /// The length of a key's value.
    pub fn value_bytes_of(&self, key: &[u8]) -> Option<u64> {
        self.find(key)?.value_bytes()
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(found) = self.find(key) else { return Ok(None) };
        if let Found::Run(_, Some(value)) = found {
            self.timing.read(value.len.into());
        }
        self.read(&found)
    }

    fn read(&self, found: &Found<'_>) -> Result<Option<Vec<u8>>> {
        match found {
            Found::Memory(value) => Ok(value.map(|value| value.to_vec())),
            Found::Run(run, Some(value)) => run.read(*value).map(Some),
            Found::Run(_, None) => Ok(None),
        }
    }

    /// Stores a value, or deletes one.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let before = self.value_bytes_of(key).unwrap_or_default();
        let written = self.log.append(key, value)?;
        self.timing.write(written);
        let bytes = value.map_or(0, <[u8]>::len);
        self.memtable.insert(key.into(), value.map(Arc::from));
        self.memtable_bytes += key.len() + bytes;
        self.used_bytes = self.used_bytes - before + bytes as u64;
        if self.memtable_bytes >= self.memtable_bytes_max {
            let log = self.new_number();
            let path = log_path(&self.dir, log);
            self.log = PairLog::create(&*self.storage, path)?;
            self.write_memtable(log)?;
            self.merge()?;
        }
        Ok(())
    }

    fn new_number(&mut self) -> u64 {
        self.current.next_number += 1;
        self.current.next_number - 1
    }

    /// Writes the map in memory into a run; `log`, which is empty, replaces the log of it.
    fn write_memtable(&mut self, log: u64) -> Result<()> {
        if !self.memtable.is_empty() {
            let number = self.new_number();
            // After an error its pairs are still read from there.
            let pairs = self.memtable.iter().map(|(key, value)| Ok((key.clone(), value.clone())));
            let path = run_path(&self.dir, number);
            let run = Run::write(&*self.storage, &path, number, &self.timing, pairs)?;
            self.runs.push(run);
            self.memtable.clear();
        }
        self.memtable_bytes = 0;
        let former = std::mem::replace(&mut self.current.log, log);
        self.put_in_force()?;
        match former {
            0 => Ok(()),
            former => self.storage.remove(&log_path(&self.dir, former)),
        }
    }

    fn put_in_force(&mut self) -> Result<()> {
        self.current.runs = self.runs.iter().map(|run| run.number).collect();
        self.current.write(&*self.storage, &self.dir)
    }

    /// Merges runs if that is due.
    fn merge(&mut self) -> Result<()> {
        let bytes: u64 = self.runs.iter().map(|run| run.bytes).sum();
        let mostly_dead = bytes > 2 * self.used_bytes + 2 * self.memtable_bytes_max as u64;
        if !mostly_dead && self.runs.len() <= RUNS_MAX {
            return Ok(());
        }
        let mut first = self.runs.len().saturating_sub(1);
        let mut sum = self.runs.last().map_or(0, |run| run.bytes);
        while first > 0 && (mostly_dead || self.runs[first - 1].bytes <= 2 * sum || first + 1 == self.runs.len()) {
            first -= 1;
            sum += self.runs[first].bytes;
        }
        let mut newest: BTreeMap<&[u8], (&Run, Option<ValueRange>)> = BTreeMap::new();
        for run in &self.runs[first..] {
            newest.extend(run.entries.iter().map(|entry| (&*entry.key, (run, entry.value))));
        }
        if first == 0 {
            // Nothing older is left that a delete would cover.
            newest.retain(|_, (_, value)| value.is_some());
        }
        let written = match newest.is_empty() {
            true => None,
            false => {
                let (number, timing, mut unpaid) = (self.current.next_number, &self.timing, 0);
                let pairs = newest.into_iter().map(|(key, (run, value))| {
                    unpaid += value.map_or(0, |value| u64::from(value.len));
                    if unpaid >= MERGE_READ_BYTES {
                        timing.read(std::mem::take(&mut unpaid));
                    }
                    Ok((key.into(), value.map(|value| run.read(value)).transpose()?.map(Arc::from)))
                });
                let written = Run::write(&*self.storage, &run_path(&self.dir, number), number, timing, pairs)?;
                timing.read(unpaid);
                Some(written)
            }
        };
        self.current.next_number += 1;
        // From here on the new run is read.
        let merged = self.runs.split_off(first);
        self.runs.extend(written);
        self.put_in_force()?;
        merged.iter().try_for_each(|run| self.storage.remove(&run_path(&self.dir, run.number)))
    }

    /// Removes all pairs, durably.
    pub fn reset(&mut self) -> Result<()> {
        let removed = std::mem::take(&mut self.runs);
        self.memtable.clear();
        self.used_bytes = 0;
        let log = self.new_number();
        self.log = PairLog::create(&*self.storage, log_path(&self.dir, log))?;
        self.write_memtable(log)?;
        removed.iter().try_for_each(|run| self.storage.remove(&run_path(&self.dir, run.number)))
    }

    /// Visits all keys in order.
    pub fn keys(&self, see: &mut dyn FnMut(&[u8])) {
        self.visit(&mut |key, _| see(key));
    }

    fn visit(&self, see: &mut dyn FnMut(&[u8], u64)) {
        let mut merged = self.merged(&[], None);
        while let Some((key, found)) = merged.next() {
            if let Some(bytes) = found.value_bytes() {
                see(key, bytes);
            }
        }
    }

    /// The pairs of a range of keys, up to about `chunk_bytes` of values, and at least one.
    pub fn scan(&self, from: &[u8], to: &[u8], chunk_bytes: usize) -> Result<Vec<KvPair>> {
        let (mut pairs, mut bytes, mut from_medium) = (Vec::new(), 0, 0);
        let mut merged = self.merged(from, Some(to));
        while let Some((key, found)) = merged.next() {
            let Some(len) = found.value_bytes() else { continue };
            if !pairs.is_empty() && bytes + len > chunk_bytes as u64 {
                break;
            }
            bytes += len;
            if let Found::Run(..) = found {
                from_medium += len;
            }
            pairs.extend(self.read(&found)?.map(|value| (key.to_vec(), value)));
        }
        // The pairs of a chunk are read together.
        if from_medium > 0 {
            self.timing.read(from_medium);
        }
        Ok(pairs)
    }

    /// The newest versions of the keys of a range, in order.
    fn merged<'a>(&'a self, from: &[u8], to: Option<&[u8]>) -> Merged<'a> {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let is_empty = to.is_some_and(|to| from >= to);
        let memory = (!is_empty).then(|| self.memtable.range::<[u8], _>((Bound::Included(from), end)));
        let memory = memory.into_iter().flatten().map(|(key, value)| (&**key, Found::Memory(value.as_ref())));
        let mut sources: Vec<Source<'a>> = vec![(Box::new(memory) as Box<dyn Iterator<Item = _>>).peekable()];
        for run in self.runs.iter().rev() {
            let entries = match to {
                Some(to) => run.within(from, to),
                None => &run.entries[..],
            };
            let entries = entries.iter().map(move |Entry { key, value }| (&**key, Found::Run(run, *value)));
            sources.push((Box::new(entries) as Box<dyn Iterator<Item = _>>).peekable());
        }
        Merged { sources }
    }
}

type Source<'a> = Peekable<Box<dyn Iterator<Item = (&'a [u8], Found<'a>)> + 'a>>;

/// Several sorted sources, the newest first.
struct Merged<'a> {
    sources: Vec<Source<'a>>,
}

impl<'a> Merged<'a> {
    fn next(&mut self) -> Option<(&'a [u8], Found<'a>)> {
        let key = self.sources.iter_mut().filter_map(|source| source.peek().map(|(key, _)| *key)).min()?;
        let mut newest = None;
        for source in &mut self.sources {
            if let Some((_, found)) = source.next_if(|(other, _)| *other == key) {
                newest.get_or_insert(found);
            }
        }
        newest.map(|found| (key, found))
    }
}
