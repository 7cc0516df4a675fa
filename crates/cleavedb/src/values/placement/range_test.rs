use super::*;
use crate::format::interval::BOUND_BYTES_MAX;
use crate::format::reorder_credit::{REORDERED_PER_BYTE, ReorderCredit};
use crate::format::values::Temperature;
use crate::sched::random::Random;
use crate::values::placement::to_reorder;

fn range(segment_bytes: u64) -> RangePlacement {
    RangePlacement {
        segment_bytes,
        group_bytes: segment_bytes,
        policy: VictimPolicy::Greedy,
        small_bytes: segment_bytes / 8,
        sorted_bytes: UNIT_SEGMENTS * segment_bytes,
        extents_max: u64::MAX,
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

/// The range from one number up to, not including, another.
fn interval(from: u64, to: u64) -> Group {
    Group::Range(Arc::new(Interval::new(&key(from), Some(&key(to))).unwrap()))
}

fn log(file: u64, bytes: u64, live: u64) -> Candidate {
    Candidate { file: FileId(file), bytes, live, part: None }
}

fn extent(file: u64, bytes: u64, live: u64, from: u64, to: u64) -> Candidate {
    Candidate { part: Some((interval(from, to), Temperature::Hot)), ..log(file, bytes, live) }
}

fn ids(numbers: &[u64]) -> Vec<FileId> {
    numbers.iter().map(|number| FileId(*number)).collect()
}

fn context_of(extents: &[(u64, u64, u64)]) -> PlacementContext {
    let groups = extents.iter().map(|&(from, to, live)| (interval(from, to), live)).collect();
    PlacementContext { groups, ..PlacementContext::default() }
}

/// The destinations of records of 100 B with these numbers: first and last number of each extent, in order.
fn parts(
    range: &RangePlacement,
    numbers: impl IntoIterator<Item = u64>,
    context: &PlacementContext,
) -> Vec<(u64, u64)> {
    let numbers: Vec<u64> = numbers.into_iter().collect();
    let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
    let survivors: Vec<Survivor<'_>> =
        keys.iter().map(|key| Survivor { order: range.order(key), key, bytes: 100 }).collect();
    let mut rest = &numbers[..];
    let groups = range.groups(&survivors, context);
    let parts = groups.iter().map(|(group, records)| {
        let part = rest.split_off(..*records).unwrap();
        let interval = group.as_range().unwrap();
        assert!(part.iter().all(|number| interval.place_of(&key(*number)).is_eq()), "{interval:?}");
        (part[0], part[part.len() - 1])
    });
    let parts = parts.collect();
    assert!(rest.is_empty());
    // No two of them overlap.
    let intervals = groups.iter().filter_map(|(group, _)| Some((group.as_range()?, ())));
    assert_eq!(clusters(intervals).len(), groups.len());
    parts
}

#[test]
fn borders_are_the_bounds_of_clusters() {
    let range = range(1000);
    assert_eq!(range.borders(&[log(1, 10, 5)]), Some(Vec::new()));
    let files = [extent(5, 10, 5, 30, 40), log(1, 10, 5), extent(3, 10, 5, 10, 20), extent(4, 10, 5, 15, 30)];
    // The last of them begins where the cluster of the other two ends.
    assert_eq!(range.borders(&files), Some([10, 30, 40].map(key).to_vec()));
}

#[test]
fn collections_at_once_need_ranges_that_are_there() {
    let range = range(1000);
    assert!(!range.has_groups(&[log(1, 10, 5)]));
    assert!(range.has_groups(&[log(1, 10, 5), extent(2, 10, 5, 10, 20)]));
    // Two that know of none cut at different keys; all of it is one cluster. With those of the first one, each range stays one.
    let of = |numbers: Vec<u64>, context: &PlacementContext| {
        let keys: Vec<Vec<u8>> = numbers.into_iter().map(key).collect();
        let survivors: Vec<Survivor<'_>> = keys.iter().map(|key| Survivor { order: 0, key, bytes: 100 }).collect();
        range.groups(&survivors, context).into_iter().map(|(group, _)| (group, 1000)).collect::<Vec<_>>()
    };
    let first = of((0..40).map(|number| number * 2).collect(), &PlacementContext::default());
    let clusters_beside = |context: &PlacementContext| {
        let second = of((0..27).map(|number| number * 3).collect(), context);
        let intervals = first.iter().chain(&second).filter_map(|(group, _)| Some((group.as_range()?, ())));
        clusters(intervals).len()
    };
    assert_eq!(first.len(), 4);
    let known = PlacementContext { groups: first.iter().cloned().collect(), ..PlacementContext::default() };
    assert_eq!([PlacementContext::default(), known].map(|context| clusters_beside(&context)), [1, 4]);
}

#[test]
fn values_between_clusters_are_cut_by_size() {
    let nothing = PlacementContext::default();
    assert_eq!(parts(&range(1000), 0..10, &nothing), [(0, 9)]);
    assert_eq!(parts(&range(1000), 0..11, &nothing), [(0, 5), (6, 10)]);
    assert_eq!(parts(&range(1000), (0..40).map(|number| number * number), &nothing).len(), 4);
    // The number of parts is bounded, whatever the amount of data.
    assert_eq!(parts(&range(1), 0..1000, &nothing).len(), 63);
    assert_eq!(parts(&range(1000), [], &nothing), []);
}

#[test]
fn values_still_in_logs_count_as_far_as_records_arrive_in_random_order() {
    let with_logs = |random_percent| PlacementContext { in_logs: 6000, random_percent, ..PlacementContext::default() };
    assert_eq!(parts(&range(1000), 0..20, &with_logs(0)).len(), 2);
    assert_eq!(parts(&range(1000), 0..20, &with_logs(50)).len(), 5);
    assert_eq!(parts(&range(1000), 0..20, &with_logs(100)).len(), 7);
}

#[test]
fn sequential_inserts_form_new_ranges_after_the_last() {
    let before = context_of(&[(0, 10, 1000), (10, 20, 1000)]);
    assert_eq!(parts(&range(1000), 20..30, &before), [(20, 29)]);
    assert_eq!(parts(&range(1000), 20..60, &before).len(), 4);
    // A few keys before the end do not draw the following ones into the last cluster.
    assert_eq!(parts(&range(1000), 18..60, &before)[0], (18, 19));
}

#[test]
fn clusters_keep_the_values_in_their_range_and_are_cut_once_too_large() {
    let before = context_of(&[(0, 100, 900), (100, 200, 1700)]);
    assert_eq!(parts(&range(1000), (0..200).step_by(20), &before), [(0, 80), (100, 120), (140, 160), (180, 180)]);
    // Overlapping extents are one cluster, whose bytes are counted together.
    let before = context_of(&[(0, 60, 900), (40, 100, 900), (200, 300, 900)]);
    assert_eq!(
        parts(&range(1000), (0..300).step_by(20), &before),
        [(0, 20), (40, 40), (60, 80), (100, 180), (200, 280)]
    );
}

#[test]
fn jobs_cut_a_cluster_that_is_too_large_at_the_same_keys() {
    let (range, mut random) = (range(1000), Random::new(7));
    let mut before = context_of(&[(0, 1000, 8000)]);
    for _ in 0..6 {
        let mut numbers: Vec<u64> = (0..100).map(|_| random.below(1000)).collect();
        numbers.sort_unstable();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
        let survivors: Vec<Survivor<'_>> = keys.iter().map(|key| Survivor { order: 0, key, bytes: 10 }).collect();
        for (group, records) in range.groups(&survivors, &before) {
            *before.groups.entry(group).or_default() += records as u64 * 10;
        }
    }
    // Without the extent that spans all keys, they are clusters of the size that is aimed at.
    before.groups.remove(&interval(0, 1000));
    let left = clusters(before.groups.keys().filter_map(|group| Some((group.as_range()?, ()))));
    assert!((6..=14).contains(&left.len()), "{} clusters", left.len());
    let sizes: Vec<usize> = left.iter().map(|cluster| cluster.items.len()).collect();
    assert!(sizes.iter().all(|extents| *extents <= 7), "{sizes:?}");
}

#[test]
fn clusters_are_small_only_if_few_values_are_still_to_come() {
    let clusters = [extent(1, 10_000, 500, 20, 30), extent(2, 600, 600, 40, 50)];
    assert_eq!(range(10_000).victims(&clusters), ids(&[1, 2]));
    let with_logs = [&clusters[..], &[log(3, 90_000, 90_000)]].concat();
    assert_eq!(range(10_000).victims(&with_logs), ids(&[1]));
}

#[test]
fn few_values_between_clusters_go_to_an_adjacent_cluster_only() {
    let before = context_of(&[(0, 100, 900), (120, 200, 900), (300, 400, 900)]);
    assert_eq!(parts(&range(1000), [50, 110, 130], &before), [(50, 110), (130, 130)]);
    assert_eq!(parts(&range(1000), [110, 130, 350], &before), [(110, 130), (350, 350)]);
    assert_eq!(parts(&range(1000), [110, 250], &before), [(110, 110), (250, 250)]);
    assert_eq!(parts(&range(1000), [50, 250, 350], &before), [(50, 50), (250, 350)]);
    // Enough for a range of its own.
    assert_eq!(parts(&range(1000), [50, 210, 220, 230, 350], &before), [(50, 50), (210, 230), (350, 350)]);
}

#[test]
fn skewed_keys_are_cut_where_they_are_dense() {
    let numbers: Vec<u64> = (0..90).chain((100..1100).step_by(100)).collect();
    let cut = parts(&range(1000), numbers, &PlacementContext::default());
    assert_eq!(cut.len(), 10);
    assert!(cut[..9].iter().all(|(first, last)| last - first == 9), "{cut:?}");
}

#[test]
fn versions_of_a_key_and_keys_that_no_bound_separates_stay_together() {
    let long = |last: u8| [&[b'k'; BOUND_BYTES_MAX][..], &[last]].concat();
    let keys = [key(1), key(1), key(1), long(1), long(2), long(3), b"z".to_vec()];
    let survivors: Vec<Survivor<'_>> = keys.iter().map(|key| Survivor { order: 0, key, bytes: 1000 }).collect();
    let groups = range(1000).groups(&survivors, &PlacementContext::default());
    assert_eq!(groups.iter().map(|(_, records)| *records).collect::<Vec<_>>(), [3, 3, 1]);
    let bounds = |index: usize| {
        let interval = groups[index].0.as_range().unwrap();
        (interval.from().to_vec(), interval.to().unwrap().to_vec())
    };
    assert_eq!(bounds(0), (key(1), b"k".to_vec()));
    assert_eq!(bounds(1), (b"k".to_vec(), b"z".to_vec()));
    assert_eq!(bounds(2), (b"z".to_vec(), b"z\0".to_vec()));
}

#[test]
fn units_with_most_garbage_go_first_single_logs_or_whole_clusters() {
    let all = [
        log(1, 10_000, 7_000),
        extent(2, 10_000, 9_000, 0, 50),
        extent(3, 10_000, 1_000, 40, 90),
        extent(4, 10_000, 6_000, 90, 95),
        Candidate { part: Some((Group::ALL, Temperature::Cold)), ..log(5, 10_000, 4_000) },
    ];
    assert_eq!(range(999).victims(&all), ids(&[5]));
    assert_eq!(range(7_000).victims(&all), ids(&[2, 3, 5]));
    assert_eq!(range(10_000).victims(&all), ids(&[2, 3, 4, 5]));
    // Beyond a segment, files with less than half the garbage of the first wait.
    assert_eq!(range(9_000).victims(&[log(1, 10_000, 8_000), log(2, 10_000, 2_000)]), ids(&[2]));
    assert_eq!(range(99_000).victims(&all), ids(&[1, 2, 3, 4, 5]));
    // Of a very large cluster only a part, the files with most garbage first.
    let large: Vec<_> = (1..9).map(|file| extent(file, 10_000, file * 1000, 0, 100)).collect();
    assert_eq!(range(1_500).victims(&large), ids(&[1, 2]));
}

#[test]
fn a_small_cluster_is_collected_with_a_small_neighbour() {
    let all = [
        extent(1, 10_000, 9_900, 0, 10),
        extent(2, 10_000, 500, 20, 30),
        extent(3, 2_000, 2_000, 40, 50),
        extent(4, 2_000, 2_000, 60, 70),
    ];
    assert_eq!(range(10_000).victims(&all), ids(&[2, 3]));
    assert_eq!(range(4_000).victims(&all), ids(&[2]));
}

#[test]
fn reordering_moves_unordered_values_and_leaves_ordered_ones() {
    let range = range(8_000);
    // Logs, and extents of another placement, oldest first.
    let loose = Candidate { part: Some((Group::ALL, Temperature::Cold)), ..log(4, 5_000, 4_000) };
    let all = [log(9, 5_000, 5_000), extent(2, 9_000, 9_000, 0, 9), loose, log(3, 5_000, 3_000)];
    assert_eq!(range.reorder_candidates(&all, &[]), ids(&[3, 4]));
    assert_eq!(range.reorder_candidates(&[log(9, 50_000, 50_000)], &[]), ids(&[9]));
    // Too little for a job.
    assert!(range.reorder_candidates(&[log(9, 5_000, 99), extent(2, 9_000, 6_400, 0, 9)], &[]).is_empty());
    assert_eq!(range.reorder_candidates(&[log(9, 5_000, 101), extent(2, 9_000, 6_300, 0, 9)], &[]), ids(&[9]));
    let many = [log(3, 9, 9), log(4, 9, 9), log(5, 9, 9), log(6, 9, 9), log(7, 9, 9), extent(2, 9_000, 6_400, 0, 9)];
    assert_eq!(
        [range.reorder_candidates(&many, &[]), range.reorder_candidates(&many[1..], &[])],
        [ids(&[3, 4, 5, 6, 7]), ids(&[])]
    );
    // Overlapping extents.
    let ordered = [extent(1, 9_000, 9_000, 0, 9), extent(2, 9_000, 9_000, 9, 20), extent(3, 9_000, 5_000, 30, 40)];
    assert!(range.reorder_candidates(&ordered, &[]).is_empty());
    let also = |candidate| range.reorder_candidates(&[&ordered[..], &[candidate]].concat(), &[]);
    assert_eq!(also(extent(4, 2_500, 2_500, 19, 31)), ids(&[4, 2]));
    assert_eq!(also(extent(4, 2_000, 2_000, 19, 31)), ids(&[4, 3]));
    assert_eq!(also(extent(4, 1_500, 1_500, 35, 36)), ids(&[4, 3]));
    // Too little to move the large ones for.
    assert_eq!(also(extent(4, 1_000, 1_000, 35, 36)), ids(&[]));
    let little = [extent(4, 500, 500, 9, 15), extent(5, 500, 500, 14, 35), extent(6, 9_900, 2_900, 12, 13)];
    let several = |count| range.reorder_candidates(&[&ordered[..], &little[..count]].concat(), &[]);
    assert_eq!([several(2), several(3)], [ids(&[4, 5]), ids(&[4, 5, 6, 2])]);
    // Small extents that overlap none of similar size stay, up to a number.
    let few: Vec<_> = (4..9).map(|file| extent(file, 100, 100, file + 5, file + 6)).collect();
    let several = |count| range.reorder_candidates(&[&ordered[..], &few[..count]].concat(), &[]);
    assert_eq!([several(4), several(5)], [ids(&[]), ids(&[4, 5, 6, 7, 8])]);
    // More than one job takes.
    assert_eq!(also(extent(4, 30_000, 30_000, 2, 4)), ids(&[]));
    assert_eq!(also(extent(4, 24_000, 24_000, 0, 40)), ids(&[]));
    assert_eq!(also(extent(4, 20_000, 20_000, 0, 40)), ids(&[3, 4]));
    // Small neighbours.
    let small = [extent(1, 9_000, 9_000, 0, 9), extent(2, 400, 100, 9, 20), extent(3, 500, 200, 30, 40)];
    assert_eq!(range.reorder_candidates(&small, &[]), ids(&[2, 3]));
    assert!(range.reorder_candidates(&[small[1].clone(), extent(3, 700, 10, 30, 40)], &[]).is_empty());
}

#[test]
fn clusters_grow_where_a_job_makes_many_extents_of_little() {
    // 640,000 bytes in jobs of 4,000: each may leave an extent in every cluster.
    let sized = |extents_max| RangePlacement { sorted_bytes: 4_000, extents_max, ..range(10_000) };
    let size = |extents_max| sized(extents_max).size(640_000);
    assert_eq!([u64::MAX, 64 * 160, 32 * 160, 159, 0].map(size), [10_000, 10_000, 20_000, 640_000, 640_000]);
    assert_eq!([0, 1, 3_999].map(|live| sized(100).size(live)), [10_000; 3]);
    // More than is sorted at once is left to other jobs, but a single file.
    let logs = [log(1, 4_000, 2_500), log(2, 4_000, 2_000), log(3, 4_000, 1_000)];
    assert_eq!(sized(100).victims(&logs), ids(&[2, 3]));
    assert_eq!(sized(100).victims(&[log(1, 9_000, 8_000)]), ids(&[1]));
}

/// Applies a job to these files: replaces the victims by the files of its output.
fn after(range: &RangePlacement, all: &mut Vec<(Candidate, Vec<u64>)>, victims: &[FileId], next: &mut u64) -> u64 {
    let (gone, stays): (Vec<_>, Vec<_>) =
        std::mem::take(all).into_iter().partition(|(it, _)| victims.contains(&it.file));
    *all = stays;
    let mut numbers: Vec<u64> = gone.into_iter().flat_map(|(_, numbers)| numbers).collect();
    numbers.sort_unstable();
    let mut context = PlacementContext::default();
    for (file, _) in &*all {
        match &file.part {
            Some((group, _)) => *context.groups.entry(group.clone()).or_default() += file.live,
            None => context.in_logs += file.live,
        }
    }
    let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
    let survivors: Vec<Survivor<'_>> =
        keys.iter().map(|key| Survivor { order: range.order(key), key, bytes: 100 }).collect();
    let mut rest = &numbers[..];
    for (group, records) in range.groups(&survivors, &context) {
        *next += 1;
        let bytes = records as u64 * 100;
        let file = Candidate { part: Some((group, Temperature::Hot)), ..log(*next, bytes, bytes) };
        all.push((file, rest.split_off(..records).unwrap().to_vec()));
    }
    numbers.len() as u64
}

#[test]
fn reordering_terminates_and_moves_no_value_often() {
    for seed in 0..60 {
        let mut random = crate::sched::random::Random::new(seed);
        let range = range(2_000);
        let (mut all, mut next, mut moved) = (Vec::new(), 0, 0);
        let logs = 2 + random.below(12);
        let of_chance = random.below(2) == 0;
        for log_number in 0..logs {
            let numbers: Vec<u64> =
                (0..20).map(|index| if of_chance { random.below(900) } else { log_number * 20 + index }).collect();
            next += 1;
            all.push((log(next, 2_000, 2_000), numbers));
            // Some logs are collected in between.
            if random.below(3) == 0 {
                let victims = [FileId(1 + random.below(next))];
                moved += after(&range, &mut all, &victims, &mut next);
            }
        }
        for turn in 0.. {
            let candidates: Vec<Candidate> = all.iter().map(|(file, _)| file.clone()).collect();
            let victims = range.reorder_candidates(&candidates, &[]);
            if victims.is_empty() {
                break;
            }
            assert!(turn < 100, "seed {seed}: {candidates:?}");
            moved += after(&range, &mut all, &victims, &mut next);
        }
        let records = logs * 20;
        assert_eq!(all.iter().map(|(_, numbers)| numbers.len() as u64).sum::<u64>(), records);
        assert!(moved <= records * 5, "seed {seed}: {moved} moved of {records}");
        let candidates: Vec<Candidate> = all.iter().map(|(file, _)| file.clone()).collect();
        for number in 0..900 {
            let holding = candidates.iter().filter(|file| file.range().unwrap().place_of(&key(number)).is_eq());
            assert!(holding.count() <= 3, "seed {seed}, key {number}: {candidates:?}");
        }
    }
}

/// Files with their keys, and jobs that judge a limited number of records at once.
struct Simulated {
    range: RangePlacement,
    files: Vec<(Candidate, Vec<Vec<u8>>)>,
    next: u64,
    judged_max: usize,
    /// Bytes that jobs wrote.
    moved: u64,
}

impl Simulated {
    fn new(range: RangePlacement, judged_max: usize) -> Simulated {
        Simulated { range, files: Vec::new(), next: 0, judged_max, moved: 0 }
    }

    /// Adds a log of records of 100 B; `live_percent` of its bytes are live according to the ledger.
    fn add_log(&mut self, keys: Vec<Vec<u8>>, live_percent: u64) {
        self.next += 1;
        let bytes = keys.len() as u64 * 100;
        self.files.push((log(self.next, bytes, bytes * live_percent / 100), keys));
    }

    fn candidates(&self) -> Vec<Candidate> {
        self.files.iter().map(|(file, _)| file.clone()).collect()
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(file, _)| file.bytes).sum()
    }

    fn run_job(&mut self, victims: &[FileId]) -> u64 {
        let (gone, stays): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.files).into_iter().partition(|(file, _)| victims.contains(&file.file));
        self.files = stays;
        let mut context = PlacementContext::default();
        for (file, _) in &self.files {
            match &file.part {
                Some((group, _)) => *context.groups.entry(group.clone()).or_default() += file.live,
                None => context.in_logs += file.live,
            }
        }
        let mut keys: Vec<Vec<u8>> =
            gone.into_iter().filter(|(file, _)| file.live > 0).flat_map(|(_, keys)| keys).collect();
        keys.sort_unstable();
        // The redirect table.
        let mut written = 100;
        let mut rest = &keys[..];
        while !rest.is_empty() {
            // Versions of a key are judged together.
            let mut judged = rest.len().min(self.judged_max);
            while judged < rest.len() && rest[judged] == rest[judged - 1] {
                judged += 1;
            }
            let survivors: Vec<Survivor<'_>> =
                rest[..judged].iter().map(|key| Survivor { order: self.range.order(key), key, bytes: 100 }).collect();
            for (group, records) in self.range.groups(&survivors, &context) {
                self.next += 1;
                let bytes = records as u64 * 100;
                written += bytes;
                *context.groups.entry(group.clone()).or_default() += bytes;
                let file = Candidate { part: Some((group, Temperature::Hot)), ..log(self.next, bytes, bytes) };
                self.files.push((file, rest.split_off(..records).unwrap().to_vec()));
            }
        }
        self.moved += written;
        written
    }

    /// Runs reordering jobs until none is due or the credit is used up; returns their number.
    fn reorder(&mut self, credit: &mut ReorderCredit) -> usize {
        for jobs in 0.. {
            let Some((victims, _)) = to_reorder(&self.range, &self.candidates(), &[], *credit) else { return jobs };
            assert!(jobs < 10_000, "reordering does not end: {} B moved of {} B", self.moved, self.bytes());
            let written = self.run_job(&victims);
            credit.charge(written);
        }
        unreachable!("the loop ends by returning")
    }
}

