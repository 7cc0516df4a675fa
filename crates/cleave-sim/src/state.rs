//! Reads the whole content of a database, for comparison with the model. Used by clients, recovery and checkpoints.

use std::sync::Arc;

use cleavedb::{Db, Error, Keyspace, KeyspaceKind, Snapshot};

use crate::failure::Failure;
use crate::material::{KEYS, brief, key};
use crate::model::{Model, SpaceId, State};

/// The content of a snapshot, read by forward scans, or unordered ones; other scans and point reads must agree with it.
pub fn read<'a>(
    snapshot: &Snapshot,
    spaces: impl Iterator<Item = (SpaceId, &'a Keyspace)>,
) -> Result<Result<State, Failure>, Error> {
    let mut state = State::new();
    for (id, keyspace) in spaces {
        let (forward, backward) = match keyspace.kind() {
            KeyspaceKind::Ordered => {
                let mut backward: Vec<_> = snapshot.iter(keyspace)?.rev().collect::<Result<_, _>>()?;
                backward.reverse();
                (snapshot.iter(keyspace)?.collect::<Result<Vec<_>, _>>()?, backward)
            }
            KeyspaceKind::Hash => {
                let all = || -> Result<Vec<_>, Error> {
                    let mut all: Vec<_> = snapshot.iter_unordered(keyspace)?.collect::<Result<_, _>>()?;
                    all.sort_by(|(one, _), (other, _)| one.cmp(other));
                    Ok(all)
                };
                (all()?, all()?)
            }
        };
        if forward != backward {
            let first = forward.iter().zip(&backward).find(|(one, other)| one != other);
            let place = first.map_or_else(|| "at one end".into(), |((key, _), _)| format!("at {}", brief(key)));
            let sizes = (forward.len(), backward.len());
            return Ok(Err(Failure(format!("a scan and its reverse differ {place} (lengths {sizes:?})"))));
        }
        state.extend(forward.into_iter().map(|(key, value)| ((id, Arc::from(&*key)), value.into())));
        for number in 0..KEYS {
            let key = key(number);
            let found = snapshot.get(keyspace, &key)?.map(Vec::from);
            let scanned = state.get(&(id, Arc::from(&key[..])));
            if found.as_ref() != scanned {
                let show = |value: Option<&Vec<u8>>| value.map_or("nothing".to_owned(), |value| brief(value));
                let (found, scanned) = (show(found.as_ref()), show(scanned));
                return Ok(Err(Failure(format!("get {} returns {found}, a scan {scanned}", brief(&key)))));
            }
        }
    }
    Ok(Ok(state))
}

/// The content of the model's keyspaces in the database.
pub fn read_all(db: &Db, model: &Model) -> Result<Result<State, Failure>, Error> {
    let spaces: Result<Vec<_>, Error> = model.spaces().map(|(id, name)| Ok((id, db.open_keyspace(name)?))).collect();
    let spaces = spaces?;
    read(&db.snapshot(), spaces.iter().map(|(id, keyspace)| (*id, keyspace)))
}
