//! Cases of the picker. A table is written `"id keys size flags"`, as in `"7 b-f 100 busy"`, and lies in keyspace 1
//! unless its keys say otherwise, as in `"7 2a-3c 100"`. `"clears=b-d@50"`: its range tombstones, with sequence number
//! 50, cover the keys from b up to, not including, d; `"ranges-only"`: it holds nothing else.

use super::*;
use crate::format::meta::TableMeta;
use crate::format::properties::CoveredRange;

const KEYSPACE_DEFAULT: u32 = 1;

fn full(key: &str) -> Vec<u8> {
    let digits = key.chars().take_while(char::is_ascii_digit).count();
    let keyspace = key[..digits].parse().unwrap_or(KEYSPACE_DEFAULT);
    crate::base::full_key(KeyspaceId(keyspace), &key.as_bytes()[digits..])
}

/// The first key after this one.
fn after(key: &str) -> Vec<u8> {
    let mut full = full(key);
    full.push(0);
    full
}

fn meta(text: &str) -> (TableMeta, bool) {
    let words: Vec<&str> = text.split(' ').collect();
    let (smallest, largest) = words[1].split_once('-').unwrap();
    let id: u64 = words[0].parse().unwrap();
    // "deletes" means 80 of 100 versions, "deletes=30" means 30.
    let deletes = words.iter().find_map(|word| word.strip_prefix("deletes"));
    let deletes = deletes.map_or(0, |share| share.strip_prefix('=').map_or(80, |share| share.parse().unwrap()));
    let cleared = words.iter().filter_map(|word| word.strip_prefix("clears="));
    let cleared: Vec<CoveredRange> = cleared
        .map(|range| {
            let (keys, seqno) = range.split_once('@').unwrap();
            let (start, end) = keys.split_once('-').unwrap();
            CoveredRange { start: full(start), end: full(end), seqno: Seqno(seqno.parse().unwrap()) }
        })
        .collect();
    let meta = TableMeta {
        id: FileId(id),
        size: words[2].parse().unwrap(),
        entries: if words.contains(&"ranges-only") { 0 } else { 100 },
        deletes,
        deltas: 0,
        addresses: 0,
        bytes_separated: 0,
        bytes_hidden: 0,
        record_bytes_max: 0,
        smallest: full(smallest),
        end: after(largest),
        seqno_min: Seqno(id * 10),
        seqno_max: Seqno(id * 10 + 9),
        range_deletes: cleared.len() as u64,
        covered_ranges: cleared,
    };
    (meta, words.contains(&"busy"))
}

struct Case {
    levels: Vec<Vec<(TableMeta, bool)>>,
    dropped: Vec<KeyspaceId>,
    running: Vec<RunningCompaction>,
    oldest_snapshot: Seqno,
    stale: BTreeSet<FileId>,
    stale_when_idle: BTreeSet<FileId>,
    when_idle: bool,
}

/// The given levels, padded with empty ones to five. HL0 has room for three tables, HL1 for 100 bytes, HL2 for 1000.
fn case(levels: &[&[&str]]) -> Case {
    let mut levels: Vec<Vec<_>> = levels.iter().map(|level| level.iter().map(|text| meta(text)).collect()).collect();
    levels.resize_with(5, Vec::new);
    let (dropped, running, stale, stale_when_idle) = Default::default();
    Case { levels, dropped, running, oldest_snapshot: Seqno::MAX, stale, stale_when_idle, when_idle: false }
}

impl Case {
    fn dropping(mut self, keyspace: u32) -> Case {
        self.dropped.push(KeyspaceId(keyspace));
        self
    }

    fn running(mut self, to: usize, smallest: &str, largest: &str) -> Case {
        self.running.push(RunningCompaction { to, smallest: full(smallest), end: after(largest) });
        self
    }

    /// The oldest sequence number that a reader may use. The newest version of table 7 has number 79.
    fn snapshot(mut self, seqno: u64) -> Case {
        self.oldest_snapshot = Seqno(seqno);
        self
    }

