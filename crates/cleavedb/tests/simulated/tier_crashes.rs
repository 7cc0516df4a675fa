//! Crashes at each step, and losses of power of one disk alone at every sync, while values are collected on both tiers, logs are
//! demoted before and after they are flushed, and files move to another directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cleavedb::testing::{self, Canary, Phase, SimDisk, Tuning};
use cleavedb::{Db, Durability, Error, KeyspaceOptions, Options, ValuePlacement, WriteBatch};

use crate::support::{in_world, unflushed, value};
use crate::tiers::{numbered, open_at, small_logs};

/// Keys that are overwritten in turn.
const KEYS: u64 = 24;
/// One write in this many is `Sync`.
const SYNCED: u64 = 4;
/// Writes while images are taken.
const DURING: u64 = 16;

/// Some keys are overwritten often, others rarely, and two of three values are separated.
fn key_of(number: u64) -> u64 {
    if number.is_multiple_of(2) { number / 2 % 5 } else { number * 7 % KEYS }
}

fn value_of(number: u64) -> Vec<u8> {
    value(&format!("{number} "), [60, 195, 700][(number % 3) as usize])
}

/// The same keys in a hash keyspace have values of other lengths.
fn hashed_value_of(number: u64) -> Vec<u8> {
    value(&format!("{number} "), [40, 300][(number % 2) as usize])
}

/// Writes the next numbers, each with the number itself in the same batch, also to the hash keyspace if there is one; notes what
/// must survive.
fn write(db: &Db, numbers: std::ops::Range<u64>, durable: &AtomicU64) {
    let hashed = db.open_keyspace("hashed").ok();
    for number in numbers {
        let mut batch = WriteBatch::new();
        batch.put(&db.default_keyspace(), format!("{:02}", key_of(number)), value_of(number));
        if let Some(hashed) = &hashed {
            batch.put(hashed, format!("{:02}", key_of(number)), hashed_value_of(number));
        }
        batch.put(&db.default_keyspace(), "last", number.to_string());
        let is_sync = number % SYNCED == 0;
        db.write_with(batch, if is_sync { Durability::Sync } else { Durability::Buffered }).unwrap();
        if is_sync {
            durable.store(number + 1, Ordering::SeqCst);
        }
        // Keeps a few of the values in the cache, so that GC makes them on the fast tier.
        (5..8).for_each(|key| drop(db.get(format!("{key:02}")).unwrap()));
    }
}

/// The number that each key has after `count` writes.
fn newest_of(count: u64) -> BTreeMap<String, u64> {
    (0..count).map(|number| (format!("{:02}", key_of(number)), number)).collect()
}

/// How many numbers there are; the content must be that after the last of them.
fn count(db: &Db) -> u64 {
    let last = db.get("last").unwrap().map(|last| String::from_utf8_lossy(&last).parse::<u64>().unwrap());
    let count = last.map_or(0, |last| last + 1);
    let wanted = newest_of(count);
    let found: Vec<_> = db.iter().unwrap().map(|item| item.unwrap()).filter(|(key, _)| &key[..] != b"last").collect();
    assert_eq!(found.len(), wanted.len(), "after {count}");
    for ((key, of_key), (wanted, number)) in found.iter().zip(&wanted) {
        assert!(&key[..] == wanted.as_bytes() && of_key[..] == value_of(*number), "{wanted} after {count}");
    }
    let Ok(hashed) = db.open_keyspace("hashed") else { return count };
    let items = hashed.iter_unordered().unwrap().map(|item| item.unwrap());
    let found: BTreeMap<_, _> = items.map(|(key, value)| (key.to_vec(), value)).collect();
    assert_eq!(found.len(), wanted.len(), "after {count}");
    for (key, number) in &wanted {
        assert!(found[key.as_bytes()][..] == hashed_value_of(*number), "{key} after {count}");
    }
    count
}

/// Which files lie where.
#[derive(Debug, Default)]
struct Seen(BTreeMap<(&'static str, &'static str), u32>);

impl Seen {
    fn note(&mut self, disk: &SimDisk) {
        for directory in ["/db", "/slow"] {
            let names = numbered(disk, directory);
            for kind in ["log", "table", "segment", "redirect"] {
                let is_there = names.iter().any(|name| name.ends_with(kind));
                *self.0.entry((directory, kind)).or_default() += u32::from(is_there);
            }
        }
    }

    fn of(&self, directory: &'static str, kind: &'static str) -> u32 {
        self.0.get(&(directory, kind)).copied().unwrap_or_default()
    }
}

/// An image, the writes that must have survived, and those that had begun.
struct Image {
    disk: SimDisk,
    durable: u64,
}

