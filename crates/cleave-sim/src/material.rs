//! Keys and values derived from small numbers, so that an operation is a few words of data that can be printed, shrunk and
//! replayed. There are few keys, so that they are overwritten, and they cover the cases that byte order could get wrong.

use std::fmt;

use crate::rng::Rng;

/// Number of keys; the last one has the maximum length.
pub const KEYS: u16 = 96;

/// The key with this number.
pub fn key(number: u16) -> Vec<u8> {
    let number = number % KEYS;
    let id = number.to_be_bytes();
    match (number, number % 12) {
        (0, _) => vec![0],
        (1, _) => vec![0xff],
        (2, _) => vec![0xff; 5],
        (95, _) => vec![b'w'; 65_535],
        (_, 3) => [&[0, 0][..], &id].concat(),
        (_, 4) => [&[0xff, 0xff][..], &id].concat(),
        // Each of these is a prefix of the next one.
        (_, 5) => vec![b'p'; 1 + usize::from(number) / 12],
        (_, 6) => [&[b'l'; 300][..], &id].concat(),
        (_, 7) => [&[b'm'; 1500][..], &id].concat(),
        _ => format!("user/{number:05}/name").into_bytes(),
    }
}

/// A value as data: these two numbers determine its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// Determines the bytes; values with an odd seed do not compress.
    pub seed: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Value {
    /// A value of a length drawn from the mix: empty, small, around the separation threshold, several KiB, rarely 100 KiB.
    pub fn draw(rng: &mut Rng) -> Value {
        let len = match rng.weighted(&[6, 50, 20, 20, 1]) {
            0 => 0,
            1 => rng.between(1, 64),
            2 => rng.between(185, 200),
            3 => rng.between(1000, 9000),
            _ => rng.between(90_000, 110_000),
        };
        Value { seed: rng.next() as u32, len: len as u32 }
    }

    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        let mut rng = Rng::of(u64::from(self.seed), 0x7661_6c75);
        let mut bytes = Vec::with_capacity(self.len as usize + 8);
        let word = rng.next();
        while bytes.len() < self.len as usize {
            let word = if self.seed % 2 == 1 { rng.next() } else { word };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(self.len as usize);
        bytes
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B#{:x}", self.len, self.seed)
    }
}

/// Bytes in a form short enough for a message.
pub fn brief(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=40 => format!("\"{}\"", bytes.escape_ascii()),
        len => format!("\"{}...\" ({len} B, sum {:08x})", bytes[..24].escape_ascii(), sum(bytes)),
    }
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_within_the_limits() {
        let keys: std::collections::BTreeSet<_> = (0..KEYS).map(key).collect();
        assert_eq!(keys.len(), usize::from(KEYS));
        assert!(keys.iter().all(|key| (1..=65_535).contains(&key.len())));
        assert!(keys.iter().any(|key| key.len() == 65_535));
    }

    #[test]
    fn a_value_has_the_length_it_names() {
        for (seed, len) in [(0, 0), (1, 1), (2, 191), (3, 100_001)] {
            assert_eq!(Value { seed, len }.bytes().len(), len as usize);
        }
    }
}
