//! Internals for tests, simulation and benchmarks of the engine. Not part of the stable API.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::hash::place::{Place, PlaceKind};
use crate::{Db, DumpEntry, Keyspace, Options, Report, Result};

pub use crate::engine::tuning::sizes::{Canary, Tuning};
pub use crate::hash::index::Spread;
pub use crate::io::sim::{Phase, SyncPoint};
pub use crate::io::{Access, DirEntry, Faults, File, FileSpace, Lock, Mapping, OsStorage, Punched, SimDisk, Storage};
pub use crate::sched::clock::now;
pub use crate::sched::failure::SimFailure;
pub use crate::sched::random::Random;
pub use crate::sched::sim::{SimConfig, SimReport, random, simulate, simulate_with, yield_point};
pub use crate::sched::thread::{JoinHandle, limit_threads, sleep, spawn};

/// Opens a database on any storage with the given internal sizes.
pub fn open(storage: Arc<dyn Storage>, path: &Path, options: Options, tuning: Tuning) -> Result<Db> {
    crate::api::db::open(storage, path, options, Some(tuning))
}

/// Opens a database on any storage with the internal sizes of production.
pub fn open_on(storage: Arc<dyn Storage>, path: &Path, options: Options) -> Result<Db> {
    crate::api::db::open(storage, path, options, None)
}

pub use crate::device::nvme::model::nvme_model;

/// Opens an emulated device on any storage.
pub fn emulated_ssd(
    storage: Arc<dyn Storage>,
    dir: &Path,
    parameters: crate::SsdParameters,
) -> Result<Arc<crate::EmulatedSsd>> {
    crate::device::emulated::EmulatedSsd::open_on(storage, dir, parameters)
}

/// As [`check`](crate::check), on any storage.
pub fn check(storage: Arc<dyn Storage>, path: &Path, options: &Options) -> Result<Report> {
    options.check_on(storage, path)
}

/// One record that the index of a hash keyspace references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedRecord {
    /// The number of its log.
    pub file: u64,
    /// Where it lies there.
    pub offset: u64,
    /// Its length; that of a tombstone is the log of the first delete.
    pub len: u32,
    /// It is a delete.
    pub is_tombstone: bool,
}

/// What the index of a hash keyspace has: the records of each key, oldest first.
pub fn indexed_records(keyspace: &Keyspace) -> BTreeMap<Vec<u8>, Vec<IndexedRecord>> {
    let Some(index) = &keyspace.state().hash else { return BTreeMap::new() };
    let mut keys = Vec::new();
    let mut from = Some(0);
    while let Some(hash) = from {
        from = index.scan(hash, &mut |key, _| keys.push(key.to_vec()));
    }
    let record = |place: Place| IndexedRecord {
        file: place.file.0,
        offset: place.offset,
        len: place.len,
        is_tombstone: place.kind == PlaceKind::Tombstone,
    };
    let of = |key: &Vec<u8>| index.find(key, None).map_or(Vec::new(), |found| found.places().map(record).collect());
    keys.into_iter().map(|key| (key.clone(), of(&key))).collect()
}

/// As [`dump`](crate::dump), on any storage.
pub fn dump(storage: &dyn Storage, path: &Path, see: &mut dyn FnMut(&DumpEntry<'_>) -> bool) -> Result<()> {
    crate::engine::inspect::dump::dump_from(storage, path, see)
}

pub mod decoders;

/// Components of the engine, for micro-benchmarks.
pub mod components {
    pub use crate::base::cursor::Cursor;
    pub use crate::base::key::{KeyspaceId, full_key};
    pub use crate::base::kind::{Kind, Stamp};
    pub use crate::base::ranges::KeyRange;
    pub use crate::base::versions::{Horizon, Retention, VersionSource};
    pub use crate::base::{Address, Bytes, FileId, Gauge, Merging, OperatorSource};
    pub use crate::format::block::{BlockCursor, BlockOrigin};
    pub use crate::format::block_builder::BlockBuilder;
    pub use crate::format::edit::Edit;
    pub use crate::format::references::{FileReferences, References};
    pub use crate::format::value_state::ValueState;
    pub use crate::format::values::ValuePlace;
    pub use crate::front::index_table::IndexTable;
    pub use crate::front::run::{Run, RunPart};
    pub use crate::levels::builder::{TableBuilder, TableOptions};
}
