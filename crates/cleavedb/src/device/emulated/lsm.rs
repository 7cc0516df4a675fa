//! The LSM tree of an emulated device: a sorted map in memory with a log, and sorted runs. A run is written when the map is full. A
//! run goes once newer ones cover all of it; some neighbours are merged when most of the bytes of all runs are dead, or when there
//! are very many.
//!
//! Pieces of logs come with new keys in rising order, and go all at once, so their runs go as a whole, and nothing is sorted over
//! and over. A command waits for the work that it finds due, so each piece of that is small.

use std::collections::{BTreeMap, HashSet};
use std::iter::Peekable;
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{Current, log_path, run_path};
use super::merging::{RunSize, runs_to_merge};
use super::pair_log::PairLog;
use super::run::{Entry, Live, Run, ValueRange};
use super::timing::Timing;
use crate::base::{Error, Result};
use crate::device::KvPair;
use crate::device::block_side::Medium;
use crate::io::{File, Storage};

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
        let current = match Current::read(&*storage, &dir)? {
            Some(current) => current,
            None => {
                let current = Current { identity: storage.unique_number()?, next_number: 2, log: 1, runs: Vec::new() };
                let log = log_path(&dir, current.log);
                if storage.exists(&log)? {
                    // A crash left it before the device was there.
                    storage.remove(&log)?;
                }
                PairLog::create(&*storage, log)?;
                current.write(&*storage, &dir)?;
                current
            }
        };
        current.remove_others(&*storage, &dir)?;
        let runs = current.runs.iter().map(|run| Run::open(&*storage, &run_path(&dir, *run), *run));
        let mut runs = runs.collect::<Result<Vec<_>>>()?;
        for (run, live) in live_of(&runs).into_iter().enumerate() {
            runs[run].live = live;
        }
        let (mut memtable, mut memtable_bytes) = (Memtable::new(), 0);
        let log = PairLog::reopen(&*storage, &log_path(&dir, current.log), &mut |key, value| {
            memtable_bytes += key.len() + value.map_or(0, <[u8]>::len);
            memtable.insert(key.into(), value.map(Arc::from));
        })?;
        let mut lsm = Lsm {
            log,
            current,
            storage,
            dir,
            timing,
            memtable_bytes_max,
            memtable,
            memtable_bytes,
            runs,
            used_bytes: 0,
        };
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

    /// Stores a value, or deletes one. Nothing is changed if there is no room.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if self.memtable_bytes >= self.memtable_bytes_max {
            self.write_memtable()?;
            match self.drop_dead_runs().and_then(|()| self.merge()) {
                // It is tried again after the next run.
                Ok(()) | Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let before = self.value_bytes_of(key).unwrap_or_default();
        let written = self.log.append(key, value)?;
        self.timing.write(written);
        let bytes = value.map_or(0, <[u8]>::len);
        self.memtable.insert(key.into(), value.map(Arc::from));
        self.memtable_bytes += key.len() + bytes;
        self.used_bytes = self.used_bytes - before + bytes as u64;
        Ok(())
    }

    /// Writes the map in memory into a run, without deletes that cover nothing, and begins a new log. Without room, the map and its
    /// log stay.
    fn write_memtable(&mut self) -> Result<()> {
        let pairs = self.memtable.iter().filter(|(key, value)| value.is_some() || is_in(&self.runs, key));
        let mut pairs = pairs.map(|(key, value)| Ok((key.clone(), value.clone()))).peekable();
        let run = match pairs.peek() {
            Some(_) => Some(self.write_run(pairs)?),
            None => None,
        };
        let is_run = run.is_some();
        self.replace(self.runs.len()..self.runs.len(), run, true)?;
        self.memtable.clear();
        self.memtable_bytes = 0;
        if let Some((newest, older)) = self.runs.split_last_mut().filter(|_| is_run) {
            for Entry { key, .. } in &newest.entries {
                let covered = older.iter_mut().rev().find_map(|run| {
                    let value = run.find(key)?.value;
                    Some((run, value))
                });
                if let Some((run, Some(value))) = covered {
                    run.live.remove(value);
                }
            }
        }
        Ok(())
    }

    /// Removes runs of which newer ones cover every value, and whose deletes cover nothing that stays.
    fn drop_dead_runs(&mut self) -> Result<()> {
        let mut at = 0;
        while at < self.runs.len() {
            let (older, rest) = self.runs.split_at(at);
            let covers = |entry: &Entry| entry.value.is_none() && is_in(older, &entry.key);
            let dead = rest.iter().take_while(|run| run.live.values == 0 && !run.entries.iter().any(covers)).count();
            if dead > 0 {
                self.replace(at..at + dead, None, false)?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Writes a run under the next number. Nothing is left of it if there is no room.
    fn write_run(&self, pairs: impl Iterator<Item = Result<(Box<[u8]>, Option<Arc<[u8]>>)>>) -> Result<Run> {
        let number = self.current.next_number;
        let path = run_path(&self.dir, number);
        let written = Run::write(&*self.storage, &path, number, &self.timing, pairs);
        self.or_remove(written, &[path])
    }

    /// A result, after removing these files if there was no room.
    fn or_remove<T>(&self, result: Result<T>, paths: &[PathBuf]) -> Result<T> {
        if let Err(Error::NoSpace { .. }) = result {
            for path in paths {
                if self.storage.exists(path)? {
                    self.storage.remove(path)?;
                }
            }
        }
        result
    }

    /// Puts a new list of runs in force, with `run` in the place of those in `gone`, together with a new log if the one so far has
    /// nothing that is not in it; removes what has no place in it. Nothing is changed if there is no room.
    fn replace(&mut self, gone: Range<usize>, run: Option<Run>, with_new_log: bool) -> Result<()> {
        let mut next = self.current.clone();
        next.runs.splice(gone.clone(), run.as_ref().map(|run| run.number));
        let mut made: Vec<PathBuf> = run.iter().map(|run| run_path(&self.dir, run.number)).collect();
        // Also without a run its number is used up.
        next.next_number += 1;
        let mut log = None;
        if with_new_log {
            next.log = next.next_number;
            next.next_number += 1;
            let path = log_path(&self.dir, next.log);
            made.push(path.clone());
            log = Some(self.or_remove(PairLog::create(&*self.storage, path), &made)?);
        }
        self.or_remove(next.write(&*self.storage, &self.dir), &made)?;
        let former = std::mem::replace(&mut self.current, next);
        let gone = self.runs.splice(gone, run);
        let mut gone: Vec<PathBuf> = gone.map(|run| run_path(&self.dir, run.number)).collect();
        if let Some(log) = log {
            self.log = log;
            gone.push(log_path(&self.dir, former.log));
        }
        gone.iter().try_for_each(|path| self.storage.remove(path))
    }

    /// Merges some runs if that is due, without what newer ones cover.
    fn merge(&mut self) -> Result<()> {
        let sizes: Vec<RunSize> =
            self.runs.iter().map(|run| RunSize { bytes: run.bytes, live: run.live.bytes }).collect();
        let Some(merged) = runs_to_merge(&sizes, self.used_bytes, self.memtable_bytes_max as u64) else {
            return Ok(());
        };
        let mut newest: BTreeMap<&[u8], (&Run, Option<ValueRange>)> = BTreeMap::new();
        for run in &self.runs[merged.clone()] {
            newest.extend(run.entries.iter().map(|entry| (&*entry.key, (run, entry.value))));
        }
        let (older, newer) = (&self.runs[..merged.start], &self.runs[merged.end..]);
        newest.retain(|key, (_, value)| !is_in(newer, key) && (value.is_some() || is_in(older, key)));
        let written = match newest.is_empty() {
            true => None,
            false => {
                let (timing, mut unpaid) = (&self.timing, 0);
                let pairs = newest.into_iter().map(|(key, (run, value))| {
                    unpaid += value.map_or(0, |value| u64::from(value.len));
                    if unpaid >= MERGE_READ_BYTES {
                        timing.read(std::mem::take(&mut unpaid));
                    }
                    Ok((key.into(), value.map(|value| run.read(value)).transpose()?.map(Arc::from)))
                });
                let written = self.write_run(pairs)?;
                timing.read(unpaid);
                Some(written)
            }
        };
        self.replace(merged, written, false)
    }

    /// Removes all pairs, durably.
    pub fn reset(&mut self) -> Result<()> {
        self.replace(0..self.runs.len(), None, true)?;
        self.memtable.clear();
        (self.memtable_bytes, self.used_bytes) = (0, 0);
        Ok(())
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

/// Some of these runs have an entry of the key.
fn is_in(runs: &[Run], key: &[u8]) -> bool {
    runs.iter().any(|run| run.find(key).is_some())
}

/// What no newer run covers, of each of these, which come oldest first.
fn live_of(runs: &[Run]) -> Vec<Live> {
    let mut seen = HashSet::new();
    let mut live: Vec<Live> =
        runs.iter().rev().map(|run| Live::of(run.entries.iter().filter(|entry| seen.insert(&entry.key)))).collect();
    live.reverse();
    live
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
