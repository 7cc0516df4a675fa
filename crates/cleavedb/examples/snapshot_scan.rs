//! A snapshot shows the database as it was while writes continue.
//!
//! `cargo run -p cleavedb --example snapshot_scan`

use cleavedb::{Db, Result};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("stock.db"))?;
    let stock = db.default_keyspace();
    for number in 0..100_u32 {
        stock.put(format!("item {number:03}"), format!("{}", 10 * number))?;
    }

    let evening = db.snapshot();
    stock.delete("item 007")?;
    stock.put("item 100", "1000")?;

    let total = |records: cleavedb::Iter| -> Result<u64> {
        let mut total = 0;
        for record in records {
            let (_, count) = record?;
            total += String::from_utf8_lossy(&count).parse::<u64>().expect("what was put is a number");
        }
        Ok(total)
    };
    let (then, now) = (total(evening.iter(&stock)?)?, total(stock.iter()?)?);
    println!("in the evening {then}, now {now}");
    assert_eq!((then, now), (49_500, 50_430));
    // From the last key to the first, and only some of them.
    let last = evening.prefix(&stock, "item 09")?.next_back().transpose()?;
    assert!(last.is_some_and(|(key, _)| key == "item 099"));
    drop(evening);
    db.close()
}
