//! Hash keyspaces: every operation against a model, restarts, the collection of logs, and crashes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cleavedb::testing::{self, SimDisk, Spread, Tuning, indexed_records, random};
use cleavedb::{Db, Durability, Error, Keyspace, LogBackend, Snapshot, WriteBatch};

use crate::deltas::options;
use crate::support::{
    files_of_kind, hashed, in_world, log_numbers, lose_power, one_of_each_sync, open_with, taken, value, with_each_log,
    without_saved_indexes,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Logs of 64 KiB, so that collection has something to do; indexes are saved often.
fn tuning() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.log_bytes_min) = (64 << 10, 64 << 10);
    tuning.hash_slack_logs = 0;
    // Indexes are saved at each close.
    tuning.close_flush_bytes = 1 << 10;
    tuning
}

fn open(disk: &SimDisk, backend: LogBackend) -> Db {
    open_with(disk, options().log_backend(backend), tuning()).unwrap()
}

/// What the hashes of keys share in the run with this seed: with some, few keys split and join buckets.
fn spread(seed: u64) -> Spread {
    [Spread::Deep, Spread::Even, Spread::OneShard, Spread::Few][seed as usize % 4]
}

fn open_spread(disk: &SimDisk, backend: LogBackend, seed: u64) -> Db {
    let mut tuning = tuning();
    tuning.hash_spread = spread(seed);
    open_with(disk, options().log_backend(backend), tuning).unwrap()
}

fn problems(disk: &SimDisk) -> Vec<String> {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &options()).unwrap();
    report.problems.iter().map(|problem| problem.to_string()).collect()
}

fn draw(bound: usize) -> usize {
    random(bound as u64) as usize
}

fn key(number: usize) -> Vec<u8> {
    let long = if number.is_multiple_of(17) { number * 7 % 900 } else { 0 };
    [format!("{number:04}").as_bytes(), &vec![b'k'; long]].concat()
}

fn all(keyspace: &Keyspace) -> Model {
    let mut found = Model::new();
    for item in keyspace.iter_unordered().unwrap() {
        let (key, value) = item.unwrap();
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "a key came twice");
    }
    found
}

fn check(keyspace: &Keyspace, model: &Model, keys: usize) {
    assert_eq!(&all(keyspace), model);
    for number in 0..keys {
        let wanted = model.get(&key(number)).map(|value| &value[..]);
        assert_eq!(keyspace.get(key(number)).unwrap().as_deref(), wanted, "{number}");
        assert_eq!(keyspace.contains(key(number)).unwrap(), wanted.is_some());
    }
    let found = keyspace.multi_get((0..keys).map(key));
    for (number, found) in found.into_iter().enumerate() {
        assert_eq!(found.unwrap().as_deref(), model.get(&key(number)).map(|value| &value[..]));
    }
}

/// With the saved indexes damaged, or cut, the logs give the same.
fn check_without_saved_indexes(disk: &SimDisk, backend: LogBackend, model: &Model) {
    let saved = files_of_kind(disk, "index");
    assert_eq!(saved.len(), 1, "{saved:?}");
    for _ in 0..3 {
        let image = disk.process_crash();
        let len = image.read_file(&saved[0]).unwrap().len();
        image.flip_bit(&saved[0], draw(len) as u64, draw(8) as u8);
        // A bit of the padding behind the last block means nothing.
        let is_found = !problems(&image).is_empty();
        let db = open(&image, backend);
        check(&hashed(&db), model, 200);
        assert!(is_found || db.stats().direct_io || len < 8192);
    }
}

/// One random write to the keyspace and to the model.
fn write(db: &Db, keyspace: &Keyspace, model: &mut Model, keys: usize) {
    db.write(draw_batch(db, keyspace, model, keys)).unwrap();
}

