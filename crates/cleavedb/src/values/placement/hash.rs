//! Placement by the hash of the key (HashKV section 3): the values of a group lie together, so a job that has read the
//! whole group knows the newest version of each key without asking the tables. Groups are split as they grow and merged
//! as they shrink (extendible hashing); the present extents define which groups exist.
//!
//! New values are in logs, whatever their group. Collecting a log adds an extent to each group; the hot extents of a
//! group, or the cold ones, are collected together. The log or unit of extents with the most garbage goes first.

use std::collections::{BTreeMap, BTreeSet};

use super::{Candidate, Placement, PlacementContext, Survivor, VictimPolicy};
use crate::base::FileId;
use crate::format::group::{DEPTH_MAX, Group, HashGroup};
use crate::sched::random::Random;

/// Number of groups is at most about this, whatever the amount of data; otherwise each collected log would add tiny
/// extents. A job then writes extents of about an eighth of what it moves.
const GROUPS_MAX: u64 = 8;
/// Of a larger unit, the files collected together hold at most this many times the live bytes of a segment.
pub(super) const UNIT_SEGMENTS: u64 = 4;

/// Groups, and the units that are collected together.
pub struct HashPlacement {
    /// Files with this many live bytes are collected together.
    pub segment_bytes: u64,
    /// Target size of a group in bytes; larger if there is much data.
    pub group_bytes: u64,
    /// Which unit is collected first.
    pub policy: VictimPolicy,
    /// Whether hot and cold values are separated.
    pub hot_cold: bool,
}

/// Files that are collected together: a single log, or the extents of a group with the same temperature.
#[derive(Default)]
pub(super) struct Unit<'a> {
    pub files: Vec<&'a Candidate>,
}

impl Unit<'_> {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub fn live(&self) -> u64 {
        self.files.iter().map(|file| file.live_bytes()).sum()
    }

    fn garbage(&self) -> u64 {
        self.files.iter().map(|file| file.garbage()).sum()
    }

    fn group(&self) -> Option<HashGroup> {
        self.files.first()?.part.as_ref()?.0.as_hash()
    }

    /// The share of garbage, scaled by 2^32.
    pub fn garbage_share(&self) -> u128 {
        (u128::from(self.garbage()) << 32) / u128::from(self.bytes().max(1))
    }

    /// The files with the largest shares of garbage that together hold at most `live_max` live bytes, but at least one.
    pub fn with_most_garbage(&self, live_max: u64) -> Vec<&Candidate> {
        let mut files = self.files.clone();
        let share = |file: &Candidate| (u128::from(file.garbage()) << 32) / u128::from(file.bytes.max(1));
        files.sort_by_key(|file| (std::cmp::Reverse(share(file)), file.file));
        let mut live = 0;
        let fits = files.iter().take_while(|file| {
            live += file.live_bytes();
            live <= live_max
        });
        let count = fits.count().max(1);
        files.truncate(count);
        files
    }

    fn newest(&self) -> FileId {
        self.files.iter().map(|file| file.file).max().unwrap_or_default()
    }
}

impl HashPlacement {
    /// Target size of a group if there are `live` live bytes in all.
    fn group_bytes(&self, live: u64) -> u64 {
        self.group_bytes.max(live / GROUPS_MAX).max(1)
    }

    /// The units with garbage, best first.
    fn ranked<'a>(&self, candidates: &'a [Candidate]) -> Vec<Unit<'a>> {
        let mut units = BTreeMap::<_, Unit<'a>>::new();
        for candidate in candidates {
            let key = match &candidate.part {
                None => (Some(candidate.file), None),
                Some(part) => (None, Some(part)),
            };
            units.entry(key).or_default().files.push(candidate);
        }
        rank(units.into_values().collect(), self.policy)
    }
}

