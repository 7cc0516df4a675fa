//! What the clients of one open database share: the ledger, the faults that the disk may show, and whether the machine has
//! crashed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cleavedb::Error;

use crate::checkpoints::Checkpoints;
use crate::ledger::Ledger;

/// Which errors are caused by disk faults and not by the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// No errors: the disk works.
    Nothing,
    /// Some reads fail, so any call may fail; every successful answer must be correct.
    FailingReads,
    /// Writes or syncs fail from some point on; reads must keep working.
    FailingWrites,
    /// The disk of one directory is gone: any call may fail; every successful answer must be correct, and what is acknowledged
    /// as durable must be there when the disk is back.
    Vanished,
    /// The disk is full; reads must keep working, writes fail with `NoSpace`.
    NoSpace,
    /// Space is available again; reads and writes work, but calls that wait for background jobs may still fail with
    /// `NoSpace`.
    SpaceAgain,
}

impl Tolerance {
    /// True if an operation may fail with this error; `reading` if it only reads.
    pub fn allows(self, what: &str, error: &Error, reading: bool) -> bool {
        match self {
            _ if matches!(error, Error::Corruption { .. } | Error::Locked { .. } | Error::Closed) => false,
            Tolerance::Nothing => false,
            Tolerance::FailingReads | Tolerance::Vanished => true,
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
    /// The batches of all clients.
    pub ledger: Ledger,
    /// The machine has crashed: later answers of the engine are ignored.
    pub crashed: Arc<AtomicBool>,
    /// A client has paused background work, which affects the others too.
    pub has_paused: Arc<AtomicBool>,
    /// The disk faults to expect.
    pub tolerance: Tolerance,
    /// The database's default durability is `Sync`.
    pub sync_by_default: bool,
    /// The checkpoints, if the run takes any.
    pub checkpoints: Option<Checkpoints>,
}

impl World {
    /// A world with a working disk.
    pub fn new(epoch: u64, sync_by_default: bool) -> World {
        World {
            epoch,
            ledger: Ledger::new(),
            crashed: Arc::default(),
            has_paused: Arc::default(),
            tolerance: Tolerance::Nothing,
            sync_by_default,
            checkpoints: None,
        }
    }

    /// The same world with checkpoints.
    pub fn with_checkpoints(self, checkpoints: Checkpoints) -> World {
        World { checkpoints: Some(checkpoints), ..self }
    }

    /// True once the machine has crashed.
    pub fn has_crashed(&self) -> bool {
        self.crashed.load(Ordering::SeqCst)
    }
}
