//! One client: applies operations to the engine and to its own copy of the model, and compares every answer.
//!
//! A lone client knows the order of its batches. Clients that write at the same time do not, so each of their batches
//! also appends its number to one list in the database (`order`): reading that list at a snapshot tells exactly which
//! batches the snapshot holds, in which order, and the model is brought to that point before anything is compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleavedb::{Db, Error, Iter, Keyspace, KeyspaceOptions, Snapshot, WriteBatch};

use crate::ledger::{Answer, BatchId};
use crate::material::{self, brief};
use crate::model::{self, Entry, Model, SpaceId, Stored};
use crate::operation::{
    Ack, Change, Crash, Effect, FIRST_CHANGING_SLOT, Operation, SLOTS, name_of_slot, operator_of_slot,
};
use crate::order::{self, ORDER};
use crate::pulls;
use crate::state;
use crate::world::{Failure, Tolerance, World};

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

/// An iterator that is refreshed now and then.
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
    /// Changing slots whose last creation or drop failed half-way: not touched until the next opening.
    unsure: Vec<u8>,
    snapshots: Vec<Held>,
    walk: Option<Walk>,
    order: Option<Keyspace>,
    learned: Vec<BatchId>,
    /// The last batch of the model may be missing in the engine.
    in_doubt: bool,
}

impl Client {
    /// A client that is alone. `model` is what the database holds.
    pub fn alone(db: &Db, model: &Model, world: &World) -> Result<Client, Failure> {
        let mut client = Client {
            db: db.clone(),
            world: world.clone(),
            model: model.clone(),
            spaces: BTreeMap::new(),
            unsure: Vec::new(),
            snapshots: Vec::new(),
            walk: None,
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

    /// A client that writes beside others. The list of the order must have been [reset](order::reset).
    pub fn among_others(db: &Db, model: &Model, world: &World) -> Result<Client, Failure> {
        let mut client = Client::alone(db, model, world)?;
        let order = db.open_keyspace(ORDER).map_err(|error| client.unexpected("open keyspace", &error))?;
        client.order = Some(order);
        Ok(client)
    }

    /// The order of batches, as far as this client has seen it; empty for a lone client.
    pub fn into_learned(self) -> Vec<BatchId> {
        self.learned
    }

    /// Says what the disk is known to do from now on.
    pub fn tolerate(&mut self, tolerance: Tolerance) {
        self.world.tolerance = tolerance;
    }

    /// Applies one operation. An error of the engine is passed on as a failure unless the disk is to blame; after a
    /// crash nothing is.
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
                let Some(space) = self.spaces.get(slot) else {
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
            // These end a client's life; whoever runs it sees to them.
            Operation::Reopen | Operation::Crash(_) => Ok(()),
        }
    }

    fn write(&mut self, changes: &[Change], ack: Ack) -> Result<(), Failure> {
        let entries = changes.iter().filter_map(|change| Some((change.slot, self.entry(change)?)));
        let (slots, entries): (Vec<u8>, Vec<Entry>) = entries.unzip();
        let entries: Arc<[Entry]> = entries.into();
        if entries.is_empty() {
            return Ok(());
        }
        let id = self.world.ledger.begin(entries.clone());
        let result = match (&entries[..], &self.order) {
            ([entry], None) => self.write_one(slots[0], entry, ack),
            _ => self.write_batch(id, &slots, &entries, ack),
        };
        let synced = ack == Ack::Sync || ack == Ack::Default && self.world.sync_by_default;
        match result {
            Ok(()) if self.world.ledger.has_failed() && self.order.is_none() && !self.world.has_crashed() => {
                Err(Failure("a write was taken after an earlier one had failed and poisoned writes".into()))
            }
            Ok(()) => {
                self.world.ledger.acknowledge(id, synced);
                if self.order.is_none() {
                    self.model.commit(&entries);
                }
                Ok(())
            }
            Err(error) => {
                let refused = matches!(error, Error::NoSpace { .. } | Error::InvalidInput { .. } | Error::Closed);
                let answer = self.world.ledger.fail(id, refused);
                if answer == Answer::InDoubt && self.order.is_none() {
                    self.model.commit(&entries);
                    self.in_doubt = true;
                }
                self.forgive("write", &error, false)
            }
        }
    }

    fn write_one(&self, slot: u8, entry: &Entry, ack: Ack) -> Result<(), Error> {
        let handle = &self.spaces[&slot].handle;
        let key = &entry.key;
        match (&entry.stored, ack.durability()) {
            (Stored::Put(value), None) if slot == 0 => self.db.put(key, value),
            (Stored::Delete, None) if slot == 0 => self.db.delete(key),
            (Stored::Clear(bounds), None) if slot == 0 => self.db.delete_range(bounds.clone()),
            (Stored::Put(value), None) => handle.put(key, value),
            (Stored::Delete, None) => handle.delete(key),
            (Stored::Clear(bounds), None) => handle.delete_range(bounds.clone()),
            (Stored::Merge(operand), None) => handle.merge(key, operand),
            (Stored::Put(value), Some(durability)) => handle.put_with(key, value, durability),
            (Stored::Delete, Some(durability)) => handle.delete_with(key, durability),
            (Stored::Clear(bounds), Some(durability)) => handle.delete_range_with(bounds.clone(), durability),
            (Stored::Merge(operand), Some(durability)) => handle.merge_with(key, operand, durability),
        }
    }

    fn write_batch(&self, id: BatchId, slots: &[u8], entries: &[Entry], ack: Ack) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        for (slot, entry) in slots.iter().zip(entries) {
            let handle = &self.spaces[slot].handle;
            match &entry.stored {
                Stored::Put(value) => batch.put(handle, &entry.key, value),
                Stored::Delete => batch.delete(handle, &entry.key),
                Stored::Clear(bounds) => batch.delete_range(handle, bounds.clone()),
                Stored::Merge(operand) => batch.merge(handle, &entry.key, operand),
            };
        }
        if let Some(order) = &self.order {
            batch.merge(order, ORDER, format!("{}.{id}", self.world.epoch));
        }
        match ack.durability() {
            Some(durability) => self.db.write_with(batch, durability),
            // What would have to wait is as it was, and waits at the second try.
            None => match self.db.try_write(&mut batch) {
                Err(Error::WouldStall) => self.db.write(batch),
                other => other,
            },
        }
    }