/// The units with garbage, best first.
pub(super) fn rank(mut units: Vec<Unit<'_>>, policy: VictimPolicy) -> Vec<Unit<'_>> {
    units.retain(|unit| unit.garbage() > 0);
    let oldest = |unit: &Unit<'_>| unit.files.iter().map(|file| file.file).min();
    units.sort_by_key(|unit| (std::cmp::Reverse(unit.garbage_share()), oldest(unit)));
    match policy {
        VictimPolicy::Greedy => {}
        VictimPolicy::CostBenefit => {
            let now = units.iter().map(|unit| unit.newest().0).max().unwrap_or_default();
            // Divided by the bytes read and written (LFS: 1 + u).
            let score = |unit: &Unit<'_>| {
                let age = u128::from(now - unit.newest().0 + 1);
                (u128::from(unit.garbage()) << 32) * age / u128::from((unit.bytes() + unit.live()).max(1))
            };
            units.sort_by_key(|unit| std::cmp::Reverse(score(unit)));
        }
        VictimPolicy::GreedyRandom(among) => {
            // The same files give the same draws, so repeating the choice does not change it.
            let seed = units.iter().map(Unit::live).fold(units.len() as u64, u64::wrapping_add);
            let mut random = Random::new(seed);
            let among = units.len().min(among as usize).max(1);
            units.drain(..random.below(among as u64) as usize);
        }
    }
    units
}

impl Placement for HashPlacement {
    fn victims(&self, candidates: &[Candidate]) -> Vec<FileId> {
        let live = candidates.iter().map(|candidate| candidate.live_bytes()).sum();
        let group_bytes = self.group_bytes(live);
        let in_group = |group: HashGroup| candidates.iter().filter(move |file| file.hash_group() == Some(group));
        let live_in = |group: HashGroup| in_group(group).map(|file| file.live_bytes()).sum::<u64>();
        let (mut victims, mut moved) = (BTreeSet::new(), 0);
        let (job_bytes, mut share_min) = (UNIT_SEGMENTS * self.segment_bytes, 0);
        for unit in self.ranked(candidates) {
            moved += unit.live();
            // Files collected together share the cost of finding live records; but a unit with little garbage waits for
            // more.
            let waits = moved > self.segment_bytes && unit.garbage_share() < share_min || moved > job_bytes;
            if !victims.is_empty() && waits {
                break;
            }
            share_min = share_min.max(unit.garbage_share() / 2);
            let taken = unit.with_most_garbage(job_bytes);
            let is_whole = taken.len() == unit.files.len();
            victims.extend(taken.into_iter().map(|file| file.file));
            let Some(group) = unit.group().filter(|_| is_whole) else { continue };
            // Splitting and merging take all of a group.
            let own = live_in(group);
            if own > group_bytes.saturating_mul(2) && own <= UNIT_SEGMENTS * self.segment_bytes {
                victims.extend(in_group(group).map(|file| file.file));
            }
            if let Some(sibling) = group.sibling().filter(|sibling| own + live_in(*sibling) < group_bytes / 2) {
                victims.extend(in_group(group).chain(in_group(sibling)).map(|file| file.file));
            }
        }
        victims.into_iter().collect()
    }

