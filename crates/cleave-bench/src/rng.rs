//! Streams of random numbers: SplitMix64 of the crate `rand_xoshiro`. The stream of a seed is the published one in every
//! version of the crate, so a seed gives the same records and operations everywhere. No two seeds give the same first
//! number.

use rand::{Rng as _, SeedableRng};

/// A stream of random numbers.
pub type Rng = rand_xoshiro::SplitMix64;

/// The stream of `seed` for `purpose`; streams of different purposes are independent.
pub fn stream(seed: u64, purpose: u64) -> Rng {
    let mut rng = Rng::seed_from_u64(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
    Rng::seed_from_u64(rng.next_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_purpose_another() {
        let draw = |mut rng: Rng| (0..8).map(|_| rng.next_u64()).collect::<Vec<_>>();
        assert_eq!(draw(stream(7, 1)), draw(stream(7, 1)));
        assert_ne!(draw(stream(7, 1)), draw(stream(7, 2)));
        assert_ne!(draw(stream(7, 1)), draw(stream(8, 1)));
    }

    #[test]
    fn a_seed_gives_the_published_stream() {
        let mut rng = Rng::seed_from_u64(1_234_567);
        assert_eq!([rng.next_u64(), rng.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
