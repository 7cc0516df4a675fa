//! One client: applies operations to the engine and to its own copy of the model, and compares every answer.
//!
//! A single client knows the order of its batches. Concurrent clients do not, so each of their batches also appends its
//! number to a list in the database (`order`). Reading that list at a snapshot gives the batches that the snapshot
//! contains and their order, and the model is advanced to that point before anything is compared.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use cleavedb::{BackgroundPause, Db, Error, Iter, Keyspace, Snapshot};

mod reads;
mod writes;
mod spaces;

use crate::failure::Failure;
use crate::ledger::BatchId;
use crate::model::{Model, SpaceId};
use crate::operation::{Crash, Operation, SLOTS, is_hashed, name_of_slot};
use crate::order::{self, ORDER};
use crate::world::{Tolerance, World};

/// The first and the last point of history that something may show.
type Span = (u64, u64);

struct Space {
    id: SpaceId,
    handle: Keyspace,
}

struct Held {
    snapshot: Snapshot,
    at: Span,
}

/// An iterator that is refreshed from time to time.
struct Walk {
    slot: u8,
    space: SpaceId,
    span: crate::operation::Span,
    iter: Iter,
    last: Option<Vec<u8>>,
}

/// A client of an open database.
pub struct Client {
    db: Db,
    world: World,
    model: Model,
    spaces: BTreeMap<u8, Space>,
    /// Changing slots whose last creation or drop failed with an unknown outcome: not used until the next open.
    unsure: Vec<u8>,
    snapshots: Vec<Held>,
    walk: Option<Walk>,
    /// Pauses background work while it is held.
    pause: Option<BackgroundPause>,
    order: Option<Keyspace>,
    learned: Vec<BatchId>,
    /// The engine may lack the last batch of the model.
    in_doubt: bool,
}

impl Client {
    /// The only client of a database. `model` is the content of the database.
    pub fn alone(db: &Db, model: &Model, world: &World) -> Result<Client, Failure> {
        let mut client = Client {
            db: db.clone(),
            world: world.clone(),
            model: model.clone(),
            spaces: BTreeMap::new(),
            unsure: Vec::new(),
            snapshots: Vec::new(),
            walk: None,
            pause: None,
            order: None,
            learned: Vec::new(),
            in_doubt: false,
        };
        for slot in 0..SLOTS {
            let name = name_of_slot(slot);
            if let Some(id) = client.model.spaces().find(|(_, there)| *there == name).map(|(id, _)| id) {
                let handle = db.open_keyspace(&name).map_err(|error| client.unexpected("open keyspace", &error))?;
                client.spaces.insert(slot, Space { id, handle });
            }
        }
        Ok(client)
    }

    /// One of several concurrent clients. The list must have been [reset](order::reset).
    pub fn among_others(db: &Db, model: &Model, world: &World) -> Result<Client, Failure> {
        let mut client = Client::alone(db, model, world)?;
        let order = db.open_keyspace(ORDER).map_err(|error| client.unexpected("open keyspace", &error))?;
        client.order = Some(order);
        Ok(client)
    }

    /// The batch order that this client has observed; empty for a single client.
    pub fn into_learned(self) -> Vec<BatchId> {
        self.learned
    }

    /// Sets the disk faults to expect from now on.
    pub fn tolerate(&mut self, tolerance: Tolerance) {
        self.world.tolerance = tolerance;
    }