/// A random batch, which the model has already.
fn draw_batch(db: &Db, keyspace: &Keyspace, model: &mut Model, keys: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + draw(4) {
        let key = key(draw(keys));
        match draw(10) {
            0..=1 => {
                batch.delete(keyspace, &key);
                model.remove(&key);
            }
            2..=3 => {
                let operand = draw(1000).to_string();
                batch.merge(keyspace, &key, &operand);
                let value = model.entry(key).or_default();
                if !value.is_empty() {
                    value.push(b'+');
                }
                value.extend_from_slice(operand.as_bytes());
            }
            _ => {
                let put = value(&format!("{}-", draw(1 << 20)), 1 + draw(400));
                batch.put(keyspace, &key, &put);
                model.insert(key, put);
            }
        }
    }
    if draw(3) == 0 {
        batch.put(&db.default_keyspace(), format!("o{}", draw(50)), "ordered");
    }
    batch
}

#[test]
fn all_operations_give_what_the_model_gives_across_restarts_and_collections() {
    for seed in 0..6 {
        in_world(seed, move || {
            let (disk, mut model) = (SimDisk::new(), Model::new());
            let backend = if seed % 2 == 0 { LogBackend::Ring } else { LogBackend::Plain };
            let mut moved = 0;
            for round in 0..4 {
                let db = open_spread(&disk, backend, seed);
                let keyspace = hashed(&db);
                check(&keyspace, &model, 200);
                for _ in 0..400 {
                    write(&db, &keyspace, &mut model, 200);
                }
                check(&keyspace, &model, 200);
                moved += db.stats().hash.records_moved;
                if round % 2 == 0 {
                    db.wait_for_background().unwrap();
                    check(&keyspace, &model, 200);
                    db.close().unwrap();
                    assert_eq!(problems(&disk), [""; 0]);
                    check_without_saved_indexes(&disk, backend, &model);
                }
            }
            assert!(moved > 0, "logs were collected");
        });
    }
}

/// The number of the last batch, which each batch writes to both keyspaces.
fn last_batch(db: &Db, keyspace: &Keyspace) -> usize {
    let number =
        |value: Option<cleavedb::Slice>| value.map_or(0, |value| String::from_utf8_lossy(&value).parse().unwrap());
    let (ordered, hashed) = (number(db.get("number").unwrap()), number(keyspace.get("number").unwrap()));
    assert_eq!(ordered, hashed, "a batch across both kinds of keyspace is atomic");
    hashed
}

#[test]
fn after_losses_of_power_an_index_is_that_of_a_prefix_of_history() {
    let moved = (0..4).map(|seed| {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let mut tuning = tuning();
            // So small that collection goes on all the time.
            (tuning.log_bytes, tuning.log_bytes_min) = (32 << 10, 32 << 10);
            (tuning.index_save_bytes, tuning.index_save_part, tuning.hash_slack_logs) = (16 << 10, 0, 0);
            tuning.hash_spread = spread(seed);
            let open = move |disk: &SimDisk| open_with(disk, options(), tuning.clone()).unwrap();
            let db = open(&disk);
            let keyspace = hashed(&db);
            let (mut model, mut history) = (Model::new(), vec![Model::new()]);
            let images = lose_power(&disk);
            for number in 1..=400 {
                let mut batch = draw_batch(&db, &keyspace, &mut model, 120);
                let (filler, filled) = (format!("filler{}", draw(20)), value(&number.to_string(), 700));
                batch.put(&keyspace, &filler, &filled);
                model.insert(filler.into_bytes(), filled);
                batch.put(&keyspace, "number", number.to_string());
                batch.put(&db.default_keyspace(), "number", number.to_string());
                model.insert(b"number".to_vec(), number.to_string().into_bytes());
                history.push(model.clone());
                db.write(batch).unwrap();
            }
            db.wait_for_background().unwrap();
            let stats = db.stats().hash;
            assert!(stats.logs_freed > 2 && stats.records_moved > 0 && stats.saves > 1, "{stats:?}");
            assert!(stats.tombstones_moved < stats.records_moved, "{stats:?}");
            let images = taken(&disk, &images);
            assert!(images.len() > 40, "{} images", images.len());
            // More would take too long; each seed has syncs of its own.
            for image in one_of_each_sync(&images).skip(seed as usize).step_by(5) {
                let db = open(image);
                let keyspace = hashed(&db);
                let number = last_batch(&db, &keyspace);
                assert_eq!(all(&keyspace), history[number], "after batch {number}");
            }
            stats.tombstones_moved
        })
    });
    assert!(moved.sum::<u64>() > 0, "not every seed has deletes in the logs that are emptied, but some have");
}

