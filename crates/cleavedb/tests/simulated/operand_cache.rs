//! The operand cache while flushes and rewrites of buckets write through to it: readers that run at the same time find what the
//! model has, now and in their snapshots.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{JoinHandle, SimDisk, random, sleep, spawn};
use cleavedb::{Db, Keyspace, Snapshot};

use crate::deltas::{calm, in_buckets, options};
use crate::support::{in_world, open_with};

const KEYS: usize = 120;
/// Half of the operations are on so many of them.
const HOT_KEYS: usize = 10;
const WRITES: usize = 1500;
const SEEDS: u64 = 6;

fn key(number: usize) -> String {
    format!("{number:03}")
}

fn draw(bound: usize) -> usize {
    random(bound as u64) as usize
}

fn draw_key() -> usize {
    draw(if draw(2) == 0 { HOT_KEYS } else { KEYS })
}

fn pause(microseconds_max: usize) {
    sleep(Duration::from_micros(draw(microseconds_max) as u64));
}

/// All values that a key has had. A write appends before it begins and counts once it has returned.
#[derive(Default)]
struct Known {
    values: Vec<Option<String>>,
    written: usize,
}

/// The history of each key, written by one thread. No lock is held while a thread may be switched.
struct Model {
    separator: char,
    keys: Vec<Mutex<Known>>,
    is_over: AtomicBool,
}

impl Model {
    fn new(separator: char) -> Model {
        let known = || Known { values: vec![None], written: 0 };
        Model { separator, keys: (0..KEYS).map(|_| Mutex::new(known())).collect(), is_over: AtomicBool::new(false) }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn write(&self, key: usize, next: impl FnOnce(Option<&str>) -> Option<String>, write: impl FnOnce()) {
        {
            let mut known = self.keys[key].lock().unwrap();
            let next = next(known.values.last().unwrap().as_deref());
            known.values.push(next);
        }
        write();
        self.keys[key].lock().unwrap().written += 1;
    }

    /// The number of writes that a read beginning now must find.
    fn written(&self, key: usize) -> usize {
        self.keys[key].lock().unwrap().written
    }

    /// Fails the run, and ends all threads, unless this holds.
    fn claim(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.is_over.store(true, Ordering::Relaxed);
            panic!("{}", what());
        }
    }

    /// A read that has just ended found one of the values that the key has had since it had `written` writes.
    fn check(&self, key: usize, written: usize, found: &Option<String>) {
        let possible = self.keys[key].lock().unwrap().values[written..].to_vec();
        self.claim(possible.contains(found), || format!("key {key} is {found:?}, and was one of {possible:?}"));
    }
}

fn as_text(value: Option<cleavedb::Slice>) -> Option<String> {
    value.map(|value| String::from_utf8_lossy(&value).into_owned())
}

fn write_all(lists: &Keyspace, model: &Model) {
    for number in (0..WRITES).take_while(|_| !model.is_over()) {
        let at = draw_key();
        let text = format!("{number}{}", "x".repeat(draw(60)));
        match draw(40) {
            0 => model.write(at, |_| None, || lists.delete(key(at)).unwrap()),
            1..4 => model.write(at, |_| Some(text.clone()), || lists.put(key(at), &text).unwrap()),
            _ => {
                let joined = |before: Option<&str>| match before {
                    Some(before) => Some(format!("{before}{}{text}", model.separator)),
                    None => Some(text.clone()),
                };
                model.write(at, joined, || lists.merge(key(at), &text).unwrap());
            }
        }
        pause(60);
    }
}

fn read_one(lists: &Keyspace, model: &Model) {
    let at = draw_key();
    let written = model.written(at);
    model.check(at, written, &as_text(lists.get(key(at)).unwrap()));
}

fn read_many(lists: &Keyspace, model: &Model) {
    let all: Vec<usize> = (0..6).map(|_| draw_key()).collect();
    let written: Vec<usize> = all.iter().map(|at| model.written(*at)).collect();
    let found = lists.multi_get(all.iter().map(|at| key(*at)));
    for ((at, written), found) in all.into_iter().zip(written).zip(found) {
        model.check(at, written, &as_text(found.unwrap()));
    }
}

/// A snapshot, and what a key was in it.
fn take_snapshot(db: &Db, lists: &Keyspace, model: &Model) -> (Snapshot, usize, Option<String>) {
    let at = draw_key();
    let written = model.written(at);
    let snapshot = db.snapshot();
    let found = as_text(snapshot.get(lists, key(at)).unwrap());
    model.check(at, written, &found);
    (snapshot, at, found)
}

