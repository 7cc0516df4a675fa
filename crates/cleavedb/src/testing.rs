//! For tests, simulation and measurements of the engine itself. No promise of stability.

use std::path::Path;
use std::sync::Arc;

use crate::{Db, Options, Result};

pub use crate::db::{Canary, Tuning};
pub use crate::io::sim::{Phase, SyncPoint};
pub use crate::io::{Faults, OsStorage, SimDisk, Storage};
pub use crate::sched::clock::now;
pub use crate::sched::sim::{SimConfig, SimFailure, SimReport, simulate, simulate_with, yield_point};
pub use crate::sched::thread::{JoinHandle, spawn};
pub use crate::sched::random::Random;

/// Opens a database on any storage with sizes of the caller's choice.
pub fn open(storage: Arc<dyn Storage>, path: &Path, options: Options, tuning: Tuning) -> Result<Db> {
    crate::db::open(storage, path, options, Some(tuning))
}
