//! The states that a database may have when it is reopened: the state after some prefix of the history that includes every
//! batch that must survive, and no partial batch.

use cleavedb::{Db, Error};

use crate::failure::Failure;
use crate::ledger::{Answer, BatchId, Page};
use crate::model::{Model, State};
use crate::operation::{Crash, name_of_slot};
use crate::order;
use crate::state;

/// How the order of batches is known.
#[derive(Debug, Clone)]
pub enum Order {
    /// One client wrote them one after the other.
    AsBegun,
    /// The list in the database gives it; each client has observed a prefix of the list.
    Listed(Vec<Vec<BatchId>>),
}

/// The expected content of a database that is about to be opened.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The content at the previous open.
    pub base: Model,
    /// The batches since then.
    pub page: Page,
    /// The epoch of these batches.
    pub epoch: u64,
    /// How their order is known.
    pub order: Order,
    /// The worst crash since then; `None` if the database was closed.
    pub crash: Option<Crash>,
}

impl Expected {
    /// An empty database.
    pub fn nothing() -> Expected {
        let mut base = Model::new();
        base.create("default", None);
        Expected { base, page: Page::default(), epoch: 0, order: Order::AsBegun, crash: None }
    }

    /// Records another crash before the database was open again. A power loss is not downgraded to a process crash.
    pub fn crashed_again(&mut self, crash: Crash) {
        self.crash = match self.crash {
            Some(Crash::Power(seed)) => Some(Crash::Power(seed)),
            _ => Some(crash),
        };
    }

    /// Compares an open database with the expected content. Returns the model of its content.
    ///
    /// The outer error is the engine's and may be caused by a disk fault; the inner one reports wrong content.
    pub fn check(&self, db: &Db) -> Result<Result<Model, Failure>, Error> {
        let mut model = match self.model_of_all_spaces(db) {
            Ok(model) => model,
            Err(failure) => return Ok(Err(failure)),
        };
        let found = match state::read_all(db, &model)? {
            Ok(found) => found,
            Err(failure) => return Ok(Err(failure)),
        };
        let checked = match &self.order {
            Order::AsBegun => self.check_prefix(&mut model, &found),
            Order::Listed(seen) => self.check_listed(db, &mut model, &found, seen),
        };
        Ok(checked.map(|()| model))
    }

    /// The base with the keyspaces that exist now, after checking that exactly these are allowed.
    fn model_of_all_spaces(&self, db: &Db) -> Result<Model, Failure> {
        let mut model = self.base.clone();
        for change in self.page.changes.iter().filter(|change| change.created) {
            let id = model.create(&name_of_slot(change.slot), crate::operation::operator_of_slot(change.slot));
            if id != change.space {
                return Err(Failure("the ledger and the model number keyspaces differently".into()));
            }
        }
        let names: Vec<String> = db.keyspaces().into_iter().filter(|name| !order::is_it(name)).collect();
        for change in &self.page.changes {
            let is_there = names.contains(&name_of_slot(change.slot));
            let gone = match (change.created, change.answer) {
                (false, Answer::Acknowledged) => true,
                (true, Answer::Acknowledged) => false,
                // A slot whose last change is in doubt is not used again, so its present state is the outcome.
                _ => !is_there,
            };
            if gone {
                model.drop_space(change.space);
            }
        }
        let expected: Vec<String> = model.names().into_iter().collect();
        if names != expected {
            return Err(Failure(format!("keyspaces: expected {expected:?}, found {names:?}")));
        }
        Ok(model)
    }

    fn check_prefix(&self, model: &mut Model, found: &State) -> Result<(), Failure> {
        let history = self.page.possible();
        for &id in &history {
            model.commit(&self.page.records[id].batch);
        }
        let required = self.required();
        let least = history.iter().rposition(|id| required.contains(id)).map_or(0, |last| last as u64 + 1);
        let all = history.len() as u64;
        if let Some(at) = (least..=all).rev().find(|&at| model.equals(at, found)) {
            model.restart_at(at);
            return Ok(());
        }
        if let Some(at) = (0..least).rev().find(|&at| model.equals(at, found)) {
            return Err(Failure(format!(
                "after {}: only the first {at} of {all} batches are present, but the first {least} were promised to survive",
                self.event()
            )));
        }
        let nearest = (0..=all).filter_map(|at| Some((model.compare(at, found)?, at))).min_by_key(|(it, _)| it.keys);
        let nearest = nearest.map_or_else(String::new, |(it, at)| format!("the nearest prefix has {at}: {it}"));
        Err(Failure(format!(
            "after {}: the content matches no prefix of the {all} batches (at least {least} promised to survive); {nearest}",
            self.event()
        )))
    }

    fn check_listed(&self, db: &Db, model: &mut Model, found: &State, seen: &[Vec<BatchId>]) -> Result<(), Failure> {
        let order = order::read(db, self.epoch)?;
        let say = |what: String| Failure(format!("after {}: {what}", self.event()));
        self.page.check_order(&order).map_err(say)?;
        if let Some(missing) = self.required().iter().find(|id| !order.contains(id)) {
            return Err(say(format!(
                "batch {missing} was promised to survive and is lost; {} batches are present",
                order.len()
            )));
        }
        for seen in seen {
            let both = seen.len().min(order.len());
            if seen[..both] != order[..both] {
                return Err(say(format!("a client observed the order {seen:?}, but now it is {order:?}")));
            }
        }
        for &id in &order {
            model.commit(&self.page.records[id].batch);
        }
        let at = model.batches();
        match model.compare(at, found) {
            None => {
                model.restart_at(at);
                Ok(())
            }
            Some(difference) => Err(say(format!("a listed batch is incomplete ({at} are listed): {difference}"))),
        }
    }

    fn required(&self) -> std::collections::BTreeSet<BatchId> {
        // A close must preserve every acknowledged batch, as a process crash does.
        self.page.required(self.crash.unwrap_or(Crash::Process))
    }

    fn event(&self) -> &'static str {
        match self.crash {
            None => "a reopen",
            Some(Crash::Process) => "a process crash",
            Some(Crash::Power(_)) => "a power loss",
        }
    }
}
