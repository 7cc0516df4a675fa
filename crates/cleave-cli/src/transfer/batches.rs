//! Writes many records in batches. Used by import, by the sorting of ingest and by the tour.

use cleavedb::{Db, Keyspace, WriteBatch};

use crate::failure::Result;

/// Collects records and writes them in batches of bounded size, one log append each.
pub struct Batches<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    batch: WriteBatch,
    bytes: usize,
}

impl<'a> Batches<'a> {
    const RECORDS_MAX: usize = 1000;
    const BYTES_MAX: usize = 1 << 20;

    /// Writes to `keyspace` of `db`.
    pub fn new(db: &'a Db, keyspace: &'a Keyspace) -> Batches<'a> {
        Batches { db, keyspace, batch: WriteBatch::new(), bytes: 0 }
    }

    /// Adds a put and writes the batch if it is full.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(self.keyspace, key, value);
        self.bytes += key.len() + value.len();
        if self.batch.len() >= Self::RECORDS_MAX || self.bytes >= Self::BYTES_MAX { self.write() } else { Ok(()) }
    }

    /// Writes the current batch.
    pub fn write(&mut self) -> Result<()> {
        self.bytes = 0;
        Ok(self.db.write(std::mem::replace(&mut self.batch, WriteBatch::new()))?)
    }
}
