//! Buckets of merge operands through loss of power at every sync of their upkeep.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Db, DeltaPlacement, Keyspace, Options};

use crate::deltas::{in_buckets, options, text};
use crate::support::{in_world, lose_power_by_turn, open_with, taken_with_notes};

/// What was written to keys, one write after the other, and how much of it must survive.
#[derive(Default)]
struct Written {
    /// By key, its values, each with the number of its write.
    values: BTreeMap<String, Vec<(usize, String)>>,
    writes: usize,
    /// How many writes were flushed.
    flushed: Arc<AtomicUsize>,
}

impl Written {
    fn note(&mut self, key: &str, value: String) {
        self.writes += 1;
        self.values.entry(key.to_owned()).or_default().push((self.writes, value));
    }

    fn put(&mut self, lists: &Keyspace, number: usize, value: &str) {
        let key = format!("{number:02}");
        lists.put(&key, value).unwrap();
        self.note(&key, value.to_owned());
    }

    fn merge(&mut self, lists: &Keyspace, number: usize, operand: &str) {
        let key = format!("{number:02}");
        lists.merge(&key, operand).unwrap();
        let value = format!("{}+{operand}", self.values[&key].last().unwrap().1);
        self.note(&key, value);
    }

    fn flush(&self, db: &Db) {
        db.flush().unwrap();
        self.flushed.store(self.writes, Ordering::Relaxed);
    }

    /// Fails unless the keyspace has what was there after some number of writes, at least these.
    fn check(&self, lists: &Keyspace, flushed: usize) {
        let (mut first, mut last) = (flushed, self.writes);
        for (key, values) in &self.values {
            let found = text(lists, key).unwrap();
            let at = values.iter().position(|(_, value)| *value == found);
            let at = at.unwrap_or_else(|| panic!("{key} was never {found}"));
            first = first.max(values[at].0);
            last = last.min(values.get(at + 1).map_or(self.writes, |(next, _)| next - 1));
            assert!(first <= last, "{key} is {found}, after {flushed} writes or more");
        }
    }
}

/// Opens images of a database, each with the number of writes that it must have, and checks what they hold before and after the work
/// that the crash has interrupted.
fn check_images(images: &[(SimDisk, usize)], written: &Written, options: &Options) {
    for (image, flushed) in images {
        let db = open_with(image, options.clone(), Tuning::tiny()).unwrap();
        let lists = db.open_keyspace("lists").unwrap();
        written.check(&lists, *flushed);
        db.wait_for_background().unwrap();
        written.check(&lists, *flushed);
        if lists.deltas() == DeltaPlacement::Levels {
            let stats = db.stats().deltas;
            assert_eq!((stats.buckets, stats.segments, stats.operands), (0, 0, 0), "{stats:?}");
        }
        db.close().unwrap();
        assert!(testing::check(Arc::new(image.clone()), Path::new("/db"), options).unwrap().is_sound());
    }
}

#[test]
fn upkeep_survives_crashes_at_every_sync() {
    in_world(3, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), Tuning::tiny()).unwrap();
        let lists = in_buckets(&db, "chain");
        let mut written = Written::default();
        (0..30).for_each(|number| written.put(&lists, number, "base"));
        written.flush(&db);
        let images = lose_power_by_turn(&disk, &written.flushed);
        for round in 0..6 {
            (0..30).for_each(|number| written.merge(&lists, number, &round.to_string()));
            written.flush(&db);
            if round == 4 {
                lists.set_deltas(DeltaPlacement::Levels).unwrap();
            }
        }
        db.wait_for_background().unwrap();
        let stats = db.stats().deltas;
        assert!(stats.rewrites > 0 && stats.folds > 0 && stats.buckets == 0, "{stats:?}");
        let images = taken_with_notes(&disk, &images);
        assert!(images.len() > 20, "{}", images.len());
        check_images(&images, &written, &options());
    });
}

/// First all buckets fill up and split; then most of them hold little, so that two are joined to make room for a split elsewhere.
#[test]
fn splits_and_joins_of_buckets_survive_crashes_at_every_sync() {
    in_world(4, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), Tuning::tiny()).unwrap();
        let lists = in_buckets(&db, "chain");
        let mut written = Written::default();
        (0..60).for_each(|number| written.put(&lists, number, "base"));
        written.flush(&db);
        let images = lose_power_by_turn(&disk, &written.flushed);
        let merge = |numbers: &mut dyn Iterator<Item = usize>, operand: &str, written: &mut Written| {
            numbers.for_each(|number| written.merge(&lists, number, operand));
            written.flush(&db);
            db.wait_for_background().unwrap();
        };
        for round in 0..8 {
            merge(&mut (0..60), &format!("{round}{}", "x".repeat(40)), &mut written);
        }
        (0..40).for_each(|number| written.put(&lists, number, "new"));
        for round in 0..4 {
            merge(&mut (0..40).step_by(5), &round.to_string(), &mut written);
        }
        for round in 0..12 {
            merge(&mut (50..60), &format!("{round}{}", "y".repeat(150)), &mut written);
        }
        let stats = db.stats().deltas;
        assert!(stats.splits > 0 && stats.joins > 0 && stats.rewrites > 0 && stats.folds > 0, "{stats:?}");
        let images = taken_with_notes(&disk, &images);
        assert!(images.len() > 40, "{}", images.len());
        check_images(&images, &written, &options());
    });
}

/// Values that are put into buckets in place of operands that cannot be combined.
#[test]
fn folds_within_buckets_survive_crashes_at_every_sync() {
    in_world(5, || {
        let disk = SimDisk::new();
        let options = options().separation(Some(192));
        let mut tuning = Tuning::tiny();
        (tuning.bucket_bytes, tuning.bucket_extents_max) = (1 << 20, 2);
        let db = open_with(&disk, options.clone(), tuning).unwrap();
        let lists = in_buckets(&db, "chain");
        let mut written = Written::default();
        (0..8).for_each(|number| written.put(&lists, number, &"b".repeat(300)));
        written.flush(&db);
        let images = lose_power_by_turn(&disk, &written.flushed);
        for round in 0..4 {
            for at in 0..35 {
                (0..8).for_each(|number| written.merge(&lists, number, &format!("{round}.{at}")));
            }
            written.flush(&db);
            db.wait_for_background().unwrap();
        }
        let stats = db.stats().deltas;
        assert!(stats.operands == 8 && stats.bytes > 8 * 300 && stats.rewrites > 1, "{stats:?}");
        let images = taken_with_notes(&disk, &images);
        assert!(images.len() > 20, "{}", images.len());
        check_images(&images, &written, &options);
    });
}
