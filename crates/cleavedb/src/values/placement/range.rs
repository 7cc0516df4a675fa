//! Placement by key range: values of neighbouring keys lie together and in key order, so that a scan reads adjacent
//! bytes.
//!
//! Each extent records its key range. Extents that overlap, one with the next, form a *cluster*: the group of all keys
//! from its first to its last. New values of a cluster become one more extent of it, or two where the cluster has grown
//! too large; values between clusters are cut by size. A cluster that is collected as a whole is cut by size as well,
//! or merged with a small neighbour, after which each of its keys is in one extent. So there is no directory, and
//! ranges follow the keys: those at the end of sequential inserts are as large as others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::hash::{UNIT_SEGMENTS, Unit, rank};
use super::{Candidate, Placement, PlacementContext, Survivor, VictimPolicy};
use crate::base::FileId;
use crate::format::group::Group;
use crate::format::interval::{Interval, bound_at, bound_behind, end_order, separator};
use crate::values::redirect::TABLES_MAX;

/// Number of clusters is at most about this, whatever the amount of data, since each collected log adds an extent to
/// each of them. With more clusters the order is restored sooner; with fewer there are fewer files meanwhile.
const GROUPS_MAX: u64 = 64;
/// Files collected together hold at most this many times the live bytes of a segment: they share the scan of the tables,
/// and what they hold must stay in the page cache while it is sorted (decision 038).
const JOB_SEGMENTS: u64 = 2;
/// And at most this fraction of all live bytes, if that is more than `JOB_BYTES_MIN`: until the job ends, they take
/// their space twice.
pub const JOB_PART: u64 = 64;
const JOB_BYTES_MIN: u64 = 4 << 20;
/// Values between clusters that make up less than this fraction of a cluster go to a neighbour that receives values of
/// the same job.
const OWN_PART: u64 = 4;

/// An extent is reordered together with smaller ones that overlap it once it holds no more than this many times their
/// bytes. Until then a scan reads one more extent, which costs less than moving the large one.
const LARGER_MAX: u64 = 4;
/// Maximum number of small extents in a cluster, whether they overlap or not.
const SMALL_EXTENTS_MAX: usize = 4;
/// Logs and extents of other placements are reordered once they hold this fraction of the live bytes, or are more than
/// `LOOSE_MAX`.
const LOOSE_PART: u64 = 64;
const LOOSE_MAX: usize = 4;
/// Up to this fraction of the live bytes is reordered together: the keys of a store that was loaded in random order are then in
/// this many places, which a scan reads side by side.
const LOOSE_JOB_PART: u64 = 8;

/// Key ranges, and the units that are collected together.
pub struct RangePlacement {
    /// Files with this many live bytes are collected together.
    pub segment_bytes: u64,
    /// Target size of a cluster in bytes; larger if there is much data.
    pub group_bytes: u64,
    /// Which unit is collected first.
    pub policy: VictimPolicy,
    /// Neighbouring clusters that together hold no more than this are merged by reordering alone. A job must be able to
    /// judge this many bytes at once.
    pub small_bytes: u64,
    /// A job moves no more live bytes than this, except for a single file: what it sorts at once. A larger one would read its
    /// files once for each part.
    pub sorted_bytes: u64,
    /// There are about this many extents at most, whatever the amount of data: their list is in memory.
    pub extents_max: u64,
}

/// Ranges that overlap, one with the next.
struct OverlapCluster<'a, T> {
    from: &'a [u8],
    to: Option<&'a [u8]>,
    /// Sorted by lower bound.
    items: Vec<(&'a Interval, T)>,
}

/// The overlap clusters, sorted by key.
fn clusters<'a, T>(items: impl Iterator<Item = (&'a Interval, T)>) -> Vec<OverlapCluster<'a, T>> {
    let mut items: Vec<_> = items.collect();
    items.sort_by_key(|(interval, _)| *interval);
    let mut clusters = Vec::<OverlapCluster<'a, T>>::new();
    for (interval, item) in items {
        match clusters.last_mut() {
            Some(cluster) if reaches(cluster.to, interval) => {
                cluster.to = later(cluster.to, interval.to());
                cluster.items.push((interval, item));
            }
            _ => clusters.push(OverlapCluster {
                from: interval.from(),
                to: interval.to(),
                items: vec![(interval, item)],
            }),
        }
    }
    clusters
}

