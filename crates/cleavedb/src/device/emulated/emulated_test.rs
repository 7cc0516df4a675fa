use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex as StdMutex;
use std::time::Duration;

use super::*;
use crate::device::WithDevice;
use crate::io::{Access, Faults, SimDisk};
use crate::sched::clock::now;
use crate::sched::random::Random;
use crate::sched::sim::simulate;

/// A device with a tiny memory, so that it writes and merges runs all the time.
fn tiny() -> SsdParameters {
    SsdParameters { memtable_bytes: 2000, dma_bytes: 500, ..SsdParameters::unthrottled().with_capacity(1 << 20) }
}

fn open(disk: &SimDisk) -> Arc<EmulatedSsd> {
    EmulatedSsd::open_on(Arc::new(disk.clone()), Path::new("/ssd"), tiny()).unwrap()
}

fn pairs_of(device: &EmulatedSsd) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut keys = Vec::new();
    device.list(&mut |key| keys.push(key.to_vec())).unwrap();
    assert!(keys.is_sorted());
    let pair = |key: Vec<u8>| (key.clone(), device.retrieve(&key).unwrap().unwrap());
    keys.into_iter().map(pair).collect()
}

/// All pairs, by scans.
fn scanned(device: &EmulatedSsd) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut all, mut from) = (BTreeMap::new(), vec![0]);
    loop {
        let pairs = device.scan(&from, &[0xff; 4], 1 << 20).unwrap().unwrap();
        let Some((last, _)) = pairs.last() else { return all };
        from = [last, &[0][..]].concat();
        let bytes: usize = pairs.iter().map(|(_, value)| value.len()).sum();
        assert!(pairs.len() == 1 || bytes <= 500, "one DMA has {bytes} bytes");
        all.extend(pairs);
    }
}

#[test]
fn random_commands_give_what_a_map_gives_also_after_a_restart() {
    for seed in 0..20 {
        let (disk, mut random, mut model) = (SimDisk::new(), Random::new(seed), BTreeMap::new());
        let mut device = open(&disk);
        for step in 0..600 {
            let key = vec![1 + random.below(40) as u8; 1 + random.below(3) as usize];
            match random.below(10) {
                0..6 => {
                    let value = vec![step as u8; random.below(300) as usize];
                    device.store(&key, &value).unwrap();
                    model.insert(key, value);
                }
                6..9 => assert_eq!(device.delete(&key).unwrap(), model.remove(&key).is_some()),
                _ if random.one_in(10) => {
                    let identity = device.identity();
                    drop(device);
                    device = open(&disk);
                    assert_eq!(device.identity(), identity);
                }
                _ => {
                    assert_eq!(device.retrieve(&key).unwrap(), model.get(&key).cloned());
                    assert_eq!(device.exist(&key).unwrap(), model.contains_key(&key));
                }
            }
            let used: usize = model.values().map(Vec::len).sum();
            assert_eq!(device.usage().used_bytes, used as u64);
        }
        assert_eq!((pairs_of(&device), scanned(&device)), (model.clone(), model));
        device.reset().unwrap();
        assert!(pairs_of(&device).is_empty() && device.usage().used_bytes == 0);
    }
}

#[test]
fn what_was_synced_survives_loss_of_power_at_every_sync() {
    for seed in 0..10 {
        let (disk, mut random) = (SimDisk::new(), Random::new(seed));
        let device = open(&disk);
        let images = Arc::new(StdMutex::new(Vec::new()));
        let into = images.clone();
        disk.on_sync(move |disk, _| {
            let mut images = into.lock().unwrap();
            let number = images.len() as u64;
            images.push((disk.power_loss(number), disk.process_crash()));
        });
        // Each key gets rising values; what each had at the last sync, and last.
        let (mut synced, mut last) = (BTreeMap::new(), BTreeMap::new());
        for step in 1..300u32 {
            let key = vec![1 + random.below(30) as u8];
            let before = images.lock().unwrap().len();
            device.store(&key, &step.to_le_bytes().repeat(1 + random.below(60) as usize)).unwrap();
            check_images(&images, before, &synced, &last, Some((&key, step)));
            last.insert(key, step);
            if random.one_in(5) {
                let before = images.lock().unwrap().len();
                device.sync().unwrap();
                check_images(&images, before, &synced, &last, None);
                synced = last.clone();
            }
        }
    }
}

