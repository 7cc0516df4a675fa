//! The key of a record: eight bytes that determine its position in key order, then padding.

use rand::{Rng as _, SeedableRng};

use crate::rng::{Rng, stream};
use crate::size::Lengths;

/// The order of records by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By record number.
    Sequential,
    /// Pseudo-random, so that a load by record number writes keys in random order.
    Hashed,
}

/// Makes keys.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The order of records by key.
    pub order: Order,
    /// The lengths of keys.
    pub lengths: Lengths,
}

impl Keys {
    /// Replaces the content of `key` with the key of `record`.
    pub fn write(&self, record: u64, key: &mut Vec<u8>) {
        let position = match self.order {
            Order::Sequential => record,
            Order::Hashed => Rng::seed_from_u64(record).next_u64(), // One-to-one, so no two records share a key.
        };
        let length = self.lengths.of(record);
        key.clear();
        key.extend_from_slice(&position.to_be_bytes());
        let mut rest = stream(record, 0x4B);
        while key.len() < length {
            key.extend_from_slice(&rest.next_u64().to_le_bytes());
        }
        key.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(order: Order, lengths: Lengths) -> Vec<Vec<u8>> {
        let (keys, mut key) = (Keys { order, lengths }, Vec::new());
        let mut key_of = |record| {
            keys.write(record, &mut key);
            key.clone()
        };
        (0..2000).map(&mut key_of).collect()
    }

    #[test]
    fn every_record_has_a_distinct_key_of_the_requested_length() {
        for order in [Order::Sequential, Order::Hashed] {
            let keys = keys(order, Lengths::Fixed(24));
            assert!(keys.iter().all(|key| key.len() == 24));
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 2000);
        }
    }

    #[test]
    fn sequential_keys_ascend_and_hashed_keys_do_not() {
        assert!(keys(Order::Sequential, Lengths::Fixed(16)).is_sorted());
        let hashed = keys(Order::Hashed, Lengths::Fixed(16));
        let ascents = hashed.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((800..1200).contains(&ascents), "{ascents} of 1999 ascend");
    }
}
