//! The key of a record: eight bytes that decide its place, then bytes that only make it longer.

use rand::{Rng as _, SeedableRng};

use crate::rng::{Rng, stream};
use crate::size::Lengths;

/// The shortest key: every record has one of its own.
pub const KEY_BYTES_MIN: usize = 8;

/// How records lie in key order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By number.
    Sequential,
    /// As by chance, so that a load in the order of numbers is a load in random order.
    Hashed,
}

/// Makes keys.
#[derive(Debug, Clone)]
pub struct Keys {
    /// How records lie in key order.
    pub order: Order,
    /// How long keys are.
    pub lengths: Lengths,
}

impl Keys {
    /// Writes the key of `record` over what is in `key`.
    pub fn write(&self, record: u64, key: &mut Vec<u8>) {
        let place = match self.order {
            Order::Sequential => record,
            Order::Hashed => Rng::seed_from_u64(record).next_u64(), // One to one: no two records share a place.
        };
        let length = self.lengths.of(record);
        key.clear();
        key.extend_from_slice(&place.to_be_bytes());
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
    fn every_record_has_a_key_of_its_own_and_of_the_length_asked() {
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
