//! Which bucket an operand goes to, and what becomes of a bucket when it is full: pure functions of figures.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use super::directory::{Bucket, Directory};
use crate::base::KeyspaceId;
use crate::base::key::prefix_end;
use crate::base::limits::KEYSPACE_PREFIX_BYTES;
use crate::format::interval::separator;

/// The buckets that the first operands of a key range make are cut at this part of the size of a full one, in percent, so that
/// they do not split soon (KDSep, section III).
const FIRST_FILL_PERCENT: u64 = 5;
/// Of a bucket that stays over its size, at least one in this many bytes must be new before it is rewritten.
const NEW_ONE_IN: u64 = 4;
/// A job rewrites at most this many times the size of a full bucket, so that flushes wait for it only shortly.
const JOB_BUCKETS: u64 = 16;
/// From this pressure on the upkeep of a bucket goes before flushes and compactions, as long as the front has room.
const URGENT_AT: u64 = 2;
/// From this pressure on it does so in any case, and writers into the bucket wait...
const OVERGROWN_AT: u64 = 4;
/// ...twice as long for each one more, up to 2 to this power times.
const DOUBLINGS_MAX: u64 = 3;
/// A key with more operands than this that cannot be combined is folded when its bucket is rewritten.
pub const OPERANDS_MAX: usize = 32;
/// A bucket is rewritten once more operands of one key than this have come to it, however small it is: a read of the key applies
/// all of them.
pub const CROWD_MAX: usize = 1024;

/// How large buckets become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketSizes {
    /// A bucket is rewritten once it has this many bytes of keys and operands.
    pub bytes_max: u64,
    /// No bucket is split beyond this number of buckets.
    pub buckets_max: usize,
    /// A bucket is rewritten once it has this many extents, each of which a read may have to visit.
    pub extents_max: usize,
    /// A bucket that is fuller than this percentage of `bytes_max` after it was rewritten is split. `None`: buckets are neither split
    /// nor joined.
    pub split_percent: Option<u32>,
}

impl BucketSizes {
    /// By how much its upkeep is behind a bucket with this many extents that got `bytes_newer` since it was last rewritten:
    /// how many times it was due for either.
    fn pressure(&self, extents: usize, bytes_newer: u64) -> u64 {
        let by_extents = (extents / self.extents_max.max(2)) as u64;
        by_extents.max(bytes_newer / self.bytes_max.max(1))
    }

    /// Upkeep of a bucket like this goes before flushes and compactions.
    pub fn is_urgent(&self, (extents, bytes_newer): (usize, u64), front_has_room: bool) -> bool {
        let pressure = self.pressure(extents, bytes_newer);
        pressure >= OVERGROWN_AT || pressure >= URGENT_AT && front_has_room
    }

    fn first_bytes(&self) -> u64 {
        self.bytes_max * FIRST_FILL_PERCENT / 100
    }

    /// None if buckets are never split.
    fn split_bytes(&self) -> Option<u64> {
        self.split_percent.map(|percent| self.bytes_max * u64::from(percent) / 100)
    }

    /// A bucket that is rewritten is cut before the next key: it has `part` bytes by now, half of what makes a split, and with
    /// the `rest` to come it might have more than that.
    pub fn cuts(&self, part: u64, rest: u64) -> bool {
        self.split_bytes().is_some_and(|split| part > 0 && part >= split / 2 && part + rest > split)
    }

    /// Whether one of `count` buckets may be split.
    fn may_split(&self, count: usize) -> bool {
        self.split_percent.is_some() && count < self.buckets_max
    }
}

/// What the upkeep of a bucket depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketFigures {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// How many extents it has.
    pub extents: usize,
    /// Bytes of keys and operands.
    pub bytes: u64,
    /// Of these, bytes that came since it was last rewritten.
    pub bytes_newer: u64,
    /// Its keyspace was dropped.
    pub is_dropped: bool,
    /// It has operands, its keyspace wants them in the levels, and folding it may help.
    pub leaves: bool,
    /// Writers do not wait for room, so that keys can be folded.
    pub may_fold: bool,
    /// It cannot be read.
    pub is_blocked: bool,
    /// It has an extent in a segment of which little is used.
    pub is_in_sparse_segment: bool,
    /// In idle time: tombstones that came since it was last rewritten may cover some of it.
    pub is_under_tombstones: bool,
    /// Upper bound on the operands of one key that came in large numbers since it was last rewritten (`deltas/crowds.rs`).
    pub crowd: usize,
}