/// Keys that are hard to reorder, by kind of difficulty.
fn adversarial_key(kind: u64, random: &mut Random) -> Vec<u8> {
    let number = |random: &mut Random, below| format!("{:09}", random.below(below)).into_bytes();
    match kind {
        // A common prefix of 64 B and more, shorter than a bound.
        0 => [vec![b'p'; 70], number(random, 900)].concat(),
        // A common prefix longer than any bound.
        1 => [vec![b'p'; BOUND_BYTES_MAX + 80], number(random, 900)].concat(),
        // All bounds are equal: the greatest bytes, beyond which there is no bound.
        2 => [vec![255; BOUND_BYTES_MAX + 80], number(random, 900)].concat(),
        // A few such prefixes, of the maximum length and one byte more or less.
        3 => {
            let len = BOUND_BYTES_MAX - 1 + random.below(3) as usize;
            [vec![b'a' + random.below(3) as u8; len], number(random, 50)].concat()
        }
        // A single key.
        4 => b"one".to_vec(),
        // Short and long keys: some extents lie beyond one bound, others span them.
        _ => match random.below(2) {
            0 => [vec![b'p'; BOUND_BYTES_MAX + 80], number(random, 900)].concat(),
            _ => [vec![b'o' + random.below(3) as u8], number(random, 900)].concat(),
        },
    }
}