    fn entry(&self, change: &Change) -> Option<Entry> {
        let space = self.spaces.get(&change.slot)?;
        let operator = operator_of_slot(change.slot);
        let stored = match (change.effect, operator) {
            (Effect::Delete, _) => Stored::Delete,
            // The engine writes nothing for a range without keys, even where it would refuse to write.
            (Effect::Clear(span), _) if model::is_empty(&span.bounds()) => return None,
            (Effect::Clear(span), _) => Stored::Clear(span.bounds()),
            (Effect::Put(value) | Effect::Merge(value), None) => Stored::Put(value.bytes().into()),
            (Effect::Put(value), Some(operator)) => Stored::Put(operator.value(value).into()),
            (Effect::Merge(value), Some(operator)) => Stored::Merge(operator.operand(value).into()),
        };
        Some(Entry { space: space.id, key: material::key(change.key).into(), stored })
    }

    fn get(&mut self, slot: u8, key: u16, snapshot: Option<u8>) -> Result<(), Failure> {
        let Some((id, handle)) = self.spaces.get(&slot).map(|space| (space.id, space.handle.clone())) else {
            return Ok(());
        };
        let key = material::key(key);
        let (found, at) = match snapshot.and_then(|which| self.held(which)) {
            Some(held) => (held.snapshot.get(&handle, &key), held.at),
            None => {
                let Some(before) = self.learn()? else { return Ok(()) };
                let found = if slot == 0 { self.db.get(&key) } else { handle.get(&key) };
                let Some(after) = self.learn()? else { return Ok(()) };
                (found, (before.0, after.1))
            }
        };
        let found = match found {
            Ok(found) => found.map(Vec::from),
            Err(error) => return self.forgive("get", &error, true),
        };
        if (at.0..=at.1).any(|at| self.model.get(at, id, &key) == found) {
            return Ok(());
        }
        let show = |value: Option<Vec<u8>>| value.map_or("nothing".to_owned(), |value| brief(&value));
        let (name, expected) = (name_of_slot(slot), show(self.model.get(at.1, id, &key)));
        Err(Failure(format!("get {} of {name}: expected {expected}, found {}", brief(&key), show(found))))
    }

