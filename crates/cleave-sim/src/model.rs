//! The model: every keyspace is a map from keys to versions, each with the number of its batch. It answers reads of the
//! present, of any snapshot, and of the state after the first `n` batches, which is what a crash may leave. It is kept as
//! simple as possible: reads apply merge operands one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::material::brief;
use crate::operation::Bounds;
use crate::operator::Operator;

/// A keyspace that exists or existed; numbers are assigned in order of creation and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpaceId(pub u32);

/// What one version holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// A value.
    Put(Arc<[u8]>),
    /// A tombstone.
    Delete,
    /// A merge operand.
    Merge(Arc<[u8]>),
    /// A range tombstone for these bounds; the entry's own key is ignored.
    Clear(Bounds),
}

/// One write of a batch, in the model's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The keyspace.
    pub space: SpaceId,
    /// The key.
    pub key: Arc<[u8]>,
    /// The new version.
    pub stored: Stored,
}

#[derive(Debug, Clone)]
struct Space {
    name: String,
    operator: Option<Operator>,
    dropped: bool,
}

/// The values of all `(keyspace, key)` pairs at one moment.
pub type State = BTreeMap<(SpaceId, Arc<[u8]>), Vec<u8>>;

/// The versions of a key, oldest first, each with the number of its batch (the first one is 1).
type Versions = Vec<(u64, Stored)>;

/// Where two states differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The name of the keyspace.
    pub space: String,
    /// The first key.
    pub key: Vec<u8>,
    /// The value in the model.
    pub expected: Option<Vec<u8>>,
    /// The value that the engine returned.
    pub found: Option<Vec<u8>>,
    /// Number of keys that differ.
    pub keys: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Vec<u8>>| value.as_ref().map_or("nothing".to_owned(), |value| brief(value));
        write!(
            f,
            "keyspace {}, key {}: expected {}, found {} ({} keys differ)",
            self.space,
            brief(&self.key),
            show(&self.expected),
            show(&self.found),
            self.keys
        )
    }
}

/// Keyspaces and their history.
#[derive(Debug, Clone, Default)]
pub struct Model {
    spaces: Vec<Space>,
    versions: BTreeMap<SpaceId, BTreeMap<Arc<[u8]>, Versions>>,
    batches: u64,
}

impl Model {
    /// No keyspaces, no history.
    pub fn new() -> Model {
        Model::default()
    }

    /// Number of batches in the history.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Adds a keyspace.
    pub fn create(&mut self, name: &str, operator: Option<Operator>) -> SpaceId {
        self.spaces.push(Space { name: name.into(), operator, dropped: false });
        SpaceId(self.spaces.len() as u32 - 1)
    }

    /// Drops a keyspace and its content.
    pub fn drop_space(&mut self, space: SpaceId) {
        self.spaces[space.0 as usize].dropped = true;
        self.versions.remove(&space);
    }

    /// The names of the existing keyspaces, sorted.
    pub fn names(&self) -> BTreeSet<String> {
        self.spaces.iter().filter(|space| !space.dropped).map(|space| space.name.clone()).collect()
    }

    /// The existing keyspaces.
    pub fn spaces(&self) -> impl Iterator<Item = (SpaceId, &str)> {
        let there = self.spaces.iter().enumerate().filter(|(_, space)| !space.dropped);
        there.map(|(position, space)| (SpaceId(position as u32), space.name.as_str()))
    }

    /// The operator of a keyspace.
    pub fn operator(&self, space: SpaceId) -> Option<Operator> {
        self.spaces[space.0 as usize].operator
    }

    /// Adds a batch to the history. Writes to dropped keyspaces are ignored.
    pub fn commit(&mut self, batch: &[Entry]) {
        self.batches += 1;
        for entry in batch.iter().filter(|entry| !self.spaces[entry.space.0 as usize].dropped) {
            let keys = self.versions.entry(entry.space).or_default();
            if let Stored::Clear(bounds) = &entry.stored {
                if !is_empty(bounds) {
                    let within = keys.range_mut::<[u8], _>((as_slice(&bounds.0), as_slice(&bounds.1)));
                    within.for_each(|(_, versions)| versions.push((self.batches, Stored::Delete)));
                }
                continue;
            }
            keys.entry(entry.key.clone()).or_default().push((self.batches, entry.stored.clone()));
        }
    }

    /// The value of a key after the first `at` batches.
    pub fn get(&self, at: u64, space: SpaceId, key: &[u8]) -> Option<Vec<u8>> {
        self.read(at, space, self.versions.get(&space)?.get(key)?)
    }

