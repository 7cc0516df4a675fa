//! The model of the simulated disk.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::base::Error;
use crate::io::{Access, AlignedBuffer, File, Punched, Storage, read_exact_at, read_whole};

const DIR: &str = "/db";

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk
}

/// A file with a durable name.
fn durable_file(disk: &SimDisk, name: &str) -> Arc<dyn File> {
    let file = disk.create(&path(name), Access::Buffered).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    file
}

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    disk.read_file(&path(name))
}

/// The contents of a file after a power loss, over many seeds.
fn outcomes(disk: &SimDisk, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..300).map(|seed| content(&disk.power_loss(seed), name)).collect()
}

#[test]
fn the_disk_behaves_like_a_file_system() {
    let disk = disk();
    let file = disk.create(&path("b"), Access::Buffered).unwrap();
    file.write_at(b"hello", 3).unwrap();
    let mut buffer = [9; 10];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer, b"\0\0\0hello\x09\x09");
    assert!(disk.create(&path("b"), Access::Buffered).is_err());
    assert!(disk.create(Path::new("/nowhere/b"), Access::Buffered).is_err());
    assert!(disk.open(&path("nothing")).is_err());
    disk.create_dir_all(&path("sub/deeper")).unwrap();
    disk.create(&path("a"), Access::Buffered).unwrap();
    let entries = disk.list(Path::new(DIR)).unwrap();
    let entries: Vec<(&str, bool)> = entries.iter().map(|entry| (entry.name.as_str(), entry.is_file)).collect();
    assert_eq!(entries, [("a", true), ("b", true), ("sub", false)]);
    disk.rename(&path("b"), &path("a")).unwrap();
    assert!(!disk.exists(&path("b")).unwrap() && disk.exists(&path("sub")).unwrap());
    assert_eq!(read_whole(&disk, &path("a")).unwrap(), b"\0\0\0hello");
    assert!(disk.open_read(&path("a"), Access::Buffered).unwrap().write_at(b"x", 0).is_err());
    disk.remove(&path("a")).unwrap();
    assert_eq!(file.len().unwrap(), 8, "an open file outlives its name");
    assert_eq!(disk.files(), []);
}

#[test]
fn a_short_read_is_corruption_that_names_file_and_offset() {
    let disk = disk();
    disk.write_file(&path("a"), b"12345");
    let file = disk.open_read(&path("a"), Access::Buffered).unwrap();
    let mut buffer = [0; 4];
    read_exact_at(&*file, &mut buffer, 1).unwrap();
    assert_eq!(&buffer, b"2345");
    let error = read_exact_at(&*file, &mut buffer, 2).unwrap_err();
    let Error::Corruption { path: at, offset, .. } = error else { panic!("{error}") };
    assert_eq!((at, offset), (path("a"), 2));
}

#[test]
fn synced_bytes_survive_every_power_loss() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    file.write_at(&[1; 10_000], 0).unwrap();
    file.truncate(9000).unwrap();
    file.sync().unwrap();
    let expected = vec![1; 9000];
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([Some(expected)]));
}

#[test]
fn a_sync_after_cutting_and_growing_makes_exactly_the_content_durable() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    let mut random = crate::sched::random::Random::new(5);
    for _ in 0..200 {
        for _ in 0..random.below(6) {
            let offset = random.below(20_000);
            match random.below(4) {
                0 => file.truncate(offset).unwrap(),
                1 => drop(file.allocate(offset).unwrap()),
                _ => file.write_at(&vec![random.draw() as u8; random.below(6000) as usize], offset).unwrap(),
            }
        }
        file.sync().unwrap();
        let image = disk.power_loss(random.draw());
        assert!(content(&image, "a") == content(&disk, "a"));
    }
}