#[test]
fn reordering_ends_within_its_credit_whatever_the_keys() {
    for seed in 0..120 {
        let mut random = Random::new(seed);
        // A range that takes everything, or ordinary ones; jobs that judge few records, or all.
        let group_bytes = if random.one_in(4) { 1 << 40 } else { 2_000 };
        let range = RangePlacement { group_bytes, ..range(2_000 + random.below(3) * 4_000) };
        let mut all = Simulated::new(range, 7 + random.below(60) as usize);
        let (mut credit, mut arrived) = (ReorderCredit::default(), 0);
        for _ in 0..6 {
            for _ in 0..1 + random.below(9) {
                let keys: Vec<_> = (0..20 + random.below(60)).map(|_| adversarial_key(seed % 6, &mut random)).collect();
                let bytes = keys.len() as u64 * 100;
                // Some logs are entirely dead, as after a range tombstone over all keys.
                all.add_log(keys, if random.one_in(5) { 0 } else { 100 });
                credit.grant(bytes);
                arrived += bytes;
            }
            credit.limit(all.bytes());
            all.reorder(&mut credit);
            assert_eq!(all.reorder(&mut credit), 0, "seed {seed}: no more work");
        }
        // Beyond the credit, at most the redirect table of the last job and bytes that the ledger did not know to be
        // live.
        assert!(all.moved <= arrived * REORDERED_PER_BYTE + 100, "seed {seed}: {} moved of {arrived}", all.moved);
    }
}

