//! The larger load of the tour: synthetic records in random order, enough to seal index tables, merge runs and fill levels.

use std::time::Instant;

use cleavedb::Db;

use super::guide::{Guide, check, rate};
use crate::failure::Result;
use crate::progress;
use crate::transfer::batches::Batches;

const VALUE_BYTES: usize = 150;
/// One in this many records is read back and compared.
const SAMPLE: u64 = 50;

/// Writes `count` records and reads a sample of them back.
pub fn show(db: &Db, count: u64, guide: &mut Guide<'_>) -> Result<()> {
    guide.step("Load: synthetic records in random order")?;
    let keyspace = db.keyspace("load")?;
    let bar = progress::records("writing", count);
    let start = Instant::now();
    let mut batches = Batches::new(db, &keyspace);
    for number in 0..count {
        let (key, value) = record(number);
        batches.put(&key, &value)?;
        if number % 1024 == 0 {
            bar.set_position(number);
        }
    }
    batches.write()?;
    bar.finish_and_clear();
    guide.say(&rate(count, "puts", start.elapsed()))?;

    let start = Instant::now();
    let numbers = (0..count).step_by(SAMPLE as usize);
    let gets = count.div_ceil(SAMPLE);
    for number in numbers {
        let (key, value) = record(number);
        let found = keyspace.get(&key)?;
        check(found.as_deref() == Some(&value[..]), || {
            format!("record {number} of the load has a different value than was put")
        })?;
    }
    guide.say(&format!("read back: {}, all equal", rate(gets, "gets", start.elapsed())))?;

    let start = Instant::now();
    let (mut scanned, mut previous) = (0, Vec::new());
    for found in keyspace.iter()? {
        let (key, _) = found?;
        check(previous[..] < key[..], || "the scan of the load is out of order".to_owned())?;
        previous.clear();
        previous.extend_from_slice(&key);
        scanned += 1;
    }
    check(scanned == count, || format!("the scan of the load returned {scanned} of {count} records"))?;
    guide.say(&format!("scanned: {}", rate(scanned, "records", start.elapsed())))
}

/// Key and value of a record. `mix` is one-to-one, so the keys are distinct; their order is random.
fn record(number: u64) -> (Vec<u8>, Vec<u8>) {
    let key = format!("user{:016x}", mix(number)).into_bytes();
    let words = (0..VALUE_BYTES.div_ceil(8) as u64).flat_map(|word| mix(number ^ (word << 40)).to_le_bytes());
    (key, words.take(VALUE_BYTES).collect())
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_load_are_distinct_and_in_random_order() {
        let mut keys: Vec<_> = (0..10_000).map(|number| record(number).0).collect();
        assert!(!keys.is_sorted());
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 10_000);
        assert_eq!(record(7).1.len(), VALUE_BYTES);
    }
}