/// Takes images at every sync: of either disk, or of both, after it has lost its power.
fn lose_either(disk: &SimDisk, durable: &Arc<AtomicU64>) -> Arc<Mutex<Vec<Image>>> {
    let images: Arc<Mutex<Vec<Image>>> = Arc::default();
    let (into, durable) = (images.clone(), durable.clone());
    disk.on_sync(move |disk, point| {
        let mut images = into.lock().unwrap();
        let (seed, durable) = (images.len() as u64, durable.load(Ordering::SeqCst));
        let loses = |lost: fn(bool) -> bool| disk.power_loss_of(seed, |path| lost(path == Path::new("/db")));
        // The other disk is lost after the sync; what it has is the same.
        let lost = match point.phase {
            Phase::Before => [loses(|is_fast| is_fast), loses(|is_fast| !is_fast)],
            Phase::After if seed.is_multiple_of(2) => [loses(|is_fast| !is_fast), loses(|_| true)],
            Phase::After => [loses(|is_fast| is_fast), loses(|_| true)],
        };
        images.extend(lost.into_iter().map(|disk| Image { disk, durable }));
    });
    images
}

fn taken(disk: &SimDisk, images: &Mutex<Vec<Image>>) -> Vec<Image> {
    disk.clear_on_sync();
    std::mem::take(&mut images.lock().unwrap())
}

/// Opens each image: it has a prefix of the writes with all that must have survived, and goes on.
fn check_images(images: Vec<Image>, options: &Options, tuning: &Tuning) -> Seen {
    let mut seen = Seen::default();
    for (turn, Image { disk, durable }) in images.into_iter().enumerate() {
        seen.note(&disk);
        let db = match open_at(&disk, options.clone(), tuning.clone()) {
            Ok(db) => db,
            // Nothing was acknowledged yet, and one of the directories is not there.
            Err(error) => {
                assert!(durable == 0, "{durable}: {error}");
                continue;
            }
        };
        let found = count(&db);
        assert!(found >= durable, "{found} of {durable}");
        if turn % 8 == 0 {
            write(&db, found..found + 20, &AtomicU64::new(0));
            db.wait_for_background().unwrap();
            assert_eq!(count(&db), found + 20);
            db.close().unwrap();
            let report = testing::check(Arc::new(disk), Path::new("/db"), options).unwrap();
            assert_eq!(report.problems, []);
        }
    }
    seen
}

/// Small logs, and values are collected as soon as there is some garbage.
fn collecting(placement: ValuePlacement, tuning: Tuning) -> (Tuning, u64) {
    let (mut tuning, budget) = small_logs(tuning);
    (tuning.garbage_bytes, tuning.garbage_percent) = (4 << 10, 10);
    (tuning.placement, tuning.collects_when_idle) = (placement, true);
    (tuning, budget)
}

fn lose_either_disk_at_every_sync(seed: u64, (tuning, budget): (Tuning, u64), before: u64) -> Seen {
    lose_either_disk_with(seed, (tuning, budget), before, false)
}

/// The same, with or without a hash keyspace.
fn lose_either_disk_with(seed: u64, (tuning, budget): (Tuning, u64), before: u64, is_hashed: bool) -> Seen {
    in_world(seed, move || {
        let disk = SimDisk::new();
        let options = Options::new().slow_dir("/slow").fast_bytes(budget);
        let durable = Arc::new(AtomicU64::new(0));
        let db = open_at(&disk, options.clone(), tuning.clone()).unwrap();
        if is_hashed {
            db.create_keyspace("hashed", KeyspaceOptions::hash()).unwrap();
        }
        // The budget is nearly used up before images are taken.
        write(&db, 0..before, &durable);
        let images = lose_either(&disk, &durable);
        write(&db, before..before + DURING, &durable);
        let stats = db.stats();
        assert!(stats.tiers.bytes_moved > 0 || stats.value_gcs > 0, "{:?}", stats.tiers);
        db.close().unwrap();
        let images = taken(&disk, &images);
        assert!(images.len() > 60, "{}", images.len());
        check_images(images, &options, &tuning)
    })
}

#[test]
fn either_disk_may_lose_power_at_any_sync_of_value_gc_by_hash() {
    let seen = lose_either_disk_at_every_sync(1, collecting(ValuePlacement::Hash, Tuning::tiny()), 160);
    // Whether the fast tier has room for redirect tables too depends on the order of the jobs.
    let redirects = seen.of("/db", "redirect") + seen.of("/slow", "redirect");
    assert!(seen.of("/slow", "segment") > 0 && seen.of("/db", "segment") > 0 && redirects > 0, "{seen:?}");
}