/// What is to be done with neighbouring buckets, given as a range of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upkeep {
    /// Remove them with all that they hold.
    Remove(Range<usize>),
    /// Rewrite them into one, without covered operands and with the others merged; split where that is too much.
    Rewrite(Range<usize>),
    /// First write the values of their keys as new bases.
    Fold(Range<usize>),
}

impl Upkeep {
    /// The buckets.
    pub fn buckets(&self) -> Range<usize> {
        match self {
            Upkeep::Remove(buckets) | Upkeep::Rewrite(buckets) | Upkeep::Fold(buckets) => buckets.clone(),
        }
    }
}

/// The upkeep for one job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chosen {
    /// In the order of keys. Empty if nothing is due.
    pub upkeep: Vec<Upkeep>,
    /// The bucket at which the next job goes on, if this one took some in turn.
    pub next: Option<usize>,
}

/// Rewrites for one job of buckets that hold anything, from the first of these on; its number is `first`.
pub fn rewrites(buckets: &[Arc<Bucket>], first: usize, sizes: BucketSizes) -> Vec<Upkeep> {
    let mut bytes = 0;
    let holding = buckets.iter().zip(first..).filter(|(bucket, _)| !bucket.extents.is_empty());
    let fitting = holding.take_while(|(bucket, _)| {
        bytes += bucket.bytes();
        bytes == bucket.bytes() || bytes <= sizes.bytes_max * JOB_BUCKETS
    });
    fitting.map(|(_, index)| Upkeep::Rewrite(index..index + 1)).collect()
}

/// The upkeep for one job, in two ways: the buckets that are behind, most urgent first, then all others in turn from the bucket
/// `from` on. So no bucket waits for ever for those before it. O(buckets, and the sort of those that are due).
pub fn choose(buckets: &[BucketFigures], from: usize, sizes: BucketSizes) -> Chosen {
    let (mut upkeep, mut next, count) = (Vec::new(), None, buckets.len());
    let mut due = Vec::new();
    for (index, bucket) in buckets.iter().enumerate() {
        match upkeep_of(index, bucket, count, sizes) {
            // All buckets of a keyspace leave at once, which costs nothing.
            Some(remove @ Upkeep::Remove(_)) => upkeep.push(remove),
            Some(other) => {
                let pressure = Some(sizes.pressure(bucket.extents, bucket.bytes_newer)).filter(|it| *it >= URGENT_AT);
                due.push((Reverse(pressure), (index + count - from.min(count)) % count, other));
            }
            None => {}
        }
    }
    due.sort_unstable_by_key(|(pressure, turn, _)| (*pressure, *turn));
    let (mut bytes, mut wants_split) = (0, false);
    for (pressure, _, of_one) in due {
        let at = of_one.buckets().start;
        bytes += buckets[at].bytes;
        if bytes > buckets[at].bytes && bytes > sizes.bytes_max * JOB_BUCKETS {
            break;
        }
        wants_split |= matches!(of_one, Upkeep::Fold(_)) && !buckets[at].leaves;
        next = pressure.0.map_or(Some(at + 1), |_| next);
        upkeep.push(of_one);
    }
    if let Some(split_bytes) = sizes.split_bytes().filter(|_| wants_split) {
        let mut is_taken = vec![false; count];
        upkeep.iter().flat_map(Upkeep::buckets).for_each(|at| is_taken[at] = true);
        let pairs = (0..count.saturating_sub(1)).filter(|at| !is_taken[*at] && !is_taken[at + 1]);
        let joined = |at: &usize| buckets[*at].bytes + buckets[at + 1].bytes;
        let fits = |at: &usize| {
            let (left, right) = (&buckets[*at], &buckets[at + 1]);
            left.keyspace == right.keyspace && !left.is_blocked && !right.is_blocked
        };
        let smallest = pairs.filter(fits).min_by_key(joined).filter(|at| joined(at) <= split_bytes / 2);
        upkeep.extend(smallest.map(|at| Upkeep::Rewrite(at..at + 2)));
    }
    upkeep.sort_unstable_by_key(|upkeep| upkeep.buckets().start);
    Chosen { upkeep, next }
}

