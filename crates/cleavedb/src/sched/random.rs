//! Seeded random numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA'14) of the crate `rand_xoshiro`, whose sequence for a
//! seed is the published one in every version, so that a seed reproduces a run. Not for cryptography.
//!
//! Called by the simulated scheduler and the simulated disk, and where value GC samples its victims.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded sequence of numbers.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    /// The next number, uniform over all of `u64`.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; zero if `bound` is zero. The bias (below `bound` / 2^64) does not matter here.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }
}

/// For tests and simulation only.
#[cfg(any(test, feature = "testing"))]
impl Random {
    /// True once in `n` calls on average; never if `n` is zero.
    pub fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.below(u64::from(n)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_is_the_published_one() {
        // The reference sequence of SplitMix64 for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        assert_eq!(numbers, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn below_stays_within_its_bound_and_reaches_every_value() {
        let mut random = Random::new(3);
        let mut seen = [0_u32; 7];
        for _ in 0..1000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 80), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert!(!random.one_in(0));
    }
}