#[test]
fn unsynced_writes_may_be_lost_kept_reordered_or_torn() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    file.write_at(&[1; 4096], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[2; 1024], 0).unwrap();
    file.write_at(&[3; 1024], 2048).unwrap();
    let outcomes = outcomes(&disk, "a");
    let has = |first: u8, second: u8, third: u8| {
        let mut bytes = vec![1; 4096];
        bytes[..512].fill(first);
        bytes[512..1024].fill(second);
        bytes[2048..3072].fill(third);
        outcomes.contains(&Some(bytes))
    };
    assert!(has(1, 1, 1) && has(2, 2, 3), "none and all of the changes survive");
    assert!(has(2, 2, 1) && has(1, 1, 3), "each change survives without the other");
    assert!(has(1, 2, 1) && has(2, 1, 1), "a change is torn at a sector");
    for outcome in &outcomes {
        let bytes = outcome.as_ref().unwrap();
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "no sector is torn");
    }
}

#[test]
fn a_third_of_the_seeds_lose_everything_unsynced() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    for number in 0..20 {
        file.write_at(&[7; 512], number * 512).unwrap();
    }
    let lost = (0..300).filter(|&seed| content(&disk.power_loss(seed), "a").unwrap().is_empty()).count();
    assert!((70..150).contains(&lost), "{lost}");
    let kept = (0..300).filter(|&seed| content(&disk.power_loss(seed), "a").unwrap() == [7; 20 * 512]).count();
    assert!(kept > 5, "{kept}");
}

#[test]
fn a_later_write_to_a_sector_never_survives_without_the_earlier_one() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    file.write_at(b"first", 0).unwrap();
    file.write_at(b"second", 5).unwrap();
    let outcomes = outcomes(&disk, "a");
    assert!(outcomes.contains(&Some(b"first".to_vec())) && outcomes.contains(&Some(b"firstsecond".to_vec())));
    for outcome in outcomes.into_iter().flatten() {
        let both = outcome == b"firstsecond";
        assert!(both || !outcome.ends_with(b"second"), "{outcome:?}");
    }
}

#[test]
fn an_image_is_decided_by_its_seed() {
    let disk = disk();
    for name in ["a", "b", "c"] {
        disk.create(&path(name), Access::Buffered).unwrap().write_at(&[1; 5000], 100).unwrap();
    }
    for seed in 0..50 {
        let (one, two) = (disk.power_loss(seed), disk.power_loss(seed));
        assert_eq!(one.files(), two.files());
        assert!(one.files().iter().all(|(path, _)| one.read_file(path) == two.read_file(path)));
    }
}

#[test]
fn the_original_and_its_images_do_not_disturb_each_other() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    file.write_at(&[1; 100], 0).unwrap();
    file.sync().unwrap();
    let image = disk.power_loss(1);
    file.write_at(&[2; 100], 0).unwrap();
    image.open(&path("a")).unwrap().write_at(&[3; 50], 0).unwrap();
    assert_eq!(content(&disk, "a").unwrap(), [2; 100]);
    assert_eq!(content(&image, "a").unwrap()[49..51], [3, 1]);
}

#[test]
fn a_name_is_durable_only_after_its_directory_is_synced() {
    let disk = disk();
    let file = disk.create(&path("a"), Access::Buffered).unwrap();
    file.write_at(b"data", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([None, Some(b"data".to_vec())]));
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([Some(b"data".to_vec())]));
}

#[test]
fn a_file_whose_removal_is_not_durable_may_reappear_with_its_content() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    file.write_at(b"data", 0).unwrap();
    file.sync().unwrap();
    drop(file);
    disk.remove(&path("a")).unwrap();
    assert_eq!(content(&disk, "a"), None);
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([None, Some(b"data".to_vec())]));
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([None]));
}

#[test]
fn a_rename_is_atomic() {
    let disk = disk();
    durable_file(&disk, "current");
    disk.write_file(&path("current"), b"old");
    let file = disk.create(&path("next"), Access::Buffered).unwrap();
    file.write_at(b"new", 0).unwrap();
    file.sync().unwrap();
    disk.rename(&path("next"), &path("current")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let image = disk.power_loss(seed);
        seen.insert((content(&image, "current"), content(&image, "next")));
    }
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    assert_eq!(seen, BTreeSet::from([(old.clone(), None), (old, new.clone()), (new, None)]));
}

