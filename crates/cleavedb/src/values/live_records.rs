//! The live records of a value file, as a list of their offsets: sorted, and packed as the differences between neighbours,
//! about two bytes for a record of 1 KiB.

use crate::base::varint;

/// The offsets of the live records of a value file. A record that has died since the list was made is still in it, so what
/// it leaves out is dead for ever: no record becomes live again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveRecords {
    /// Varints.
    differences: Box<[u8]>,
    count: u64,
}

impl LiveRecords {
    /// The list of these offsets, in any order; the same one counts once. O(n log n).
    pub fn of(mut offsets: Vec<u64>) -> LiveRecords {
        offsets.sort_unstable();
        offsets.dedup();
        let (mut differences, mut last) = (Vec::with_capacity(2 * offsets.len()), 0);
        for offset in &offsets {
            varint::put(&mut differences, offset - last);
            last = *offset;
        }
        LiveRecords { differences: differences.into_boxed_slice(), count: offsets.len() as u64 }
    }

    /// The offsets, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let (mut rest, mut last) = (&self.differences[..], 0);
        std::iter::from_fn(move || {
            last += varint::take(&mut rest)?;
            Some(last)
        })
    }

    /// How many they are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.differences.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::random::Random;

    #[test]
    fn offsets_come_back_in_order_and_once() {
        let mut random = Random::new(5);
        for count in [0, 1, 2, 1000] {
            let offsets: Vec<u64> = (0..count).map(|bits| random.below(2 << (bits % 40))).collect();
            let live = LiveRecords::of(offsets.clone());
            let mut wanted = offsets;
            wanted.sort_unstable();
            wanted.dedup();
            assert_eq!(live.iter().collect::<Vec<_>>(), wanted);
            assert_eq!(live.count(), wanted.len() as u64);
        }
    }

    #[test]
    fn neighbours_of_a_kilobyte_take_two_bytes_each() {
        let live = LiveRecords::of((1..=1000).map(|number| number * 1047).collect());
        assert_eq!(live.bytes(), 2000);
    }
}
