//! The key filter: a Bloom filter whose bits for one key all lie in one line of 64 bytes, so that a look-up touches one
//! cache line. It may say "perhaps" for a key that is absent, never "no" for one that is present.
//!
//! ```text
//! line*   64 bytes each, at least one
//! probes  u8: bits set per key, 1..=14
//! ```
//!
//! With h = XXH3 of the full key and n lines: the line is `(h >> 32) * n >> 32`; the bits are successive 9-bit fields of
//! `h * MIX`, seven to a word, and then of that product times MIX again. The layout belongs to the table format: changing
//! any of this needs a new table version.

use super::checksum::xxh3_64;

const LINE_BYTES: usize = 64;
const LINE_BITS: usize = LINE_BYTES * 8;
const MIX: u64 = 0xd6e8_feb8_6659_fd93;
const FIELD_BITS: u32 = 9;
const FIELDS_PER_WORD: u32 = 7;
const PROBES_MAX: u32 = 2 * FIELDS_PER_WORD;

const _: () = assert!(1 << FIELD_BITS == LINE_BITS);

/// The hash of a key that the filter works with.
#[inline]
pub fn key_hash(full_key: &[u8]) -> u64 {
    xxh3_64(full_key)
}

/// A filter over keys with these hashes, `bits_per_key` bits for each (at least 1).
pub fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let lines = (hashes.len() * bits_per_key as usize).div_ceil(LINE_BITS).max(1);
    // Bits per key times ln 2 is best for plain Bloom filters; crowding into lines makes slightly fewer better.
    let probes = (bits_per_key * 2 / 3).clamp(1, PROBES_MAX);
    let mut filter = vec![0u8; lines * LINE_BYTES + 1];
    for &hash in hashes {
        let line = line_of(hash, lines) * LINE_BYTES;
        for bit in bits(hash, probes) {
            filter[line + bit / 8] |= 1 << (bit % 8);
        }
    }
    filter[lines * LINE_BYTES] = probes as u8;
    filter
}

/// The key may be among those the filter was built from; `None` if these bytes are no filter.
#[inline]
pub fn may_contain(filter: &[u8], hash: u64) -> Option<bool> {
    let (&probes, lines) = filter.split_last()?;
    let well_formed = !lines.is_empty() && lines.len().is_multiple_of(LINE_BYTES);
    if !well_formed || !(1..=PROBES_MAX).contains(&(probes as u32)) {
        return None;
    }
    let start = line_of(hash, lines.len() / LINE_BYTES) * LINE_BYTES;
    let line = &lines[start..start + LINE_BYTES];
    Some(bits(hash, probes as u32).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0))
}

#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    ((hash >> 32) as u128 * lines as u128 >> 32) as usize
}

#[inline]
fn bits(hash: u64, probes: u32) -> impl Iterator<Item = usize> {
    let first = hash.wrapping_mul(MIX);
    // The low bits of a product depend on few bits of the hash, so the fields are taken from the top.
    let field = |word: u64, index: u32| (word >> (64 - FIELD_BITS * (index + 1))) as usize % LINE_BITS;
    (0..probes).map(move |probe| match probe.checked_sub(FIELDS_PER_WORD) {
        None => field(first, probe),
        Some(rest) => field((first ^ first >> 32).wrapping_mul(MIX), rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hash(number: u64) -> u64 {
        key_hash(&number.to_be_bytes())
    }

    fn false_positive_rate(bits_per_key: u32) -> f64 {
        let present: Vec<u64> = (0..50_000).map(hash).collect();
        let filter = build(&present, bits_per_key);
        assert!(present.iter().all(|&hash| may_contain(&filter, hash) == Some(true)));
        let absent = 100_000..300_000u64;
        let wrong = absent
            .clone()
            .filter(|&number| may_contain(&filter, hash(number)) == Some(true))
            .count();
        wrong as f64 / absent.count() as f64
    }

    #[test]
    fn false_positives_are_as_rare_as_the_bits_promise() {
        let rates: Vec<f64> = [5, 10, 16, 20].map(false_positive_rate).to_vec();
        println!("false positive rates at 5, 10, 16, 20 bits per key: {rates:?}");
        assert!(rates[0] < 0.12 && rates[1] < 0.0125 && rates[2] < 0.0018 && rates[3] < 0.0007);
        assert!(rates[1] > 0.004, "better than theory allows: the test does not test");
    }

    #[test]
    fn the_bytes_of_a_filter_do_not_change() {
        let hashes: Vec<u64> = (0..100).map(hash).collect();
        let filter = build(&hashes, 10);
        assert_eq!(filter.len(), 2 * LINE_BYTES + 1);
        assert_eq!(filter[2 * LINE_BYTES], 6);
        assert_eq!(xxh3_64(&filter), STABLE_FILTER_XXH3);
    }

    /// Taken once from the code above; a difference means that old tables are misread.
    const STABLE_FILTER_XXH3: u64 = 11_640_736_968_485_874_604;

    proptest! {
        #[test]
        fn a_present_key_is_never_denied(
            keys in proptest::collection::vec(any::<u64>(), 0..300),
            bits_per_key in 1u32..40,
        ) {
            let hashes: Vec<u64> = keys.into_iter().map(hash).collect();
            let filter = build(&hashes, bits_per_key);
            prop_assert!(hashes.iter().all(|&hash| may_contain(&filter, hash) == Some(true)));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), hash in any::<u64>()) {
            let _ = may_contain(&bytes, hash);
        }
    }
}