fn read_until_over(db: &Db, lists: &Keyspace, model: &Model) {
    let mut snapshots = Vec::new();
    while !model.is_over() {
        match draw(24) {
            0 => snapshots.push(take_snapshot(db, lists, model)),
            1..4 => read_many(lists, model),
            _ => read_one(lists, model),
        }
        for (snapshot, at, found) in &snapshots {
            let again = as_text(snapshot.get(lists, key(*at)).unwrap());
            model.claim(again == *found, || format!("key {at} was {found:?} in a snapshot, and is {again:?}"));
        }
        if snapshots.len() > 3 {
            snapshots.remove(draw(4));
        }
        pause(30);
    }
}

fn start(
    name: &str,
    db: &Db,
    model: &Arc<Model>,
    body: impl FnOnce(&Db, &Keyspace, &Model) + Send + 'static,
) -> JoinHandle {
    let (db, lists, model) = (db.clone(), db.open_keyspace("lists").unwrap(), model.clone());
    spawn(name, move || body(&db, &lists, &model))
}

/// Point reads that found the operands of their key in the cache, and that did not.
fn run(seed: u64) -> (u64, u64) {
    in_world(seed, move || {
        let disk = SimDisk::new();
        disk.set_latency(Path::new("/db"), Duration::from_micros(10));
        let mut tuning = calm();
        (tuning.bucket_bytes, tuning.bucket_extents_max) = (16 << 10, 5);
        // So little that lists are evicted and cached again all the time.
        (tuning.cache_bytes, tuning.memory_bytes) = (512 << 10, 4 << 20);
        let db = open_with(&disk, options(), tuning).unwrap();
        // Operands that cannot be combined, and operands that can.
        let (operator, separator) = [("chain", '+'), ("append", ',')][seed as usize % 2];
        in_buckets(&db, operator);
        let model = Arc::new(Model::new(separator));
        let readers = ["first reader", "second reader"].map(|name| start(name, &db, &model, read_until_over));
        let flushes = start("flushes", &db, &model, |db, _, model| {
            while !model.is_over() {
                db.flush().unwrap();
                pause(2000);
            }
        });
        write_all(&db.open_keyspace("lists").unwrap(), &model);
        model.is_over.store(true, Ordering::Relaxed);
        readers.into_iter().chain([flushes]).for_each(|thread| thread.join().unwrap());
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let lists = db.open_keyspace("lists").unwrap();
        (0..KEYS).for_each(|at| model.check(at, model.written(at), &as_text(lists.get(key(at)).unwrap())));
        let stats = db.stats();
        assert!(stats.flushes > 10 && stats.deltas.rewrites > 3, "{} flushes, {:?}", stats.flushes, stats.deltas);
        (stats.deltas.cache_hits, stats.deltas.cache_misses)
    })
}

#[test]
fn readers_beside_flushes_and_rewrites_find_what_the_model_has() {
    let all: Vec<(u64, u64)> = (0..SEEDS).map(run).collect();
    assert!(all.iter().all(|(hits, misses)| *hits > 1000 && *misses > 100), "{all:?}");
}

#[test]
fn the_operand_cache_has_the_chosen_part_of_the_memory() {
    in_world(1, || {
        for (percent, most) in [(None, u64::MAX), (Some(1), (4 << 20) / 100), (Some(0), 0)] {
            let options = percent.iter().fold(options(), |options, percent| options.operand_cache_percent(*percent));
            let mut tuning = calm();
            (tuning.cache_bytes, tuning.memory_bytes) = (512 << 10, 4 << 20);
            let db = open_with(&SimDisk::new(), options, tuning).unwrap();
            let lists = in_buckets(&db, "chain");
            lists.put("key", "base").unwrap();
            db.flush().unwrap();
            lists.merge("key", "operand").unwrap();
            db.flush().unwrap();
            (0..3).for_each(|_| assert_eq!(lists.get("key").unwrap().unwrap(), "base+operand"));
            let (stats, memory) = (db.stats().deltas, db.stats().memory);
            assert!(memory.operand_cache_bytes_max as u64 <= most, "{percent:?}: {memory:?}");
            assert_eq!((memory.operand_cache_bytes_max > 0, stats.cache_hits > 0), (most > 0, most > 0), "{percent:?}");
        }
        assert!(options().operand_cache_percent(51).open("/nowhere").is_err());
    });
}
