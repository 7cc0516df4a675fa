//! What the clients of one open database know of the world: what was promised, what the disk is known to do, and whether
//! the machine has crashed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cleavedb::Error;

use crate::copies::Copies;
use crate::ledger::Ledger;

/// The engine did what it must not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Which errors are the disk's fault and not the engine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// None: the disk works.
    Nothing,
    /// Reads fail now and then, so anything may fail; what is answered must be right.
    FailingReads,
    /// Writes or syncs fail from some time on: reads must go on.
    FailingWrites,
    /// The disk is full: reads must go on, writes get `NoSpace`.
    NoSpace,
    /// There is space again: reads and writes work; what waits for background work may still hear of the full disk.
    SpaceAgain,
}

impl Tolerance {
    /// True if an operation may fail with this error; `reading` if it only reads.
    pub fn allows(self, what: &str, error: &Error, reading: bool) -> bool {
        match self {
            _ if matches!(error, Error::Corruption { .. } | Error::Locked { .. } | Error::Closed) => false,
            Tolerance::Nothing => false,
            Tolerance::FailingReads => true,
            Tolerance::FailingWrites => !reading,
            Tolerance::NoSpace if what == "write" => matches!(error, Error::NoSpace { .. }),
            Tolerance::NoSpace => !reading,
            Tolerance::SpaceAgain => {
                matches!(error, Error::NoSpace { .. }) && matches!(what, "flush" | "compact_range")
            }
        }
    }
}

/// What the clients of one open database share.
#[derive(Debug, Clone)]
pub struct World {
    /// Which opening of the database this is.
    pub epoch: u64,
    /// What was promised.
    pub ledger: Ledger,
    /// The machine has crashed: whatever the engine still says does not count.
    pub crashed: Arc<AtomicBool>,
    /// Some client has paused background work, perhaps for others as well.
    pub has_paused: Arc<AtomicBool>,
    /// What the disk is known to do.
    pub tolerance: Tolerance,
    /// The database's default durability is `Sync`.
    pub sync_by_default: bool,
    /// Where checkpoints go, if some are made.
    pub copies: Option<Copies>,
}

impl World {
    /// A disk that works.
    pub fn new(epoch: u64, sync_by_default: bool) -> World {
        World {
            epoch,
            ledger: Ledger::new(),
            crashed: Arc::default(),
            has_paused: Arc::default(),
            tolerance: Tolerance::Nothing,
            sync_by_default,
            copies: None,
        }
    }

    /// The same world with a place for checkpoints.
    pub fn with_copies(self, copies: Copies) -> World {
        World { copies: Some(copies), ..self }
    }

    /// True if nothing counts any more.
    pub fn has_crashed(&self) -> bool {
        self.crashed.load(Ordering::SeqCst)
    }
}