fn upkeep_of(index: usize, bucket: &BucketFigures, count: usize, sizes: BucketSizes) -> Option<Upkeep> {
    let buckets = index..index + 1;
    if bucket.is_dropped {
        return Some(Upkeep::Remove(buckets));
    }
    if bucket.is_blocked {
        return None;
    }
    if bucket.leaves && bucket.may_fold {
        return Some(Upkeep::Fold(buckets));
    }
    let is_over = bucket.bytes >= sizes.bytes_max;
    let has_new = bucket.bytes_newer.saturating_mul(NEW_ONE_IN) >= sizes.bytes_max;
    let is_full = bucket.extents >= sizes.extents_max.max(2) || bucket.extents >= 2 && is_over && has_new;
    match is_full {
        true if is_over && !sizes.may_split(count) && bucket.may_fold => Some(Upkeep::Fold(buckets)),
        true => Some(Upkeep::Rewrite(buckets)),
        false => {
            let is_due = bucket.is_in_sparse_segment || bucket.is_under_tombstones || bucket.crowd > CROWD_MAX;
            is_due.then_some(Upkeep::Rewrite(buckets))
        }
    }
}

/// How long a write into a bucket waits, in units of the shortest wait, if the bucket has this many extents, and got
/// `bytes_newer` since it was last rewritten: its upkeep cannot follow. 0 in an ordinary bucket.
pub fn wait_units((extents, bytes_newer): (usize, u64), sizes: BucketSizes) -> u32 {
    let over = sizes.pressure(extents, bytes_newer).checked_sub(OVERGROWN_AT);
    over.map_or(0, |over| 1 << over.min(DOUBLINGS_MAX))
}

/// Assigns the operands of a flush, in the order of their keys, to buckets. A bucket without any is cut into several.
pub struct Filling<'a> {
    directory: &'a Directory,
    sizes: BucketSizes,
    count: usize,
    now: Option<Filled>,
}

/// The bucket that is being filled.
struct Filled {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// The last key and the bytes so far; only counted in a bucket that had none.
    last: Vec<u8>,
    bytes: u64,
    was_empty: bool,
}

