//! Compactions in subtasks, in parallel, and after a snapshot.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::tuning::sizes::Tuning;
use crate::io::SimDisk;
use crate::sched::sim::{random, simulate};
use crate::sched::sync::Mutex;
use crate::sched::thread::{sleep, spawn};
use crate::{Compression, Db, Options};

fn open(threads: usize, tuning: Tuning) -> Db {
    let disk = Arc::new(SimDisk::new());
    let options = Options::new().background_threads(threads).compression(Compression::None);
    crate::api::db::open(disk, Path::new("/db"), options, Some(tuning)).unwrap()
}

fn in_world<T: Send + 'static>(seed: u64, test: impl FnOnce() -> T + Send + 'static) -> T {
    simulate(seed, test).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The compactions observed to run concurrently, by target level.
fn seen_together(db: &Db, work: impl FnOnce(&Db)) -> Vec<Vec<usize>> {
    let (over, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let observer = {
        let (db, over, seen) = (db.clone(), over.clone(), seen.clone());
        spawn("observer", move || {
            while !over.load(Ordering::SeqCst) {
                let mut levels: Vec<usize> =
                    db.inner.core.work.lock().claimed_ranges().iter().map(|running| running.to).collect();
                levels.sort_unstable();
                seen.lock().push(levels);
                sleep(Duration::from_micros(20));
            }
        })
    };
    work(db);
    over.store(true, Ordering::SeqCst);
    observer.join().unwrap();
    let mut seen = std::mem::take(&mut *seen.lock());
    seen.sort();
    seen.dedup();
    seen
}

/// Writes to one key range at a time, so that new tables overlap only a part of HL1.
fn write_here_and_there(db: &Db) {
    for number in 0..6000_u64 {
        let key = format!("{:06}", number / 500 % 4 * 1000 + random(1000));
        db.put(key, vec![number as u8; 60]).unwrap();
    }
}

#[test]
fn compactions_of_different_levels_and_of_apart_ranges_of_one_run_at_once() {
    let mut tuning = Tuning::tiny();
    (tuning.flush_bytes, tuning.table_bytes, tuning.level_base_bytes) = (4 << 10, 4 << 10, 8 << 10);
    tuning.hl0_compact_tables = 1;
    let seen = |threads| {
        let tuning = tuning.clone();
        (0..8).flat_map(move |seed| {
            let tuning = tuning.clone();
            in_world(seed, move || seen_together(&open(threads, tuning), write_here_and_there))
        })
    };
    // Two of three threads may choose compactions.
    let pairs: Vec<_> = seen(3).chain(seen(4)).collect();
    let together = |levels: [usize; 2]| pairs.iter().any(|pair| pair[..] == levels);
    assert!(together([1, 2]), "HL0 and HL1 are compacted at once: {pairs:?}");
    assert!(together([2, 3]), "HL1 and HL2 are compacted at once: {pairs:?}");
    assert!(together([2, 2]), "HL1 is compacted in two places at once: {pairs:?}");
}

#[test]
fn a_large_compaction_has_as_many_subtasks_as_there_are_threads() {
    let compact = |threads| {
        in_world(threads as u64, move || {
            let mut tuning = Tuning::tiny();
            (tuning.table_bytes, tuning.hl0_compact_tables) = (4 << 10, 1000);
            let db = open(threads, tuning);
            for number in 0..2000_u64 {
                db.put(format!("{:05}", number * 7919 % 2000), vec![b'v'; 50]).unwrap();
            }
            db.flush().unwrap();
            let before = db.stats();
            assert_eq!((before.compactions, before.compaction_subtasks), (0, 0));
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            assert_eq!(db.iter().unwrap().count(), 2000);
            let after = db.stats();
            assert_eq!(after.levels[0].tables, 0);
            (after.compactions, after.compaction_subtasks)
        })
    };
    assert_eq!(compact(1), (1, 1));
    assert_eq!(compact(2), (1, 2));
    assert_eq!(compact(4), (1, 4));
}

#[test]
fn tombstones_kept_for_a_snapshot_go_once_it_is_released_and_nothing_is_rewritten_for_ever() {
    in_world(7, || {
        let db = open(2, Tuning::tiny());
        for number in 0..300_u32 {
            db.put(format!("{number:04}"), vec![b'v'; 100]).unwrap();
        }
        let snapshot = db.snapshot();
        let keyspace = db.default_keyspace();
        for number in 0..300_u32 {
            db.delete(format!("{number:04}")).unwrap();
        }
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        let entries = |db: &Db| db.stats().levels.iter().map(|level| level.entries).sum::<u64>();
        sleep(Duration::from_secs(1));
        assert_eq!(entries(&db), 600, "the snapshot needs all values, and readers the tombstones");
        let compactions = db.stats().compactions;
        sleep(Duration::from_secs(1));
        assert_eq!(db.stats().compactions, compactions, "nothing is gained by rewriting yet");
        assert!(snapshot.get(&keyspace, "0007").unwrap().is_some());
        drop(snapshot);
        sleep(Duration::from_secs(1));
        assert_eq!(entries(&db), 0);
        let compactions = db.stats().compactions;
        sleep(Duration::from_secs(1));
        assert_eq!(db.stats().compactions, compactions);
    });
}
