//! Counters updated without a read: a merge operator adds up the increments of many threads.
//!
//! `cargo run -p cleavedb --example counters`

use cleavedb::{Db, KeyspaceOptions, Result};

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("hits.db"))?;
    let hits = db.create_keyspace("hits", KeyspaceOptions::new().merge_operator("u64-add"))?;

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| -> Result<()> {
                for number in 0..1000_u32 {
                    hits.merge(format!("page {}", number % 10), 1_u64.to_le_bytes())?;
                }
                Ok(())
            });
        }
    });

    for record in hits.iter()? {
        let (page, count) = record?;
        let count = u64::from_le_bytes(count[..].try_into().expect("the operator keeps eight bytes"));
        println!("{}: {count}", String::from_utf8_lossy(&page));
        assert_eq!(count, 400);
    }
    db.close()
}