type Steps = BTreeMap<Vec<u8>, u32>;
type ImagePairs = Arc<StdMutex<Vec<(SimDisk, SimDisk)>>>;

/// Each image from `first` on has what was synced or something newer, and after a mere crash all that was acknowledged.
fn check_images(images: &ImagePairs, first: usize, synced: &Steps, last: &Steps, now: Option<(&Vec<u8>, u32)>) {
    let taken: Vec<_> = images.lock().unwrap()[first..].to_vec();
    for (lost, crashed) in taken {
        for (image, least) in [(lost, synced), (crashed, last)] {
            image.clear_on_sync();
            let found = pairs_of(&open(&image));
            for (key, step) in least {
                let value = found.get(key).unwrap_or_else(|| panic!("{key:?} of {step} is gone"));
                let has = u32::from_le_bytes(value[..4].try_into().unwrap());
                let newest = now.filter(|(of, _)| *of == key).map_or(last[key], |(_, step)| step);
                assert!((*step..=newest).contains(&has), "{has}, which should be from {step} to {newest}");
            }
        }
    }
}

#[test]
fn a_full_device_says_so_and_takes_pairs_again_once_others_are_gone() {
    let device = open(&SimDisk::new());
    let mut count = 0;
    let full = loop {
        match device.store(format!("{count:04}").as_bytes(), &[7; 4000]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    // Half of 1 MiB belongs to the key-value side.
    assert_eq!((full.kind(), count), (io::ErrorKind::StorageFull, (512 << 10) / 4000));
    device.store(b"0000", &[8; 3000]).unwrap();
    assert!(device.delete(b"0001").unwrap());
    device.store(b"more", &[9; 4000]).unwrap();
    assert_eq!(pairs_of(&device).len(), count);
}

/// A device with the medium of these parameters and memory for all pairs, and its block side as a directory.
fn with_block_side(parameters: SsdParameters) -> (Arc<EmulatedSsd>, WithDevice, PathBuf) {
    let disk: Arc<dyn Storage> = Arc::new(SimDisk::new());
    let device = EmulatedSsd::open_on(disk.clone(), Path::new("/ssd"), parameters.with_capacity(1 << 20)).unwrap();
    let dir = device.block_side().unwrap().dir().to_owned();
    let storage = WithDevice::new(disk, device.clone()).unwrap();
    storage.create_dir_all(&dir).unwrap();
    (device, storage, dir)
}

#[test]
fn the_link_carries_the_bytes_of_both_sides() {
    let (device, storage, dir) = with_block_side(SsdParameters::unthrottled());
    device.store(b"key", &[1; 100]).unwrap();
    assert!(device.retrieve(b"key").unwrap().is_some());
    let elsewhere = storage.create(Path::new("/elsewhere"), Access::Buffered).unwrap();
    elsewhere.write_at(&[1; 999], 0).unwrap();
    let pairs = device.traffic();
    assert_eq!((pairs.host_bytes_sent, pairs.host_bytes_received), (3 + 100 + 3, 100));
    assert_eq!((pairs.block_bytes_sent, pairs.block_bytes_received), (0, 0));
    let file = storage.create(&dir.join("a"), Access::Buffered).unwrap();
    file.write_at(&[2; 5000], 0).unwrap();
    file.sync().unwrap();
    let read = storage.open_read(&dir.join("a"), Access::Buffered).unwrap();
    let mut buffer = [0; 3000];
    assert_eq!(read.read_at(&mut buffer, 0).unwrap(), 3000);
    assert_eq!(read.read_at(&mut buffer, 4000).unwrap(), 1000);
    let both = device.traffic();
    assert_eq!((both.block_bytes_sent, both.block_bytes_received), (5000, 4000));
    assert_eq!(both.host_bytes_sent - pairs.host_bytes_sent, 5000);
    assert_eq!(both.host_bytes_received - pairs.host_bytes_received, 4000);
    assert_eq!(both.media_bytes_written - pairs.media_bytes_written, 5000);
    assert_eq!(both.commands, pairs.commands, "those of the key-value side");
}

/// How long 100 writes of either side take beside each other, and 100 reads of files after them.
fn times_of_both_sides(parameters: SsdParameters) -> (Duration, Duration) {
    simulate(1, || {
        let (device, storage, dir) = with_block_side(parameters);
        let file = storage.create(&dir.join("a"), Access::Buffered).unwrap();
        let began = now();
        let block_side = file.clone();
        let writer = crate::sched::thread::spawn("writer", move || {
            (0..100).for_each(|number| block_side.write_at(&[1; 10], number * 10).unwrap());
        });
        (0..100u8).for_each(|number| device.store(&[number], &[1; 10]).unwrap());
        writer.join().unwrap();
        let written = now() - began;
        let began = now();
        let mut buffer = [0; 10];
        (0..100).for_each(|number| assert_eq!(file.read_at(&mut buffer, number * 10).unwrap(), 10));
        (written, now() - began)
    })
    .unwrap()
}

#[test]
fn both_sides_share_the_operations_of_the_medium_and_wait_for_its_latencies() {
    let ms = Duration::from_millis;
    let cases = [
        // Operations a second, latencies of reads and writes; time of the writes and of the reads.
        (0, ms(0), ms(0), (ms(0), ms(0))),
        (1000, ms(0), ms(0), (ms(200), ms(100))),
        (0, ms(0), ms(3), (ms(300), ms(0))),
        (0, ms(2), ms(0), (ms(0), ms(200))),
        // Each operation waits for its turn, and then for its latency.
        (100, ms(0), ms(0), (ms(2000), ms(1000))),
        (1000, ms(2), ms(0), (ms(200), ms(300))),
    ];
    for (media_iops, media_latency, media_write_latency, wanted) in cases {
        let parameters =
            SsdParameters { media_iops, media_latency, media_write_latency, ..SsdParameters::unthrottled() };
        let took = times_of_both_sides(parameters);
        // Switches between threads take a little time, too.
        let is_about = |took: Duration, wanted: Duration| took.abs_diff(wanted) <= ms(1) + wanted.mul_f64(0.03);
        assert!(
            is_about(took.0, wanted.0) && is_about(took.1, wanted.1),
            "{took:?} at {media_iops} operations a second with {media_latency:?} and {media_write_latency:?}"
        );
    }
}

#[test]
fn dead_pairs_do_not_fill_the_files() {
    let disk = SimDisk::new();
    let device = open(&disk);
    for round in 0..50 {
        for number in 0..50u8 {
            device.store(&[round, number], &[number; 100]).unwrap();
        }
        for number in 0..50u8 {
            device.delete(&[round, number]).unwrap();
        }
    }
    let bytes: u64 = disk.files().iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes < 20_000, "{bytes} bytes for nothing");
    let traffic = device.traffic();
    assert_eq!(traffic.host_bytes_sent, 50 * 50 * (102 + 2));
    assert!(traffic.commands == 5000 && traffic.media_bytes_written > traffic.host_bytes_sent, "{traffic:?}");
    assert_eq!(traffic.media_bytes_read, 0, "runs of which all is dead go as they are");
}

/// Enough runs that some are merged: the deletes among them still cover what is older.
#[test]
fn what_was_deleted_stays_deleted_when_a_part_of_the_runs_is_merged() {
    let disk = SimDisk::new();
    let open = || {
        let parameters = tiny().with_capacity(16 << 20);
        EmulatedSsd::open_on(Arc::new(disk.clone()), Path::new("/ssd"), parameters).unwrap()
    };
    let device = open();
    let mut model = BTreeMap::new();
    for number in 0..2000u32 {
        let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; 900]);
        device.store(&key, &value).unwrap();
        model.insert(key, value);
        // Of each run something is left.
        if number % 6 == 2 {
            let old = (number / 3).to_be_bytes().to_vec();
            assert_eq!(device.delete(&old).unwrap(), model.remove(&old).is_some());
        }
        if number % 200 == 199 {
            assert_eq!(pairs_of(&device), model, "{number}");
        }
    }
    assert!(device.traffic().media_bytes_read > 0);
    drop(device);
    assert_eq!(pairs_of(&open()), model);
}

