//! A client's writes: batches and ingested files. Each is recorded in the ledger before the call, and its answer after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::{Error, WriteBatch, WriteOptions};

use crate::client::Client;
use crate::failure::Failure;
use crate::ledger::{Answer, BatchId};
use crate::material;
use crate::model::{self, Entry, Stored};
use crate::operation::{Ack, Change, Effect, is_hashed, operator_of_slot};
use crate::order::ORDER;

impl Client {
    pub(super) fn write(&mut self, changes: &[Change], ack: Ack) -> Result<(), Failure> {
        let entries = changes.iter().filter_map(|change| Some((change.slot, self.entry(change)?)));
        let (slots, entries): (Vec<u8>, Vec<Entry>) = entries.unzip();
        let entries: Arc<[Entry]> = entries.into();
        if entries.is_empty() {
            return Ok(());
        }
        let id = self.world.ledger.begin(entries.clone());
        let result = match (&entries[..], &self.order) {
            ([entry], None) if self.pause.is_none() => self.write_one(slots[0], entry, ack),
            _ => self.write_batch(id, &slots, &entries, ack),
        };
        let synced = ack == Ack::Sync || ack == Ack::Default && self.world.sync_by_default;
        match result {
            Ok(()) if self.world.ledger.has_failed() && self.order.is_none() && !self.world.has_crashed() => {
                Err(Failure("a write was accepted after an earlier failure that must poison writes".into()))
            }
            Ok(()) => {
                self.world.ledger.acknowledge(id, synced);
                if self.order.is_none() {
                    self.model.commit(&entries);
                }
                Ok(())
            }
            Err(error) => {
                let is_full = matches!(error, Error::IndexFull { .. });
                let refused =
                    is_full || matches!(error, Error::NoSpace { .. } | Error::InvalidInput { .. } | Error::Closed);
                let answer = self.world.ledger.fail(id, refused);
                if answer == Answer::InDoubt && self.order.is_none() {
                    self.model.commit(&entries);
                    self.in_doubt = true;
                }
                // The longest keys fill the small index of a run.
                let wrote_hashed = slots.iter().any(|slot| is_hashed(*slot));
                if is_full && wrote_hashed { Ok(()) } else { self.forgive("write", &error, false) }
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

    fn write_batch(&mut self, id: BatchId, slots: &[u8], entries: &[Entry], ack: Ack) -> Result<(), Error> {
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
        let options = ack.durability().map_or(WriteOptions::new(), WriteOptions::from);
        if self.pause.is_some() {
            // A write that stalls would wait forever for the background work that this client has paused.
            match self.db.write_with(batch.clone(), options.stall_max(Duration::ZERO)) {
                Err(Error::WouldStall) => self.pause = None,
                other => return other,
            }
        }
        match ack.durability() {
            Some(_) => self.db.write_with(batch, options),
            // A batch that would stall is left intact; the second call waits.
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
            (Effect::Clear(_), _) if is_hashed(change.slot) => Stored::Delete,
            // The engine ignores an empty range, even if writes are poisoned.
            (Effect::Clear(span), _) if model::is_empty(&span.bounds()) => return None,
            (Effect::Clear(span), _) => Stored::Clear(span.bounds()),
            (Effect::Put(value) | Effect::Merge(value), None) => Stored::Put(value.bytes().into()),
            (Effect::Put(value), Some(operator)) => Stored::Put(operator.value(value).into()),
            (Effect::Merge(value), Some(operator)) => Stored::Merge(operator.operand(value).into()),
        };
        Some(Entry { space: space.id, key: material::key(change.key).into(), stored })
    }

    /// Only for a single client: an ingest cannot append its number to the batch order.
    pub(super) fn ingest(&mut self, slot: u8, puts: &[(u16, material::Value)]) -> Result<(), Failure> {
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
                // An ingest is durable and makes all earlier writes durable.
                self.world.ledger.acknowledge(id, true);
                self.world.ledger.synced_since(began);
                self.model.commit(&entries);
                Ok(())
            }
            Err(error) => {
                let is_full = matches!(error, Error::IndexFull { .. }) && is_hashed(slot);
                let refused =
                    is_full || matches!(error, Error::NoSpace { .. } | Error::InvalidInput { .. } | Error::Closed);
                if self.world.ledger.fail(id, refused) == Answer::InDoubt {
                    self.model.commit(&entries);
                    self.in_doubt = true;
                }
                if is_full { Ok(()) } else { self.forgive("ingest", &error, false) }
            }
        }
    }
}
