//! Collection of the logs of hash keyspaces beside writers: what they change is not changed back.

use std::sync::Arc;

use cleavedb::Keyspace;
use cleavedb::testing::{SimDisk, Tuning, random, spawn};

use crate::deltas::options;
use crate::support::{hashed, in_world, open_with, value};

const KEYS: usize = 60;
const WRITERS: usize = 3;

fn key(writer: usize, number: usize) -> String {
    format!("{writer}-{number}")
}

/// Puts and deletes keys of one writer, and sees what it wrote. Returns the last value of each key.
fn write(keyspace: &Keyspace, writer: usize) -> Vec<Option<Vec<u8>>> {
    let mut last = vec![None; KEYS];
    for round in 0..400 {
        let number = random(KEYS as u64) as usize;
        last[number] = (random(5) > 0).then(|| value(&format!("{writer} {number} {round} "), 700));
        match &last[number] {
            Some(value) => keyspace.put(key(writer, number), value).unwrap(),
            None => keyspace.delete(key(writer, number)).unwrap(),
        }
        let number = random(KEYS as u64) as usize;
        assert_eq!(keyspace.get(key(writer, number)).unwrap().as_deref(), last[number].as_deref());
    }
    last
}

fn check(keyspace: &Keyspace, written: &[Vec<Option<Vec<u8>>>]) {
    for (writer, values) in written.iter().enumerate() {
        for (number, value) in values.iter().enumerate() {
            assert_eq!(keyspace.get(key(writer, number)).unwrap().as_deref(), value.as_deref(), "{writer} {number}");
        }
    }
}

#[test]
fn a_key_that_is_written_while_its_record_is_moved_keeps_what_was_written() {
    let refused = (0..4).map(|seed| {
        in_world(seed, || {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            (tuning.log_bytes, tuning.log_bytes_min, tuning.hash_slack_logs) = (32 << 10, 32 << 10, 0);
            let db = open_with(&disk, options(), tuning.clone()).unwrap();
            let keyspace = hashed(&db);
            let (written, results) = (Arc::new(std::sync::Mutex::new(vec![Vec::new(); WRITERS])), keyspace.clone());
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (written, keyspace) = (written.clone(), results.clone());
                    spawn("writer", move || {
                        let last = write(&keyspace, writer);
                        written.lock().unwrap()[writer] = last;
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            let written = written.lock().unwrap().clone();
            let stats = db.stats().hash;
            assert!(stats.logs_freed > 5 && stats.records_moved > 10, "{stats:?}");
            check(&keyspace, &written);
            db.wait_for_background().unwrap();
            check(&keyspace, &written);
            check(&hashed(&open_with(&disk.process_crash(), options(), tuning).unwrap()), &written);
            stats.moves_refused
        })
    });
    let refused: Vec<u64> = refused.collect();
    assert!(refused.iter().sum::<u64>() > 0, "no writer met a move: {refused:?}");
}