    /// Applies one operation. An error of the engine is a failure, unless a disk fault explains it or the machine has
    /// crashed.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Failure> {
        match self.step(operation) {
            Err(_) if self.world.has_crashed() => Ok(()),
            result => result,
        }
    }

    fn step(&mut self, operation: &Operation) -> Result<(), Failure> {
        match operation {
            Operation::Write(changes, ack) => self.write(changes, *ack),
            Operation::Get { slot, key, snapshot } => self.get(*slot, *key, *snapshot),
            Operation::Scan(scan) => self.scan(scan),
            Operation::MultiGet { slot, keys, snapshot } => self.multi_get(*slot, keys, *snapshot),
            Operation::Keys(scan) => self.scan_keys(scan),
            Operation::Refresh { slot, span, pulls } => self.refresh(*slot, *span, *pulls),
            Operation::Ingest { slot, puts } => self.ingest(*slot, puts),
            Operation::Checkpoint => self.checkpoint(),
            Operation::TakeSnapshot => self.take_snapshot(),
            Operation::ReleaseSnapshot(which) => {
                if !self.snapshots.is_empty() {
                    self.snapshots.remove(usize::from(*which) % self.snapshots.len());
                }
                Ok(())
            }
            Operation::Sync => self.covered("sync", |db| db.sync()),
            Operation::Flush => self.covered("flush", |db| db.flush()),
            Operation::Compact(slot, span) => {
                let Some(space) = self.spaces.get(slot).filter(|_| !is_hashed(*slot)) else {
                    return Ok(());
                };
                match self.db.compact_range(&space.handle, span.bounds()) {
                    Ok(()) => Ok(()),
                    Err(error) => self.forgive("compact_range", &error, false),
                }
            }
            Operation::Create(slot) => self.create(*slot),
            Operation::Drop(slot) => self.drop_keyspace(*slot),
            Operation::CheckAll => self.check_all(),
            Operation::Separate(slot, bytes) => self.separate(*slot, *bytes),
            Operation::Pause => self.pause(),
            Operation::Resume => {
                self.pause = None;
                Ok(())
            }
            // The caller handles these, because they end the client.
            Operation::Reopen | Operation::Crash(_) => Ok(()),
        }
    }

    fn checkpoint(&mut self) -> Result<(), Failure> {
        // If it is unknown whether a keyspace exists, the content of a checkpoint is unknown too.
        let checkpoints = self.world.checkpoints.clone().filter(|_| self.unsure.is_empty());
        let Some(checkpoints) = checkpoints else { return Ok(()) };
        let Some(before) = self.learn()? else { return Ok(()) };
        let number = checkpoints.begin(&self.model, self.order.is_none().then_some(before));
        let path = checkpoints.path(number);
        if let Err(error) = self.db.checkpoint(&path) {
            if !self.world.has_crashed() && self.world.tolerance == Tolerance::Nothing {
                return Err(self.unexpected("checkpoint", &error));
            }
            return self.forgive("checkpoint", &error, false);
        }
        let Some(after) = self.learn()? else { return Ok(()) };
        checkpoints.acknowledge(number, &self.model, (before.0, after.1));
        match checkpoints.check(number, false) {
            Err(error) => self.forgive("open a checkpoint", &error, false),
            Ok(checked) => checked,
        }
    }

    fn pause(&mut self) -> Result<(), Failure> {
        self.world.has_paused.store(true, Ordering::SeqCst);
        match self.db.pause_background() {
            Ok(pause) => {
                self.pause = Some(pause);
                Ok(())
            }
            Err(error) => self.forgive("pause_background", &error, false),
        }
    }

    fn take_snapshot(&mut self) -> Result<(), Failure> {
        let Some((snapshot, at)) = self.learn_with_snapshot()? else {
            return Ok(());
        };
        self.snapshots.push(Held { snapshot, at });
        if self.snapshots.len() > 6 {
            self.snapshots.remove(0);
        }
        Ok(())
    }

    fn held(&self, which: u8) -> Option<&Held> {
        self.snapshots.get(usize::from(which) % self.snapshots.len().max(1))
    }

    /// The first and last point of history that the present may show; `None` if a disk fault prevented reading it.
    fn learn(&mut self) -> Result<Option<Span>, Failure> {
        Ok(self.learn_with_snapshot()?.map(|(_, at)| at))
    }

    /// A snapshot and the points of history that it may show.
    fn learn_with_snapshot(&mut self) -> Result<Option<(Snapshot, Span)>, Failure> {
        if self.order.is_none() {
            let now = self.model.batches();
            return Ok(Some((self.db.snapshot(), (now - u64::from(self.in_doubt), now))));
        }
        let promised = self.world.ledger.page().required(Crash::Process);
        let snapshot = self.db.snapshot();
        let Some(at) = self.learn_at(&snapshot)? else {
            return Ok(None);
        };
        if let Some(missing) = promised.iter().find(|id| !self.learned.contains(id)) {
            return Err(Failure(format!("batch {missing} was acknowledged, but a later snapshot does not contain it")));
        }
        Ok(Some((snapshot, (at, at))))
    }

    /// Reads the batch order at the newest snapshot and advances the model to it.
    fn learn_at(&mut self, snapshot: &Snapshot) -> Result<Option<u64>, Failure> {
        let Some(handle) = &self.order else {
            return Ok(Some(self.model.batches()));
        };
        let order = match snapshot.get(handle, ORDER) {
            Ok(list) => order::parse(list.as_deref().unwrap_or_default(), self.world.epoch)?,
            Err(error) => return self.forgive("get", &error, true).map(|()| None),
        };
        let page = self.world.ledger.page();
        let Some(new) = order.strip_prefix(&self.learned[..]) else {
            return Err(Failure(format!("the batch order changed from {:?} to {order:?}", self.learned)));
        };
        page.check_order(&order).map_err(Failure)?;
        for &id in new {
            self.model.commit(&page.records[id].batch);
        }
        self.learned.extend_from_slice(new);
        Ok(Some(order.len() as u64))
    }

    /// Makes a call that makes all earlier writes durable.
    fn covered(&mut self, what: &str, call: impl FnOnce(&Db) -> Result<(), Error>) -> Result<(), Failure> {
        let began = self.world.ledger.now();
        match call(&self.db) {
            Ok(()) => {
                self.world.ledger.synced_since(began);
                Ok(())
            }
            Err(error) => self.forgive(what, &error, false),
        }
    }

    /// Returns a failure unless a disk fault, a crash or a pause explains the error.
    fn forgive(&self, what: &str, error: &Error, reading: bool) -> Result<(), Failure> {
        // These calls are refused during a pause, which may be another client's.
        let paused = matches!(what, "flush" | "compact_range" | "ingest")
            && matches!(error, Error::InvalidInput { .. })
            && (self.pause.is_some() || self.order.is_some() && self.world.has_paused.load(Ordering::SeqCst));
        let forgiven = paused || self.world.has_crashed() || self.world.tolerance.allows(what, error, reading);
        if forgiven { Ok(()) } else { Err(self.unexpected(what, error)) }
    }

    fn unexpected(&self, what: &str, error: &Error) -> Failure {
        Failure(format!("{what}: unexpected error: {error}"))
    }
}
