//! The live records of a value file, as a list of their offsets: sorted, and packed as the differences between neighbours,
//! about two bytes for a record of 1 KiB.

use std::iter::Peekable;

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
        LiveRecords::packed(offsets.len(), offsets.into_iter())
    }

    /// The list of these offsets, which ascend.
    fn packed(about: usize, offsets: impl Iterator<Item = u64>) -> LiveRecords {
        let (mut differences, mut last, mut count) = (Vec::with_capacity(2 * about), 0, 0);
        for offset in offsets {
            varint::put(&mut differences, offset - last);
            (last, count) = (offset, count + 1);
        }
        LiveRecords { differences: differences.into_boxed_slice(), count }
    }

    /// With these records too, whose offsets ascend. O(n).
    pub fn with(&self, more: impl Iterator<Item = u64>) -> LiveRecords {
        let (mut ours, mut more) = (self.iter().peekable(), more.peekable());
        let next = || match (ours.peek(), more.peek()) {
            (Some(one), Some(other)) if one < other => ours.next(),
            (Some(one), Some(other)) if one == other => {
                more.next();
                ours.next()
            }
            (_, Some(_)) => more.next(),
            (_, None) => ours.next(),
        };
        LiveRecords::packed(self.count as usize, std::iter::from_fn(next))
    }

    /// Without these records, whose offsets ascend. O(n).
    pub fn without(&self, dead: impl Iterator<Item = u64>) -> LiveRecords {
        let mut dead = dead.peekable();
        let lives = |offset: &u64| !reaches(&mut dead, *offset);
        LiveRecords::packed(self.count as usize, self.iter().filter(lives))
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

/// True if `wanted` is among numbers that ascend; those before it are passed.
fn reaches(numbers: &mut Peekable<impl Iterator<Item = u64>>, wanted: u64) -> bool {
    while numbers.next_if(|number| *number < wanted).is_some() {}
    numbers.peek() == Some(&wanted)
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
    fn records_are_added_and_removed_whether_the_list_has_them_or_not() {
        let live = LiveRecords::of(vec![10, 20, 30]);
        let offsets = |live: LiveRecords| (live.count(), live.iter().collect::<Vec<_>>());
        assert_eq!(offsets(live.with([5, 20, 25, 40].into_iter())), (6, vec![5, 10, 20, 25, 30, 40]));
        assert_eq!(offsets(live.with([].into_iter())), (3, vec![10, 20, 30]));
        assert_eq!(offsets(LiveRecords::default().with([7].into_iter())), (1, vec![7]));
        assert_eq!(offsets(live.without([5, 10, 25, 30, 31].into_iter())), (1, vec![20]));
        assert_eq!(offsets(live.without([].into_iter())), (3, vec![10, 20, 30]));
        assert_eq!(offsets(live.without([10, 20, 30].into_iter())), (0, vec![]));
    }

    #[test]
    fn neighbours_of_a_kilobyte_take_two_bytes_each() {
        let live = LiveRecords::of((1..=1000).map(|number| number * 1047).collect());
        assert_eq!(live.bytes(), 2000);
    }
}