    fn groups(&self, survivors: &[Survivor<'_>], context: &PlacementContext) -> Vec<(Group, usize)> {
        let live =
            context.bytes_in_groups() + context.in_logs + survivors.iter().map(|survivor| survivor.bytes).sum::<u64>();
        let mut groups = Vec::new();
        let existing = context.groups.keys().filter_map(Group::as_hash).collect();
        let division = Division { groups: existing, in_logs: context.in_logs, group_bytes: self.group_bytes(live) };
        divide(HashGroup::ALL, survivors, &division, &mut groups);
        groups
    }

    fn separates_cold(&self) -> bool {
        self.hot_cold
    }
}

/// Parameters of the division of records into groups.
struct Division {
    /// The existing groups.
    groups: BTreeSet<HashGroup>,
    /// Live bytes in logs.
    in_logs: u64,
    /// Target size of a group in bytes.
    group_bytes: u64,
}

/// Divides the records of group `node`, sorted by hash, into the existing groups, and by size where there is none.
fn divide(node: HashGroup, records: &[Survivor<'_>], division: &Division, out: &mut Vec<(Group, usize)>) {
    if records.is_empty() {
        return;
    }
    let divided = division.groups.iter().any(|group| node.covers(*group) && *group != node);
    let covering = (0..=node.depth()).rev().map(|depth| HashGroup::of(node.first_hash(), depth));
    let covering = covering.into_iter().find(|group| division.groups.contains(group));
    let bytes: u64 = records.iter().map(|record| record.bytes).sum();
    let too_large = covering.is_none() && bytes + (division.in_logs >> node.depth()) > division.group_bytes;
    match node.halves() {
        Some(halves) if divided || too_large => {
            let middle = records.partition_point(|record| halves[0].holds(record.order));
            divide(halves[0], &records[..middle], division, out);
            divide(halves[1], &records[middle..], division, out);
        }
        _ => out.push((Group::Hash(covering.unwrap_or(node)), records.len())),
    }
    const { assert!(DEPTH_MAX < 64) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::values::Temperature;

    fn hash(segment_bytes: u64) -> HashPlacement {
        HashPlacement { segment_bytes, group_bytes: segment_bytes, policy: VictimPolicy::Greedy, hot_cold: true }
    }

    fn log(file: u64, bytes: u64, live: u64) -> Candidate {
        Candidate { file: FileId(file), bytes, live, part: None }
    }

    fn extent(file: u64, bytes: u64, live: u64, group: HashGroup, temperature: Temperature) -> Candidate {
        Candidate { part: Some((Group::Hash(group), temperature)), ..log(file, bytes, live) }
    }

    fn ids(numbers: &[u64]) -> Vec<FileId> {
        numbers.iter().map(|number| FileId(*number)).collect()
    }

    #[test]
    fn nothing_is_collected_without_garbage() {
        assert!(hash(1).victims(&[]).is_empty());
        // The upper bound on live bytes may exceed the length of the file.
        assert!(hash(1).victims(&[log(1, 10_000, 90_000)]).is_empty());
        assert!(hash(1).victims(&vec![log(1, 10_000, 10_000); 3]).is_empty());
    }

    #[test]
    fn files_with_most_garbage_go_first_until_their_live_bytes_fill_a_segment_or_several() {
        let all = [log(1, 10_000, 8_000), log(2, 20_000, 6_000), log(3, 10_000, 2_000)];
        assert_eq!(hash(1_999).victims(&all), ids(&[3]));
        assert_eq!(hash(2_000).victims(&all), ids(&[2, 3]));
        assert_eq!(hash(15_999).victims(&all), ids(&[2, 3]));
        assert_eq!(hash(16_000).victims(&all), ids(&[1, 2, 3]));
    }

    #[test]
    fn extents_of_a_group_with_the_same_temperature_are_collected_together() {
        let [one, other] = HashGroup::ALL.halves().unwrap();
        let all = [
            extent(1, 10_000, 5_000, one, Temperature::Hot),
            extent(2, 10_000, 9_000, one, Temperature::Cold),
            extent(3, 10_000, 2_000, one, Temperature::Hot),
            extent(4, 10_000, 8_000, other, Temperature::Hot),
        ];
        assert_eq!(hash(10_000).victims(&all), ids(&[1, 3]));
    }

    #[test]
    fn an_oversized_group_is_collected_whole_and_small_siblings_together() {
        let [one, other] = HashGroup::ALL.halves().unwrap();
        let all = [
            extent(1, 10_000, 5_000, one, Temperature::Hot),
            extent(2, 10_000, 9_000, one, Temperature::Cold),
            extent(3, 10_000, 2_000, other, Temperature::Cold),
        ];
        assert_eq!(hash(5_000).victims(&all[..2]), ids(&[1, 2]));
        // Of a very large group only a part, the files with most garbage first.
        assert_eq!(hash(1_000).victims(&all[..2]), ids(&[1]));
        let large = [(1, 9_000), (2, 4_000), (3, 100), (4, 3_000)]
            .map(|(id, live)| extent(id, 10_000, live, one, Temperature::Hot));
        assert_eq!(hash(1_000).victims(&large), ids(&[3, 4]));
        assert_eq!(hash(40_000).victims(&all), ids(&[1, 2, 3]));
    }

    #[test]
    fn policies_choose_different_victims() {
        let all: Vec<Candidate> = (1..=40).map(|file| log(file, 10_000, file * 200)).collect();
        let first = |policy| HashPlacement { policy, ..hash(1) }.victims(&all)[0].0;
        assert_eq!(first(VictimPolicy::Greedy), 1);
        // Old and half empty beats new and emptier.
        let two = [log(1, 10_000, 5_000), log(90, 10_000, 4_000)];
        let policy = VictimPolicy::CostBenefit;
        assert_eq!(HashPlacement { policy, ..hash(1) }.victims(&two), ids(&[1]));
        assert_eq!(hash(1).victims(&two), ids(&[90]));
        // Among the best 1, the best 8, and all.
        let drawn = |among, more: u64| {
            let mut all = all.clone();
            all[0].live += more;
            HashPlacement { policy: VictimPolicy::GreedyRandom(among), ..hash(1) }.victims(&all)[0].0
        };
        let draws = |among| (0..200).map(|more| drawn(among, more)).collect::<BTreeSet<_>>();
        assert_eq!(draws(1), BTreeSet::from([1]));
        assert_eq!(draws(8), (1..=8).collect());
        assert!(draws(1_000_000).len() > 30, "{:?}", draws(1_000_000));
    }

    fn survivors(count: u64) -> Vec<Survivor<'static>> {
        let step = u64::MAX / count;
        (0..count).map(|number| Survivor { order: number * step, key: &[], bytes: 100 }).collect()
    }

    /// The group of each record.
    fn groups(count: u64, context: &PlacementContext) -> Vec<HashGroup> {
        let groups = hash(1_000).groups(&survivors(count), context).into_iter();
        groups.flat_map(|(group, records)| std::iter::repeat_n(group.as_hash().unwrap(), records)).collect()
    }

    fn with(groups: &[HashGroup]) -> PlacementContext {
        PlacementContext {
            groups: groups.iter().map(|group| (Group::Hash(*group), 0)).collect(),
            ..PlacementContext::default()
        }
    }

    #[test]
    fn groups_are_halved_until_each_is_small_enough() {
        let depths = |count, in_logs| -> BTreeSet<u8> {
            let context = PlacementContext { in_logs, ..PlacementContext::default() };
            let groups = groups(count, &context);
            assert_eq!(groups.len() as u64, count);
            assert!(groups.iter().zip(survivors(count)).all(|(group, record)| group.holds(record.order)));
            groups.iter().map(|group| group.depth()).collect()
        };
        assert_eq!(depths(10, 0), BTreeSet::from([0]));
        assert_eq!(depths(11, 0), BTreeSet::from([1]));
        assert_eq!(depths(36, 0), BTreeSet::from([2]));
        // Values still in logs will be moved into the groups, too.
        assert_eq!(depths(10, 6_000), BTreeSet::from([3]));
        // The number of groups is bounded, whatever the amount of data.
        assert_eq!(depths(10_000, 0).last(), Some(&4));
    }

    #[test]
    fn existing_groups_are_kept_and_gaps_between_them_are_filled() {
        let [one, other] = HashGroup::ALL.halves().unwrap();
        let [_, quarter] = one.halves().unwrap();
        let found: BTreeSet<HashGroup> = groups(30, &with(&[other, quarter])).into_iter().collect();
        assert_eq!(found, BTreeSet::from([one.halves().unwrap()[0], quarter, other]));
        // An extent of another placement covers all keys, and serves those without a group of their own.
        let found: BTreeSet<HashGroup> = groups(30, &with(&[HashGroup::ALL, quarter])).into_iter().collect();
        assert_eq!(found, BTreeSet::from([HashGroup::ALL, quarter]));
    }
}