/// Whether a cluster that ends at `to` overlaps an interval that begins no earlier than the cluster.
fn reaches(to: Option<&[u8]>, interval: &Interval) -> bool {
    to.is_none_or(|to| interval.from() < to)
}

/// The later of two ends.
fn later<'a>(one: Option<&'a [u8]>, other: Option<&'a [u8]>) -> Option<&'a [u8]> {
    if end_order(one, other).is_lt() { other } else { one }
}

fn clusters_of(candidates: &[Candidate]) -> Vec<OverlapCluster<'_, &Candidate>> {
    clusters(candidates.iter().filter_map(|file| Some((file.range()?, file))))
}

/// The extents of each cluster, in order.
pub fn extents_of_clusters(candidates: &[Candidate]) -> impl Iterator<Item = Vec<&Candidate>> {
    clusters_of(candidates).into_iter().map(|cluster| cluster.items.into_iter().map(|(_, file)| file).collect())
}

impl<'a> OverlapCluster<'a, &'a Candidate> {
    fn live(&self) -> u64 {
        self.items.iter().map(|(_, file)| file.live_bytes()).sum()
    }

    fn bytes(&self) -> u64 {
        self.items.iter().map(|(_, file)| file.bytes).sum()
    }

    /// Extents to merge so that each key is in fewer of them: one, and smaller ones that overlap it and are large
    /// enough in comparison; or very small ones, if there are many. They hold at most `live_max` live bytes.
    fn to_reorder(&self, live_max: u64) -> Option<Vec<FileId>> {
        let mut items = self.items.clone();
        items.sort_by_key(|(_, file)| (file.live_bytes(), file.file));
        let overlapping = || {
            (1..items.len()).rev().find_map(|index| {
                let (interval, file) = items[index];
                let overlaps = |(other, _): &&(&Interval, &Candidate)| interval.overlaps_divisibly(other);
                let (mut held, mut files) = (0, Vec::new());
                for (_, smaller) in items[..index].iter().filter(overlaps).take(TABLES_MAX - 1) {
                    if file.live_bytes() + held + smaller.live_bytes() > live_max {
                        break;
                    }
                    held += smaller.live_bytes();
                    files.push(smaller.file);
                }
                let is_worth_it = !files.is_empty() && held * LARGER_MAX >= file.live_bytes();
                files.push(file.file);
                is_worth_it.then_some(files)
            })
        };
        let too_many = || {
            let largest = items.last()?.1.live_bytes();
            let mut live = 0;
            // Keys beyond the longest bound cannot be separated, and might end up in as many extents as before.
            let divisible = items.iter().filter(|(interval, _)| interval.overlaps_divisibly(interval));
            let small = divisible.take_while(|(_, file)| {
                live += file.live_bytes();
                live <= live_max && file.live_bytes() * LARGER_MAX < largest
            });
            let files: Vec<FileId> = small.map(|(_, file)| file.file).take(TABLES_MAX).collect();
            (files.len() > SMALL_EXTENTS_MAX).then_some(files)
        };
        overlapping().or_else(too_many)
    }

    /// How many of these sorted keys lie in the cluster.
    fn count_of(&self, keys: &[Vec<u8>]) -> usize {
        let before = |bound: &[u8]| keys.partition_point(|key| **key < *bound);
        self.to.map_or(keys.len(), before) - before(self.from)
    }

    fn files(&self) -> impl Iterator<Item = FileId> {
        self.items.iter().map(|(_, file)| file.file)
    }
}

/// Consecutive records with the same destination.
struct SortedStretch {
    records: Range<usize>,
    bytes: u64,
    /// The cluster that they fall into, or the first one above them.
    cluster: usize,
    /// Whether at least some of them fall into it.
    inside: bool,
}

