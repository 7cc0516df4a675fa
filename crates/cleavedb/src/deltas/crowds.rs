//! Which buckets hold many operands of one key, which a read of that key must apply. Bytes and extents do not show it: a hundred
//! thousand counters of one key are a small bucket with one extent. A flush counts the operands of each key that it adds;
//! the sums since a bucket was last rewritten make its upkeep due (`deltas/policy.rs`).

use std::collections::BTreeMap;

use super::policy::OPERANDS_MAX;

/// Counts operands in the order of keys.
#[derive(Debug, Default)]
pub struct CrowdCount {
    key: Vec<u8>,
    operands: usize,
    /// The most operands of one key, by the lower bound of its bucket; only of keys with many.
    crowds: Vec<(Vec<u8>, usize)>,
}

impl CrowdCount {
    /// Counts an operand of `key`, which goes to the bucket that begins at `lower`.
    pub fn note(&mut self, lower: &[u8], key: &[u8]) {
        if self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.operands = 0;
        }
        self.operands += 1;
        if self.operands <= OPERANDS_MAX {
            return;
        }
        match self.crowds.last_mut().filter(|(last, _)| last == lower) {
            Some((_, most)) => *most = self.operands.max(*most),
            None => self.crowds.push((lower.to_vec(), self.operands)),
        }
    }

    /// The buckets in which some key got more than [`OPERANDS_MAX`] operands, by lower bound, with the most of one key.
    pub fn finish(self) -> Vec<(Vec<u8>, usize)> {
        self.crowds
    }
}

/// The crowds of all buckets since each was last rewritten. Kept in memory only: after an open they are counted anew.
#[derive(Debug, Default)]
pub struct Crowds(BTreeMap<Vec<u8>, usize>);

impl Crowds {
    /// Adds the counts of a flush.
    pub fn add(&mut self, counted: Vec<(Vec<u8>, usize)>) {
        for (lower, operands) in counted {
            let sum = self.0.entry(lower).or_default();
            *sum = sum.saturating_add(operands);
        }
    }

    /// Upper bound on the operands of one key that came to a bucket in large numbers.
    pub fn of(&self, lower: &[u8]) -> usize {
        self.0.get(lower).copied().unwrap_or_default()
    }

    /// Forgets a bucket that was rewritten.
    pub fn remove(&mut self, lower: &[u8]) {
        self.0.remove(lower);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_operands_of_one_key_are_counted_by_bucket() {
        let mut count = CrowdCount::default();
        let mut note = |lower: &str, key: &str, times: usize| {
            (0..times).for_each(|_| count.note(lower.as_bytes(), key.as_bytes()));
        };
        note("a", "few", OPERANDS_MAX);
        note("a", "many", 200);
        note("a", "more", 300);
        note("a", "some", 100);
        note("n", "next", OPERANDS_MAX);
        note("p", "past", OPERANDS_MAX + 1);
        let counted = count.finish();
        assert_eq!(counted, [(b"a".to_vec(), 300), (b"p".to_vec(), OPERANDS_MAX + 1)]);
        let mut crowds = Crowds::default();
        crowds.add(counted);
        crowds.add(vec![(b"a".to_vec(), 50)]);
        assert_eq!([crowds.of(b"a"), crowds.of(b"n"), crowds.of(b"p")], [350, 0, OPERANDS_MAX + 1]);
        crowds.remove(b"a");
        assert_eq!(crowds.of(b"a"), 0);
    }
}
