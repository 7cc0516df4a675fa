//! The registry of the engines of this build. Every engine but CleaveDB is a cargo feature; the default build has none of
//! them.

mod cleave;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(any(feature = "fjall", feature = "redb", feature = "lmdb"))]
mod get_put;
#[cfg(any(feature = "fjall", feature = "redb", feature = "lmdb"))]
mod one_place;

use crate::engine::{HELD, Kind, NO_SLOWDOWN};
use crate::failure::{Failure, Result};

/// All engines, CleaveDB first.
pub fn all() -> Vec<Kind> {
    vec![
        cleave::CLEAVE,
        cleave::CLEAVE_INLINE,
        cleave::CLEAVE_BUCKETS,
        cleave::CLEAVE_HASH,
        #[cfg(feature = "rocksdb")]
        rocksdb::ROCKSDB,
        #[cfg(feature = "rocksdb")]
        rocksdb::ROCKSDB_NO_SLOWDOWN,
        #[cfg(feature = "rocksdb")]
        rocksdb::ROCKSDB_HELD,
        #[cfg(feature = "rocksdb")]
        rocksdb::BLOBDB,
        #[cfg(feature = "fjall")]
        fjall::FJALL,
        #[cfg(feature = "fjall")]
        fjall::FJALL_KV,
        #[cfg(feature = "redb")]
        redb::KIND,
        #[cfg(feature = "lmdb")]
        lmdb::KIND,
    ]
}

/// The engine called `name`.
///
/// # Errors
/// If there is none, or this program was built without it.
pub fn find(name: &str) -> Result<Kind> {
    let missing = || match feature(name) {
        Some(feature) => format!("engine {name} is not in this build; build with `--features {feature}`"),
        None => format!("there is no engine {name:?}; this build has {}", names().join(", ")),
    };
    all().into_iter().find(|kind| kind.name == name).ok_or_else(|| Failure::new(missing()))
}

/// The cargo feature of the engine called `name`; none if it needs none or does not exist.
pub fn feature(name: &str) -> Option<&'static str> {
    match name {
        "rocksdb" | NO_SLOWDOWN | HELD | "blobdb" => Some("rocksdb"),
        "fjall" | "fjall-kv" => Some("fjall"),
        "redb" => Some("redb"),
        "lmdb" => Some("lmdb"),
        _ => None,
    }
}

fn names() -> Vec<&'static str> {
    all().iter().map(|kind| kind.name).collect()
}