    fn with<T>(&self, choose: impl FnOnce(&Figures<'_>) -> T) -> T {
        let tables = |level: usize| self.levels[level].iter().map(|(meta, busy)| TableFigures::new(meta, *busy));
        choose(&Figures {
            levels: (0..self.levels.len()).map(|level| tables(level).collect()).collect(),
            targets: LevelTargets { hl0_trigger: 4, hl0_trigger_if_small: 6, base_bytes: 100, multiplier: 10 },
            dropped: &self.dropped,
            running: &self.running,
            oldest_snapshot: self.oldest_snapshot,
            stale: &self.stale,
            stale_when_idle: &self.stale_when_idle,
            uncovers: false,
            when_idle: self.when_idle,
        })
    }

    fn choice(&self) -> String {
        show(self.with(choose))
    }
}

fn show(choice: Choice) -> String {
    let list = |ids: &[FileId]| ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(",");
    match choice {
        Choice::Nothing => "nothing".into(),
        Choice::Drop { level, tables } => format!("drop {} of {level}", list(&tables)),
        Choice::Move { from, to, table } => format!("move {} from {from} to {to}", table.0),
        Choice::Compact(Compact { from, to, inputs, inputs_below, .. }) => {
            format!("compact {} of {from} with {} of {to}", list(&inputs), list(&inputs_below))
        }
    }
}

#[test]
fn levels_within_their_targets_are_left_alone() {
    assert_eq!(case(&[]).choice(), "nothing");
    assert_eq!(case(&[&["3 a-z 10", "2 a-z 10", "1 a-z 10"], &["4 a-c 50", "5 d-f 49"]]).choice(), "nothing");
    assert_eq!(case(&[&[], &[], &[], &[], &["1 a-z 1000000"]]).choice(), "nothing");
}

#[test]
fn hl0_is_compacted_as_a_whole_with_all_tables_it_overlaps() {
    let hl0 = ["9 d-f 10", "8 b-c 10", "7 m-n 10", "6 d-e 10"];
    let hl1: &[&str] = &["1 a-b 10", "2 c-d 10", "3 g-h 10", "4 n-p 10", "5 q-r 10"];
    assert_eq!(case(&[&hl0, hl1]).choice(), "compact 9,8,7,6 of 0 with 1,2,3,4 of 1");
    assert_eq!(case(&[&hl0[..3], hl1]).choice(), "nothing");
    let Choice::Compact(job) = case(&[&hl0, hl1]).with(choose) else { panic!("not a merge") };
    assert_eq!(job.running(), RunningCompaction { to: 1, smallest: full("a"), end: after("p") });
}

#[test]
fn hl0_waits_for_more_tables_while_they_are_small_against_hl1() {
    let hl0 = ["9 a-z 1", "8 a-z 1", "7 a-z 1", "6 a-z 1", "5 a-z 1", "4 a-z 1"];
    let hl1 = |size| case(&[&hl0[..4], &[&format!("1 a-z {size}")]]);
    assert_eq!(hl1(30).choice(), "nothing");
    assert_eq!(hl1(29).choice(), "compact 9,8,7,6 of 0 with 1 of 1");
    assert_eq!(case(&[&hl0[..5], &["1 a-z 90"]]).choice(), "nothing");
    assert_eq!(case(&[&hl0, &["1 a-z 90"]]).choice(), "compact 9,8,7,6,5,4 of 0 with 1 of 1");
    let mut idle = case(&[&hl0[..4], &["1 a-z 90"]]);
    idle.when_idle = true;
    assert_eq!(idle.choice(), "compact 9,8,7,6 of 0 with 1 of 1", "look-ups ask each table");
}

#[test]
fn hl0_waits_while_a_job_uses_any_of_it_or_of_the_tables_it_overlaps() {
    let hl0 = ["9 a-f 10", "8 a-c 10", "7 m-n 10", "6 d-e 10"];
    let with_busy = ["9 a-f 10", "8 a-c 10", "7 m-n 10", "6 d-e 10", "5 x-z 10 busy"];
    assert_eq!(case(&[&with_busy]).choice(), "nothing");
    assert_eq!(case(&[&hl0, &["1 e-g 10 busy"]]).choice(), "nothing");
    // The range that a job writes counts, not only its tables: an output may span a gap between them.
    assert_eq!(case(&[&hl0]).running(1, "g", "h").choice(), "move 6 from 0 to 1");
    assert_eq!(case(&[&hl0, &["1 e-e 10"]]).running(1, "g", "h").choice(), "nothing");
    assert_eq!(case(&[&hl0, &["1 e-e 10"]]).running(2, "g", "h").choice(), "compact 9,8,7,6 of 0 with 1 of 1");
}

#[test]
fn the_oldest_table_of_hl0_moves_if_nothing_below_overlaps_it() {
    let hl0 = ["9 a-f 10", "8 a-c 10", "7 a-n 10", "6 d-e 10"];
    assert_eq!(case(&[&hl0, &["1 f-g 10"]]).choice(), "move 6 from 0 to 1");
    let deletes = ["9 a-f 10", "8 a-c 10", "7 a-n 10", "6 d-e 10 deletes"];
    assert_eq!(case(&[&deletes, &["1 x-y 10"]]).choice(), "compact 9,8,7,6 of 0 with  of 1");
}

#[test]
fn the_level_most_over_its_target_is_compacted_first() {
    let hl0 = ["9 a-f 10", "8 a-c 10", "7 m-n 10", "6 d-e 10"];
    let hl2 = ["4 a-b 10", "5 d-e 10"];
    assert_eq!(case(&[&hl0, &["1 a-c 90", "2 d-e 100"], &hl2]).choice(), "compact 2 of 1 with 5 of 2");
    assert_eq!(case(&[&hl0, &["1 a-c 40", "2 d-e 40"], &hl2]).choice(), "compact 9,8,7,6 of 0 with 1,2 of 1");
    // Writers wait for HL0: a level goes before it only if it is half as much again over its target, by tables here.
    assert_eq!(case(&[&hl0, &["1 a-c 70", "2 d-e 79"], &hl2]).choice(), "compact 9,8,7,6 of 0 with 1,2 of 1");
    assert_eq!(case(&[&hl0, &["1 a-c 70", "2 d-e 81"], &hl2]).choice(), "compact 2 of 1 with 5 of 2");
    // If no job is possible for the fullest level, the next one is compacted.
    assert_eq!(
        case(&[&hl0, &["1 a-c 90", "2 d-e 140"], &["5 a-f 10 busy"]]).choice(),
        "compact 9,8,7,6 of 0 with 1,2 of 1"
    );
}

#[test]
fn no_job_starts_in_a_range_that_a_waiting_hl0_compaction_will_write() {
    let hl0 = ["9 c-f 10", "8 d-e 10", "7 d-e 10", "6 d-e 10", "5 d-e 10", "4 d-e 10"];
    let hl1: &[&str] = &["1 a-b 60", "2 c-d 60 busy", "3 e-g 60"];
    // HL1 is less over its target than HL0, which waits for table 2: a job on table 3 would also be in its way, one on
    // table 1 not.
    assert_eq!(case(&[&hl0, hl1]).choice(), "move 1 from 1 to 2");
    assert_eq!(case(&[&hl0, &["2 c-d 60 busy", "3 e-g 120"]]).choice(), "nothing");
    // If HL1 is much further over its target, it goes first.
    assert_eq!(case(&[&hl0, &["2 c-d 60 busy", "3 e-g 230"]]).choice(), "move 3 from 1 to 2");
}

#[test]
fn the_table_of_a_level_with_the_least_overlap_is_chosen() {
    let hl1 = ["1 a-c 50", "2 d-f 50", "3 g-i 50"];
    let hl2 = ["4 a-b 30", "5 b-c 30", "6 d-e 20", "7 h-h 90"];
    assert_eq!(case(&[&[], &hl1, &hl2]).choice(), "compact 2 of 1 with 6 of 2");
    let hl1_busy = ["1 a-c 50", "2 d-f 50 busy", "3 g-i 60"];
    assert_eq!(case(&[&[], &hl1_busy, &hl2]).choice(), "compact 1 of 1 with 4,5 of 2");
    assert_eq!(case(&[&[], &hl1, &["4 a-f 30", "7 x-y 90"]]).choice(), "move 3 from 1 to 2");
    assert_eq!(
        case(&[&[], &hl1, &["4 a-f 30", "7 x-y 90"]]).running(2, "i", "k").choice(),
        "compact 1 of 1 with 4 of 2"
    );
    assert_eq!(case(&[&[], &["1 a-c 99 busy", "2 d-f 99"]]).choice(), "nothing");
}

#[test]
fn tables_wholly_in_a_dropped_keyspace_are_dropped_at_once() {
    let levels: &[&[&str]] = &[&["9 2a-2c 10"], &["1 2a-2c 10", "2 2d-2f 10 busy", "3 2g-3a 10"]];
    assert_eq!(case(levels).dropping(2).choice(), "drop 9 of 0");
    assert_eq!(case(&levels[1..]).dropping(2).choice(), "drop 1 of 0");
    assert_eq!(case(levels).dropping(4).choice(), "nothing");
    assert_eq!(case(&[&[], &["1 2a-2c 10 busy"]]).dropping(2).choice(), "nothing");
}

#[test]
fn tables_partly_in_dropped_keyspaces_are_rewritten_once_no_level_is_over_its_target() {
    let partly: &[&str] = &["1 1a-1c 10", "2 1d-3f 10"];
    assert_eq!(case(&[&[], partly]).dropping(2).choice(), "compact 2 of 1 with  of 1");
    assert_eq!(case(&[&[], &["2 2d-3f 10"]]).dropping(2).choice(), "compact 2 of 1 with  of 1");
    assert_eq!(case(&[&[], &["2 1d-2f 10"]]).dropping(2).choice(), "compact 2 of 1 with  of 1");
    assert_eq!(case(&[&[], &["2 1d-1f 10", "3 3a-3b 10"]]).dropping(2).choice(), "nothing");
    assert_eq!(case(&[&[], partly]).dropping(2).running(1, "3f", "3g").choice(), "nothing");
    assert_eq!(case(&[&[], partly, &["5 1x-1z 2000"]]).dropping(2).choice(), "move 5 from 2 to 3");
    // HL0 is compacted as a whole.
    assert_eq!(case(&[&["9 1a-1b 10", "8 1a-3b 10"], partly]).dropping(2).choice(), "compact 9,8 of 0 with 1,2 of 1");
}

#[test]
fn tombstones_with_something_beneath_them_are_pushed_down() {
    assert_eq!(case(&[&[], &["1 a-c 10 deletes"], &["2 b-d 10"]]).choice(), "compact 1 of 1 with 2 of 2");
    assert_eq!(case(&[&[], &["1 a-c 10 deletes"], &[], &["2 b-d 10"]]).choice(), "compact 1 of 1 with  of 2");
    // Only once they are a third of their table.
    assert_eq!(case(&[&[], &["1 a-c 10 deletes=34"], &["2 b-d 10"]]).choice(), "compact 1 of 1 with 2 of 2");
    assert_eq!(case(&[&[], &["1 a-c 10 deletes=33"], &["2 b-d 10"]]).choice(), "nothing");
    // The last level has nothing below it.
    assert_eq!(case(&[&[], &[], &[], &["1 a-c 10 deletes"], &["2 b-d 10"]]).choice(), "compact 1 of 3 with 2 of 4");
    // A level over its target comes first.
    let full: &[&str] = &["1 a-c 10 deletes", "3 x-y 95"];
    assert_eq!(case(&[&[], full, &["2 b-d 10"]]).choice(), "move 3 from 1 to 2");
}

#[test]
fn tables_too_small_to_matter_are_not_compacted_for_their_deletes() {
    let large = |case: Case| {
        case.with(|figures| {
            let targets = LevelTargets { base_bytes: 6400, ..figures.targets };
            show(choose(&Figures { levels: figures.levels.clone(), targets, ..*figures }))
        })
    };
    assert_eq!(large(case(&[&[], &["1 a-c 99 deletes"], &["2 b-d 10"]])), "nothing");
    assert_eq!(large(case(&[&[], &["1 a-c 100 deletes"], &["2 b-d 10"]])), "compact 1 of 1 with 2 of 2");
    assert_eq!(large(case(&[&[], &["1 a-c 99 deletes"]])), "nothing");
    assert_eq!(large(case(&[&[], &["1 a-c 100 deletes"]])), "compact 1 of 1 with  of 1");
}

#[test]
fn deletes_make_a_table_more_urgent_than_others_with_the_same_overlap() {
    let hl2: &[&str] = &["4 a-b 30", "5 b-c 30", "6 d-e 30", "7 g-h 30"];
    // 30 bytes below each of the last two tables; half of the second one is deletes, so it counts twice.
    let hl1: &[&str] = &["1 a-c 50", "2 d-f 40 deletes=30", "3 g-i 50"];
    assert_eq!(case(&[&[], hl1, hl2]).choice(), "compact 2 of 1 with 6 of 2");
    let hl1: &[&str] = &["1 a-c 50", "2 d-f 40 deletes=10", "3 g-i 50"];
    assert_eq!(case(&[&[], hl1, hl2]).choice(), "compact 3 of 1 with 7 of 2");
}

#[test]
fn tombstones_with_nothing_beneath_them_are_removed_when_no_snapshot_needs_them() {
    let bottom: &[&[&str]] = &[&[], &[], &["7 a-c 10 deletes=20", "8 d-e 10"], &["1 d-f 10"]];
    assert_eq!(case(bottom).choice(), "compact 7 of 2 with  of 2");
    assert_eq!(case(bottom).snapshot(79).choice(), "compact 7 of 2 with  of 2");
    assert_eq!(case(bottom).snapshot(78).choice(), "nothing");
    // A few are not worth a job, and tombstones with something beneath them are needed.
    assert_eq!(case(&[&[], &["7 a-c 10 deletes=12"]]).choice(), "nothing");
    assert_eq!(case(&[&[], &["7 a-c 10 deletes=13"]]).choice(), "compact 7 of 1 with  of 1");
    assert_eq!(case(&[&[], &["7 a-c 10 deletes=20"], &[], &["1 c-d 10"]]).choice(), "nothing");
    assert_eq!(case(&[&[], &[], &[], &[], &["7 a-c 10 deletes"]]).choice(), "compact 7 of 4 with  of 4");
    // Running jobs are not disturbed, and HL0 is left alone.
    assert_eq!(case(&[&[], &["7 a-c 10 deletes busy"]]).choice(), "nothing");
    assert_eq!(case(&[&[], &["7 a-c 10 deletes"]]).running(1, "b", "f").choice(), "nothing");
    assert_eq!(case(&[&["7 a-c 10 deletes"]]).choice(), "nothing");
}

#[test]
fn the_wanted_snapshot_is_the_first_whose_release_frees_a_table() {
    let awaited = |case: Case| case.with(|figures| wanted_snapshot(figures).map(|seqno| seqno.0));
    let levels: &[&[&str]] = &[&[], &["9 a-c 10 deletes", "8 d-e 10 deletes", "7 f-g 10"], &["5 a-b 10"]];
    assert_eq!(awaited(case(levels).snapshot(40)), Some(89), "9 has something beneath it, 7 has no deletes");
    assert_eq!(awaited(case(levels).snapshot(89)), None);
    assert_eq!(awaited(case(&[&[], &["9 a-c 10"]]).snapshot(40)), None);
}

#[test]
fn tables_covered_by_a_range_tombstone_are_dropped_unread() {
    let covering = "9 b-m 10 clears=b-n@95";
    let levels: &[&[&str]] = &[&[covering, "8 c-d 10"], &["1 b-d 10", "2 e-p 10"], &["3 a-c 10", "4 f-m 10"]];
    assert_eq!(case(levels).choice(), "drop 8 of 0");
    assert_eq!(case(&[&[covering], levels[1], levels[2]]).choice(), "drop 1 of 1", "the end of 2 is not covered");
    assert_eq!(case(&[&[covering], &["2 e-p 10"], levels[2]]).choice(), "drop 4 of 2");
    assert_eq!(case(&[&[covering], &["1 b-d 10", "5 e-m 10"]]).choice(), "drop 1,5 of 1");
    // Tables above it, or newer ones, are not affected; and it does not cover itself.
    assert_eq!(case(&[&["10 c-d 10", covering]]).choice(), "nothing");
    assert_eq!(case(&[&["9 c-d 10"], &["8 b-m 10 clears=b-n@85"]]).choice(), "nothing");
    // The end of a range is exclusive.
    assert_eq!(case(&[&[covering], &["1 m-z 10"]]).choice(), "nothing");
    // A job that uses a covered table handles it; whether a job uses the table with the tombstone does not matter.
    assert_eq!(case(&[&[covering], &["1 b-d 10 busy", "5 e-m 10"]]).choice(), "drop 5 of 1");
    assert_eq!(case(&[&["9 b-m 10 clears=b-n@95 busy"], &["1 b-d 10"]]).choice(), "drop 1 of 1");
}

#[test]
fn a_snapshot_keeps_covered_tables_and_its_release_is_awaited() {
    let levels: &[&[&str]] = &[&["9 b-m 10 clears=b-n@95"], &["1 b-d 10"]];
    let awaited = |case: Case| case.with(|figures| wanted_snapshot(figures).map(|seqno| seqno.0));
    assert_eq!(case(levels).snapshot(98).choice(), "nothing");
    assert_eq!(awaited(case(levels).snapshot(98)), Some(99));
    assert_eq!(case(levels).snapshot(99).choice(), "drop 1 of 1");
    assert_eq!(awaited(case(&[levels[0], &["1 x-z 10"]]).snapshot(98)), None);
}

#[test]
fn a_table_of_range_tombstones_only_is_dropped_when_nothing_lies_beneath() {
    let alone = "9 b-m 10 clears=b-n@95 ranges-only";
    assert_eq!(case(&[&[], &[alone, "8 x-z 10"], &["1 n-p 10"]]).choice(), "drop 9 of 1");
    assert_eq!(case(&[&[], &[alone]]).snapshot(3).choice(), "drop 9 of 1", "no snapshot sees a difference");
    assert_eq!(
        case(&[&[], &["9 b-m 10 clears=b-n@95"]]).choice(),
        "nothing",
        "one fragment is too few beside 100 versions"
    );
    assert_eq!(case(&[&[alone]]).choice(), "nothing");
    assert_eq!(case(&[&[], &["9 b-m 10 clears=b-n@95 ranges-only busy"]]).choice(), "nothing");
}

#[test]
fn a_range_tombstone_that_covers_much_is_pushed_down() {
    let below: &[&str] = &["1 a-k 90"];
    let choice = |table: &str| case(&[&[], &[table], below]).choice();
    assert_eq!(choice("9 c-g 2 clears=c-h@95"), "compact 9 of 1 with 1 of 2");
    assert_eq!(choice("9 c-d 2 clears=c-d@95"), "nothing", "a tenth of table 1");
    assert_eq!(choice("9 c-g 90 clears=c-h@95"), "nothing", "reading the table costs more than is removed");
    // From HL0 as well, and not while a snapshot would keep all of it.
    let levels: &[&[&str]] = &[&["9 c-g 2 clears=c-h@95", "8 x-y 5"], below];
    assert_eq!(case(levels).choice(), "compact 9,8 of 0 with 1 of 1");
    assert_eq!(case(levels).snapshot(98).choice(), "nothing");
}

#[test]
fn a_requested_range_is_compacted_or_must_wait() {
    let levels: &[&[&str]] = &[&["9 a-b 10", "8 x-z 10"], &["1 a-c 10", "2 d-f 10", "3 g-i 10"], &["4 e-h 10"]];
    let ask = |case: Case, from, to, smallest: &str, largest: &str| {
        case.with(|figures| choose_range(figures, from, to, &full(smallest), &after(largest))).map(show)
    };
    assert_eq!(ask(case(levels), 0, 1, "a", "a").unwrap(), "compact 9,8 of 0 with 1,2,3 of 1");
    assert_eq!(ask(case(levels), 0, 1, "m", "n").unwrap(), "nothing");
    assert_eq!(ask(case(levels), 1, 2, "c", "d").unwrap(), "compact 1,2 of 1 with 4 of 2");
    assert_eq!(ask(case(levels), 2, 2, "a", "z").unwrap(), "compact 4 of 2 with  of 2");
    let moving: &[&[&str]] = &[&[], &["1 c-d 10 busy"], &["2 a-b 10", "3 e-f 10"]];
    assert_eq!(ask(case(moving), 2, 2, "a", "z"), None);
    assert_eq!(ask(case(levels).running(2, "h", "i"), 1, 2, "c", "d"), None);
    assert_eq!(ask(case(&[&["9 a-b 10 busy"]]), 0, 1, "a", "b"), None);
}

#[test]
fn targets_grow_by_the_multiplier_and_do_not_overflow() {
    let targets = LevelTargets { hl0_trigger: 4, hl0_trigger_if_small: 6, base_bytes: 100, multiplier: 10 };
    assert_eq!((targets.bytes(1), targets.bytes(2), targets.bytes(4)), (100, 1000, 100_000));
    assert_eq!(LevelTargets { base_bytes: u64::MAX, ..targets }.bytes(6), u64::MAX);
}

#[test]
fn tables_with_stale_addresses_are_rewritten_when_nothing_else_is_due() {
    let mut levels = case(&[&["9 a-z 10"], &["7 a-b 50 busy", "8 c-d 49"], &["5 a-b 10", "6 m-n 10"]]);
    levels.stale = [9, 7, 6].map(FileId).into();
    assert_eq!(levels.choice(), "compact 6 of 2 with  of 2");
    assert_eq!(levels.running(2, "n", "o").choice(), "nothing");
}

#[test]
fn an_idle_engine_compacts_hl0_unless_much_more_lies_below() {
    let ask = |levels: &[&[&str]], stale: &[u64]| {
        let mut case = case(levels);
        case.stale_when_idle = stale.iter().map(|id| FileId(*id)).collect();
        let before = case.choice();
        assert_eq!(before, "nothing");
        case.when_idle = true;
        case.choice()
    };
    let two: &[&str] = &["9 a-m 10", "8 c-z 10"];
    assert_eq!(ask(&[two, &["7 a-z 80"]], &[]), "compact 9,8 of 0 with 7 of 1");
    assert_eq!(ask(&[two, &["7 a-z 81"]], &[]), "nothing");
    assert_eq!(ask(&[&["9 a-m 10"], &["7 a-z 20"]], &[]), "nothing");
    assert_eq!(ask(&[&["9 a-m 10"], &["7 a-z 20"]], &[9]), "compact 9 of 0 with 7 of 1");
    assert_eq!(ask(&[&["9 a-m 10"], &["7 a-z 41"]], &[9]), "nothing");
    assert_eq!(ask(&[&["9 a-m 10", "8 c-z 10 busy"]], &[]), "nothing");
    assert_eq!(ask(&[&["9 a-m 10"], &["7 a-b 20", "6 c-d 20"]], &[6]), "compact 6 of 1 with  of 1");
}

#[test]
fn a_level_is_far_behind_at_twice_its_target() {
    let behind = |size: &str| case(&[&[], &[&format!("1 a-c {size}")]]).with(|figures| figures.is_far_behind(1));
    assert_eq!([behind("199"), behind("200"), behind("300 busy")], [false, true, false]);
}
