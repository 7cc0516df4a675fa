//! The key filter: a blocked Bloom filter. All bits of a key lie in one line of 64 bytes, so a lookup touches one cache
//! line. False positives are possible, false negatives are not.
//!
//! ```text
//! line*   64 bytes each, at least one
//! probes  u8: bits set per key, 1..=14
//! ```
//!
//! With h = XXH3 of the full key and n lines: the line is `(h >> 32) * n >> 32`; the bits are successive 9-bit fields
//! of `h * MIX`, seven to a word, and then of that product times MIX again. The layout is part of the table format:
//! changing it requires a new table version.
//!
//! Built by the table builder and by runs; asked by every point read.

use super::checksum::xxh3_64;

const LINE_BYTES: usize = 64;
const LINE_BITS: usize = LINE_BYTES * 8;
const MIX: u64 = 0xd6e8_feb8_6659_fd93;
const FIELD_BITS: u32 = 9;
const FIELDS_PER_WORD: u32 = 7;
const PROBES_MAX: u32 = 2 * FIELDS_PER_WORD;

const _: () = assert!(1 << FIELD_BITS == LINE_BITS);

/// Collects keys for a filter; uses eight bytes of memory per key.
pub struct FilterBuilder {
    bits_per_key: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// A builder for a filter with `bits_per_key` bits for each key (at least 1).
    pub fn new(bits_per_key: u32) -> FilterBuilder {
        FilterBuilder { bits_per_key: bits_per_key.max(1), hashes: Vec::new() }
    }

    /// Adds a full key; a key that equals the previous one is counted once.
    #[inline]
    pub fn add(&mut self, full_key: &[u8]) {
        let hash = xxh3_64(full_key);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Adds all keys of `other`, which are greater than those of this builder.
    pub fn append(&mut self, other: FilterBuilder) {
        match self.hashes.is_empty() {
            true => self.hashes = other.hashes,
            false => self.hashes.extend(other.hashes),
        }
    }

    /// Number of keys added since the last [`finish`](FilterBuilder::finish).
    pub fn keys(&self) -> usize {
        self.hashes.len()
    }

    /// The size in bytes of the filter that [`finish`](FilterBuilder::finish) would return now.
    pub fn size_estimate(&self) -> usize {
        self.lines() * LINE_BYTES + 1
    }

    fn lines(&self) -> usize {
        (self.hashes.len() * self.bits_per_key as usize).div_ceil(LINE_BITS).max(1)
    }

    /// Returns the bytes of the filter and empties the builder.
    pub fn finish(&mut self) -> Vec<u8> {
        let lines = self.lines();
        // Bits per key times ln 2 is the optimum of plain Bloom filters; with one line per key slightly fewer are
        // better.
        let probes = (self.bits_per_key.saturating_mul(2) / 3).clamp(1, PROBES_MAX);
        let mut filter = vec![0u8; lines * LINE_BYTES + 1];
        for hash in self.hashes.drain(..) {
            let line = line_of(hash, lines) * LINE_BYTES;
            for bit in bits(hash, probes) {
                filter[line + bit / 8] |= 1 << (bit % 8);
            }
        }
        filter[lines * LINE_BYTES] = probes as u8;
        filter
    }

    /// Returns the filter for use in memory.
    pub fn finish_filter(mut self) -> Filter {
        Filter { bytes: self.finish() }
    }
}

/// A filter in memory.
#[derive(Debug)]
pub struct Filter {
    bytes: Vec<u8>,
}

impl Filter {
    /// False if the key is certainly not among those that the filter was built from.
    #[inline]
    pub fn may_contain(&self, full_key: &[u8]) -> bool {
        may_contain(&self.bytes, full_key).expect("a builder returns well-formed filters")
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// False if the key is certainly not among those that `filter` was built from; `None` if `filter` is malformed.
#[inline]
pub fn may_contain(filter: &[u8], full_key: &[u8]) -> Option<bool> {
    let (&probes, lines) = filter.split_last()?;
    let well_formed = !lines.is_empty() && lines.len().is_multiple_of(LINE_BYTES);
    if !well_formed || !(1..=PROBES_MAX).contains(&(probes as u32)) {
        return None;
    }
    let hash = xxh3_64(full_key);
    let start = line_of(hash, lines.len() / LINE_BYTES) * LINE_BYTES;
    let line = &lines[start..start + LINE_BYTES];
    Some(bits(hash, probes as u32).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0))
}

#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) as u128 * lines as u128) >> 32) as usize
}

#[inline]
fn bits(hash: u64, probes: u32) -> impl Iterator<Item = usize> {
    let first = hash.wrapping_mul(MIX);
    // The low bits of a product depend on few bits of the hash, so the fields start at the highest bits.
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

    fn filter_over(numbers: impl Iterator<Item = u64>, bits_per_key: u32) -> Vec<u8> {
        let mut builder = FilterBuilder::new(bits_per_key);
        numbers.for_each(|number| builder.add(&number.to_be_bytes()));
        let estimate = builder.size_estimate();
        let filter = builder.finish();
        assert_eq!((filter.len(), builder.keys()), (estimate, 0));
        filter
    }

    fn has(filter: &[u8], number: u64) -> bool {
        may_contain(filter, &number.to_be_bytes()).unwrap()
    }

    fn false_positive_rate(bits_per_key: u32) -> f64 {
        let filter = filter_over(0..50_000, bits_per_key);
        assert!((0..50_000).all(|number| has(&filter, number)));
        let absent = 100_000..300_000u64;
        absent.clone().filter(|&number| has(&filter, number)).count() as f64 / absent.count() as f64
    }

    #[test]
    fn the_false_positive_rate_falls_with_bits_per_key() {
        let rates: Vec<f64> = [5, 10, 16, 20].map(false_positive_rate).to_vec();
        println!("false positive rates at 5, 10, 16, 20 bits per key: {rates:?}");
        assert!(rates[0] < 0.12 && rates[1] < 0.0125 && rates[2] < 0.0018 && rates[3] < 0.0007);
        assert!(rates[1] > 0.004, "the rate is below the theoretical minimum, so the test is wrong");
    }

    #[test]
    fn the_bytes_of_a_filter_do_not_change() {
        let filter = filter_over(0..100, 10);
        assert_eq!(filter.len(), 2 * LINE_BYTES + 1);
        assert_eq!(filter[2 * LINE_BYTES], 6);
        let filter_of_two_words = filter_over(0..100, 20);
        assert_eq!(filter_of_two_words[4 * LINE_BYTES], 13);
        assert_eq!((xxh3_64(&filter), xxh3_64(&filter_of_two_words)), STABLE_FILTERS_XXH3);
    }

    /// Computed once with the code above; a difference means that old tables are misread.
    const STABLE_FILTERS_XXH3: (u64, u64) = (11_640_736_968_485_874_604, 14_299_202_662_383_231_424);

    proptest! {
        #[test]
        fn there_are_no_false_negatives(
            keys in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..300),
            bits_per_key in 0u32..40,
        ) {
            let mut builder = FilterBuilder::new(bits_per_key);
            keys.iter().for_each(|key| builder.add(key));
            let filter = builder.finish_filter();
            prop_assert!(keys.iter().all(|key| filter.may_contain(key)));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = may_contain(&bytes, b"key");
        }
    }
}