    fn scan(&mut self, scan: &crate::operation::Scan) -> Result<(), Failure> {
        let Some((id, handle)) = self.spaces.get(&scan.slot).map(|space| (space.id, space.handle.clone())) else {
            return Ok(());
        };
        let (iter, at) = match scan.snapshot.and_then(|which| self.held(which)) {
            Some(held) => (pulls::open_at(&held.snapshot, &handle, scan.span), held.at),
            None => {
                let Some(before) = self.learn()? else { return Ok(()) };
                let iter = pulls::open(&self.db, scan.slot, &handle, scan.span);
                let Some(after) = self.learn()? else { return Ok(()) };
                (iter, (before.0, after.1))
            }
        };
        let pulled = match iter.and_then(|iter| pulls::pull(iter, scan)) {
            Ok(pulled) => pulled,
            Err(error) => return self.forgive("scan", &error, true),
        };
        let mut wrong = None;
        for at in (at.0..=at.1).rev() {
            match pulls::check(&pulled, self.model.scan(at, id, &scan.span.bounds())) {
                Ok(()) => return Ok(()),
                Err(difference) => wrong = wrong.or(Some(difference)),
            }
        }
        let (name, difference) = (name_of_slot(scan.slot), wrong.unwrap_or_default());
        Err(Failure(format!("scan of {name}, {:?}: {difference}", scan.span)))
    }