#[test]
fn a_process_crash_loses_nothing_but_unsynced_bytes_stay_unsynced() {
    let disk = disk();
    let file = disk.create(&path("a"), Access::Buffered).unwrap();
    file.write_at(b"data", 0).unwrap();
    let _lock = disk.lock(&path("LOCK")).unwrap();
    let image = disk.process_crash();
    disk.halt();
    assert_eq!(content(&image, "a").unwrap(), b"data");
    image.lock(&path("LOCK")).unwrap();
    assert!(outcomes(&image, "a").contains(&None));
    image.sync_dir(Path::new(DIR)).unwrap();
    image.open(&path("a")).unwrap().sync().unwrap();
    assert_eq!(outcomes(&image, "a"), BTreeSet::from([Some(b"data".to_vec())]));
}

#[test]
fn every_call_on_a_halted_disk_fails_without_effect() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    let mapping = disk.map(&path("ring"), 4096).unwrap().unwrap();
    let _lock = disk.lock(&path("LOCK")).unwrap();
    disk.halt();
    let errors = [
        file.write_at(b"x", 0).err(),
        file.sync().err(),
        file.len().err(),
        disk.open(&path("a")).err(),
        disk.list(Path::new(DIR)).err(),
        disk.lock(&path("LOCK")).err(),
    ];
    for error in errors {
        let text = error.unwrap().to_string();
        assert!(text.contains("the machine is off"), "{text}");
    }
    mapping.write(0, b"x");
    assert_eq!(content(&disk, "ring").unwrap()[0], 0);
    assert_eq!(content(&disk, "a").unwrap(), b"");
}

#[test]
fn a_lock_is_exclusive_until_dropped() {
    let disk = disk();
    let first = disk.lock(&path("LOCK")).unwrap();
    assert!(matches!(disk.lock(&path("LOCK")), Err(Error::Locked { .. })));
    drop(first);
    disk.lock(&path("LOCK")).unwrap();
}

#[test]
fn the_hook_runs_before_and_after_every_sync() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    disk.on_sync(move |disk, point| {
        let survivors = (0..60).map(|seed| content(&disk.power_loss(seed), "a")).collect::<BTreeSet<_>>();
        seen.lock().push((point.phase, point.is_dir, survivors.len()));
    });
    file.write_at(b"data", 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    disk.clear_on_sync();
    file.sync().unwrap();
    let seen = images.lock();
    assert!(seen[0].0 == Phase::Before && seen[0].2 > 1, "not durable yet");
    assert_eq!(seen[1], (Phase::After, false, 1));
    assert_eq!(seen[2..], [(Phase::Before, true, 1), (Phase::After, true, 1)]);
}

#[test]
fn a_mapping_survives_a_process_crash_and_each_page_may_survive_a_power_loss() {
    let disk = disk();
    let mapping = disk.map(&path("ring"), 16_384).unwrap().unwrap();
    disk.open(&path("ring")).unwrap().sync().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    for page in 0..4 {
        mapping.write(page * 4096, &[1; 4096]);
    }
    mapping.write(4095, &[2, 2]);
    let mut buffer = [0; 3];
    mapping.read(4094, &mut buffer);
    assert_eq!(buffer, [1, 2, 2]);
    let kernel = content(&disk.process_crash(), "ring").unwrap();
    assert_eq!(kernel[4094..4098], [1, 2, 2, 1]);
    let mut kept_counts = BTreeSet::new();
    for outcome in outcomes(&disk, "ring") {
        let outcome = outcome.unwrap();
        kept_counts.insert(outcome.chunks(4096).filter(|page| page[100] == 1).count());
        for (page, now) in outcome.chunks(4096).zip(kernel.chunks(4096)) {
            let old = page.iter().all(|&byte| byte == page[0]);
            assert!(old || page == now);
        }
    }
    assert_eq!(kept_counts, BTreeSet::from([0, 1, 2, 3, 4]));
}