#[test]
fn a_device_whose_files_fail_changes_nothing_more_and_is_still_read() {
    let disk = SimDisk::new();
    let device = open(&disk);
    device.store(b"a", b"1").unwrap();
    disk.set_faults(Faults { fail_sync_after: Some(0), ..Faults::default() });
    assert!(device.sync().is_err());
    disk.clear_faults();
    let failures = [device.store(b"b", b"2"), device.sync(), device.delete(b"a").map(drop), device.reset()];
    for failure in failures {
        assert!(failure.unwrap_err().to_string().contains("has failed before"));
    }
    assert_eq!(device.retrieve(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Wherever the write of a run, or a merge of runs, fails.
#[test]
fn pairs_that_were_stored_are_read_after_any_failure() {
    let mut failed = 0;
    for after in 0..120 {
        let disk = SimDisk::new();
        let device = open(&disk);
        let faults = match after % 3 {
            0 => Faults { fail_write_after: Some(after), ..Faults::default() },
            1 => Faults { fail_sync_after: Some(after / 8), ..Faults::default() },
            _ => Faults { fail_directory_after: Some(after / 8), ..Faults::default() },
        };
        disk.set_faults(faults);
        // Values of some keys are replaced, so that runs are merged because most of them is dead.
        let pair = |number: u64| ([number as u8 % 5 + 1], vec![number as u8; 120]);
        let stored = (0..300).take_while(|number| {
            let (key, value) = pair(*number);
            device.store(&key, &value).is_ok()
        });
        let stored = stored.count() as u64;
        disk.clear_faults();
        failed += u64::from(stored < 300);
        for number in stored.saturating_sub(5)..stored {
            let (key, value) = pair(number);
            let found = device.retrieve(&key).unwrap();
            // The store that failed may be there.
            assert!([value, pair(stored).1].contains(&found.unwrap()), "{number} of {stored}, failure {after}");
        }
    }
    assert!(failed > 60, "{failed}");
}

#[test]
fn damage_to_a_run_is_found() {
    let disk = SimDisk::new();
    let device = open(&disk);
    for number in 0..50u8 {
        device.store(&[number + 1], &[number; 100]).unwrap();
    }
    drop(device);
    let runs: Vec<PathBuf> = disk.files().into_iter().map(|(path, _)| path).collect();
    let run = runs.iter().find(|path| path.extension().is_some_and(|name| name == "run")).unwrap();
    let bytes = disk.read_file(run).unwrap();
    for at in (0..bytes.len()).step_by(7) {
        let image = disk.process_crash();
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        image.write_file(run, &damaged);
        let opened = EmulatedSsd::open_on(Arc::new(image), Path::new("/ssd"), tiny());
        let Ok(device) = opened else { continue };
        let is_found = (0..50u8).any(|number| device.retrieve(&[number + 1]).is_err());
        assert!(is_found, "byte {at}");
    }
}

#[test]
fn only_one_process_has_a_device_open() {
    let disk = SimDisk::new();
    let device = open(&disk);
    let second = EmulatedSsd::open_on(Arc::new(disk.clone()), Path::new("/ssd"), tiny());
    assert!(matches!(second, Err(Error::Locked { .. })));
    drop(device);
    open(&disk);
}

/// The simulated disk counts in these.
const PAGE_BYTES: u64 = 4096;

/// A file system without room makes a device that is full, at whatever step it runs out: nothing is half done, and nothing fails.
#[test]
fn a_full_file_system_is_a_full_device() {
    let mut refused = 0;
    for room in 0..60 {
        let disk = SimDisk::new();
        let (device, mut random, mut model) = (open(&disk), Random::new(room), BTreeMap::new());
        let used: u64 = disk.files().iter().map(|(_, bytes)| bytes.next_multiple_of(PAGE_BYTES)).sum();
        disk.set_faults(Faults { no_space_rename_after: (room % 3 == 0).then_some(room % 5), ..Faults::default() });
        disk.set_capacity(Some(used + room % 12 * PAGE_BYTES));
        for step in 0..120u32 {
            let (key, value) = (vec![1 + random.below(40) as u8], vec![step as u8; random.below(300) as usize]);
            let done = match random.below(4) {
                0 => device.delete(&key).map(|_| drop(model.remove(&key))),
                _ => device.store(&key, &value).map(|()| drop(model.insert(key, value))),
            };
            if let Err(error) = done {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                refused += 1;
            }
        }
        assert_eq!(pairs_of(&device), model, "room of {room}");
        if random.one_in(2) {
            drop(device);
            // It is opened also while there is no room.
            let device = open(&disk);
            assert_eq!(pairs_of(&device), model, "room of {room}");
            disk.set_capacity(None);
            disk.clear_faults();
            device.store(b"z", b"now").unwrap();
        } else {
            disk.set_capacity(None);
            disk.clear_faults();
            device.store(b"z", b"now").unwrap();
            device.sync().unwrap();
            drop(device);
            model.insert(b"z".to_vec(), b"now".to_vec());
            assert_eq!(pairs_of(&open(&disk.power_loss(room))), model, "room of {room}");
        }
    }
    assert!(refused > 1000, "{refused}");
}
