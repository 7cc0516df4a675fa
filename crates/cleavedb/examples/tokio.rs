//! Use from an asynchronous program. Calls block while they read the disk or sync, so they run on tokio's blocking
//! threads; handles are cheap to clone and move there.
//!
//! `cargo run -p cleavedb --example tokio`

use cleavedb::{Db, Durability, Keyspace, Result};
use tokio::task::spawn_blocking;

/// Resolves once the put is durable. Concurrent puts share one sync.
async fn put_durably(keyspace: Keyspace, key: String, value: String) -> Result<()> {
    let put = move || keyspace.put_with(key, value, Durability::Sync);
    spawn_blocking(put).await.expect("a put does not panic")
}

async fn serve(db: Db) -> Result<()> {
    let users = db.keyspace("users")?;
    let puts: Vec<_> = (0..50)
        .map(|number| tokio::spawn(put_durably(users.clone(), format!("user {number}"), "new".into())))
        .collect();
    for put in puts {
        put.await.expect("a put does not panic")?;
    }
    let count = spawn_blocking(move || users.iter().map(Iterator::count)).await.expect("a scan does not panic")?;
    println!("{count} users");
    assert_eq!(count, 50);
    Ok(())
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path().join("users.db"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    runtime.block_on(serve(db.clone()))?;
    db.close()
}