impl<'a> Filling<'a> {
    /// Begins with the first key.
    pub fn new(directory: &'a Directory, sizes: BucketSizes) -> Filling<'a> {
        Filling { directory, sizes, count: directory.buckets().len(), now: None }
    }

    /// The lower bound of the bucket for a full key at or after the last one, with an operand of `bytes`.
    pub fn bucket_of(&mut self, key: &[u8], bytes: u64) -> &[u8] {
        let stays = |now: &Filled| now.upper.as_ref().is_none_or(|upper| key < &upper[..]);
        let now = match self.now.take().filter(stays) {
            Some(now) if now.was_empty && now.bytes >= self.sizes.first_bytes() && self.may_cut(&now, key) => {
                self.count += 1;
                let bound = separator(&now.last, key).unwrap_or(key);
                Filled { lower: bound.to_vec(), bytes: 0, ..now }
            }
            Some(now) => now,
            None => self.begin(key),
        };
        let now = self.now.insert(now);
        if now.was_empty {
            now.last.clear();
            now.last.extend_from_slice(key);
            now.bytes += key.len() as u64 + bytes;
        }
        &now.lower
    }

    /// All versions of a key go to one bucket.
    fn may_cut(&self, now: &Filled, key: &[u8]) -> bool {
        self.count < self.sizes.buckets_max && now.last != key
    }

    fn begin(&mut self, key: &[u8]) -> Filled {
        match self.directory.find(key) {
            Some(bucket) => Filled {
                lower: bucket.lower.clone(),
                upper: bucket.upper.clone(),
                last: Vec::new(),
                bytes: 0,
                was_empty: bucket.extents.is_empty(),
            },
            // The first bucket of a keyspace begins with it.
            None => {
                self.count += 1;
                let prefix = &key[..KEYSPACE_PREFIX_BYTES.min(key.len())];
                let (lower, upper) = (prefix.to_vec(), prefix_end(prefix));
                Filled { lower, upper, last: Vec::new(), bytes: 0, was_empty: true }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::full_key;

    const SIZES: BucketSizes = BucketSizes { bytes_max: 1000, buckets_max: 4, extents_max: 3, split_percent: Some(80) };

    const SIZES_OF_MANY: BucketSizes = BucketSizes { buckets_max: 100, ..SIZES };

    fn bucket() -> BucketFigures {
        BucketFigures {
            keyspace: KeyspaceId(1),
            extents: 1,
            bytes: 100,
            bytes_newer: 0,
            is_dropped: false,
            leaves: false,
            may_fold: true,
            is_blocked: false,
            is_in_sparse_segment: false,
            is_under_tombstones: false,
            crowd: 0,
        }
    }

    fn chosen(buckets: &[BucketFigures], sizes: BucketSizes) -> Vec<Upkeep> {
        choose(buckets, 0, sizes).upkeep
    }

    #[test]
    fn urgent_buckets_come_first_and_the_others_in_turn() {
        // Each takes half of a job.
        let half = SIZES.bytes_max * JOB_BUCKETS / 2;
        let due = BucketFigures { bytes: half, extents: 3, ..bucket() };
        let due_all = BucketFigures { bytes: half, bytes_newer: 1999, extents: 5, ..bucket() };
        let behind = BucketFigures { extents: 6, ..due };
        let far_behind = BucketFigures { bytes_newer: 7000, ..due };
        let idle = bucket();
        let cases = [
            // Buckets, where the turn begins, the two that are chosen, where it goes on.
            ([due, due, due, due, due], 0, [0, 1], Some(2)),
            ([due, due, due, due, due], 2, [2, 3], Some(4)),
            ([due, due, due, due, due], 4, [4, 0], Some(1)),
            ([due, due, due, due, due], 5, [0, 1], Some(2)),
            ([due, due_all, idle, idle, due], 3, [4, 0], Some(1)),
            ([due, due, due, behind, due], 0, [3, 0], Some(1)),
            ([due, behind, due, behind, far_behind], 0, [4, 1], None),
            ([behind, behind, due, behind, far_behind], 3, [4, 3], None),
            ([idle, due, due, idle, behind], 2, [4, 2], Some(3)),
        ];
        for (buckets, from, mut expected, next) in cases {
            expected.sort_unstable();
            let expected = expected.map(|at| Upkeep::Rewrite(at..at + 1)).to_vec();
            assert_eq!(choose(&buckets, from, SIZES_OF_MANY), Chosen { upkeep: expected, next }, "{buckets:?} {from}");
        }
        assert_eq!(choose(&[], 7, SIZES), Chosen::default());
        // Each is served once in a while, whatever the others get.
        let all = vec![due; 40];
        let (mut from, mut served) = (0, BTreeSet::new());
        for _ in 0..20 {
            let chosen = choose(&all, from, SIZES_OF_MANY);
            served.extend(chosen.upkeep.iter().map(|upkeep| upkeep.buckets().start));
            from = chosen.next.unwrap();
        }
        assert_eq!(served.len(), 40);
    }

    #[test]
    fn the_upkeep_of_buckets_follows_from_their_figures() {
        let one = || 0..1;
        let over = BucketFigures { extents: 2, bytes: 1200, bytes_newer: 250, ..bucket() };
        let leaves = BucketFigures { leaves: true, ..bucket() };
        let cases = [
            (bucket(), vec![]),
            (BucketFigures { extents: 3, ..bucket() }, vec![Upkeep::Rewrite(one())]),
            (over, vec![Upkeep::Rewrite(one())]),
            // Little of it is new.
            (BucketFigures { bytes_newer: 249, ..over }, vec![]),
            // It was just rewritten.
            (BucketFigures { extents: 1, ..over }, vec![]),
            (leaves, vec![Upkeep::Fold(one())]),
            (BucketFigures { may_fold: false, ..leaves }, vec![]),
            (BucketFigures { is_blocked: true, extents: 9, ..leaves }, vec![]),
            (BucketFigures { is_blocked: true, is_dropped: true, ..bucket() }, vec![Upkeep::Remove(one())]),
            (BucketFigures { is_in_sparse_segment: true, ..bucket() }, vec![Upkeep::Rewrite(one())]),
            (BucketFigures { is_under_tombstones: true, ..bucket() }, vec![Upkeep::Rewrite(one())]),
            (BucketFigures { is_under_tombstones: true, is_blocked: true, ..bucket() }, vec![]),
            (BucketFigures { crowd: CROWD_MAX, ..bucket() }, vec![]),
            (BucketFigures { crowd: CROWD_MAX + 1, ..bucket() }, vec![Upkeep::Rewrite(one())]),
            (BucketFigures { crowd: CROWD_MAX + 1, is_blocked: true, ..bucket() }, vec![]),
        ];
        for (figures, upkeep) in cases {
            assert_eq!(chosen(&[figures], SIZES), upkeep, "{figures:?}");
        }
        // Where no bucket can be split, the full one is folded, and the smallest neighbours are joined.
        let (small, other) = (bucket(), BucketFigures { keyspace: KeyspaceId(2), bytes: 1, ..bucket() });
        assert_eq!(chosen(&[small, small, over, other], SIZES), [Upkeep::Rewrite(0..2), Upkeep::Fold(2..3)]);
        assert_eq!(chosen(&[small, other, over, small], SIZES), [Upkeep::Fold(2..3)]);
        let calm = BucketFigures { may_fold: false, ..over };
        assert_eq!(chosen(&[small, small, calm, other], SIZES), [Upkeep::Rewrite(2..3)]);
        let dropped = BucketFigures { bytes: 9000, is_dropped: true, ..bucket() };
        assert_eq!(chosen(&[dropped, dropped], SIZES), [Upkeep::Remove(0..1), Upkeep::Remove(1..2)]);
        // Without splits the full one is folded at once, and nothing is joined.
        let whole = BucketSizes { buckets_max: 9, split_percent: None, ..SIZES };
        assert_eq!(chosen(&[small, small, over], whole), [Upkeep::Fold(2..3)]);
        assert_eq!(chosen(&[small, small, over], BucketSizes { buckets_max: 9, ..SIZES }), [Upkeep::Rewrite(2..3)]);
        // A job is small, but has something to do.
        let large = BucketFigures { bytes: 9000, extents: 3, ..bucket() };
        assert_eq!(chosen(&[large, large, large], SIZES), [Upkeep::Rewrite(0..1)]);
    }

    #[test]
    fn writers_wait_for_a_bucket_that_its_upkeep_cannot_follow() {
        for (bytes_newer, units) in
            [(0, 0), (3999, 0), (4000, 1), (4999, 1), (5000, 2), (6500, 4), (7000, 8), (90_000, 8)]
        {
            assert_eq!(wait_units((1, bytes_newer), SIZES), units, "{bytes_newer}");
        }
        // Each extent is one more that a read may have to visit.
        for (extents, units) in [(3, 0), (11, 0), (12, 1), (14, 1), (15, 2), (20, 4), (90, 8)] {
            assert_eq!(wait_units((extents, 0), SIZES), units, "{extents}");
        }
        assert_eq!(wait_units((15, 4000), SIZES), 2);
    }

    #[test]
    fn upkeep_goes_first_once_it_is_behind_and_the_front_has_room_or_once_it_is_far_behind() {
        let cases = [
            ((5, 0), (false, false)),
            ((6, 0), (true, false)),
            ((11, 1999), (true, false)),
            ((12, 0), (true, true)),
            ((1, 2000), (true, false)),
            ((1, 4000), (true, true)),
        ];
        for (figures, (with_room, without)) in cases {
            let urgent = (SIZES.is_urgent(figures, true), SIZES.is_urgent(figures, false));
            assert_eq!(urgent, (with_room, without), "{figures:?}");
        }
    }

    #[test]
    fn a_rewritten_bucket_is_cut_once_it_is_half_full_and_too_much_comes() {
        assert!(SIZES.cuts(400, 401));
        assert!(!SIZES.cuts(400, 400));
        assert!(!SIZES.cuts(399, 9000));
        let (early, never) = (Some(10), None);
        assert!(BucketSizes { split_percent: early, ..SIZES }.cuts(50, 51));
        assert!(!BucketSizes { split_percent: never, ..SIZES }.cuts(400, 9000));
    }

    #[test]
    fn the_first_buckets_are_cut_early_and_never_within_a_key() {
        let directory = Directory::default();
        let mut filling = Filling::new(&directory, SIZES);
        let keys = ["a", "b", "b", "c", "d", "e", "f", "g"];
        let lowers = keys.map(|key| filling.bucket_of(&full_key(KeyspaceId(1), key.as_bytes()), 45).to_vec());
        let user: Vec<&[u8]> = lowers.iter().map(|lower| &lower[4..]).collect();
        assert_eq!(user, [&b""[..], b"b", b"b", b"c", b"d", b"d", b"d", b"d"]);
        let other = filling.bucket_of(&full_key(KeyspaceId(2), b"x"), 45).to_vec();
        assert_eq!(other, KeyspaceId(2).prefix(), "a keyspace has a bucket of its own");
    }
}