#[test]
fn a_mapping_may_be_written_back_in_an_older_state() {
    let disk = disk();
    let mapping = disk.map(&path("ring"), 4096).unwrap().unwrap();
    disk.open(&path("ring")).unwrap().sync().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    for round in 1..=50 {
        mapping.write(0, &[round; 4096]);
    }
    let rounds: BTreeSet<u8> = outcomes(&disk, "ring").into_iter().map(|bytes| bytes.unwrap()[0]).collect();
    assert!(rounds.contains(&50) && rounds.iter().any(|round| (1..50).contains(round)), "{rounds:?}");
}

#[test]
fn a_mapping_with_a_different_size_starts_from_zeros() {
    let disk = disk();
    disk.map(&path("ring"), 4096).unwrap().unwrap().write(0, b"old");
    assert_eq!(disk.map(&path("ring"), 4096).unwrap().unwrap().len(), 4096);
    assert_eq!(content(&disk, "ring").unwrap()[..3], *b"old");
    disk.map(&path("ring"), 8192).unwrap().unwrap();
    assert_eq!(content(&disk, "ring").unwrap(), [0; 8192]);
    disk.set_mapping(false);
    assert!(disk.map(&path("ring"), 8192).unwrap().is_none());
}

#[test]
fn writes_beyond_the_capacity_fail_and_allocated_space_stays_writable() {
    let disk = disk();
    disk.set_capacity(Some(40_960));
    let file = durable_file(&disk, "log");
    file.allocate(32_768).unwrap();
    assert!(matches!(file.allocate(49_152), Err(Error::NoSpace { .. })));
    assert_eq!(file.len().unwrap(), 32_768);
    let other = durable_file(&disk, "other");
    let error = other.write_at(&[5; 10_000], 0).unwrap_err();
    assert!(matches!(error, Error::NoSpace { path, .. } if path == self::path("other")));
    assert_eq!(other.len().unwrap(), 8192, "the bytes that fit are written");
    file.write_at(&[1; 32_768], 0).unwrap();
    assert_eq!(disk.used(), 40_960);
    assert!(matches!(disk.map(&path("ring"), 4096), Err(Error::NoSpace { .. })));
    disk.remove(&path("other")).unwrap();
    assert!(matches!(file.allocate(40_960), Err(Error::NoSpace { .. })), "an open file keeps its space");
    drop(other);
    file.allocate(40_960).unwrap();
}

#[test]
fn a_direct_file_accepts_aligned_writes() {
    let disk = disk();
    let file = disk.create(&path("log"), Access::Direct).unwrap();
    let mut buffer = AlignedBuffer::new(8192);
    buffer.fill(3);
    file.write_at(&buffer, 4096).unwrap();
    let mut odd = [0; 7];
    assert_eq!(file.read_at(&mut odd, 4093).unwrap(), 7);
    assert_eq!(odd, [0, 0, 0, 3, 3, 3, 3]);
}

#[test]
#[should_panic(expected = "unaligned offset")]
fn an_unaligned_write_to_a_direct_file_panics() {
    let file = disk().create(&path("log"), Access::Direct).unwrap();
    let _ = file.write_at(&AlignedBuffer::new(1), 5);
}

#[test]
fn a_failed_write_may_be_partial_and_the_next_one_succeeds() {
    let mut lengths = BTreeSet::new();
    for seed in 0..30 {
        let disk = disk();
        let file = durable_file(&disk, "a");
        disk.set_faults(Faults { fail_write_after: Some(1), seed, ..Faults::default() });
        file.write_at(b"works", 0).unwrap();
        assert!(matches!(file.write_at(&[1; 2048], 5), Err(Error::Io { operation: "write", .. })));
        lengths.insert(file.len().unwrap());
        file.write_at(&[1; 2048], 5).unwrap();
        assert_eq!(file.len().unwrap(), 2053);
    }
    assert!(lengths.contains(&5) && lengths.len() > 2, "{lengths:?}");
}

