//! Buckets of merge operands through loss of power at every sync of their upkeep.

use cleavedb::DeltaPlacement;
use cleavedb::testing::{SimDisk, Tuning};

use crate::deltas::{in_buckets, options, text};
use crate::support::{in_world, lose_power, open_with, taken};

#[test]
fn upkeep_survives_crashes_at_every_sync() {
    in_world(3, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), Tuning::tiny()).unwrap();
        let lists = in_buckets(&db, "chain");
        let key = |number: usize| format!("{number:02}");
        (0..30).for_each(|number| lists.put(key(number), "base").unwrap());
        db.flush().unwrap();
        let images = lose_power(&disk);
        let rounds = 6;
        for round in 0..rounds {
            (0..30).for_each(|number| lists.merge(key(number), round.to_string()).unwrap());
            db.flush().unwrap();
            if round == 4 {
                lists.set_deltas(DeltaPlacement::Levels).unwrap();
            }
        }
        db.wait_for_background().unwrap();
        let images = taken(&disk, &images);
        assert!(images.len() > 50, "{}", images.len());
        for image in images.iter().step_by(3) {
            let db = open_with(image, options(), Tuning::tiny()).unwrap();
            let lists = db.open_keyspace("lists").unwrap();
            for number in 0..30 {
                // A prefix of what was written: no operand is lost before one that is there, and none is there twice.
                let found = text(&lists, &key(number)).unwrap();
                let prefixes = (0..=rounds).map(|rounds| {
                    std::iter::once("base".to_owned()).chain((0..rounds).map(|at| at.to_string())).collect::<Vec<_>>()
                });
                assert!(prefixes.into_iter().any(|prefix| prefix.join("+") == found), "{found}");
            }
            db.close().unwrap();
        }
    });
}

/// First all buckets fill up and split; then most of them hold little, so that two are joined to make room for a split elsewhere.
#[test]
fn splits_and_joins_of_buckets_survive_crashes_at_every_sync() {
    in_world(4, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), Tuning::tiny()).unwrap();
        let lists = in_buckets(&db, "chain");
        let key = |number: usize| format!("{number:02}");
        let mut values = vec![vec!["base".to_owned()]; 60];
        (0..60).for_each(|number| lists.put(key(number), "base").unwrap());
        db.flush().unwrap();
        let images = lose_power(&disk);
        let mut counts = Vec::new();
        let mut merge = |numbers: &mut dyn Iterator<Item = usize>, operand: &str, values: &mut Vec<Vec<String>>| {
            for number in numbers {
                lists.merge(key(number), operand).unwrap();
                let next = format!("{}+{operand}", values[number].last().unwrap());
                values[number].push(next);
            }
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            counts.push(db.stats().deltas.buckets);
        };
        for round in 0..8 {
            merge(&mut (0..60), &format!("{round}{}", "x".repeat(40)), &mut values);
        }
        for (number, values) in values.iter_mut().enumerate().take(40) {
            lists.put(key(number), "new").unwrap();
            values.push("new".to_owned());
        }
        for round in 0..4 {
            merge(&mut (0..40).step_by(5), &round.to_string(), &mut values);
        }
        for round in 0..12 {
            merge(&mut (50..60), &format!("{round}{}", "y".repeat(150)), &mut values);
        }
        let most = counts.iter().copied().max().unwrap();
        let falls = counts.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!(most > 3 && falls > 0, "{counts:?}");
        let images = taken(&disk, &images);
        assert!(images.len() > 200, "{}", images.len());
        for image in images.iter().step_by(images.len() / 60) {
            let db = open_with(image, options(), Tuning::tiny()).unwrap();
            let lists = db.open_keyspace("lists").unwrap();
            for (number, values) in values.iter().enumerate() {
                let found = text(&lists, &key(number)).unwrap();
                assert!(values.contains(&found), "{number}: {found}");
            }
            db.wait_for_background().unwrap();
            db.close().unwrap();
        }
    });
}
