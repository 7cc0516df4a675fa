//! The only source of randomness in a simulated run: every draw is determined by the seed. The generator is SplitMix64 of
//! the crate `rand_xoshiro`: every 64-bit seed, 0 included, gives a good stream, and the stream of a seed is the published
//! one in every version of the crate.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Rng(SplitMix64);

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(SplitMix64::seed_from_u64(seed))
    }

    /// The stream of `seed` for `purpose`; streams of different purposes are independent.
    pub fn of(seed: u64, purpose: u64) -> Rng {
        let mut rng = Rng::new(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Rng::new(rng.next())
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // An endless stream is no iterator: it never returns an option.
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A number in `low..high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True with probability `1 / n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// A random position in `weights`, drawn in proportion to its weight.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut draw = self.below(weights.iter().map(|&weight| u64::from(weight)).sum());
        for (position, &weight) in weights.iter().enumerate() {
            match draw.checked_sub(u64::from(weight)) {
                Some(rest) => draw = rest,
                None => return position,
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_purpose_another() {
        let draw = |mut rng: Rng| (0..8).map(|_| rng.next()).collect::<Vec<_>>();
        assert_eq!(draw(Rng::of(7, 1)), draw(Rng::of(7, 1)));
        assert_ne!(draw(Rng::of(7, 1)), draw(Rng::of(7, 2)));
        assert_ne!(draw(Rng::of(7, 1)), draw(Rng::of(8, 1)));
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        let mut rng = Rng::new(3);
        assert!((0..1000).all(|_| rng.weighted(&[0, 5, 0, 1]) % 2 == 1));
    }
}
