//! fjall, with and without key-value separation.

use std::thread;
use std::time::Duration;

use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Error, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};

use super::get_put::Locks;
use super::one_place;
use crate::engine::{Compression, Durability, Engine, Kind, Merges, Settings};
use crate::failure::{Failure, Result};

/// `fjall`.
pub const FJALL: Kind = Kind {
    name: "fjall",
    version: env!("VERSION_FJALL"),
    merges: Merges::GetPut,
    notes: &[
        "no merge: get, patch, put",
        "half of the memory is the cache; each of possibly several memtables takes up to an eighth",
    ],
    notes_of: one_place::notes_of,
    direct_io: false,
    buffered_survives_kill: true,
    open: |settings| open(settings, false),
};

/// `fjall-kv`.
pub const FJALL_KV: Kind = Kind {
    name: "fjall-kv",
    version: env!("VERSION_FJALL"),
    merges: Merges::GetPut,
    notes: &[
        "no merge: get, patch, put",
        "half of the memory is the cache; each of possibly several memtables takes up to an eighth",
        "values of 128 bytes and more in blob files",
    ],
    notes_of: one_place::notes_of,
    direct_io: false,
    buffered_survives_kill: true,
    open: |settings| open(settings, true),
};

/// Values of at least this size go to blob files.
const BLOB_BYTES_MIN: u32 = 128;

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    durability: Durability,
    locks: Locks,
}

fn open(settings: &Settings, separate: bool) -> Result<Box<dyn Engine>> {
    let memtable_bytes = (settings.memory as u64 / 8).clamp(1 << 20, 64 << 20);
    let db = Database::builder(one_place::dir(&settings.dirs))
        .cache_size((settings.memory / 2) as u64)
        .worker_threads(settings.background_threads)
        .open()
        .map_err(failed)?;
    let options = || {
        let mut options = KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes);
        let mut blobs = KvSeparationOptions::default().separation_threshold(BLOB_BYTES_MIN);
        if let Some(compression) = settings.compression {
            let compression = match compression {
                Compression::None => CompressionType::None,
                Compression::Lz4 => CompressionType::Lz4,
            };
            options = options.data_block_compression_policy(CompressionPolicy::all(compression));
            blobs = blobs.compression(compression);
        }
        options.with_kv_separation(separate.then_some(blobs))
    };
    let keyspace = db.keyspace("bench", options).map_err(failed)?;
    Ok(Box::new(Fjall { db, keyspace, durability: settings.durability, locks: Locks::default() }))
}

fn failed(error: Error) -> Failure {
    Failure::new(format!("fjall: {error}"))
}

impl Fjall {
    fn acknowledge(&self) -> Result<()> {
        match self.durability {
            Durability::Buffered => Ok(()),
            Durability::Sync => self.sync(),
        }
    }
}

impl Engine for Fjall {
    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.keyspace.get(key).map_err(failed)?;
        Ok(value.is_some_and(|value| {
            read(&value);
            true
        }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(failed)?;
        self.acknowledge()
    }

    fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = self.db.batch();
        pairs.iter().for_each(|(key, value)| batch.insert(&self.keyspace, &key[..], &value[..]));
        batch.commit().map_err(failed)?;
        self.acknowledge()
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(failed)?;
        self.acknowledge()
    }

    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.locks.merge(self, key, operand)
    }

    fn scan(&self, from: &[u8], count: u64, read: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut found = 0;
        let mut records = self.keyspace.range(from..);
        while found < count
            && let Some(record) = records.next()
        {
            let (key, value) = record.into_inner().map_err(failed)?;
            read(&key, &value);
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Result<()> {
        self.db.persist(PersistMode::SyncData).map_err(failed)
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait().map_err(failed)
    }

    fn settle(&self) -> Result<()> {
        while self.db.active_compactions() > 0 || self.db.outstanding_flushes() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.persist(PersistMode::Buffer).map_err(failed)
    }
}
