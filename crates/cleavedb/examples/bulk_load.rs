//! Many records at once: batches of some hundred KiB take one append to the log each, and one sync at the end is enough.
//!
//! `cargo run --release -p cleavedb --example bulk_load`

use std::time::Instant;

use cleavedb::{Options, Result, WriteBatch};

const RECORDS: u64 = 200_000;
const BATCH: u64 = 1000;

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Options::new().memory_budget(128 << 20).open(dir.path().join("load.db"))?;
    let records = db.keyspace("records")?;
    let began = Instant::now();
    for first in (0..RECORDS).step_by(BATCH as usize) {
        let mut batch = WriteBatch::new();
        for number in first..first + BATCH {
            // In no order: sorting is the store's work.
            batch.put(&records, number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), [7; 100]);
        }
        db.write(batch)?;
    }
    db.sync()?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{RECORDS} records in {seconds:.2} s, {:.0} a second", RECORDS as f64 / seconds);
    let stats = db.stats();
    println!("write amplification {:.2}, {} flushes", stats.write_amplification(), stats.flushes);
    assert_eq!(records.iter()?.count() as u64, RECORDS);
    db.close()
}