#[test]
fn space_of_overwritten_and_deleted_records_is_given_back() {
    with_each_log(|backend| {
        const LOG_BYTES: u64 = 128 << 10;
        let disk = SimDisk::new();
        let mut tuning = tuning();
        (tuning.log_bytes, tuning.log_bytes_min) = (LOG_BYTES, LOG_BYTES);
        let db = open_with(&disk, options().log_backend(backend), tuning).unwrap();
        let keyspace = hashed(&db);
        let of = |round: usize, number: usize| value(&format!("{round}-{number}"), 2000);
        for round in 0..12 {
            (0..200).for_each(|number| keyspace.put(key(number), of(round, number * 7 % 200)).unwrap());
        }
        db.wait_for_background().unwrap();
        let logs = || {
            let files = files_of_kind(&disk, "log").into_iter();
            files.map(|path| disk.read_file(&path).map_or(0, |bytes| bytes.len() as u64)).sum::<u64>()
        };
        let (live, stats) = (keyspace.stats().unwrap().log_bytes, db.stats().hash);
        // Beside the allowance: logs that are full and wait for one more, the active and the spare one.
        assert!(logs() < live * 10 / 7 + 8 * LOG_BYTES, "{} B in logs for {live} B live: {stats:?}", logs());
        assert!(stats.logs_freed > 10 && stats.bytes_moved < 2 * live, "{stats:?}");
        for number in 0..200 {
            assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), of(11, number * 7 % 200));
        }
        (0..200).for_each(|number| keyspace.delete(key(number)).unwrap());
        // More records, so that the logs with the deletes are full.
        (0..400).for_each(|number| keyspace.put("other", of(number, 0)).unwrap());
        db.wait_for_background().unwrap();
        assert!(logs() < 9 * LOG_BYTES, "{} B in logs: {:?}", logs(), db.stats().hash);
        assert_eq!(all(&keyspace).len(), 1);
    });
}

#[test]
fn a_deleted_key_does_not_come_back_after_its_delete_was_collected() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring);
        let keyspace = hashed(&db);
        let fill = |name: &str, count: usize| {
            (0..count).for_each(|number| keyspace.put(format!("{name}{number}"), value(name, 900)).unwrap());
        };
        let log_of_key = || indexed_records(&keyspace)[&b"key"[..]][0].file;
        // An old log that stays, because it is full of live records, has the only copy of the key.
        keyspace.put("key", "old").unwrap();
        let of_copy = log_of_key();
        fill("stays", 80);
        keyspace.delete("key").unwrap();
        let of_delete = log_of_key();
        assert!(of_delete > of_copy);
        db.flush().unwrap();
        let images = lose_power(&disk);
        // The log with the delete loses most of what else it has, and is collected.
        for _ in 0..12 {
            fill("changes", 16);
        }
        db.wait_for_background().unwrap();
        let (logs, stats) = (log_numbers(&disk), db.stats().hash);
        assert!(logs.contains(&of_copy) && !logs.contains(&of_delete), "{of_copy} and {of_delete} of {logs:?}");
        assert!(stats.tombstones_moved > 0 && stats.tombstones == 1, "{stats:?}");
        assert!(log_of_key() > of_delete);
        fill("changes", 16);
        db.flush().unwrap();
        db.close().unwrap();
        let images = taken(&disk, &images);
        for image in one_of_each_sync(&images).chain([&disk]) {
            let damaged = without_saved_indexes(image);
            for image in [Some(image), damaged.as_ref()].into_iter().flatten() {
                let db = open(image, LogBackend::Ring);
                let keyspace = hashed(&db);
                assert_eq!(keyspace.get("key").unwrap().as_deref(), None);
                assert!(keyspace.get("stays3").unwrap().is_some());
            }
        }
    });
}