#[test]
fn either_disk_may_lose_power_at_any_sync_of_value_gc_by_range() {
    // Where the fast tier is full at the wrong moments there is no room for segments and redirect tables.
    let seen = [3, 7, 8].map(|seed| {
        let seen = lose_either_disk_at_every_sync(seed, collecting(ValuePlacement::Range, Tuning::tiny()), 160);
        assert!(seen.of("/slow", "segment") > 0, "{seen:?}");
        seen
    });
    assert!(seen.iter().any(|seen| seen.of("/db", "segment") > 0), "{seen:?}");
    assert!(seen.iter().any(|seen| seen.of("/db", "redirect") > 0), "{seen:?}");
}

#[test]
fn either_disk_may_lose_power_at_any_sync_while_hl0_and_read_values_are_on_the_fast_one() {
    let (mut tuning, _) = collecting(ValuePlacement::Hash, Tuning::tiny());
    tuning.collects_when_idle = false;
    let seen = lose_either_disk_at_every_sync(4, (tuning, 1 << 20), 400);
    assert!(seen.of("/db", "table") > 0 && seen.of("/slow", "segment") > 0, "{seen:?}");
    assert!(seen.of("/db", "segment") > 0, "{seen:?}");
}

#[test]
fn either_disk_may_lose_power_at_any_sync_while_logs_are_demoted_before_their_flush() {
    for is_hashed in [false, true] {
        let seen = lose_either_disk_with(3, collecting(ValuePlacement::Hash, unflushed()), 160, is_hashed);
        assert!(seen.of("/slow", "log") > 0, "{seen:?}");
    }
}

/// Takes an image of a crashed process whenever the files have changed, whichever thread did that.
fn film(disk: &SimDisk) -> (testing::JoinHandle, Arc<AtomicBool>, Arc<Mutex<Vec<Image>>>) {
    let (stop, images) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<Image>>>::default());
    let (stopped, into, disk) = (stop.clone(), images.clone(), disk.clone());
    let camera = testing::spawn("camera", move || {
        let mut last = Vec::new();
        while !stopped.load(Ordering::SeqCst) {
            let files = disk.files();
            if files != last {
                into.lock().unwrap().push(Image { disk: disk.process_crash(), durable: 0 });
                last = files;
            }
            testing::yield_point();
        }
    });
    (camera, stop, images)
}

/// Opens `disk` with these options and lets files move, once filmed and once with losses of power.
fn images_of_moves(disk: &SimDisk, count_of: u64, tuning: &Tuning, then: &Options) -> Vec<Image> {
    let mut images = Vec::new();
    for is_filmed in [true, false] {
        let disk = disk.process_crash();
        let durable = Arc::new(AtomicU64::new(count_of));
        let filmed = is_filmed.then(|| film(&disk));
        let lost = (!is_filmed).then(|| lose_either(&disk, &durable));
        let db = open_at(&disk, then.clone(), tuning.clone()).unwrap();
        db.wait_for_background().unwrap();
        assert!(db.stats().tiers.bytes_moved > 0 && db.stats().tiers.files_to_move == 0);
        db.close().unwrap();
        if let Some((camera, stop, filmed)) = filmed {
            stop.store(true, Ordering::SeqCst);
            camera.join().unwrap();
            images.append(&mut filmed.lock().unwrap());
        }
        images.extend(lost.into_iter().flat_map(|lost| taken(&disk, &lost)));
    }
    assert!(images.len() > 50, "{}", images.len());
    images
}

/// Each image of moves that `then` asks for is opened with `then`, with `before`, or with what `or` declares, and has all. Returns how
/// many show a move that is not complete.
fn crash_at_each_step(disk: &SimDisk, count_of: u64, tuning: &Tuning, [before, then, or]: [&Options; 3]) -> u32 {
    let mut incomplete = 0;
    for (turn, Image { disk, .. }) in images_of_moves(disk, count_of, tuning, then).into_iter().enumerate() {
        // The same file in two directories.
        let names = |directory| numbered(&disk, directory).into_iter();
        let all: Vec<String> = ["/db", "/slow", "/other"].into_iter().flat_map(names).collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        incomplete += u32::from(distinct.len() < all.len());
        let options = [then, before, then, or][turn % 4];
        let db = open_at(&disk, options.clone(), tuning.clone()).unwrap();
        assert_eq!(count(&db), count_of);
        db.wait_for_background().unwrap();
        assert_eq!((db.stats().tiers.files_to_move, count(&db)), (0, count_of));
        db.close().unwrap();
        if turn % 4 == 0 {
            let report = testing::check(Arc::new(disk), Path::new("/db"), options).unwrap();
            assert_eq!(report.problems, []);
        }
    }
    incomplete
}

