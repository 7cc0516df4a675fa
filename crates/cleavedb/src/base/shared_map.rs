//! A sorted map whose copies share what they have in common: a copy is O(1), and a change copies one chunk of entries and
//! the list of chunks, unless nobody else holds them. For state that is captured often and changes a little at a time: the
//! ledger of value files, in the manifest and in each view.

use std::ops::Index;
use std::sync::Arc;

/// A chunk with more entries is split. Half of this, and the number of chunks, is what a change copies.
const ENTRIES_MAX: usize = 64;

/// Neighbouring entries, shared by all copies of the map in which they are equal.
type MapChunk<K, V> = Arc<Vec<(K, V)>>;

/// A map from `K` to `V`, in the order of keys.
#[derive(Clone)]
pub struct SharedMap<K, V> {
    /// Never empty ones, in order.
    chunks: Arc<Vec<MapChunk<K, V>>>,
    len: usize,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> SharedMap<K, V> {
        SharedMap { chunks: Arc::default(), len: 0 }
    }
}

impl<K: Ord + Copy, V: Clone> SharedMap<K, V> {
    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The chunk that has the key, or would have it; 0 if there is none.
    fn chunk_of(&self, key: &K) -> usize {
        self.chunks.partition_point(|chunk| chunk[0].0 <= *key).saturating_sub(1)
    }

    fn find(&self, key: &K) -> Option<(usize, usize)> {
        let chunk = self.chunk_of(key);
        let index = self.chunks.get(chunk)?.binary_search_by(|(found, _)| found.cmp(key)).ok()?;
        Some((chunk, index))
    }

    /// The value of a key. O(log n).
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|(chunk, index)| &self.chunks[chunk][index].1)
    }

    /// True if there is a value for the key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// Sets the value of a key; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let number = self.chunk_of(&key);
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(number) else {
            chunks.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.binary_search_by(|(found, _)| found.cmp(&key)) {
            Ok(index) => return Some(std::mem::replace(&mut chunk[index].1, value)),
            Err(index) => chunk.insert(index, (key, value)),
        }
        if chunk.len() > ENTRIES_MAX {
            // Ascending keys leave full chunks behind.
            let half = if number + 1 == chunks.len() { ENTRIES_MAX } else { ENTRIES_MAX / 2 };
            let upper = Arc::make_mut(&mut chunks[number]).split_off(half);
            chunks.insert(number + 1, Arc::new(upper));
        }
        self.len += 1;
        None
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (number, index) = self.find(key)?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[number]);
        let (_, value) = chunk.remove(index);
        self.len -= 1;
        if chunk.is_empty() {
            chunks.remove(number);
        } else if chunk.len() < ENTRIES_MAX / 4
            && let Some(next) = chunks.get(number + 1).filter(|next| next.len() < ENTRIES_MAX / 2).cloned()
        {
            Arc::make_mut(&mut chunks[number]).extend(next.iter().cloned());
            chunks.remove(number + 1);
        }
        Some(value)
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(key, value)| (key, value)))
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values, in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord + Copy, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> SharedMap<K, V> {
        let mut map = SharedMap::default();
        entries.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}

impl<K: Ord + Copy, V: Clone> Index<&K> for SharedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the key is in the map")
    }
}

impl<K: Ord + Copy, V: Clone + PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &SharedMap<K, V>) -> bool {
        self.len == other.len && (Arc::ptr_eq(&self.chunks, &other.chunks) || self.iter().eq(other.iter()))
    }
}

impl<K: Ord + Copy, V: Clone + Eq> Eq for SharedMap<K, V> {}

impl<K: Ord + Copy + std::fmt::Debug, V: Clone + std::fmt::Debug> std::fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sched::random::Random;

    #[test]
    fn a_map_holds_what_a_tree_holds_and_copies_stay_as_they_were() {
        let mut random = Random::new(7);
        for range in [40, 300, 5_000] {
            let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for step in 0..6_000_u64 {
                let key = random.below(range);
                // First it grows, then it shrinks.
                if random.below(6_000) > step {
                    assert_eq!(map.insert(key, step), model.insert(key, step));
                } else {
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
                let probe = random.below(range);
                assert_eq!((map.get(&probe), map.len()), (model.get(&probe), model.len()));
                if step % 500 == 0 {
                    copies.push((map.clone(), model.clone()));
                }
            }
            copies.push((map, model));
            for (map, model) in copies {
                assert!(map.iter().eq(model.iter()) && map.iter().rev().eq(model.iter().rev()));
                assert!(map.chunks.iter().all(|chunk| (1..=ENTRIES_MAX).contains(&chunk.len())));
                assert_eq!(map, model.into_iter().collect());
            }
        }
    }

    #[test]
    fn a_change_of_a_copy_leaves_most_of_it_shared() {
        let map: SharedMap<u64, u64> = (0..10_000).map(|key| (key, key)).collect();
        assert!(map.chunks.len() <= 10_000 / ENTRIES_MAX + 1, "ascending keys fill chunks");
        let mut changed = map.clone();
        changed.insert(5_000, 0);
        changed.remove(&77);
        let shared = map.chunks.iter().filter(|chunk| changed.chunks.iter().any(|other| Arc::ptr_eq(chunk, other)));
        assert_eq!(shared.count(), map.chunks.len() - 2);
    }
}
