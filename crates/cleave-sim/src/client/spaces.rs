//! Creating, dropping and configuring keyspaces from a client.

use cleavedb::{DeltaPlacement, Error};

use crate::client::{Client, Space};
use crate::failure::Failure;
use crate::ledger::Answer;
use crate::operation::{FIRST_CHANGING_SLOT, SLOTS, is_hashed, name_of_slot, operator_of_slot, options_of_slot};

/// The placement of merge operands that goes with a drawn number.
fn deltas_of(drawn: u32) -> DeltaPlacement {
    if drawn.is_multiple_of(2) { DeltaPlacement::Buckets } else { DeltaPlacement::Levels }
}

impl Client {
    pub(super) fn create(&mut self, slot: u8) -> Result<(), Failure> {
        if !(FIRST_CHANGING_SLOT..SLOTS).contains(&slot) || self.order.is_some() || self.unsure.contains(&slot) {
            return Ok(());
        }
        let name = name_of_slot(slot);
        let operator = operator_of_slot(slot);
        let options = options_of_slot(slot).deltas(deltas_of(slot.into()));
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

    /// Changes the separation threshold and the placement of merge operands, which must not affect any answer.
    pub(super) fn separate(&mut self, slot: u8, bytes: Option<u32>) -> Result<(), Failure> {
        let Some(space) = self.spaces.get(&slot).filter(|_| !is_hashed(slot)) else {
            return Ok(());
        };
        let placed = space.handle.set_separation(bytes).and_then(|()| {
            // Drawn with the threshold.
            space.handle.set_deltas(deltas_of(bytes.unwrap_or(1)))
        });
        match placed {
            Ok(()) => Ok(()),
            Err(error) => self.forgive("set_separation", &error, false),
        }
    }

    pub(super) fn drop_keyspace(&mut self, slot: u8) -> Result<(), Failure> {
        if slot < FIRST_CHANGING_SLOT {
            return Ok(());
        }
        let Some(space) = self.spaces.remove(&slot) else {
            return Ok(());
        };
        self.world.ledger.begin_change(slot, space.id, false);
        // Whatever the outcome, this client does not use the keyspace again.
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
                Err(Failure("the handle of a dropped keyspace accepted a write".into()))
            }
            _ => Ok(()),
        }
    }
}
