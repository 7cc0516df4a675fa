//! The list in which concurrent clients record the order of their batches. Each batch appends its own number with a
//! merge, so the list gives the batches that a snapshot or a recovered database contains, in commit order.

use cleavedb::{Db, DeltaPlacement, Durability, Error, KeyspaceOptions};

use crate::failure::Failure;
use crate::ledger::BatchId;
use crate::material::brief;

/// The keyspace and the key of the list.
pub const ORDER: &str = "order";

/// Empties the list before concurrent clients start.
pub fn reset(db: &Db) -> Result<(), Error> {
    let exists = db.keyspaces().iter().any(|name| name == ORDER);
    let order = match exists {
        true => db.open_keyspace(ORDER)?,
        false => {
            db.create_keyspace(ORDER, KeyspaceOptions::new().merge_operator("append").deltas(DeltaPlacement::Buckets))?
        }
    };
    order.delete_with(ORDER, Durability::Sync)
}

/// True for the keyspace of the list, which is not part of the model.
pub fn is_it(name: &str) -> bool {
    name == ORDER
}

/// The batches of `epoch` in the list, in commit order.
pub fn read(db: &Db, epoch: u64) -> Result<Vec<BatchId>, Failure> {
    match db.open_keyspace(ORDER).and_then(|order| order.get(ORDER)) {
        Ok(list) => parse(list.as_deref().unwrap_or_default(), epoch),
        Err(Error::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(Failure(format!("read the order of batches: {error}"))),
    }
}

/// Parses numbers like `3.17`: epoch 3, batch 17. The list is emptied when an epoch begins; if a crash prevented that, it
/// contains only batches of an older epoch.
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
