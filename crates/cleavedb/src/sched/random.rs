//! Seeded randomness: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA'14).
//! Eight bytes of state, passes BigCrush, and the same seed gives the same sequence everywhere, which is all that
//! simulation needs. Not for secrets.
//!
//! Called by the simulated scheduler and the simulated disk.

/// A seeded sequence of numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next number, uniform over all of `u64`.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number below `bound`; zero if `bound` is zero. The bias (below `bound` / 2^64) does not matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` calls on average; never if `n` is zero.
    pub fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.below(u64::from(n)) == 0
    }
}

/// Scrambles a word so that close inputs give unrelated outputs.
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_numbers_of_a_known_seed() {
        // The reference sequence of SplitMix64 for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        assert_eq!(numbers, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
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
