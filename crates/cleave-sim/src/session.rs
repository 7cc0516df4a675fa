//! One client and its database, kept through reopens and crashes between operations. The engine's model tests run it; the
//! simulation does not, because its crashes happen in the middle of operations.

use std::path::PathBuf;
use std::sync::Arc;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Db, DeltaPlacement, Error, Options};

use crate::client::Client;
use crate::crasher::image_of;
use crate::failure::Failure;
use crate::ledger::Page;
use crate::operation::{Crash, FIRST_CHANGING_SLOT, Operation, name_of_slot, operator_of_slot, options_of_slot};
use crate::operator::Chain;
use crate::plan::HOME;
use crate::recovery::{Expected, Order};
use crate::world::World;

/// Where a session's database is stored.
pub enum Ground {
    /// On a simulated disk, which can crash.
    Simulated(SimDisk),
    /// In a real directory; a crash is replaced by a close.
    Directory(PathBuf),
}

/// An open database and its expected content.
pub struct Session {
    ground: Ground,
    options: Options,
    tuning: Tuning,
    epoch: u64,
    world: World,
    /// `None` only while the database is being reopened, and after that failed.
    open: Option<(Db, Client)>,
    expected: Expected,
}

const OPEN: &str = "a session is not used after a failure";

impl Session {
    /// Creates a database and the permanent keyspaces.
    pub fn new(ground: Ground, options: Options, tuning: Tuning) -> Result<Session, Failure> {
        let options = options.merge_operator(Arc::new(Chain));
        let mut expected = Expected::nothing();
        let db = open(&ground, &options, &tuning)?;
        for slot in 1..FIRST_CHANGING_SLOT {
            let operator = operator_of_slot(slot);
            let deltas = if slot % 2 == 1 { DeltaPlacement::Buckets } else { DeltaPlacement::Levels };
            db.create_keyspace(&name_of_slot(slot), options_of_slot(slot).deltas(deltas))
                .map_err(|error| Failure(format!("set up: {error}")))?;
            expected.base.create(&name_of_slot(slot), operator);
        }
        let world = World::new(0, false);
        let client = Client::alone(&db, &expected.base, &world)?;
        Ok(Session { ground, options, tuning, epoch: 0, world, open: Some((db, client)), expected })
    }

    /// The expected content of the database if it crashed now.
    pub fn expected(&self, crash: Crash) -> Expected {
        Expected { page: self.world.ledger.page(), crash: Some(crash), ..self.expected.clone() }
    }

    /// The state behind [`Session::expected`], for use while an operation runs.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Applies one operation and compares its answer with the model.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Failure> {
        match operation {
            Operation::Reopen => self.reopen(None),
            Operation::Crash(crash) => self.reopen(Some(*crash)),
            operation => self.client().apply(operation),
        }
    }

    /// Compares the whole content, reopens the database and compares again.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.client().check_all()?;
        self.reopen(None)?;
        self.client().check_all()
    }

    fn client(&mut self) -> &mut Client {
        &mut self.open.as_mut().expect(OPEN).1
    }

    fn reopen(&mut self, crash: Option<Crash>) -> Result<(), Failure> {
        let crash = crash.filter(|_| matches!(self.ground, Ground::Simulated(_)));
        self.expected.page = self.world.ledger.page();
        self.expected.crash = crash;
        self.expected.order = Order::AsBegun;
        if let (Ground::Simulated(disk), Some(crash)) = (&self.ground, crash) {
            let image = image_of(disk, crash);
            disk.halt();
            self.ground = Ground::Simulated(image);
        }
        let (db, client) = self.open.take().expect(OPEN);
        drop(client);
        if let (Err(error), None) = (db.close(), crash) {
            return Err(Failure(format!("close: {error}")));
        }
        let db = open(&self.ground, &self.options, &self.tuning)?;
        let checked = self.expected.check(&db);
        let model = checked.map_err(|error| Failure(format!("read everything: {error}")))??;
        self.epoch += 1;
        self.world = World::new(self.epoch, false);
        let client = Client::alone(&db, &model, &self.world)?;
        self.open = Some((db, client));
        self.expected = Expected { base: model, page: Page::default(), epoch: self.epoch, ..Expected::nothing() };
        Ok(())
    }
}

fn open(ground: &Ground, options: &Options, tuning: &Tuning) -> Result<Db, Failure> {
    let opened = match ground {
        Ground::Simulated(disk) => {
            testing::open(Arc::new(disk.clone()), HOME.as_ref(), options.clone(), tuning.clone())
        }
        Ground::Directory(directory) => {
            testing::open(Arc::new(testing::OsStorage::new()), directory, options.clone(), tuning.clone())
        }
    };
    opened.map_err(|error: Error| Failure(format!("open: {error}")))
}
