//! The key of a record: eight bytes that determine its position in key order, then padding. A shorter key has all its bytes
//! for the position, so there are fewer of them.

use clap::ValueEnum;
use rand::{Rng as _, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::rng::{Rng, stream};
use crate::size::Lengths;

/// Bytes of the position.
const POSITION_BYTES: usize = 8;

/// The order of records by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
        if length < POSITION_BYTES {
            let position = match self.order {
                Order::Sequential => record,
                Order::Hashed => permuted(record, 8 * length as u32),
            };
            key.extend_from_slice(&position.to_be_bytes()[POSITION_BYTES - length..]);
            return;
        }
        key.extend_from_slice(&position.to_be_bytes());
        let mut rest = stream(record, 0x4B);
        while key.len() < length {
            key.extend_from_slice(&rest.next_u64().to_le_bytes());
        }
        key.truncate(length);
    }
}

/// The number of different keys of at least `shortest` bytes that records can have, if it is below 2^64.
pub fn keys_max(shortest: usize) -> Option<u64> {
    (shortest < POSITION_BYTES).then(|| 1 << (8 * shortest))
}

/// The image of `number`, which has at most `bits` bits, under a permutation of all such numbers. Each step can be undone:
/// a product with an odd number modulo 2^bits, and an exclusive or with its own upper bits.
fn permuted(number: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    [0x9E37_79B9_7F4A_7C15_u64, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB].iter().fold(number & mask, |hash, odd| {
        let product = hash.wrapping_mul(*odd) & mask;
        product ^ product >> (bits / 2)
    })
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
            let short = self::keys(order, Lengths::Uniform { low: 4, high: 9 });
            assert_eq!(short.iter().collect::<BTreeSet<_>>().len(), 2000);
        }
    }

    #[test]
    fn short_keys_are_all_there_are() {
        assert_eq!((0..1 << 16).map(|number| permuted(number, 16)).collect::<BTreeSet<_>>().len(), 1 << 16);
        assert_eq!((keys_max(4), keys_max(8)), (Some(1 << 32), None));
        let keys = keys(Order::Sequential, Lengths::Fixed(4));
        assert!(keys.is_sorted() && keys[1999] == 1999u32.to_be_bytes());
        let hashed = self::keys(Order::Hashed, Lengths::Fixed(4));
        let ascents = hashed.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((800..1200).contains(&ascents), "{ascents} of 1999 ascend");
    }

    #[test]
    fn sequential_keys_ascend_and_hashed_keys_do_not() {
        assert!(keys(Order::Sequential, Lengths::Fixed(16)).is_sorted());
        let hashed = keys(Order::Hashed, Lengths::Fixed(16));
        let ascents = hashed.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((800..1200).contains(&ascents), "{ascents} of 1999 ascend");
    }
}