    fn multi_get(&mut self, slot: u8, keys: &[u16], snapshot: Option<u8>) -> Result<(), Failure> {
        let Some((id, handle)) = self.spaces.get(&slot).map(|space| (space.id, space.handle.clone())) else {
            return Ok(());
        };
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| material::key(*key)).collect();
        let (found, at) = match snapshot.and_then(|which| self.held(which)) {
            Some(held) => (held.snapshot.multi_get(&handle, &keys), held.at),
            None => {
                let Some(before) = self.learn()? else { return Ok(()) };
                let found = if slot == 0 { self.db.multi_get(&keys) } else { handle.multi_get(&keys) };
                let Some(after) = self.learn()? else { return Ok(()) };
                (found, (before.0, after.1))
            }
        };
        let mut values = Vec::new();
        for answer in found {
            match answer {
                Ok(value) => values.push(Some(value.map(Vec::from))),
                Err(error) => {
                    self.forgive("multi_get", &error, true)?;
                    values.push(None);
                }
            }
        }
        if values.len() != keys.len() {
            return Err(Failure(format!("multi_get: {} answers to {} keys", values.len(), keys.len())));
        }
        // All of them are of one moment.
        let fits = |at: u64| {
            let mut pairs = keys.iter().zip(&values).filter_map(|(key, value)| Some((key, value.as_ref()?)));
            pairs.all(|(key, value)| self.model.get(at, id, key) == *value)
        };
        match (at.0..=at.1).any(fits) {
            true => Ok(()),
            false => Err(Failure(format!("multi_get of {} keys of {}: wrong values", keys.len(), name_of_slot(slot)))),
        }
    }

    fn scan_keys(&mut self, scan: &crate::operation::Scan) -> Result<(), Failure> {
        let Some((id, handle)) = self.spaces.get(&scan.slot).map(|space| (space.id, space.handle.clone())) else {
            return Ok(());
        };
        let snapshot = scan.snapshot.and_then(|which| self.held(which)).map(|held| (held.snapshot.clone(), held.at));
        let (snapshot, at) = match snapshot {
            Some(held) => held,
            None => match self.learn_with_snapshot()? {
                Some(held) => held,
                None => return Ok(()),
            },
        };
        let keys = pulls::open_at(&snapshot, &handle, scan.span).and_then(|iter| pulls::pull_keys(iter.keys(), scan));
        let pulled = match keys {
            Ok(pulled) => pulled,
            Err(error) => return self.forgive("scan keys", &error, true),
        };
        let expected = |at| self.model.scan(at, id, &scan.span.bounds()).into_iter().map(|(key, _)| (key, Vec::new()));
        let mut wrong = None;
        for at in (at.0..=at.1).rev() {
            match pulls::check(&pulled, expected(at).collect()) {
                Ok(()) => return Ok(()),
                Err(difference) => wrong = wrong.or(Some(difference)),
            }
        }
        let (name, difference) = (name_of_slot(scan.slot), wrong.unwrap_or_default());
        Err(Failure(format!("keys of {name}, {:?}: {difference}", scan.span)))
    }

    /// Only for a lone client: the present is one known point of history, or that and the one before.
    fn refresh(&mut self, slot: u8, span: crate::operation::Span, pulls: u8) -> Result<(), Failure> {
        if self.order.is_some() {
            return Ok(());
        }
        let same = |walk: &Walk, spaces: &BTreeMap<u8, Space>| {
            spaces.get(&walk.slot).is_some_and(|space| space.id == walk.space)
        };
        let walk = self.walk.take().filter(|walk| same(walk, &self.spaces));
        let begun = match walk {
            Some(mut walk) => walk.iter.refresh().map(|()| walk),
            None => {
                let Some(space) = self.spaces.get(&slot) else { return Ok(()) };
                let iter = pulls::open(&self.db, slot, &space.handle, span);
                iter.map(|iter| Walk { slot, space: space.id, span, iter, last: None })
            }
        };
        let mut walk = match begun {
            Ok(walk) => walk,
            Err(error) => return self.forgive("refresh", &error, true),
        };
        let Some(at) = self.learn()? else { return Ok(()) };
        let mut found = Vec::new();
        for _ in 0..pulls {
            match walk.iter.next() {
                Some(Ok((key, value))) => found.push((key.to_vec(), value.to_vec())),
                Some(Err(error)) => return self.forgive("refresh", &error, true),
                None => break,
            }
        }
        let ended = found.len() < usize::from(pulls);
        let fits = |at| {
            let pairs = self.model.scan(at, walk.space, &walk.span.bounds());
            let mut rest = pairs.into_iter().filter(|(key, _)| walk.last.as_ref().is_none_or(|last| key > last));
            let taken: Vec<_> = rest.by_ref().take(found.len()).collect();
            taken == found && (!ended || rest.next().is_none())
        };
        if !(at.0..=at.1).any(fits) {
            let name = name_of_slot(walk.slot);
            return Err(Failure(format!(
                "refreshed scan of {name}, {:?}, after {:?}: found {found:?}",
                walk.span, walk.last
            )));
        }
        walk.last = found.pop().map(|(key, _)| key).or(walk.last);
        // Some are used up and go on all the same.
        self.walk = Some(walk).filter(|_| !ended || pulls % 2 == 1);
        Ok(())
    }

    /// Only for a lone client: a load cannot write itself into the order of batches.
    fn ingest(&mut self, slot: u8, puts: &[(u16, material::Value)]) -> Result<(), Failure> {
        let Some(space) = self.spaces.get(&slot).filter(|_| self.order.is_none()) else {
            return Ok(());
        };
        let mut sorted = BTreeMap::new();
        for (key, value) in puts {
            let value = operator_of_slot(slot).map_or_else(|| value.bytes(), |operator| operator.value(*value));
            sorted.insert(material::key(*key), value);
        }
        if sorted.is_empty() {
            return Ok(());
        }
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| Entry {
            space: space.id,
            key: key[..].into(),
            stored: Stored::Put(value[..].into()),
        };
        let entries: Arc<[Entry]> = sorted.iter().map(entry).collect();
        let began = self.world.ledger.now();
        let id = self.world.ledger.begin(entries.clone());
        match space.handle.ingest(&sorted) {
            Ok(count) if count != sorted.len() as u64 => Err(Failure(format!("{count} keys were ingested"))),
            Ok(_) => {
                // A load is durable, and so is all that came before.
                self.world.ledger.acknowledge(id, true);
                self.world.ledger.synced_since(began);
                self.model.commit(&entries);
                Ok(())
            }
            Err(error) => {
                let refused = matches!(error, Error::NoSpace { .. } | Error::InvalidInput { .. } | Error::Closed);
                if self.world.ledger.fail(id, refused) == Answer::InDoubt {
                    self.model.commit(&entries);
                    self.in_doubt = true;
                }
                self.forgive("ingest", &error, false)
            }
        }
    }

    fn checkpoint(&mut self) -> Result<(), Failure> {
        let Some(copies) = self.world.copies.clone() else { return Ok(()) };
        let Some(before) = self.learn()? else { return Ok(()) };
        let number = copies.begin(&self.model, self.order.is_none().then_some(before));
        let path = copies.path(number);
        if let Err(error) = self.db.checkpoint(&path) {
            if !self.world.has_crashed() && self.world.tolerance == Tolerance::Nothing {
                return Err(self.unexpected("checkpoint", &error));
            }
            return self.forgive("checkpoint", &error, false);
        }
        let Some(after) = self.learn()? else { return Ok(()) };
        copies.acknowledge(number, &self.model, (before.0, after.1));
        match copies.check(number, false) {
            Err(error) => self.forgive("open a checkpoint", &error, false),
            Ok(checked) => checked,
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

    /// The first and last point of history that the present may be at; `None` if the disk let us not find out.
    fn learn(&mut self) -> Result<Option<Span>, Failure> {
        Ok(self.learn_with_snapshot()?.map(|(_, at)| at))
    }

    /// A snapshot, and what it may show.
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
            return Err(Failure(format!("batch {missing} was acknowledged, and a later snapshot does not have it")));
        }
        Ok(Some((snapshot, (at, at))))
    }

    /// Reads the order of batches at the newest snapshot taken, and brings the model up to it.
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
            return Err(Failure(format!("history went from {:?} to {order:?}", self.learned)));
        };
        page.check_order(&order).map_err(Failure)?;
        for &id in new {
            self.model.commit(&page.records[id].batch);
        }
        self.learned.extend_from_slice(new);
        Ok(Some(order.len() as u64))
    }

    /// A call that makes everything written before it durable.
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

    fn create(&mut self, slot: u8) -> Result<(), Failure> {
        if !(FIRST_CHANGING_SLOT..SLOTS).contains(&slot) || self.order.is_some() || self.unsure.contains(&slot) {
            return Ok(());
        }
        let name = name_of_slot(slot);
        let operator = operator_of_slot(slot);
        let options =
            operator.map_or(KeyspaceOptions::new(), |operator| KeyspaceOptions::new().merge_operator(operator.name()));
        if self.spaces.contains_key(&slot) {
            return match self.db.create_keyspace(&name, options) {
                Ok(_) => Err(Failure(format!("keyspace {name} was created while it existed"))),
                Err(Error::InvalidInput { .. }) => Ok(()),
                Err(error) => self.forgive("create_keyspace", &error, false),
            };
        }
        let id = self.model.create(&name, operator);
        self.world.ledger.begin_change(slot, id, true);
        match self.db.create_keyspace(&name, options) {
            Ok(handle) => {
                self.world.ledger.answer_change(Answer::Acknowledged);
                if let Some((other, _)) = self.spaces.iter().find(|(_, space)| space.handle.id() == handle.id()) {
                    return Err(Failure(format!("keyspace {name} was given the id of {}", name_of_slot(*other))));
                }
                self.spaces.insert(slot, Space { id, handle });
                Ok(())
            }
            Err(error) => {
                self.world.ledger.answer_change(Answer::InDoubt);
                self.unsure.push(slot);
                self.forgive("create_keyspace", &error, false)
            }
        }
    }

    fn drop_keyspace(&mut self, slot: u8) -> Result<(), Failure> {
        if slot < FIRST_CHANGING_SLOT {
            return Ok(());
        }
        let Some(space) = self.spaces.remove(&slot) else {
            return Ok(());
        };
        self.world.ledger.begin_change(slot, space.id, false);
        // Gone or not: this client does not look at it again.
        self.model.drop_space(space.id);
        match self.db.drop_keyspace(&name_of_slot(slot)) {
            Ok(()) => self.world.ledger.answer_change(Answer::Acknowledged),
            Err(error) => {
                self.world.ledger.answer_change(Answer::InDoubt);
                self.unsure.push(slot);
                return self.forgive("drop_keyspace", &error, false);
            }
        }
        match space.handle.put("k", "v") {
            Ok(()) if !self.world.has_crashed() => {
                Err(Failure("a write was taken through the handle of a dropped keyspace".into()))
            }
            _ => Ok(()),
        }
    }

    /// Compares everything, by scans both ways and by point reads.
    pub fn check_all(&mut self) -> Result<(), Failure> {
        let Some((snapshot, at)) = self.learn_with_snapshot()? else {
            return Ok(());
        };
        let spaces = self.spaces.values().map(|space| (space.id, &space.handle));
        let found = match state::read(&snapshot, spaces) {
            Ok(found) => found?,
            Err(error) => return self.forgive("read everything", &error, true),
        };
        let differences: Option<Vec<_>> = (at.0..=at.1).map(|at| self.model.compare(at, &found)).collect();
        match differences.and_then(|all| all.into_iter().min_by_key(|difference| difference.keys)) {
            None => Ok(()),
            Some(nearest) => Err(Failure(nearest.to_string())),
        }
    }

    /// Passes an error on unless the disk is to blame for it.
    fn forgive(&self, what: &str, error: &Error, reading: bool) -> Result<(), Failure> {
        let forgiven = self.world.has_crashed() || self.world.tolerance.allows(what, error, reading);
        if forgiven { Ok(()) } else { Err(self.unexpected(what, error)) }
    }

    fn unexpected(&self, what: &str, error: &Error) -> Failure {
        Failure(format!("{what}: unexpected error: {error}"))
    }
}
