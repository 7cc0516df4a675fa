//! Bulk loading: `ingest` writes sorted records directly into tables, so each is written once; unsorted records go in
//! batches, with one log append per batch and a single sync at the end.
//!
//! `cargo run --release -p cleavedb --example bulk_load`

use std::time::Instant;

use cleavedb::{Db, Options, Result, WriteBatch};

const RECORDS: u64 = 200_000;
const BATCH: u64 = 1000;
const VALUE: [u8; 100] = [7; 100];

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Options::new().memory_budget(128 << 20).open(dir.path().join("load.db"))?;

    let sorted = db.keyspace("sorted")?;
    let began = Instant::now();
    let loaded = sorted.ingest((0..RECORDS).map(|number| (number.to_be_bytes(), VALUE)))?;
    let ingested = began.elapsed();
    assert_eq!(loaded, RECORDS);

    let began = Instant::now();
    put_in_batches(&db)?;
    let put = began.elapsed();

    let rate = |elapsed: std::time::Duration| RECORDS as f64 / elapsed.as_secs_f64();
    println!("{RECORDS} records, durable: ingest {:.0} a second, puts {:.0} a second", rate(ingested), rate(put));
    assert_eq!(sorted.iter()?.count(), db.open_keyspace("unsorted")?.iter()?.count());
    db.close()
}

fn put_in_batches(db: &Db) -> Result<()> {
    let unsorted = db.keyspace("unsorted")?;
    for first in (0..RECORDS).step_by(BATCH as usize) {
        let mut batch = WriteBatch::new();
        for number in first..first + BATCH {
            // Unsorted: the store sorts.
            batch.put(&unsorted, number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), VALUE);
        }
        db.write(batch)?;
    }
    db.sync()
}
