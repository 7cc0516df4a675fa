//! How long the scans of a keyspace usually are, so that the first fetch of a scan reads the values of as many keys at once
//! as most scans return. Otherwise a scan of 100 keys waits for the device nine times, because it only learns from its own
//! caller how far to read ahead (decision 024).
//!
//! The estimate is low on purpose: it follows shorter scans four times as fast as longer ones, and in proportion and not in
//! keys. So among scans of 10 and of 1000 in turn it is some 25, and among those of 1 to 100 some 20. A wrong estimate costs
//! reads of values that nobody asks for, or one more wait; a lost update costs nothing. Called by scans.

use std::sync::atomic::{AtomicU32, Ordering};

/// Parts of a doubling of the length in which the estimate is kept.
const PARTS: f32 = 4096.0;
/// Shares of the distance by which a shorter and a longer scan move the estimate.
const STEP_DOWN: f32 = 1.0 / 8.0;
const STEP_UP: f32 = 1.0 / 32.0;

/// A moving estimate of the lengths of scans.
#[derive(Debug, Default)]
pub(crate) struct ScanLengths {
    /// Binary logarithm of the length, in [`PARTS`]; at first that of one key.
    logarithm: AtomicU32,
}

impl ScanLengths {
    /// Notes the number of keys that a scan has returned when it ends.
    pub fn note(&self, keys: usize) {
        let length = (keys.max(1) as f32).log2() * PARTS;
        let before = self.logarithm.load(Ordering::Relaxed) as f32;
        let step = if length < before { STEP_DOWN } else { STEP_UP };
        self.logarithm.store((before + (length - before) * step).round() as u32, Ordering::Relaxed);
    }

    /// The number of keys that most scans return at least.
    pub fn usual(&self) -> usize {
        (self.logarithm.load(Ordering::Relaxed) as f32 / PARTS).exp2().round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(lengths: impl Iterator<Item = usize>) -> usize {
        let estimate = ScanLengths::default();
        lengths.for_each(|keys| estimate.note(keys));
        estimate.usual()
    }

    #[test]
    fn the_estimate_is_the_length_of_scans_of_one_length_and_low_among_others() {
        for (name, lengths, expected) in [
            ("no scan", &[][..], 1..=1),
            ("empty scans", &[0], 1..=1),
            ("one length", &[100], 95..=100),
            ("longest", &[usize::MAX], 1 << 40..=usize::MAX),
            ("short and long", &[10, 1000], 15..=40),
            ("mostly short", &[3, 3, 3, 3000], 3..=8),
        ] {
            let found = after(lengths.iter().copied().cycle().take(1000 * lengths.len()));
            assert!(expected.contains(&found), "{name}: {found}");
        }
        let mixed = after((0..1000).map(|turn| 1 + turn * 37 % 100));
        assert!((12..=30).contains(&mixed), "{mixed}");
    }

    #[test]
    fn the_estimate_falls_sooner_than_it_rises() {
        let estimate = ScanLengths::default();
        let scans_until = |keys: usize, holds: &dyn Fn(usize) -> bool| {
            let mut counts = 1..1000;
            let is_last = |_: &i32| {
                estimate.note(keys);
                holds(estimate.usual())
            };
            counts.find(is_last).unwrap()
        };
        assert!((40..80).contains(&scans_until(100, &|usual| usual > 50)));
        assert!((80..130).contains(&scans_until(100, &|usual| usual > 97)));
        assert!((5..20).contains(&scans_until(2, &|usual| usual < 5)));
    }
}
