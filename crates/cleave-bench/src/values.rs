//! Values that can be checked when they are read. A value is one or ten fields; each begins with a checksum over its
//! key, its place and the rest of it, so that any mixture of writes of whole values and patches of single fields checks
//! out, and a value under the wrong key or a torn one does not.

use cleave_sim::rng::Rng;
use cleavedb::operators::FieldPatch;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::size::Lengths;

/// Values from here on have ten fields, as YCSB's do.
const TEN_FIELDS_BYTES_MIN: usize = 200;

/// Makes and checks values.
#[derive(Debug, Clone)]
pub struct Values {
    /// How long values are.
    pub lengths: Lengths,
    /// The part of each field that is zeros, of one.
    pub compressibility: f64,
}

impl Values {
    /// How long the values of `key` are.
    pub fn length(&self, key: &[u8]) -> usize {
        self.lengths.of(xxh3_64(key))
    }

    /// Writes a new value for `key` over what is in `value`.
    pub fn write(&self, key: &[u8], rng: &mut Rng, value: &mut Vec<u8>) {
        let identity = xxh3_64(key);
        value.resize(self.lengths.of(identity), 0);
        let field_bytes = field_bytes(value.len());
        for (number, field) in value.chunks_mut(field_bytes).enumerate() {
            self.fill(identity, number * field_bytes, rng, field);
        }
    }

    /// Overwrites one field of `value`, which is a value of `key`.
    pub fn change(&self, key: &[u8], rng: &mut Rng, value: &mut [u8]) {
        let field_bytes = field_bytes(value.len());
        let number = rng.below(value.len().div_ceil(field_bytes) as u64) as usize;
        if let Some(field) = value.chunks_mut(field_bytes).nth(number) {
            self.fill(xxh3_64(key), number * field_bytes, rng, field);
        }
    }

    /// Writes an operand for `field-patch` that overwrites one field of a value of `key`.
    pub fn operand(&self, key: &[u8], rng: &mut Rng, operand: &mut Vec<u8>) {
        let identity = xxh3_64(key);
        let length = self.lengths.of(identity);
        let field_bytes = field_bytes(length);
        let number = rng.below(length.div_ceil(field_bytes) as u64) as usize;
        let offset = number * field_bytes;
        let header = FieldPatch::operand(u32::try_from(offset).expect("values are shorter than 1 GiB"), &[]);
        operand.clear();
        operand.extend_from_slice(&header);
        operand.resize(header.len() + field_bytes.min(length - offset), 0);
        self.fill(identity, offset, rng, &mut operand[header.len()..]);
    }

    /// Whether `value` can be a value of `key`.
    pub fn check(&self, key: &[u8], value: &[u8]) -> bool {
        let identity = xxh3_64(key);
        let field_bytes = field_bytes(value.len());
        value.len() == self.lengths.of(identity)
            && value.chunks(field_bytes).enumerate().all(|(number, field)| {
                let (sum, rest) = field.split_at(sum_bytes(field.len()));
                checksum(identity, number * field_bytes, rest)[..sum.len()] == *sum
            })
    }

    fn fill(&self, identity: u64, offset: usize, rng: &mut Rng, field: &mut [u8]) {
        let length = field.len();
        let (sum, rest) = field.split_at_mut(sum_bytes(length));
        let random_bytes = rest.len() - ((length as f64 * self.compressibility) as usize).min(rest.len());
        let (random, zeros) = rest.split_at_mut(random_bytes);
        for bytes in random.chunks_mut(8) {
            bytes.copy_from_slice(&rng.next().to_le_bytes()[..bytes.len()]);
        }
        zeros.fill(0);
        sum.copy_from_slice(&checksum(identity, offset, rest)[..sum.len()]);
    }
}

fn field_bytes(value_bytes: usize) -> usize {
    match value_bytes >= TEN_FIELDS_BYTES_MIN {
        true => value_bytes.div_ceil(10),
        false => value_bytes.max(1),
    }
}

/// The checksum takes up to half of a field.
fn sum_bytes(field_bytes: usize) -> usize {
    (field_bytes / 2).min(8)
}

fn checksum(identity: u64, offset: usize, rest: &[u8]) -> [u8; 8] {
    xxh3_64_with_seed(rest, identity ^ offset as u64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use cleavedb::MergeOperator;

    use super::*;

    fn values(length: usize, compressibility: f64) -> Values {
        Values { lengths: Lengths::Fixed(length), compressibility }
    }

    #[test]
    fn values_check_out_under_their_own_key_only() {
        let mut rng = Rng::new(1);
        for length in [16, 46, 100, 199, 200, 1000, 1001, 4099] {
            let (values, mut value) = (values(length, 0.0), Vec::new());
            values.write(b"key", &mut rng, &mut value);
            assert_eq!(value.len(), length);
            assert!(values.check(b"key", &value), "length {length}");
            assert!(!values.check(b"yek", &value));
            assert!(!values.check(b"key", &value[1..]));
            value[length - 1] ^= 1;
            assert!(!values.check(b"key", &value));
        }
    }

    #[test]
    fn patched_and_changed_values_check_out() {
        let mut rng = Rng::new(2);
        for length in [1, 7, 100, 1000, 1003] {
            let (values, mut value, mut operand) = (values(length, 0.0), Vec::new(), Vec::new());
            values.write(b"key", &mut rng, &mut value);
            for _ in 0..50 {
                values.operand(b"key", &mut rng, &mut operand);
                value = FieldPatch.full_merge(b"key", Some(&value), &[&operand]).unwrap();
                values.change(b"key", &mut rng, &mut value);
                assert!(values.check(b"key", &value), "length {length}");
            }
        }
    }

    #[test]
    fn values_are_incompressible_unless_asked() {
        let zeros = |compressibility| {
            let mut value = Vec::new();
            values(1000, compressibility).write(b"key", &mut Rng::new(3), &mut value);
            value.iter().filter(|&&byte| byte == 0).count()
        };
        assert!(zeros(0.0) < 30);
        assert!((480..560).contains(&zeros(0.5)));
    }
}