impl RangePlacement {
    /// Target size of a cluster if there are `live` live bytes in all. With few large clusters a job makes few large extents.
    fn size(&self, live: u64) -> u64 {
        // Each job may leave an extent in every cluster.
        let jobs = (live / self.job_bytes(live).max(1)).max(1);
        let clusters = (self.extents_max / jobs).clamp(1, GROUPS_MAX);
        self.group_bytes.max(live / clusters).max(1)
    }

    /// Live bytes that a job moves at most, except for a single file, if there are `live` live bytes in all.
    fn job_bytes(&self, live: u64) -> u64 {
        (JOB_SEGMENTS * self.segment_bytes).min((live / JOB_PART).max(JOB_BYTES_MIN)).min(self.sorted_bytes)
    }

    /// Extents to merge in the first clusters that have such, with up to `job_bytes` live bytes: they share the scan of
    /// the tables.
    fn overlapping(&self, clusters: &[OverlapCluster<'_, &Candidate>], job_bytes: u64) -> Vec<FileId> {
        let (mut files, mut moved) = (Vec::new(), 0);
        for cluster in clusters {
            let Some(chosen) = cluster.to_reorder(UNIT_SEGMENTS * self.segment_bytes) else { continue };
            let live = |file: &&Candidate| if chosen.contains(&file.file) { file.live_bytes() } else { 0 };
            moved += cluster.items.iter().map(|(_, file)| live(file)).sum::<u64>();
            if !files.is_empty() && (moved > job_bytes || files.len() + chosen.len() > TABLES_MAX) {
                break;
            }
            files.extend(chosen);
        }
        files
    }

    /// Groups records by the cluster, or the gap between clusters, that they fall into. Too few records for a range of
    /// their own go to the cluster below or above, if other records of the job do.
    fn stretches(survivors: &[Survivor<'_>], clusters: &[OverlapCluster<'_, u64>], small: u64) -> Vec<SortedStretch> {
        let mut stretches = Vec::<SortedStretch>::new();
        let mut cluster = 0;
        for (index, Survivor { key, bytes, .. }) in survivors.iter().enumerate() {
            cluster += clusters[cluster..].iter().take_while(|cluster| cluster.to.is_some_and(|to| to <= *key)).count();
            let inside = clusters.get(cluster).is_some_and(|cluster| cluster.from <= *key);
            match stretches.last_mut() {
                Some(stretch) if (stretch.cluster, stretch.inside) == (cluster, inside) => {
                    stretch.records.end += 1;
                    stretch.bytes += bytes;
                }
                _ => stretches.push(SortedStretch { records: index..index + 1, bytes: *bytes, cluster, inside }),
            }
        }
        let mut joined = Vec::<SortedStretch>::new();
        for stretch in stretches {
            let is_small = |stretch: &SortedStretch| !stretch.inside && stretch.bytes < small;
            match joined.last_mut() {
                Some(below) if below.inside && is_small(&stretch) && below.cluster + 1 == stretch.cluster => {
                    below.records.end = stretch.records.end;
                    below.bytes += stretch.bytes;
                }
                Some(below) if is_small(below) && stretch.inside && below.cluster == stretch.cluster => {
                    below.records.end = stretch.records.end;
                    below.bytes += stretch.bytes;
                    below.inside = true;
                }
                _ => joined.push(stretch),
            }
        }
        joined
    }
}

/// Cuts records into about this many parts of similar size: at bounds of extents that lie among them, where there are any
/// near, so that the extents of several jobs end at the same keys; else between keys that a short bound can separate.
fn cut(records: &[Survivor<'_>], parts: u64, bounds: &BTreeSet<&[u8]>, out: &mut Vec<(Group, usize)>) {
    let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
    let bytes: u64 = records.iter().map(|record| record.bytes).sum();
    let part_bytes = bytes.div_ceil(parts.max(1));
    let (mut from, mut begun, mut held) = (bound_at(first.key), 0, 0);
    let mut push = |from: &[u8], to: Option<&[u8]>, records: usize| {
        let interval = Interval::new(from, to).expect("a range begins before the bound after its last key");
        out.push((Group::Range(Arc::new(interval)), records));
    };
    let mut coming = bounds.iter().copied().filter(|bound| *bound > first.key && *bound <= last.key).peekable();
    // Parts vary with the sample of keys that a job has, so they wait for a known bound.
    let full_bytes = if coming.peek().is_some() { part_bytes * 3 } else { part_bytes };
    for (index, pair) in records.windows(2).enumerate() {
        held += pair[0].bytes;
        let mut known = None;
        while let Some(bound) = coming.next_if(|bound| *bound <= pair[1].key) {
            known = Some(bound).filter(|bound| *bound > pair[0].key);
        }
        let has_known = known.is_some() && held >= part_bytes / 2;
        if (has_known || held >= full_bytes)
            && pair[0].key < pair[1].key
            && let Some(bound) = known.or_else(|| separator(pair[0].key, pair[1].key))
        {
            push(from, Some(bound), index + 1 - begun);
            (from, begun, held) = (bound, index + 1, 0);
        }
    }
    push(from, bound_behind(last.key).as_deref(), records.len() - begun);
}

impl Placement for RangePlacement {
    fn victims(&self, candidates: &[Candidate]) -> Vec<FileId> {
        let live: u64 = candidates.iter().map(Candidate::live_bytes).sum();
        let size = self.size(live);
        let clusters = clusters_of(candidates);
        let mut units: Vec<Unit<'_>> = Vec::new();
        let mut cluster_of = BTreeMap::new();
        for (index, cluster) in clusters.iter().enumerate() {
            cluster_of.extend(cluster.files().map(|file| (file, index)));
            units.push(Unit { files: cluster.items.iter().map(|(_, file)| *file).collect() });
        }
        let loose = candidates.iter().filter(|file| file.range().is_none());
        units.extend(loose.map(|file| Unit { files: vec![file] }));
        // While most values are in logs, clusters are small because their values are still to come.
        let in_clusters: u64 = clusters.iter().map(OverlapCluster::live).sum();
        let is_small =
            |bytes: u64| u128::from(bytes) * u128::from(live) < u128::from(size / 2) * u128::from(in_clusters);
        let (mut victims, mut moved) = (BTreeSet::new(), 0);
        let (job_bytes, mut share_min) = (self.job_bytes(live), 0);
        for unit in rank(units, self.policy) {
            moved += unit.live();
            // Files collected together share the scan of the tables; but a unit with little garbage waits for more.
            let waits = moved > self.segment_bytes && unit.garbage_share() < share_min || moved > job_bytes;
            if !victims.is_empty() && waits {
                break;
            }
            share_min = share_min.max(unit.garbage_share() / 2);
            let taken = unit.with_most_garbage(job_bytes);
            let is_whole = taken.len() == unit.files.len();
            victims.extend(taken.iter().map(|file| file.file));
            let Some(&index) = cluster_of.get(&taken[0].file).filter(|_| is_whole) else { continue };
            let neighbours = [index.checked_sub(1), Some(index + 1)].into_iter().flatten();
            for neighbour in neighbours.filter_map(|index| clusters.get(index)) {
                if is_small(unit.live() + neighbour.live()) {
                    victims.extend(neighbour.files());
                }
            }
        }
        victims.into_iter().collect()
    }

    fn reorder_candidates(&self, candidates: &[Candidate], places: &[Vec<u8>]) -> Vec<FileId> {
        let mut loose: Vec<&Candidate> =
            candidates.iter().filter(|file| file.range().is_none() && !file.is_read()).collect();
        loose.sort_by_key(|file| file.file);
        let all: u64 = candidates.iter().map(Candidate::live_bytes).sum();
        let live_of = |files: &[&Candidate]| files.iter().map(|file| file.live_bytes()).sum::<u64>();
        if loose.len() > LOOSE_MAX || (!loose.is_empty() && live_of(&loose) >= all / LOOSE_PART) {
            let mut live = 0;
            let fits = loose.iter().take_while(|file| {
                live += file.live_bytes();
                live <= (all / LOOSE_JOB_PART).max(self.segment_bytes).min(self.sorted_bytes)
            });
            let count = fits.count().clamp(1, TABLES_MAX);
            return loose.iter().take(count).map(|file| file.file).collect();
        }
        let mut clusters = clusters_of(candidates);
        clusters.sort_by_key(|cluster| std::cmp::Reverse(cluster.count_of(places)));
        let overlapping = self.overlapping(&clusters, JOB_SEGMENTS * self.segment_bytes);
        if !overlapping.is_empty() {
            return overlapping;
        }
        clusters.sort_by_key(|cluster| cluster.from);
        let together_max = self.small_bytes.min(self.size(all) / 2);
        let small = (0..clusters.len()).find_map(|start| {
            let mut bytes = 0;
            let fits = clusters[start..].iter().take_while(|cluster| {
                bytes += cluster.bytes();
                bytes <= together_max
            });
            let files: Vec<FileId> = fits.flat_map(OverlapCluster::files).take(TABLES_MAX).collect();
            (files.len() > 1).then_some(files)
        });
        small.unwrap_or_default()
    }

    /// The same for all keys: what tells them apart is found when they are [judged](crate::values::newest::SeenRecords::order_by_key).
    fn order(&self, _: &[u8]) -> u64 {
        0
    }

    fn keeps_key_order(&self) -> bool {
        true
    }

    /// The bounds of the clusters.
    fn borders(&self, candidates: &[Candidate]) -> Option<Vec<Vec<u8>>> {
        let clusters = clusters_of(candidates);
        let bounds = clusters.iter().flat_map(|cluster| [Some(cluster.from), cluster.to]).flatten();
        let mut borders: Vec<Vec<u8>> = bounds.map(<[u8]>::to_vec).collect();
        borders.dedup();
        Some(borders)
    }

    /// Not before the first key ranges are there. Two collections that each cut all keys do it at different ones, and their
    /// extents are one cluster, which each later collection cuts at different keys again.
    fn has_groups(&self, candidates: &[Candidate]) -> bool {
        candidates.iter().any(|file| file.range().is_some())
    }

    fn groups(&self, survivors: &[Survivor<'_>], context: &PlacementContext) -> Vec<(Group, usize)> {
        let bytes: u64 = survivors.iter().map(|survivor| survivor.bytes).sum();
        let size = self.size(context.bytes_in_groups() + context.in_logs + bytes);
        let existing = clusters(context.groups.iter().filter_map(|(group, live)| Some((group.as_range()?, *live))));
        let in_cluster = |cluster: usize| existing[cluster].items.iter().map(|(_, live)| live).sum::<u64>();
        // Bytes expected from other logs among these keys.
        let expected = context.in_logs / 100 * context.random_percent;
        let with_coming =
            |stretch: u64| stretch + (u128::from(expected) * u128::from(stretch) / u128::from(bytes.max(1))) as u64;
        let small = (u128::from(size / OWN_PART) * u128::from(bytes) / u128::from((bytes + expected).max(1))) as u64;
        let mut groups = Vec::new();
        for stretch in RangePlacement::stretches(survivors, &existing, small) {
            let (all, own) = (with_coming(stretch.bytes), if stretch.inside { in_cluster(stretch.cluster) } else { 0 });
            let mut bounds = BTreeSet::new();
            let parts = match stretch.inside {
                true if own + all <= size.saturating_mul(2) => 1,
                true => {
                    let items = &existing[stretch.cluster].items;
                    bounds.extend(
                        items.iter().flat_map(|(interval, _)| [Some(interval.from()), interval.to()]).flatten(),
                    );
                    (own + all).div_ceil(size)
                }
                false => all.div_ceil(size).max(1),
            };
            cut(&survivors[stretch.records], parts, &bounds, &mut groups);
        }
        groups
    }

    fn separates_cold(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[path = "range_test.rs"]
mod tests;