#[test]
fn keys_that_no_bound_separates_are_moved_out_of_their_logs_only_once() {
    for kind in [1, 2] {
        let mut random = Random::new(kind);
        let mut all = Simulated::new(range(2_000), 10);
        (0..30).for_each(|_| all.add_log((0..20).map(|_| adversarial_key(kind, &mut random)).collect(), 100));
        let mut credit = ReorderCredit::default();
        credit.grant(u64::MAX);
        let jobs = all.reorder(&mut credit);
        assert!(all.moved <= 2 * all.bytes(), "{} B moved of {} B by {jobs} jobs", all.moved, all.bytes());
        assert!(all.candidates().iter().all(|file| file.part.is_some()));
    }
}

#[test]
fn keys_with_a_long_common_prefix_are_reordered_like_others() {
    let mut random = Random::new(5);
    let mut all = Simulated::new(range(2_000), 10);
    (0..30).for_each(|_| all.add_log((0..20).map(|_| adversarial_key(0, &mut random)).collect(), 100));
    let mut credit = ReorderCredit::default();
    credit.grant(all.bytes());
    all.reorder(&mut credit);
    assert!(credit.affords(all.bytes()), "the rest of the credit suffices for another pass: {credit:?}");
    let candidates = all.candidates();
    for (_, keys) in &all.files {
        let holding = candidates.iter().filter(|file| file.range().unwrap().place_of(&keys[0]).is_eq());
        assert!(holding.count() <= 3, "{candidates:?}");
    }
}
