//! Which files of values are emptied next, if any. A pure function of the ledger.

use crate::base::FileId;

/// A file of values as the choice sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number: the lower, the older.
    pub file: FileId,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Of these, bytes of records that something leads to.
    pub live: u64,
}

impl Candidate {
    fn garbage(&self) -> u64 {
        self.bytes.saturating_sub(self.live)
    }
}

/// How much garbage may lie around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// In hundredths of what is live (DESIGN section 4: 30).
    pub percent: u64,
    /// And so much more, in bytes.
    pub bytes: u64,
}

impl Allowance {
    /// In bytes, for so many that are live.
    pub fn of(self, live: u64) -> u64 {
        live / 100 * self.percent + self.bytes
    }
}

/// Emptying begins at this share of what is allowed, in hundredths, so that it is done before writers must wait.
const BEGIN_PERCENT: u64 = 75;

/// The files with the least that is live for their size (HashKV, section 3.3: greedy; of equal ones the oldest first), once
/// there is enough garbage in all files together: as many as fill a segment of `segment_bytes`, so that emptied files leave
/// few behind.
pub fn choose(candidates: &[Candidate], allowance: Allowance, segment_bytes: u64) -> Vec<FileId> {
    let live: u64 = candidates.iter().map(|candidate| candidate.live.min(candidate.bytes)).sum();
    let garbage: u64 = candidates.iter().map(Candidate::garbage).sum();
    if garbage <= allowance.of(live) / 100 * BEGIN_PERCENT {
        return Vec::new();
    }
    let share = |candidate: &Candidate| candidate.garbage() as u128 * (1 << 32) / candidate.bytes.max(1) as u128;
    let mut worth: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.garbage() > 0).collect();
    worth.sort_by_key(|candidate| (std::cmp::Reverse(share(candidate)), candidate.file));
    let (mut victims, mut moved) = (Vec::new(), 0);
    for candidate in worth {
        moved += candidate.live;
        if !victims.is_empty() && moved > segment_bytes {
            break;
        }
        victims.push(candidate.file);
    }
    victims
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(file: u64, bytes: u64, live: u64) -> Candidate {
        Candidate { file: FileId(file), bytes, live }
    }

    const ALLOWANCE: Allowance = Allowance { percent: 30, bytes: 1000 };

    #[test]
    fn nothing_is_emptied_while_little_is_dead() {
        assert!(choose(&[], ALLOWANCE, 1).is_empty());
        let little = [candidate(1, 10_000, 10_000), candidate(2, 10_000, 9_000)];
        assert!(choose(&little, ALLOWANCE, 1).is_empty());
        // Live bytes counted from above may exceed the file.
        assert!(choose(&[candidate(1, 10_000, 90_000)], ALLOWANCE, 1).is_empty());
        let live = [candidate(1, 10_000, 10_000); 3];
        assert!(choose(&live, Allowance { percent: 0, bytes: 0 }, 1).is_empty());
    }

    #[test]
    fn the_emptiest_goes_first_and_of_equals_the_oldest() {
        let all = [candidate(1, 10_000, 8_000), candidate(2, 20_000, 6_000), candidate(3, 10_000, 3_000)];
        assert_eq!(choose(&all, ALLOWANCE, 1), [FileId(2)]);
        assert_eq!(choose(&all[1..], ALLOWANCE, 1), [FileId(2)]);
    }

    #[test]
    fn as_many_go_together_as_fill_a_segment() {
        let all = [candidate(1, 10_000, 8_000), candidate(2, 20_000, 6_000), candidate(3, 10_000, 2_000)];
        assert_eq!(choose(&all, ALLOWANCE, 7_999), [FileId(3)]);
        assert_eq!(choose(&all, ALLOWANCE, 8_000), [FileId(3), FileId(2)]);
        assert_eq!(choose(&all, ALLOWANCE, 16_000), [FileId(3), FileId(2), FileId(1)]);
    }
}