#[test]
fn a_failed_sync_loses_writes_permanently_although_a_later_sync_succeeds() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..40 {
        let disk = disk();
        let file = durable_file(&disk, "a");
        disk.set_faults(Faults { fail_sync_after: Some(0), seed, ..Faults::default() });
        file.write_at(&[1; 512], 0).unwrap();
        assert!(matches!(file.sync(), Err(Error::Io { operation: "sync", .. })));
        file.write_at(&[2; 512], 4096).unwrap();
        file.sync().unwrap();
        assert_eq!(content(&disk, "a").unwrap()[..512], [1; 512], "the page cache still holds the bytes");
        let left = content(&disk.power_loss(seed), "a").unwrap();
        assert_eq!(left[4096..], [2; 512]);
        outcomes.insert(left[0]);
    }
    assert_eq!(outcomes, BTreeSet::from([0, 1]));
}

#[test]
fn reads_fail_at_random_and_succeed_once_faults_are_cleared() {
    let disk = disk();
    disk.write_file(&path("a"), b"data");
    let file = disk.open(&path("a")).unwrap();
    disk.set_faults(Faults { fail_read_one_in: Some(3), ..Faults::default() });
    let failed = (0..300).filter(|_| file.read_at(&mut [0; 4], 0).is_err()).count();
    assert!((50..150).contains(&failed), "{failed}");
    disk.clear_faults();
    assert!((0..100).all(|_| file.read_at(&mut [0; 4], 0).is_ok()));
}

#[test]
fn failed_directory_operations_have_no_effect() {
    let disk = disk();
    disk.write_file(&path("a"), b"data");
    disk.set_faults(Faults {
        fail_directory_after: Some(0),
        fail_sync_after: Some(0),
        lasting: true,
        ..Faults::default()
    });
    assert!(disk.remove(&path("a")).is_err());
    assert!(disk.rename(&path("a"), &path("b")).is_err());
    assert!(disk.create(&path("b"), Access::Buffered).is_err());
    assert!(disk.sync_dir(Path::new(DIR)).is_err());
    assert_eq!(disk.files(), [(path("a"), 4)]);
}

#[test]
fn space_runs_out_at_the_planned_byte_until_faults_are_cleared() {
    let disk = disk();
    let file = durable_file(&disk, "a");
    disk.set_faults(Faults { no_space_after_bytes: Some(1000), ..Faults::default() });
    file.write_at(&[1; 600], 0).unwrap();
    file.write_at(&[1; 600], 0).unwrap();
    assert!(matches!(file.write_at(&[1; 600], 600), Err(Error::NoSpace { .. })));
    assert!(matches!(file.allocate(5000), Err(Error::NoSpace { .. })));
    disk.clear_faults();
    file.allocate(5000).unwrap();
}

#[test]
fn a_file_written_by_a_test_is_durable_and_makes_no_other_name_durable() {
    let disk = disk();
    disk.create(&path("other"), Access::Buffered).unwrap();
    disk.write_file(&path("a"), b"one");
    disk.write_file(&path("a"), b"two");
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([Some(b"two".to_vec())]));
    assert_eq!(outcomes(&disk, "other").len(), 2);
}

#[test]
fn relative_paths_work_like_absolute_ones() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("db/logs")).unwrap();
    disk.create(Path::new("db/a"), Access::Buffered).unwrap();
    disk.sync_dir(Path::new("db")).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    let image = disk.power_loss(0);
    assert_eq!(image.files(), [("db/a".into(), 0)]);
    assert_eq!(image.list(Path::new("")).unwrap().len(), 1);
}

#[test]
fn a_flipped_bit_is_durable() {
    let disk = disk();
    disk.write_file(&path("a"), b"data");
    disk.flip_bit(&path("a"), 1, 0);
    assert_eq!(content(&disk, "a").unwrap(), b"d`ta");
    assert_eq!(content(&disk.power_loss(0), "a").unwrap(), b"d`ta");
}