#[test]
fn snapshots_see_what_was_there_whatever_is_written_and_collected() {
    for seed in 0..4 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open_spread(&disk, LogBackend::Ring, seed);
            let keyspace = hashed(&db);
            let mut model = Model::new();
            let mut held: Vec<(Snapshot, Model)> = Vec::new();
            for step in 0..1200 {
                write(&db, &keyspace, &mut model, 80);
                // These stay, and keep their logs from dying by themselves.
                let cold = format!("cold{step}").into_bytes();
                keyspace.put(&cold, value("cold", 200)).unwrap();
                model.insert(cold, value("cold", 200));
                if step % 97 == 0 {
                    held.push((db.snapshot(), model.clone()));
                }
                if held.len() > 5 {
                    held.remove(draw(5));
                }
                if step % 150 == 0 {
                    for (snapshot, model) in &held {
                        let found: Model = snapshot
                            .iter_unordered(&keyspace)
                            .unwrap()
                            .map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
                            .collect();
                        assert_eq!(&found, model);
                        for number in 0..80 {
                            let wanted = model.get(&key(number)).map(|value| &value[..]);
                            assert_eq!(snapshot.get(&keyspace, key(number)).unwrap().as_deref(), wanted);
                        }
                    }
                    // What only older ones see pins no more logs.
                    held.drain(..held.len() - 1);
                }
            }
            let stats = db.stats().hash;
            assert!(stats.records_moved > 0 && stats.logs_freed > 2, "{stats:?}");
            held.clear();
            db.wait_for_background().unwrap();
            check(&keyspace, &model, 80);
        });
    }
}

#[test]
fn what_needs_order_is_refused_and_nothing_of_its_batch_is_written() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring);
        let keyspace = hashed(&db);
        keyspace.put("a", "1").unwrap();
        let unsupported = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::UnsupportedOperation { .. })), "{result:?}");
        };
        unsupported(keyspace.iter().map(drop));
        unsupported(keyspace.range("a".."b").map(drop));
        unsupported(keyspace.prefix("a").map(drop));
        unsupported(keyspace.delete_range(..));
        unsupported(db.compact_range(&keyspace, ..));
        unsupported(keyspace.approximate_size("a".."b").map(drop));
        unsupported(db.default_keyspace().iter_unordered().map(drop));
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, "b", "2");
        batch.delete_range(&keyspace, "a".."b");
        unsupported(db.write(batch));
        assert_eq!(all(&keyspace).len(), 1);
        assert!(keyspace.approximate_size(..).unwrap() > 0);
    });
}

#[test]
fn a_full_index_takes_updates_and_deletes_and_no_new_keys() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = tuning();
        tuning.memory_bytes = 384 << 10;
        let db = open_with(&disk, options(), tuning).unwrap();
        let keyspace = hashed(&db);
        let mut count = 0;
        let refused = loop {
            match keyspace.put(format!("{count:08}"), "value") {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::IndexFull { .. }) && count > 500, "{refused} after {count}");
        keyspace.put("00000003", "again").unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&keyspace, "00000004", "again");
        batch.put(&keyspace, "new", "key");
        batch.put(&db.default_keyspace(), "ordered", "too");
        let before = db.stats().seqno;
        assert!(matches!(db.write(batch), Err(Error::IndexFull { .. })));
        assert_eq!(db.stats().seqno, before, "it has used no sequence numbers");
        assert_eq!(db.get("ordered").unwrap().as_deref(), None);
        assert_eq!(keyspace.get("00000004").unwrap().unwrap(), "value");
        (0..count / 2).for_each(|number| keyspace.delete(format!("{number:08}")).unwrap());
        assert_eq!(all(&keyspace).len(), count - count / 2);
        db.close().unwrap();
        // With too little memory it opens all the same.
        let mut tuning = self::tuning();
        tuning.memory_bytes = 1 << 16;
        let db = open_with(&disk, options(), tuning.clone()).unwrap();
        let keyspace = hashed(&db);
        assert_eq!(all(&keyspace).len(), count - count / 2);
        let last = format!("{:08}", count - 1);
        let is_as_written = |keyspace: &Keyspace| {
            assert_eq!(keyspace.get(&last).unwrap().unwrap(), "again+and again");
            assert_eq!(keyspace.get(format!("{:08}", count - 2)).unwrap().as_deref(), None);
            assert_eq!(all(keyspace).len(), count - count / 2 - 1);
            assert!(matches!(keyspace.put("new", "key"), Err(Error::IndexFull { .. })));
        };
        keyspace.put(&last, "again").unwrap();
        keyspace.merge(&last, "and again").unwrap();
        keyspace.delete(format!("{:08}", count - 2)).unwrap();
        is_as_written(&keyspace);
        // More updates than the logs keep.
        for round in 0..40 {
            (count / 2..count - 2).for_each(|number| keyspace.put(format!("{number:08}"), format!("{round}")).unwrap());
        }
        db.wait_for_background().unwrap();
        assert!(db.stats().hash.logs_freed > 0, "{:?}", db.stats().hash);
        is_as_written(&keyspace);
        db.close().unwrap();
        let db = open_with(&disk, options(), tuning).unwrap();
        is_as_written(&hashed(&db));
        assert_eq!(hashed(&db).get(format!("{:08}", count - 3)).unwrap().unwrap(), "39");
    });
}

