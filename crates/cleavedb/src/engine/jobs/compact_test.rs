//! Compactions in subtasks, in parallel, and after a snapshot.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Compact, TableMerge};
use crate::base::{Address, Cursor, FileId, Kind};
use crate::engine::core::Core;
use crate::engine::jobs::collect_garbage::run_collection;
use crate::engine::jobs::collection::Purpose;
use crate::engine::jobs::subtasks::{Done, SubtaskJob, Subtasks};
use crate::engine::tuning::sizes::Tuning;
use crate::engine::work::{Class, Worker};
use crate::io::{SimDisk, Storage};
use crate::sched::sim::{random, simulate};
use crate::sched::sync::Mutex;
use crate::sched::thread::{sleep, spawn};
use crate::values::candidate::Choice;
use crate::values::files::{Entry, Located};
use crate::{Compression, Db, Keyspace, KeyspaceOptions, Options};

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

/// A database with separated values, in which nothing is compacted or collected unless a test does it.
fn open_at_rest() -> (Arc<SimDisk>, Db, Keyspace) {
    let disk = Arc::new(SimDisk::new());
    let mut tuning = Tuning::tiny();
    (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (500, 1000);
    (tuning.compacts_when_idle, tuning.garbage_bytes) = (false, 1 << 40);
    // Values are read from their files.
    tuning.cache_bytes = 0;
    let options = Options::new().background_threads(2).compression(Compression::None);
    let db = crate::api::db::open(disk.clone(), Path::new("/db"), options, Some(tuning)).unwrap();
    let appended = KeyspaceOptions::new().merge_operator("append").separation(Some(150));
    let keyspace = db.create_keyspace("appended", appended).unwrap();
    (disk, db, keyspace)
}

/// Puts a value of each key, and flushes.
fn put_all(db: &Db, keyspace: &Keyspace, of: u8) {
    for number in 0..200 {
        keyspace.put(format!("{number:03}"), [of; 160]).unwrap();
    }
    db.flush().unwrap();
}

/// Tables of HL0, oldest first.
fn tables(core: &Core) -> Vec<FileId> {
    let view = core.published.view();
    view.version.levels()[0].tables().iter().rev().map(|table| table.meta().id).collect()
}

/// A merge of tables of HL0, the oldest ones, into HL1.
fn merge_of(core: &Core, oldest: &[FileId]) -> TableMerge {
    let view = core.published.view();
    let metas = oldest.iter().map(|id| view.version.find(*id).unwrap().1.meta().clone());
    let metas: Vec<_> = metas.collect();
    let compact = Compact {
        from: 0,
        to: 1,
        inputs: oldest.iter().rev().copied().collect(),
        inputs_below: Vec::new(),
        smallest: metas.iter().map(|meta| meta.smallest.clone()).min().unwrap(),
        end: metas.iter().map(|meta| meta.end.clone()).max().unwrap(),
        is_idle_compaction: false,
    };
    TableMerge::plan(core, &compact).unwrap()
}

fn run(core: &Arc<Core>, merge: TableMerge) {
    let job = SubtaskJob::new(merge);
    loop {
        match job.do_one(core, Worker::Other) {
            Done::Job(result) => return result.unwrap(),
            Done::Subtask => {}
            Done::Nothing => panic!("the last subtask ends the job"),
        }
    }
}

/// Empties all value files; returns their paths.
fn collect_all(core: &Core) -> Vec<Arc<Path>> {
    let values = core.published.view().values.clone();
    let here = values.files.iter().filter_map(|(id, entry)| match entry {
        Entry::Here(file) => Some((*id, file.stored().path().clone())),
        Entry::Moved(_) => None,
    });
    let (files, paths): (Vec<FileId>, Vec<_>) = here.unzip();
    assert!(!files.is_empty());
    let choice = Choice { files, ..Choice::default() };
    core.conclude(run_collection(core, &choice, Purpose::Space { pauses: false }, Class::Mandatory).unwrap()).unwrap();
    paths
}

/// Closes the database and checks its files.
fn check(disk: &Arc<SimDisk>, db: Db) {
    db.close().unwrap();
    let report = crate::testing::check(disk.clone(), Path::new("/db"), &Options::new()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

/// Writes until the log with the last values has left the front.
fn leave_the_front(db: &Db, keyspace: &Keyspace) {
    for number in 0..2000 {
        keyspace.put(format!("later {number:04}"), [b'-'; 100]).unwrap();
    }
    db.flush().unwrap();
}

#[test]
fn what_value_gc_empties_while_tables_are_merged_is_deleted_and_the_merge_finds_what_moved() {
    in_world(1, || {
        let (disk, db, keyspace) = open_at_rest();
        let core = &db.inner.core;
        put_all(&db, &keyspace, b'a');
        leave_the_front(&db, &keyspace);
        let before = tables(core);
        let merge = merge_of(core, &before);
        let emptied = collect_all(core);
        sleep(Duration::from_secs(1));
        let left: Vec<_> = emptied.iter().filter(|path| disk.exists(path).unwrap()).collect();
        assert!(left.is_empty(), "the planned merge holds {left:?}");
        // What the merge refreshes leads to files that were emptied since.
        let second = collect_all(core);
        run(core, merge);
        sleep(Duration::from_secs(1));
        assert!(second.iter().all(|path| !disk.exists(path).unwrap()));
        assert!(tables(core).iter().all(|table| !before.contains(table)), "they were merged");
        for number in 0..200 {
            assert_eq!(keyspace.get(format!("{number:03}")).unwrap().unwrap(), [b'a'; 160]);
        }
        check(&disk, db);
    });
}

#[test]
fn operands_stay_apart_from_a_base_that_value_gc_dropped_because_there_is_a_newer_one() {
    in_world(2, || {
        let (disk, db, keyspace) = open_at_rest();
        let core = &db.inner.core;
        put_all(&db, &keyspace, b'a');
        // Each is too small to be separated, and two are as large as the base, onto which a merge would fold them.
        for operand in [b'b', b'c'] {
            for number in 0..200 {
                keyspace.merge(format!("{number:03}"), [operand; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        let oldest = tables(core);
        put_all(&db, &keyspace, b'd');
        leave_the_front(&db, &keyspace);
        collect_all(core);
        // The tables still reference the bases.
        let view = core.published.view();
        let mut cursor = view.version.find(oldest[0]).unwrap().1.cursor(false);
        cursor.seek_first().unwrap();
        assert_eq!(cursor.stamp().kind(), Some(Kind::PutAt));
        let base = Address::decode(cursor.value()).unwrap();
        assert!(matches!(view.values.locate(base).unwrap(), Located::Dead));
        drop((cursor, view));
        run(core, merge_of(core, &oldest));
        assert!(tables(core).iter().all(|table| !oldest.contains(table)), "they were merged");
        for number in 0..200 {
            assert_eq!(keyspace.get(format!("{number:03}")).unwrap().unwrap(), [b'd'; 160]);
        }
        check(&disk, db);
    });
}
