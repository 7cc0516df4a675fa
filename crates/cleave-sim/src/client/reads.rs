//! A client's reads and their comparison with the model.

use std::collections::BTreeMap;

use crate::client::{Client, Space, Walk};
use crate::failure::Failure;
use crate::material::{self, brief};
use crate::operation::{Scan, Span, is_hashed, name_of_slot};
use crate::pulls;
use crate::state;

impl Client {
    pub(super) fn get(&mut self, slot: u8, key: u16, snapshot: Option<u8>) -> Result<(), Failure> {
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

    /// All of a hash keyspace, in no order.
    fn scan_unordered(&mut self, slot: u8, snapshot: Option<u8>) -> Result<(), Failure> {
        let Some((id, handle)) = self.spaces.get(&slot).map(|space| (space.id, space.handle.clone())) else {
            return Ok(());
        };
        let held = snapshot.and_then(|which| self.held(which)).map(|held| (held.snapshot.clone(), held.at));
        let (iter, at) = match held {
            Some((snapshot, at)) => (snapshot.iter_unordered(&handle), at),
            None => {
                let Some(before) = self.learn()? else { return Ok(()) };
                let iter = handle.iter_unordered();
                let Some(after) = self.learn()? else { return Ok(()) };
                (iter, (before.0, after.1))
            }
        };
        let found: Result<Vec<_>, _> = iter.and_then(|iter| iter.collect());
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.forgive("scan", &error, true),
        };
        let mut found: Vec<_> = found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        found.sort();
        match (at.0..=at.1).any(|at| self.model.scan(at, id, &Span::All.bounds()) == found) {
            true => Ok(()),
            false => Err(Failure(format!("unordered scan of {}: {} wrong records", name_of_slot(slot), found.len()))),
        }
    }

    pub(super) fn scan(&mut self, scan: &Scan) -> Result<(), Failure> {
        if is_hashed(scan.slot) {
            return self.scan_unordered(scan.slot, scan.snapshot);
        }
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

    pub(super) fn multi_get(&mut self, slot: u8, keys: &[u16], snapshot: Option<u8>) -> Result<(), Failure> {
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
        // All answers must come from the same snapshot.
        let fits = |at: u64| {
            let mut pairs = keys.iter().zip(&values).filter_map(|(key, value)| Some((key, value.as_ref()?)));
            pairs.all(|(key, value)| self.model.get(at, id, key) == *value)
        };
        match (at.0..=at.1).any(fits) {
            true => Ok(()),
            false => Err(Failure(format!("multi_get of {} keys of {}: wrong values", keys.len(), name_of_slot(slot)))),
        }
    }

    pub(super) fn scan_keys(&mut self, scan: &Scan) -> Result<(), Failure> {
        if is_hashed(scan.slot) {
            return self.scan_unordered(scan.slot, scan.snapshot);
        }
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

    /// Only for a single client, for which the present is one or two known points of history.
    pub(super) fn refresh(&mut self, slot: u8, span: Span, pulls: u8) -> Result<(), Failure> {
        if self.order.is_some() || is_hashed(slot) {
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
        // Some exhausted iterators are kept and refreshed all the same.
        self.walk = Some(walk).filter(|_| !ended || pulls % 2 == 1);
        Ok(())
    }

    /// Compares the whole content, by scans in both directions and by point reads.
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
}