#[test]
fn a_checkpoint_and_a_drop_of_a_hash_keyspace() {
    in_world(3, || {
        let (disk, mut model) = (SimDisk::new(), Model::new());
        let db = open(&disk, LogBackend::Ring);
        let keyspace = hashed(&db);
        for _ in 0..500 {
            write(&db, &keyspace, &mut model, 100);
        }
        db.checkpoint("/copy").unwrap();
        let kept = model.clone();
        for _ in 0..500 {
            write(&db, &keyspace, &mut model, 100);
        }
        db.drop_keyspace("hashed").unwrap();
        assert!(matches!(keyspace.get("a"), Err(Error::NotFound { .. })));
        for number in 0..300 {
            db.put(format!("{number}"), value("ordered", 300)).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().hash.logs, 0, "{:?}", db.stats());
        let copy = testing::open(Arc::new(disk.clone()), Path::new("/copy"), options(), tuning()).unwrap();
        check(&hashed(&copy), &kept, 100);
    });
}

#[test]
fn a_flush_makes_writes_to_hash_keyspaces_durable_and_an_ingest_does_not_wait_for_them() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend);
        let keyspace = hashed(&db);
        for round in 0..5 {
            // Nothing goes to the front, which has nothing to flush.
            keyspace.put_with("key", round.to_string(), Durability::Buffered).unwrap();
            db.flush().unwrap();
            for seed in 0..4 {
                let db = open(&disk.power_loss(seed), backend);
                assert_eq!(hashed(&db).get("key").unwrap().unwrap(), round.to_string());
            }
            keyspace.put_with("other", round.to_string(), Durability::Buffered).unwrap();
            db.default_keyspace().ingest([(format!("{round}"), "ingested")]).unwrap();
        }
        keyspace.ingest((0..300).map(|number| (key(number), value("ingested", 100)))).unwrap();
        let db = open(&disk.power_loss(1), backend);
        assert_eq!(all(&hashed(&db)).len(), 302);
        assert_eq!(db.iter().unwrap().count(), 5);
    });
}

#[test]
fn a_full_disk_stops_no_writer_for_ever() {
    in_world(2, || {
        let (disk, mut model) = (SimDisk::new(), Model::new());
        let db = open(&disk, LogBackend::Ring);
        let keyspace = hashed(&db);
        for number in 0..200 {
            keyspace.put(key(number), value(&number.to_string(), 400)).unwrap();
            model.insert(key(number), value(&number.to_string(), 400));
        }
        db.wait_for_background().unwrap();
        disk.set_capacity(Some(disk.used() + (200 << 10)));
        let mut refused = 0;
        for round in 0..2000 {
            let number = draw(200);
            let new = value(&format!("{round}-{number}"), 400);
            match keyspace.put(key(number), &new) {
                Ok(()) => drop(model.insert(key(number), new)),
                Err(Error::NoSpace { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused < 2000, "collection makes room");
        check(&keyspace, &model, 200);
        disk.set_capacity(None);
        for number in 0..200 {
            keyspace.put(key(number), value("again", 400)).unwrap();
            model.insert(key(number), value("again", 400));
        }
        check(&keyspace, &model, 200);
        db.close().unwrap();
        let db = open(&disk, LogBackend::Ring);
        check(&hashed(&db), &model, 200);
    });
}
