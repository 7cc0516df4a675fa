//! Values that can be verified when they are read. A value has one or ten fields, or fields of a chosen size; each field begins with a checksum of the
//! key, its offset and its other bytes. So any sequence of whole writes and patches of single fields verifies, but a torn
//! value or one of another key does not.

use cleavedb::operators::Patches;
use rand::{Rng as _, RngExt};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::plan::Shape;
use crate::rng::Rng;

/// Values of at least this size have ten fields, as in YCSB.
const TEN_FIELDS_BYTES_MIN: usize = 200;

/// Generates and verifies values.
#[derive(Debug, Clone)]
pub struct Values {
    /// The fraction of each field that is zeros.
    pub compressibility: f64,
    /// Bytes of a field, of which the last one of a value may have fewer. None: one or ten fields, by the size of the value.
    pub field_bytes: Option<usize>,
}

impl Values {
    /// The values that the options describe.
    pub fn of(shape: &Shape) -> Values {
        Values { compressibility: shape.compressibility, field_bytes: shape.field_size.map(|bytes| bytes as usize) }
    }

    /// Replaces the content of `value` with a new value of `length` bytes for `key`.
    pub fn write(&self, key: &[u8], length: usize, rng: &mut Rng, value: &mut Vec<u8>) {
        let identity = xxh3_64(key);
        value.resize(length, 0);
        let field_bytes = self.field_bytes(length);
        for (number, field) in value.chunks_mut(field_bytes).enumerate() {
            self.fill(identity, number * field_bytes, rng, field);
        }
    }

    /// Overwrites one field of `value`, which is a value of `key`.
    pub fn change(&self, key: &[u8], rng: &mut Rng, value: &mut [u8]) {
        let field_bytes = self.field_bytes(value.len());
        let number = rng.random_range(0..value.len().div_ceil(field_bytes) as u64) as usize;
        if let Some(field) = value.chunks_mut(field_bytes).nth(number) {
            self.fill(xxh3_64(key), number * field_bytes, rng, field);
        }
    }

    /// Writes an operand for `patches` that overwrites one field of a value of `key`, which is `length` bytes long.
    pub fn operand(&self, key: &[u8], length: usize, rng: &mut Rng, operand: &mut Vec<u8>) {
        let field_bytes = self.field_bytes(length);
        let offset = rng.random_range(0..length.div_ceil(field_bytes) as u64) as usize * field_bytes;
        operand.clear();
        operand.resize(field_bytes.min(length - offset), 0);
        self.fill(xxh3_64(key), offset, rng, operand);
        *operand = Patches::operand(u32::try_from(offset).expect("values are shorter than 1 GiB"), operand);
    }

    /// Writes an operand for `patches` that creates a value of `length` bytes for `key`.
    pub fn first_operand(&self, key: &[u8], length: usize, rng: &mut Rng, operand: &mut Vec<u8>) {
        let mut value = Vec::new();
        self.write(key, length, rng, &mut value);
        *operand = Patches::operand(0, &value);
    }

    /// Whether the checksums of `value` are those of a value of `key`; the caller checks its length.
    pub fn check(&self, key: &[u8], value: &[u8]) -> bool {
        let (identity, field_bytes) = (xxh3_64(key), self.field_bytes(value.len()));
        value.chunks(field_bytes).enumerate().all(|(number, field)| {
            let (sum, rest) = field.split_at(sum_bytes(field.len()));
            checksum(identity, number * field_bytes, rest)[..sum.len()] == *sum
        })
    }

    fn field_bytes(&self, value_bytes: usize) -> usize {
        match self.field_bytes {
            Some(bytes) => bytes.clamp(1, value_bytes.max(1)),
            None if value_bytes >= TEN_FIELDS_BYTES_MIN => value_bytes.div_ceil(10),
            None => value_bytes.max(1),
        }
    }

    fn fill(&self, identity: u64, offset: usize, rng: &mut Rng, field: &mut [u8]) {
        let length = field.len();
        let (sum, rest) = field.split_at_mut(sum_bytes(length));
        let random_bytes = rest.len() - ((length as f64 * self.compressibility) as usize).min(rest.len());
        let (random, zeros) = rest.split_at_mut(random_bytes);
        for bytes in random.chunks_mut(8) {
            bytes.copy_from_slice(&rng.next_u64().to_le_bytes()[..bytes.len()]);
        }
        zeros.fill(0);
        sum.copy_from_slice(&checksum(identity, offset, rest)[..sum.len()]);
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
    use rand::SeedableRng;

    use super::*;

    const VALUES: Values = Values { compressibility: 0.0, field_bytes: None };

    #[test]
    fn values_check_out_under_their_own_key_only() {
        let mut rng = Rng::seed_from_u64(1);
        for length in [16, 46, 100, 199, 200, 1000, 1001, 4099] {
            let mut value = Vec::new();
            VALUES.write(b"key", length, &mut rng, &mut value);
            assert_eq!(value.len(), length);
            assert!(VALUES.check(b"key", &value), "length {length}");
            assert!(!VALUES.check(b"yek", &value));
            assert!(!VALUES.check(b"key", &value[1..]));
            value[length - 1] ^= 1;
            assert!(!VALUES.check(b"key", &value));
        }
    }

    #[test]
    fn patched_and_changed_values_check_out() {
        let mut rng = Rng::seed_from_u64(2);
        for length in [1, 7, 100, 1000, 1003] {
            let (mut operand, mut value) = (Vec::new(), Vec::new());
            VALUES.first_operand(b"key", length, &mut rng, &mut operand);
            value.extend_from_slice(&Patches.full_merge(b"key", None, &[&operand]).unwrap());
            assert_eq!(value.len(), length);
            for _ in 0..50 {
                VALUES.operand(b"key", length, &mut rng, &mut operand);
                value = Patches.full_merge(b"key", Some(&value), &[&operand]).unwrap();
                VALUES.change(b"key", &mut rng, &mut value);
                assert!(VALUES.check(b"key", &value), "length {length}");
            }
        }
    }

    #[test]
    fn operands_and_changes_have_the_chosen_size_of_a_field() {
        let mut rng = Rng::seed_from_u64(4);
        for (field_bytes, length) in [(25, 8000), (800, 8000), (1, 10), (3, 100), (300, 100)] {
            let values = Values { field_bytes: Some(field_bytes), ..VALUES };
            let (mut operand, mut value) = (Vec::new(), Vec::new());
            values.write(b"key", length, &mut rng, &mut value);
            let whole = Patches::operand(0, &vec![0; field_bytes.min(length)]).len();
            for _ in 0..50 {
                values.operand(b"key", length, &mut rng, &mut operand);
                assert!(operand.len() <= whole && (operand.len() == whole || length % field_bytes > 0));
                value = Patches.full_merge(b"key", Some(&value), &[&operand]).unwrap();
                values.change(b"key", &mut rng, &mut value);
                assert!(values.check(b"key", &value) && value.len() == length, "fields of {field_bytes} B");
            }
        }
    }

    #[test]
    fn values_are_incompressible_unless_asked() {
        let zeros = |compressibility| {
            let mut value = Vec::new();
            Values { compressibility, ..VALUES }.write(b"key", 1000, &mut Rng::seed_from_u64(3), &mut value);
            value.iter().filter(|&&byte| byte == 0).count()
        };
        assert!(zeros(0.0) < 30);
        assert!((480..560).contains(&zeros(0.5)));
    }
}