#[test]
fn a_move_to_another_directory_may_be_interrupted_at_each_step() {
    let incomplete = in_world(1, || {
        let disk = SimDisk::new();
        let [slow, other, home] = ["/slow", "/other", "/db"].map(|slow| Options::new().slow_dir(slow));
        let (tuning, _) = collecting(ValuePlacement::Hash, Tuning::tiny());
        let db = open_at(&disk, slow.clone(), tuning.clone()).unwrap();
        write(&db, 0..60, &AtomicU64::new(0));
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        db.close().unwrap();
        crash_at_each_step(&disk, 60, &tuning, [&slow, &other, &home])
    });
    assert!(incomplete > 5, "{incomplete}");
}

/// A disk with `count_of` writes, the options it was written with, and a budget of the fast tier that lets logs leave it.
fn before_a_demotion(count_of: u64, tuning: &Tuning, budget: u64) -> (SimDisk, [Options; 2]) {
    let disk = SimDisk::new();
    let large = Options::new().slow_dir("/slow");
    let db = open_at(&disk, large.clone(), tuning.clone()).unwrap();
    write(&db, 0..count_of, &AtomicU64::new(0));
    db.close().unwrap();
    (disk, [large.clone(), large.fast_bytes(budget / 2)])
}

#[test]
fn a_demotion_may_be_interrupted_at_each_step() {
    for (seed, of) in [(1, Tuning::tiny as fn() -> Tuning), (2, unflushed)] {
        let incomplete = in_world(seed, move || {
            let (tuning, budget) = small_logs(of());
            let (disk, [large, small]) = before_a_demotion(150, &tuning, budget);
            crash_at_each_step(&disk, 150, &tuning, [&large, &small, &small])
        });
        assert!(incomplete > 2, "{incomplete}");
    }
}

/// The tables of a database with a small fast tier move there once it is larger.
#[test]
fn a_move_of_tables_to_the_fast_tier_may_be_interrupted_at_each_step() {
    let incomplete = in_world(1, || {
        let disk = SimDisk::new();
        let (mut tuning, budget) = small_logs(Tuning::tiny());
        // Several tables, with addresses, which move a few at a time.
        (tuning.table_bytes, tuning.separation_bytes) = (128, 32);
        let [large, small] = [16 * budget, budget / 2].map(|bytes| Options::new().slow_dir("/slow").fast_bytes(bytes));
        let db = open_at(&disk, small.clone(), tuning.clone()).unwrap();
        write(&db, 0..150, &AtomicU64::new(0));
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        db.close().unwrap();
        let tables = |disk: &SimDisk| {
            let of = |directory| numbered(disk, directory).iter().filter(|name| name.ends_with("table")).count();
            (of("/db"), of("/slow"))
        };
        let (fast, slow) = tables(&disk);
        assert!(fast == 0 && slow > 2, "{fast} and {slow}");
        let incomplete = crash_at_each_step(&disk, 150, &tuning, [&small, &large, &large]);
        let db = open_at(&disk, large, tuning).unwrap();
        db.wait_for_background().unwrap();
        assert_eq!((tables(&disk), count(&db)), ((slow, 0), 150));
        db.close().unwrap();
        incomplete
    });
    assert!(incomplete > 2, "{incomplete}");
}

/// True if a disk can be opened and has all that `count_of` writes left.
fn has_all(disk: &SimDisk, count_of: u64, options: &Options, tuning: &Tuning) -> bool {
    let read = || {
        let db = open_at(disk, options.clone(), tuning.clone())?;
        newest_of(count_of).into_iter().try_fold(true, |all, (key, number)| {
            Ok::<_, Error>(all && db.get(key)?.is_some_and(|found| found[..] == value_of(number)))
        })
    };
    read().is_ok_and(|all| all)
}

#[test]
fn the_planted_bug_of_a_move_that_is_committed_before_its_copy_is_synced_is_caught() {
    for (seed, of) in [(1, Tuning::tiny as fn() -> Tuning), (2, unflushed)] {
        let lost = |canary| {
            in_world(seed, move || {
                let (mut tuning, budget) = small_logs(of());
                tuning.canary = canary;
                let (disk, [_, small]) = before_a_demotion(150, &tuning, budget);
                let images = images_of_moves(&disk, 150, &tuning, &small);
                images.iter().filter(|image| !has_all(&image.disk, 150, &small, &tuning)).count()
            })
        };
        assert_eq!(lost(None), 0);
        assert!(lost(Some(Canary::MoveCommittedBeforeSync)) > 0);
    }
}