    /// The keys and values within bounds after the first `at` batches, in order.
    pub fn scan(&self, at: u64, space: SpaceId, bounds: &Bounds) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Some(keys) = self.versions.get(&space).filter(|_| !is_empty(bounds)) else {
            return Vec::new();
        };
        let bounds = (as_slice(&bounds.0), as_slice(&bounds.1));
        let range = keys.range::<[u8], _>(bounds);
        range.filter_map(|(key, versions)| Some((key.to_vec(), self.read(at, space, versions)?))).collect()
    }

    /// Everything after the first `at` batches.
    pub fn state(&self, at: u64) -> State {
        let mut state = State::new();
        for (&space, keys) in &self.versions {
            for (key, versions) in keys {
                if let Some(value) = self.read(at, space, versions) {
                    state.insert((space, key.clone()), value);
                }
            }
        }
        state
    }

    /// True if `found` is the state after the first `at` batches. Stops at the first difference.
    pub fn equals(&self, at: u64, found: &State) -> bool {
        let mut found = found.iter();
        for (&space, keys) in &self.versions {
            for (key, versions) in keys {
                let Some(value) = self.read(at, space, versions) else {
                    continue;
                };
                match found.next() {
                    Some(((in_space, there), other)) if (*in_space, there) == (space, key) && *other == value => {}
                    _ => return false,
                }
            }
        }
        found.next().is_none()
    }

    /// How `found` differs from the state after the first `at` batches.
    pub fn compare(&self, at: u64, found: &State) -> Option<Difference> {
        let expected = self.state(at);
        let keys: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
        let differing: Vec<_> = keys.into_iter().filter(|key| expected.get(*key) != found.get(*key)).collect();
        let &first = differing.first()?;
        Some(Difference {
            space: self.spaces[first.0.0 as usize].name.clone(),
            key: first.1.to_vec(),
            expected: expected.get(first).cloned(),
            found: found.get(first).cloned(),
            keys: differing.len(),
        })
    }

    /// Discards the batches after the first `at` and the history before: the state after `at` becomes the oldest version
    /// of each key. Snapshots taken earlier must not be read afterwards.
    pub fn restart_at(&mut self, at: u64) {
        let state = self.state(at);
        self.versions.clear();
        for ((space, key), value) in state {
            let keys = self.versions.entry(space).or_default();
            keys.insert(key, vec![(0, Stored::Put(value.into()))]);
        }
        self.batches = 0;
    }

    fn read(&self, at: u64, space: SpaceId, versions: &[(u64, Stored)]) -> Option<Vec<u8>> {
        let versions = &versions[..versions.partition_point(|&(batch, _)| batch <= at)];
        let base = versions.iter().rposition(|(_, stored)| !matches!(stored, Stored::Merge(_)));
        let mut value = None;
        for (_, stored) in &versions[base.unwrap_or(0)..] {
            value = match stored {
                Stored::Put(bytes) => Some(bytes.to_vec()),
                Stored::Delete | Stored::Clear(_) => None,
                Stored::Merge(operand) => {
                    let operator =
                        self.operator(space).expect("the workload merges only in keyspaces with an operator");
                    Some(operator.apply(value, operand))
                }
            };
        }
        value
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// True for bounds that contain no key; `BTreeMap::range` panics on some of them.
pub fn is_empty(bounds: &Bounds) -> bool {
    match bounds {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high) | Bound::Included(high)) => low >= high,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(space: SpaceId, key: &str, stored: Stored) -> Entry {
        Entry { space, key: key.as_bytes().into(), stored }
    }

    fn put(value: &str) -> Stored {
        Stored::Put(value.as_bytes().into())
    }

    #[test]
    fn reads_answer_as_of_any_prefix_of_history() {
        let mut model = Model::new();
        let space = model.create("lists", Some(Operator::Append));
        model.commit(&[entry(space, "k", put("a"))]);
        model.commit(&[entry(space, "k", Stored::Merge(b"b"[..].into()))]);
        model.commit(&[entry(space, "k", Stored::Delete), entry(space, "l", put("x"))]);
        let at = |n| model.get(n, space, b"k").map(|value| String::from_utf8(value).unwrap());
        assert_eq!([at(0), at(1), at(2), at(3)], [None, Some("a".into()), Some("a,b".into()), None]);
        let all = (Bound::Unbounded, Bound::Unbounded);
        assert_eq!(model.scan(3, space, &all), [(b"l".to_vec(), b"x".to_vec())]);
        for n in 0..=3 {
            assert_eq!(model.compare(n, &model.state(n)), None);
            assert!((0..=3).all(|other| model.equals(other, &model.state(n)) == (other == n)));
        }
        assert_eq!(model.compare(2, &model.state(3)).unwrap().keys, 2);
    }

    #[test]
    fn a_range_delete_removes_what_is_there_and_nothing_later() {
        let mut model = Model::new();
        let space = model.create("s", None);
        let clear = |low: &str, high: &str| Stored::Clear((Bound::Included(low.into()), Bound::Excluded(high.into())));
        model.commit(&[entry(space, "a", put("1")), entry(space, "b", put("2")), entry(space, "c", put("3"))]);
        model.commit(&[
            entry(space, "", clear("a", "c")),
            entry(space, "b", put("4")),
            entry(space, "", clear("z", "y")),
        ]);
        let at = |n, key: &str| model.get(n, space, key.as_bytes()).map(|value| String::from_utf8(value).unwrap());
        assert_eq!([at(2, "a"), at(2, "b"), at(2, "c")], [None, Some("4".into()), Some("3".into())]);
        assert_eq!(at(1, "a"), Some("1".into()));
    }

    #[test]
    fn a_restart_keeps_what_the_prefix_left() {
        let mut model = Model::new();
        let space = model.create("s", None);
        model.commit(&[entry(space, "a", put("1"))]);
        model.commit(&[entry(space, "a", put("2"))]);
        model.restart_at(1);
        assert_eq!((model.batches(), model.get(0, space, b"a")), (0, Some(b"1".to_vec())));
        model.drop_space(space);
        assert!(model.state(0).is_empty() && model.names().is_empty());
    }

    #[test]
    fn bounds_the_wrong_way_round_hold_nothing() {
        let mut model = Model::new();
        let space = model.create("s", None);
        model.commit(&[entry(space, "m", put("1"))]);
        let bounds = |low: Bound<&str>, high: Bound<&str>| (low.map(Vec::from), high.map(Vec::from));
        let count = |bounds| model.scan(1, space, &bounds).len();
        assert_eq!(count(bounds(Bound::Included("z"), Bound::Included("a"))), 0);
        assert_eq!(count(bounds(Bound::Excluded("m"), Bound::Excluded("m"))), 0);
        assert_eq!(count(bounds(Bound::Included("m"), Bound::Included("m"))), 1);
    }
}
