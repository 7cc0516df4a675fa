//! LMDB: a copy-on-write B+tree in a memory map; every operation is its own transaction.
//!
//! `unsafe` is only needed to open it: LMDB maps its file, which nothing else may change, and disabling syncs is an unsafe
//! flag.

use std::ops::Bound;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RwTxn};

use super::get_put::Locks;
use super::one_place;
use crate::engine::{Durability, Engine, Kind, Merges, Settings};
use crate::failure::{Failure, Result};

/// `lmdb`.
pub const KIND: Kind = Kind {
    name: "lmdb",
    version: env!("VERSION_LMDB"),
    merges: Merges::GetPut,
    notes: &[
        "no merge: get, patch, put",
        "it uses the page cache, which --cgroup-memory bounds and the memory budget does not",
        "the version is that of crate heed, which includes LMDB 0.9; keys of up to 511 bytes; no compression",
    ],
    notes_of: one_place::notes_of,
    direct_io: false,
    buffered_survives_kill: true,
    open,
};

/// Room for the file to grow: address space, not disk.
const MAP_BYTES: usize = 1 << 42;
const READERS_MAX: u32 = 1024;

struct Lmdb {
    env: Env,
    records: Database<Bytes, Bytes>,
    locks: Locks,
}

fn open(settings: &Settings) -> Result<Box<dyn Engine>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(READERS_MAX);
    if settings.durability == Durability::Buffered {
        // SAFETY: without syncs only a power loss can tear the file, and a benchmark does not reopen a file after one.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: only this run uses the directory, so nothing else opens or changes the file.
    let env = unsafe { options.open(one_place::dir(&settings.dirs)) }.map_err(failed)?;
    let mut transaction = env.write_txn().map_err(failed)?;
    let records = env.create_database(&mut transaction, None).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(Box::new(Lmdb { env, records, locks: Locks::default() }))
}

fn failed(error: heed::Error) -> Failure {
    Failure::new(format!("lmdb: {error}"))
}

impl Lmdb {
    fn write(&self, change: impl FnOnce(&mut RwTxn<'_>) -> heed::Result<()>) -> Result<()> {
        let mut transaction = self.env.write_txn().map_err(failed)?;
        change(&mut transaction).map_err(failed)?;
        transaction.commit().map_err(failed)
    }
}

impl Engine for Lmdb {
    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.env.read_txn().map_err(failed)?;
        let value = self.records.get(&transaction, key).map_err(failed)?;
        Ok(value.is_some_and(|value| {
            read(value);
            true
        }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|transaction| self.records.put(transaction, key, value))
    }

    fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.write(|transaction| pairs.iter().try_for_each(|(key, value)| self.records.put(transaction, key, value)))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(|transaction| self.records.delete(transaction, key).map(drop))
    }

    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.locks.merge(self, key, operand)
    }

    fn scan(&self, from: &[u8], count: u64, read: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let transaction = self.env.read_txn().map_err(failed)?;
        let mut found = 0;
        // LMDB refuses an empty key, even to start at.
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let mut records = self.records.range(&transaction, &(start, Bound::Unbounded)).map_err(failed)?;
        while found < count
            && let Some(record) = records.next()
        {
            let (key, value) = record.map_err(failed)?;
            read(key, value);
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Result<()> {
        self.env.force_sync().map_err(failed)
    }

    fn flush(&self) -> Result<()> {
        self.sync()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
