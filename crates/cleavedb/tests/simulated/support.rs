//! Shared by the tests: a simulated world, a database on a simulated disk, both log backends.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cleavedb::testing::{self, Phase, SimDisk, SyncPoint, Tuning};
use cleavedb::{Db, Keyspace, KeyspaceOptions, LogBackend, Options, Result};

/// Both log backends.
pub const BACKENDS: [LogBackend; 2] = [LogBackend::Ring, LogBackend::Plain];

/// Runs a test in its own simulated world.
pub fn in_world<T: Send + 'static>(seed: u64, test: impl FnOnce() -> T + Send + 'static) -> T {
    match testing::simulate(seed, test) {
        Ok(value) => value,
        Err(failure) => panic!("{failure}"),
    }
}

/// Runs a test once for each log backend, each time in its own world.
pub fn with_each_log(test: fn(LogBackend)) {
    for backend in BACKENDS {
        in_world(1, move || test(backend));
    }
}

/// Opens with tiny sizes.
pub fn open(disk: &SimDisk, backend: LogBackend) -> Result<Db> {
    open_with(disk, Options::new().log_backend(backend), Tuning::tiny())
}

/// Opens on a simulated disk.
pub fn open_with(disk: &SimDisk, options: Options, tuning: Tuning) -> Result<Db> {
    testing::open(Arc::new(disk.clone()), Path::new("/db"), options, tuning)
}

/// Small logs, and a front that is never flushed automatically: unsynced writes are in the logs only.
pub fn unflushed() -> Tuning {
    let mut tuning = Tuning::tiny();
    tuning.log_bytes = 16 << 10;
    tuning.flush_bytes = 1 << 30;
    tuning.front_bytes_max = 1 << 30;
    tuning.close_flush_bytes = 1 << 30;
    tuning
}

/// The value of a key, as text.
pub fn text(db: &Db, key: &str) -> Option<String> {
    let value = db.get(key).unwrap();
    value.map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// A value of `len` bytes that contains the name of its owner.
pub fn value(name: &str, len: usize) -> Vec<u8> {
    let mut value = name.repeat(len / name.len().max(1) + 1).into_bytes();
    value.truncate(len);
    value
}

/// The hash keyspace of a test, which merges with the operator "chain".
pub fn hashed(db: &Db) -> Keyspace {
    let create = |_| db.create_keyspace("hashed", KeyspaceOptions::hash().merge_operator("chain"));
    db.open_keyspace("hashed").or_else(create).unwrap()
}

/// Images of a disk, taken while it is used.
pub type Images = Arc<Mutex<Vec<SimDisk>>>;

/// The disk after a crash of the process, whenever a sync that `at` accepts begins.
pub fn crash_before(disk: &SimDisk, at: impl Fn(&SimDisk, &SyncPoint<'_>) -> bool + Send + Sync + 'static) -> Images {
    let images = Images::default();
    let into = images.clone();
    disk.on_sync(move |disk, point| {
        if point.phase == Phase::Before && at(disk, point) {
            into.lock().unwrap().push(disk.process_crash());
        }
    });
    images
}

/// Ways to lose power before a sync, and as many after it.
const WAYS: usize = 6;

/// Loss of power before and after each sync, in several ways.
pub fn lose_power(disk: &SimDisk) -> Images {
    let images = Images::default();
    let into = images.clone();
    disk.on_sync(move |disk, _| {
        let mut images = into.lock().unwrap();
        let first = images.len() as u64;
        images.extend((first..first + WAYS as u64).map(|seed| disk.power_loss(seed)));
    });
    images
}

/// Images of a disk, each with what the test had noted as durable when it was taken.
pub type NotedImages = Arc<Mutex<Vec<(SimDisk, usize)>>>;

/// Loss of power once for each sync: before or after it, and in one of several ways, by turn.
pub fn lose_power_by_turn(disk: &SimDisk, durable: &Arc<AtomicUsize>) -> NotedImages {
    let images = NotedImages::default();
    let (into, durable, moments) = (images.clone(), durable.clone(), AtomicUsize::new(0));
    disk.on_sync(move |disk, _| {
        if matches!(moments.fetch_add(1, Ordering::Relaxed) % 4, 1 | 2) {
            return;
        }
        let mut images = into.lock().unwrap();
        let image = disk.power_loss(images.len() as u64);
        images.push((image, durable.load(Ordering::Relaxed)));
    });
    images
}

/// The images taken so far; no more are taken.
pub fn taken_with_notes(disk: &SimDisk, images: &NotedImages) -> Vec<(SimDisk, usize)> {
    disk.clear_on_sync();
    std::mem::take(&mut *images.lock().unwrap())
}

/// The images taken so far; no more are taken.
pub fn taken(disk: &SimDisk, images: &Images) -> Vec<SimDisk> {
    disk.clear_on_sync();
    let images = std::mem::take(&mut *images.lock().unwrap());
    images.iter().for_each(|image| image.clear_on_sync());
    images
}

/// Of the images of [`lose_power`] one for each sync. The moments before and after it and all ways to lose power have their turn.
pub fn one_of_each_sync(images: &[SimDisk]) -> impl Iterator<Item = &SimDisk> {
    const NEXT: usize = WAYS - 1;
    let of_syncs = images.chunks(2 * WAYS).enumerate();
    of_syncs.map(|(turn, of_sync)| &of_sync[turn * NEXT % of_sync.len()])
}

/// The files of a disk whose names end so.
pub fn files_of_kind(disk: &SimDisk, end: &str) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
}

/// The numbers of all logs.
pub fn log_numbers(disk: &SimDisk) -> BTreeSet<u64> {
    let number = |path: PathBuf| path.file_stem().and_then(|stem| stem.to_string_lossy().parse().ok());
    files_of_kind(disk, "log").into_iter().filter_map(number).collect()
}

/// A copy of the disk without a usable saved index of hash keyspaces; `None` if there is no saved index.
pub fn without_saved_indexes(disk: &SimDisk) -> Option<SimDisk> {
    let saved = files_of_kind(disk, "index");
    let damaged = disk.process_crash();
    for path in &saved {
        if damaged.read_file(path).is_some_and(|bytes| bytes.len() > 9) {
            damaged.flip_bit(path, 9, 1);
        }
    }
    (!saved.is_empty()).then_some(damaged)
}
