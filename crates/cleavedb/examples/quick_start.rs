//! First steps: put, get, a batch, a scan.
//!
//! `cargo run -p cleavedb --example quick_start`

use cleavedb::{Db, Durability, Result, WriteBatch};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("cities.db"))?;
    let cities = db.keyspace("cities")?;
    cities.put("IS/Reykjavik", "118918")?;

    let mut batch = WriteBatch::new();
    batch.put(&cities, "IS/Akureyri", "17693");
    batch.put(&cities, "FO/Torshavn", "13200");
    db.write_with(batch, Durability::Sync)?; // atomic, and durable after loss of power

    for record in cities.prefix("IS/")? {
        let (key, value) = record?;
        println!("{} has {} inhabitants", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }
    assert_eq!(cities.prefix("IS/")?.count(), 2);
    assert!(cities.get("IS/Reykjavik")?.is_some_and(|value| value == "118918"));
    db.close()
}
