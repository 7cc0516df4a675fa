//! Bytes that are not what was written: reported where they matter, cut where they are the torn end of a log, and never
//! answered from.

use std::path::PathBuf;

use cleave_sim::material::Value;
use cleave_sim::rng::Rng;
use cleavedb::testing::SimDisk;
use cleavedb::{Durability, Error, LogBackend, Options};

use crate::support::{open, open_with, unflushed, value, with_each_log};

/// Bytes that occur nowhere by chance.
fn needle(seed: u32) -> Vec<u8> {
    Value { seed: 2 * seed + 1, len: 100 }.bytes()
}

/// Turns over a bit in every copy of `needle`; says in which files.
fn damage(disk: &SimDisk, needle: &[u8]) -> Vec<PathBuf> {
    let mut damaged = Vec::new();
    for (path, _) in disk.files() {
        let bytes = disk.read_file(&path).unwrap();
        for offset in bytes.windows(needle.len()).enumerate().filter(|(_, part)| *part == needle).map(|(at, _)| at) {
            disk.flip_bit(&path, offset as u64 + 50, 3);
            damaged.push(path.clone());
        }
    }
    assert!(!damaged.is_empty(), "the value is on the disk");
    damaged
}

#[test]
fn a_bad_frame_before_a_later_sync_mark_is_reported_as_corruption() {
    with_each_log(|backend| {
        // The mark lies in the same log, or in the next one.
        for log_bytes in [64 << 10, 16 << 10] {
            let options = || Options::new().log_backend(backend);
            let mut tuning = unflushed();
            tuning.log_bytes = log_bytes;
            let disk = SimDisk::new();
            let db = open_with(&disk, options(), tuning.clone()).unwrap();
            db.put("first", "1").unwrap();
            db.put("damaged", needle(1)).unwrap();
            for number in 0..3 {
                let key = format!("later {number}");
                db.default_keyspace().put_with(key, value("v", 300), Durability::Sync).unwrap();
            }
            for image in [disk.process_crash(), disk.power_loss(1), disk.power_loss(2)] {
                let damaged = damage(&image, &needle(1));
                match open_with(&image, options(), tuning.clone()) {
                    Err(Error::Corruption { path, .. }) => {
                        // The error names where the mark was found.
                        assert!(damaged.contains(&path) || log_bytes < 64 << 10, "{path:?}, {damaged:?}");
                    }
                    Err(error) => panic!("another error: {error}"),
                    Ok(_) => panic!("a damaged frame below a sync mark was cut off without a word"),
                }
            }
        }
    });
}

#[test]
fn a_bad_tail_is_cut_and_writing_goes_on() {
    with_each_log(|backend| {
        let options = || Options::new().log_backend(backend);
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), unflushed()).unwrap();
        db.put("early", "1").unwrap();
        db.default_keyspace().put_with("synced", "2", Durability::Sync).unwrap();
        db.put("tail", needle(2)).unwrap();
        db.put("after", "4").unwrap();
        let image = disk.process_crash();
        damage(&image, &needle(2));
        for round in 0..3 {
            let db = open_with(&image, options(), unflushed()).unwrap();
            assert_eq!(db.get("early").unwrap().unwrap(), "1");
            assert_eq!(db.get("synced").unwrap().unwrap(), "2");
            assert_eq!(db.get("tail").unwrap(), None);
            assert_eq!(db.get("after").unwrap(), None, "nothing may be there without what came before it");
            assert_eq!(db.iter().unwrap().count(), 2 + round);
            db.put(format!("new {round}"), "5").unwrap();
            db.close().unwrap();
        }
    });
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A database with tables, runs' worth of log and a manifest of some length, closed.
fn closed(backend: LogBackend) -> (SimDisk, Pairs) {
    let disk = SimDisk::new();
    let db = open(&disk, backend).unwrap();
    for number in 0..150_u32 {
        db.put(format!("{number:03}"), Value { seed: number, len: number * 5 }.bytes()).unwrap();
        if number == 60 || number == 110 {
            db.flush().unwrap();
        }
    }
    let all = db.iter().unwrap().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect();
    db.close().unwrap();
    (disk, all)
}

#[test]
fn after_a_clean_close_a_flipped_bit_is_an_error_or_does_no_harm() {
    with_each_log(|backend| {
        let (disk, all) = closed(backend);
        let files: Vec<_> = disk.files().into_iter().filter(|(_, len)| *len > 0).collect();
        let mut rng = Rng::new(9);
        let mut noticed = 0;
        for round in 0..300 {
            let (path, len) = rng.pick(&files).clone();
            // Most files are long and empty towards their end.
            let within = if rng.one_in(2) { len } else { len.min(2000) };
            let (offset, bit) = (rng.below(within), rng.below(8) as u8);
            let image = disk.process_crash();
            image.flip_bit(&path, offset, bit);
            let place = format!("round {round}: bit {bit} of byte {offset} of {}", path.display());
            let Ok(db) = open(&image, backend) else {
                noticed += 1;
                continue;
            };
            for (key, value) in &all {
                match db.get(key) {
                    Ok(found) => assert!(found.as_deref() == Some(value), "{place}: a wrong answer for {key:?}"),
                    Err(Error::Corruption { .. }) => noticed += 1,
                    Err(error) => panic!("{place}: {error}"),
                }
            }
            let scanned: Result<Vec<_>, _> = db.iter().unwrap().collect();
            match scanned {
                Ok(pairs) => assert_eq!(pairs.len(), all.len(), "{place}"),
                Err(Error::Corruption { .. }) => noticed += 1,
                Err(error) => panic!("{place}: {error}"),
            }
        }
        assert!(noticed > 0, "the test damages what is read");
    });
}
