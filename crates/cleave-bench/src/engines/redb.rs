//! redb: a copy-on-write B+tree; every operation is its own transaction.

use redb::{Database, ReadableDatabase, TableDefinition, WriteTransaction};

use super::get_put::Locks;
use super::one_place;
use crate::engine::{Durability, Engine, Kind, Merges, Settings};
use crate::failure::{Failure, Result};

/// `redb`.
pub const KIND: Kind = Kind {
    name: "redb",
    version: env!("VERSION_REDB"),
    merges: Merges::GetPut,
    notes: &[
        "no merge: get, patch, put",
        "buffered commits are weaker than requested: a process crash before the next sync loses them",
        "no compression",
    ],
    notes_of: one_place::notes_of,
    direct_io: false,
    buffered_survives_kill: false,
    open,
};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bench");

struct Redb {
    db: Database,
    durability: Durability,
    locks: Locks,
}

fn open(settings: &Settings) -> Result<Box<dyn Engine>> {
    let file = one_place::dir(&settings.dirs).join("bench.redb");
    let db = Database::builder().set_cache_size(settings.memory).create(file).map_err(failed)?;
    let redb = Redb { db, durability: settings.durability, locks: Locks::default() };
    redb.write(Durability::Sync, |transaction| {
        transaction.open_table(TABLE).map_err(failed)?;
        Ok(())
    })?;
    Ok(Box::new(redb))
}

fn failed(error: impl Into<redb::Error>) -> Failure {
    Failure::new(format!("redb: {}", error.into()))
}

impl Redb {
    fn write(&self, durability: Durability, change: impl FnOnce(&WriteTransaction) -> Result<()>) -> Result<()> {
        let mut transaction = self.db.begin_write().map_err(failed)?;
        let durability = match durability {
            Durability::Buffered => redb::Durability::None,
            Durability::Sync => redb::Durability::Immediate,
        };
        transaction.set_durability(durability).map_err(failed)?;
        change(&transaction)?;
        transaction.commit().map_err(failed)
    }
}

impl Engine for Redb {
    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.db.begin_read().map_err(failed)?;
        let table = transaction.open_table(TABLE).map_err(failed)?;
        let value = table.get(key).map_err(failed)?;
        Ok(value.is_some_and(|value| {
            read(value.value());
            true
        }))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(self.durability, |transaction| {
            let mut table = transaction.open_table(TABLE).map_err(failed)?;
            table.insert(key, value).map_err(failed)?;
            Ok(())
        })
    }

    fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.write(self.durability, |transaction| {
            let mut table = transaction.open_table(TABLE).map_err(failed)?;
            let mut insert = |(key, value): &(Vec<u8>, Vec<u8>)| table.insert(&key[..], &value[..]).map(drop);
            pairs.iter().try_for_each(&mut insert).map_err(failed)
        })
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(self.durability, |transaction| {
            let mut table = transaction.open_table(TABLE).map_err(failed)?;
            table.remove(key).map_err(failed)?;
            Ok(())
        })
    }

    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.locks.merge(self, key, operand)
    }

    fn scan(&self, from: &[u8], count: u64, read: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let transaction = self.db.begin_read().map_err(failed)?;
        let table = transaction.open_table(TABLE).map_err(failed)?;
        let mut found = 0;
        let mut records = table.range(from..).map_err(failed)?;
        while found < count
            && let Some(record) = records.next()
        {
            let (key, value) = record.map_err(failed)?;
            read(key.value(), value.value());
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Result<()> {
        self.write(Durability::Sync, |_| Ok(()))
    }

    fn flush(&self) -> Result<()> {
        self.sync()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}
