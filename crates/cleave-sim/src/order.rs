//! The list in which clients that write at the same time record the order of their batches: each batch appends its own
//! number with a merge, so the list says which batches a snapshot, or a recovered database, holds.

use cleavedb::{Db, Durability, Error, KeyspaceOptions};

use crate::ledger::BatchId;
use crate::material::brief;
use crate::world::Failure;

/// The keyspace and the key of the list that several clients write their order into.
pub const ORDER: &str = "order";

/// Makes the list of the order empty, before several clients start.
pub fn reset(db: &Db) -> Result<(), Error> {
    let exists = db.keyspaces().iter().any(|name| name == ORDER);
    let order = match exists {
        true => db.open_keyspace(ORDER)?,
        false => db.create_keyspace(ORDER, KeyspaceOptions::new().merge_operator("append"))?,
    };
    order.delete_with(ORDER, Durability::Sync)
}

/// True for the keyspace that holds the list of the order and is no part of the model.
pub fn is_it(name: &str) -> bool {
    name == ORDER
}

/// The batches of `epoch` that the list holds now, in order.
pub fn read(db: &Db, epoch: u64) -> Result<Vec<BatchId>, Failure> {
    match db.open_keyspace(ORDER).and_then(|order| order.get(ORDER)) {
        Ok(list) => parse(list.as_deref().unwrap_or_default(), epoch),
        Err(Error::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(Failure(format!("read the order of batches: {error}"))),
    }
}

/// The list holds numbers like `3.17`: epoch 3, batch 17. It is emptied when an epoch begins; where that did not come to
/// pass it holds an older epoch only.
pub fn parse(list: &[u8], epoch: u64) -> Result<Vec<BatchId>, Failure> {
    let wrong = || Failure(format!("the order of batches in epoch {epoch} reads {}", brief(list)));
    let text = str::from_utf8(list).map_err(|_| wrong())?;
    let mut order = Vec::new();
    let mut older = 0;
    for number in text.split(',').filter(|number| !number.is_empty()) {
        let (of, id) = number.split_once('.').ok_or_else(wrong)?;
        match of.parse::<u64>() {
            Ok(of) if of == epoch => order.push(id.parse().map_err(|_| wrong())?),
            Ok(_) => older += 1,
            Err(_) => return Err(wrong()),
        }
    }
    if older > 0 && !order.is_empty() { Err(wrong()) } else { Ok(order) }
}
