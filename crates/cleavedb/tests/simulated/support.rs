//! Shared by the tests: a simulated world, a database on a simulated disk, both log backends.

use std::path::Path;
use std::sync::Arc;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Db, LogBackend, Options, Result};

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
    name.bytes().cycle().take(len).collect()
}