#[test]
fn disk_calls_are_yield_points_of_a_simulation() {
    let mut orders = BTreeSet::new();
    for seed in 0..20 {
        let order = crate::sched::sim::simulate(seed, || {
            let disk = disk();
            let turn = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..2)
                .map(|number: u8| {
                    let (disk, turn) = (disk.clone(), Arc::clone(&turn));
                    crate::sched::thread::spawn("writer", move || {
                        let file = disk.create(&path(&format!("f{number}")), Access::Buffered).unwrap();
                        for _ in 0..4 {
                            let turn = turn.fetch_add(1, Ordering::SeqCst);
                            file.write_at(&[number], turn as u64).unwrap();
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            content(&disk, "f1").unwrap()
        });
        orders.insert(order.unwrap());
    }
    assert!(orders.len() > 4, "{orders:?}");
}

/// A disk with a second directory, and an unsynced file in each.
pub fn two_disks() -> (SimDisk, [Arc<dyn File>; 2]) {
    let disk = disk();
    disk.create_dir_all(Path::new("/other")).unwrap();
    let files = [DIR, "/other"].map(|dir| {
        let file = disk.create(&Path::new(dir).join("a"), Access::Buffered).unwrap();
        disk.sync_dir(Path::new(dir)).unwrap();
        file.write_at(b"unsynced", 0).unwrap();
        file
    });
    (disk, files)
}

#[test]
fn one_directory_may_lose_power_alone() {
    let (disk, _files) = two_disks();
    let contents = |seed| {
        let image = disk.power_loss_of(seed, |lost| lost == Path::new("/other"));
        (content(&image, "a"), image.read_file(Path::new("/other/a")))
    };
    let outcomes: BTreeSet<_> = (0..50).map(contents).collect();
    let whole = Some(b"unsynced".to_vec());
    assert!(outcomes.iter().all(|(kept, _)| *kept == whole));
    assert!(outcomes.contains(&(whole.clone(), Some(Vec::new()))) && outcomes.contains(&(whole.clone(), whole)));
}

#[test]
fn faults_may_concern_one_directory() {
    let (disk, [here, other]) = two_disks();
    let within = || Some("/other".into());
    disk.set_faults(Faults { fail_write_after: Some(0), within: within(), ..Faults::default() });
    assert!(here.write_at(b"x", 0).is_ok() && other.write_at(b"x", 0).is_err());
    disk.set_faults(Faults { fail_read_one_in: Some(1), within: within(), ..Faults::default() });
    assert!(here.read_at(&mut [0; 4], 0).is_ok() && other.read_at(&mut [0; 4], 0).is_err());
}

#[test]
fn a_punched_hole_reads_as_zeros_takes_no_space_and_is_filled_by_a_write() {
    let disk = disk();
    disk.write_file(&path("a"), &[7; 5 * 4096]);
    let first_data = |from: u64, to: u64| disk.first_data(&path("a"), from * 4096, to * 4096).unwrap();
    assert_eq!(first_data(1, 9), Some((4096, 5 * 4096)));
    assert_eq!(disk.punch(&path("a"), 4096, 3 * 4096).unwrap(), Punched::Done);
    assert_eq!([first_data(1, 4), first_data(5, 6)], [None; 2]);
    assert_eq!([first_data(0, 9), first_data(2, 9)], [Some((0, 4096)), Some((4 * 4096, 5 * 4096))]);
    let read = content(&disk, "a").unwrap();
    assert_eq!((read.len(), disk.used()), (5 * 4096, 2 * 4096));
    assert!(read.iter().enumerate().all(|(at, &byte)| byte == if (4096..4 * 4096).contains(&at) { 0 } else { 7 }));
    disk.open(&path("a")).unwrap().write_at(&[1], 8192).unwrap();
    assert_eq!(disk.used(), 3 * 4096);
    disk.link(&path("a"), &path("b")).unwrap();
    assert_eq!(disk.punch(&path("a"), 0, 4096).unwrap(), Punched::Linked);
    disk.remove(&path("b")).unwrap();
    disk.set_punching(false);
    assert_eq!(disk.punch(&path("a"), 0, 4096).unwrap(), Punched::Unsupported);
    assert_eq!(content(&disk, "a").unwrap()[0], 7);
}
