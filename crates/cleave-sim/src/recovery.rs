//! What a database may hold when it is opened again: the state after some first part of history, with everything that
//! was promised, and no batch in pieces.

use cleavedb::{Db, Error};

use crate::ledger::{Answer, BatchId, Page};
use crate::model::{Model, State};
use crate::operation::{Crash, name_of_slot};
use crate::order;
use crate::state;
use crate::world::Failure;

/// How several clients' batches are known to follow one another.
#[derive(Debug, Clone)]
pub enum Order {
    /// One client, one after the other.
    AsBegun,
    /// As the list in the database says; each client has seen a first part of it.
    Listed(Vec<Vec<BatchId>>),
}

/// What is expected of a database that is about to be opened.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The state when it was opened before.
    pub base: Model,
    /// What was promised since.
    pub page: Page,
    /// The epoch of that page.
    pub epoch: u64,
    /// How the batches follow one another.
    pub order: Order,
    /// The worst that has happened since; `None` if it was closed.
    pub crash: Option<Crash>,
}

impl Expected {
    /// An empty database.
    pub fn nothing() -> Expected {
        let mut base = Model::new();
        base.create("default", None);
        Expected { base, page: Page::default(), epoch: 0, order: Order::AsBegun, crash: None }
    }

    /// Notes one more crash before the database was open again. A loss of power stays one.
    pub fn crashed_again(&mut self, crash: Crash) {
        self.crash = match self.crash {
            Some(Crash::Power(seed)) => Some(Crash::Power(seed)),
            _ => Some(crash),
        };
    }

    /// Compares an open database with what is expected of it. Returns the model of what it holds.
    ///
    /// The outer error is the engine's (the disk may be about to fail), the inner one is what it did wrong.
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

    /// The base with the keyspaces that there are now, after checking that there may be these.
    fn model_of_all_spaces(&self, db: &Db) -> Result<Model, Failure> {
        let mut model = self.base.clone();
        for change in self.page.changes.iter().filter(|change| change.created) {
            let id = model.create(&name_of_slot(change.slot), crate::operation::operator_of_slot(change.slot));
            if id != change.space {
                return Err(Failure("the ledger numbers keyspaces as the model does".into()));
            }
        }
        let names: Vec<String> = db.keyspaces().into_iter().filter(|name| !order::is_it(name)).collect();
        for change in &self.page.changes {
            let is_there = names.contains(&name_of_slot(change.slot));
            let gone = match (change.created, change.answer) {
                (false, Answer::Acknowledged) => true,
                (true, Answer::Acknowledged) => false,
                // A slot whose last change is in doubt is not touched again, so what is there now is its answer.
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
                "after {}: only the first {at} of {all} batches are there, but the first {least} were promised",
                self.event()
            )));
        }
        let nearest = (0..=all).filter_map(|at| Some((model.compare(at, found)?, at))).min_by_key(|(it, _)| it.keys);
        let nearest = nearest.map_or_else(String::new, |(it, at)| format!("nearest is the first {at}: {it}"));
        Err(Failure(format!(
            "after {}: what is there is no first part of the {all} batches (at least {least} promised); {nearest}",
            self.event()
        )))
    }

    fn check_listed(&self, db: &Db, model: &mut Model, found: &State, seen: &[Vec<BatchId>]) -> Result<(), Failure> {
        let order = order::read(db, self.epoch)?;
        let say = |what: String| Failure(format!("after {}: {what}", self.event()));
        self.page.check_order(&order).map_err(say)?;
        if let Some(missing) = self.required().iter().find(|id| !order.contains(id)) {
            return Err(say(format!("batch {missing} was promised and is lost; there are {}", order.len())));
        }
        for seen in seen {
            let both = seen.len().min(order.len());
            if seen[..both] != order[..both] {
                return Err(say(format!("a client saw the order {seen:?}, and now it is {order:?}")));
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
            Some(difference) => Err(say(format!("batches are not whole, {at} are listed; {difference}"))),
        }
    }

    fn required(&self) -> std::collections::BTreeSet<BatchId> {
        // After a close everything acknowledged must be there, as after a crash of the process.
        self.page.required(self.crash.unwrap_or(Crash::Process))
    }

    fn event(&self) -> &'static str {
        match self.crash {
            None => "closing and opening again",
            Some(Crash::Process) => "a crash of the process",
            Some(Crash::Power(_)) => "a loss of power",
        }
    }
}
