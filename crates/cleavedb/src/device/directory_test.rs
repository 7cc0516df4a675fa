use std::collections::BTreeMap;

use super::super::emulated::{EmulatedSsd, SsdParameters};
use super::super::{WithDevice, device_path};
use super::*;
use crate::io::{Access, Faults, SimDisk, Storage};
use crate::sched::random::Random;

fn ssd(disk: &SimDisk, capacity_bytes: u64) -> Arc<EmulatedSsd> {
    let parameters = SsdParameters { memtable_bytes: 30_000, kv_percent: 100, ..SsdParameters::unthrottled() };
    let parameters = parameters.with_capacity(capacity_bytes);
    EmulatedSsd::open_on(Arc::new(disk.clone()), Path::new("/ssd"), parameters).unwrap()
}

/// The files of a device, and its lock.
struct There {
    storage: WithDevice,
    path: PathBuf,
    _lock: Box<dyn Lock>,
}

impl There {
    fn at(disk: &SimDisk) -> There {
        There::on(ssd(disk, 8 << 20))
    }

    fn on(device: Arc<EmulatedSsd>) -> There {
        let path = device_path(&*device);
        let storage = WithDevice::new(Arc::new(SimDisk::new()), device).unwrap();
        let lock = storage.lock(&path.join("LOCK")).unwrap();
        There { storage, path, _lock: lock }
    }

    fn create(&self, name: &str) -> Arc<dyn File> {
        self.storage.create(&self.path.join(name), Access::Buffered).unwrap()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        crate::io::read_whole(&self.storage, &self.path.join(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.storage.list(&self.path).unwrap().into_iter().map(|entry| entry.name).collect()
    }
}

/// Writes that overlap, truncations, allocations and reads of any range, also after the device was locked anew.
#[test]
fn files_have_the_bytes_that_a_plain_file_would_have() {
    for seed in 0..12 {
        let (disk, mut random) = (SimDisk::new(), Random::new(seed));
        let mut there = There::at(&disk);
        let mut models: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for step in 0..250u64 {
            let name = format!("{:08}.log", 1 + random.below(4));
            let path = there.path.join(&name);
            let Some(model) = models.get_mut(&name) else {
                there.create(&name);
                models.insert(name, Vec::new());
                continue;
            };
            let file = there.storage.open(&path).unwrap();
            match random.below(20) {
                0..12 => {
                    // Mostly at the end, as logs are written.
                    let at = if random.one_in(3) { random.below(model.len() as u64 + 1) } else { model.len() as u64 };
                    let bytes = vec![step as u8; 1 + random.below(40_000) as usize];
                    file.write_at(&bytes, at).unwrap();
                    let end = at as usize + bytes.len();
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&bytes);
                }
                12 => {
                    let len = random.below(model.len() as u64 + 1);
                    file.truncate(len).unwrap();
                    model.truncate(len as usize);
                }
                13 => {
                    let len = model.len() + random.below(5000) as usize;
                    assert!(file.allocate(len as u64).unwrap());
                    model.resize(len, 0);
                }
                14 => {
                    there.storage.remove(&path).unwrap();
                    models.remove(&name);
                }
                15 if random.one_in(3) => {
                    drop((file, there));
                    there = There::at(&disk);
                }
                _ => {
                    let at = random.below(model.len() as u64 + 1) as usize;
                    let mut buffer = vec![7; random.below(100_000) as usize];
                    let count = file.read_at(&mut buffer, at as u64).unwrap();
                    assert_eq!(count, buffer.len().min(model.len() - at));
                    assert!(buffer[..count] == model[at..at + count], "seed {seed}, step {step}");
                }
            }
        }
        assert!(there.names().iter().eq(models.keys()));
        models.iter().for_each(|(name, model)| assert!(there.read(name) == *model, "{name} of seed {seed}"));
    }
}

/// What was synced is there after loss of power at any sync; a replaced file is the old one or the new one.
#[test]
fn renaming_leaves_the_old_file_or_the_new_one_whenever_power_is_lost() {
    for seed in 0..40 {
        let disk = SimDisk::new();
        let there = There::at(&disk);
        for (round, text) in ["first", "second", "third"].into_iter().enumerate() {
            let file = there.create("OWNER.new");
            file.write_at(text.as_bytes(), 0).unwrap();
            file.sync().unwrap();
            let images = Arc::new(std::sync::Mutex::new(Vec::new()));
            let into = images.clone();
            disk.on_sync(move |disk, _| into.lock().unwrap().push(disk.power_loss(seed)));
            there.storage.rename(&there.path.join("OWNER.new"), &there.path.join("OWNER")).unwrap();
            let before_sync = disk.power_loss(seed);
            there.storage.sync_dir(&there.path).unwrap();
            disk.clear_on_sync();
            let after = disk.power_loss(seed);
            let images = std::mem::take(&mut *images.lock().unwrap());
            for image in images.into_iter().chain([before_sync]) {
                image.clear_on_sync();
                let then = There::at(&image);
                let found = then.names();
                let old = ["first", "second"].get(round.wrapping_sub(1)).copied();
                match found.contains(&"OWNER".to_owned()) {
                    true => assert!([Some(text), old].contains(&Some(&String::from_utf8(then.read("OWNER")).unwrap()))),
                    false => assert!(old.is_none(), "seed {seed}: {found:?}"),
                }
            }
            assert_eq!(There::at(&after).read("OWNER"), text.as_bytes());
        }
    }
}

#[test]
fn space_that_a_file_has_allocated_is_there_when_it_is_written() {
    let there = There::on(ssd(&SimDisk::new(), 1 << 20));
    let (first, second) = (there.create("a"), there.create("b"));
    first.allocate(600 << 10).unwrap();
    assert!(matches!(second.allocate(400 << 10), Err(Error::NoSpace { .. })), "a part is kept for small files");
    assert_eq!(second.len().unwrap(), 0);
    second.allocate(300 << 10).unwrap();
    assert_eq!(there.storage.free_bytes(&there.path), 60 << 10);
    second.write_at(&vec![2; 300 << 10], 0).unwrap();
    first.write_at(&vec![1; 600 << 10], 0).unwrap();
    there.create("OWNER").write_at(b"small", 0).unwrap();
    first.truncate(100 << 10).unwrap();
    assert_eq!(there.storage.free_bytes(&there.path), (560 << 10) - 5);
    assert!(there.create("c").allocate(500 << 10).is_ok());
}

#[test]
fn space_of_a_removed_file_is_free_only_once_the_device_has_none_of_it() {
    let disk = SimDisk::new();
    let there = There::on(ssd(&disk, 1 << 20));
    let file = there.create("a");
    file.allocate(600 << 10).unwrap();
    file.write_at(&vec![1; 600 << 10], 0).unwrap();
    let free = there.storage.free_bytes(&there.path);
    disk.set_faults(Faults { fail_write_after: Some(0), lasting: true, ..Faults::default() });
    assert!(there.storage.remove(&there.path.join("a")).is_err());
    disk.clear_faults();
    assert_eq!((there.names().len(), there.storage.free_bytes(&there.path)), (0, free));
    let path = there.path.clone();
    drop((file, there));
    let there = There::on(ssd(&disk, 1 << 20));
    assert_eq!(there.path, path);
    let space = || there.storage.free_bytes(&there.path);
    for name in there.names() {
        there.storage.remove(&there.path.join(name)).unwrap();
    }
    assert!(space() > 900 << 10, "{}", space());
}

#[test]
fn space_of_a_replaced_file_is_free_only_once_the_device_has_none_of_it() {
    // The write that fails: that of the new name comes first, then those of the deletions.
    let replaced_and_kept = (0..8).filter(|after| {
        let disk = SimDisk::new();
        let there = There::on(ssd(&disk, 1 << 20));
        let at = |name: &str| there.path.join(name);
        let replaced = there.create("b");
        replaced.allocate(600 << 10).unwrap();
        replaced.write_at(&vec![1; 600 << 10], 0).unwrap();
        drop((there.create("a"), replaced));
        let free = there.storage.free_bytes(&there.path);
        disk.set_faults(Faults { fail_write_after: Some(*after), lasting: true, ..Faults::default() });
        let renamed = there.storage.rename(&at("a"), &at("b"));
        disk.clear_faults();
        assert_eq!(there.storage.free_bytes(&there.path), free, "write {after}");
        renamed.is_ok() && there.names() == ["b"]
    });
    assert!(replaced_and_kept.count() > 0);
}

#[test]
fn who_has_a_file_open_reads_it_after_its_removal() {
    let there = There::at(&SimDisk::new());
    let free = || there.storage.free_bytes(&there.path);
    let before = free();
    let path = there.path.join("a");
    let file = there.create("a");
    file.write_at(&[7; 40_000], 0).unwrap();
    let reader = there.storage.open(&path).unwrap();
    drop(file);
    there.storage.remove(&path).unwrap();
    assert!(there.storage.open(&path).is_err() && there.names().is_empty());
    let mut bytes = vec![0; 40_000];
    assert_eq!(reader.read_at(&mut bytes, 0).unwrap(), 40_000);
    assert!(bytes.iter().all(|byte| *byte == 7) && reader.write_at(b"x", 0).is_err());
    assert_eq!(free(), before - 40_000);
    drop(reader);
    assert_eq!(free(), before);
}

#[test]
fn what_a_crash_left_without_a_name_is_removed_by_the_next_lock() {
    let disk = SimDisk::new();
    let there = There::at(&disk);
    there.create("a").write_at(&[1; 50_000], 0).unwrap();
    there.create("b").write_at(b"b", 0).unwrap();
    let number = there.storage.open(&there.path.join("a")).map(|_| 1).unwrap();
    drop(there);
    let device = ssd(&disk, 8 << 20);
    device.delete(&name_key(number)).unwrap();
    let before = device.usage().used_bytes;
    let there = There::on(device.clone());
    assert_eq!(there.names(), ["b"]);
    assert_eq!(before - device.usage().used_bytes, 50_000);
    // Its number is not given out again, and neither is that of a generation.
    there.create("a").write_at(b"new", 0).unwrap();
    assert_eq!(there.read("a"), b"new");
}

#[test]
fn a_large_read_is_a_few_scans_and_a_small_one_a_single_command() {
    let disk = SimDisk::new();
    let device = ssd(&disk, 8 << 20);
    let there = There::on(device.clone());
    let file = there.create("a");
    let bytes: Vec<u8> = (0..1u32 << 20).map(|at| (at % 251) as u8).collect();
    file.write_at(&bytes, 0).unwrap();
    let commands = |read: &mut dyn FnMut()| {
        let before = device.traffic();
        read();
        let after = device.traffic();
        (after.commands - before.commands, after.host_bytes_received - before.host_bytes_received)
    };
    let mut buffer = vec![0; 1 << 20];
    let (many, _) = commands(&mut || assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 1 << 20));
    assert!(buffer == bytes && many <= 3, "{many} commands");
    let mut small = [0; 100];
    assert_eq!(commands(&mut || assert_eq!(file.read_at(&mut small, 5000).unwrap(), 100)), (1, 16 << 10));
    assert_eq!(small[..], bytes[5000..5100]);
}

/// A slow tier on the block side and logs on the key-value side share one bandwidth.
#[test]
fn the_block_side_and_the_pairs_share_the_time_of_one_medium() {
    let times = crate::sched::sim::simulate(1, || {
        let disk = SimDisk::new();
        let parameters = SsdParameters {
            media_bytes_per_second: 1 << 20,
            memtable_bytes: 64 << 20,
            ..SsdParameters::unthrottled().with_capacity(64 << 20)
        };
        let device = EmulatedSsd::open_on(Arc::new(disk.clone()), Path::new("/ssd"), parameters).unwrap();
        let side = device.block_side().unwrap();
        assert_eq!((side.dir(), side.capacity_bytes()), (Path::new("/ssd/block"), 32 << 20));
        let path = device_path(&*device);
        let storage = Arc::new(WithDevice::new(Arc::new(disk.clone()), device).unwrap());
        let _lock = storage.lock(&path.join("LOCK")).unwrap();
        storage.create_dir_all(side.dir()).unwrap();
        let pairs = storage.create(&path.join("a"), Access::Buffered).unwrap();
        let block = storage.create(&side.dir().join("a"), Access::Buffered).unwrap();
        let elsewhere = storage.create(Path::new("/elsewhere"), Access::Buffered).unwrap();
        let megabyte = vec![1; 1 << 20];
        let time = |act: &mut dyn FnMut()| {
            let began = crate::sched::clock::now();
            act();
            (crate::sched::clock::now() - began).as_secs_f64()
        };
        let free = time(&mut || elsewhere.write_at(&megabyte, 0).unwrap());
        let alone = time(&mut || block.write_at(&megabyte, 0).unwrap());
        let both = time(&mut || {
            let (pairs, megabyte) = (pairs.clone(), megabyte.clone());
            let other = crate::sched::thread::spawn("pairs", move || pairs.write_at(&megabyte, 0).unwrap());
            block.write_at(&vec![2; 1 << 20], 0).unwrap();
            other.join().unwrap();
        });
        let read = time(&mut || assert_eq!(block.read_at(&mut vec![0; 1 << 20], 0).unwrap(), 1 << 20));
        [free, alone, both, read]
    });
    let [free, alone, both, read] = times.unwrap();
    assert!(free < 0.1, "{free}");
    assert!(
        (0.9..1.2).contains(&alone) && (1.9..2.3).contains(&both) && (0.9..1.2).contains(&read),
        "{times:?}",
        times = [alone, both, read]
    );
}

#[test]
fn two_databases_cannot_have_a_device_at_once_and_readers_can() {
    let device = ssd(&SimDisk::new(), 8 << 20);
    let there = There::on(device.clone());
    let second = WithDevice::new(Arc::new(SimDisk::new()), device).unwrap();
    let lock = there.path.join("LOCK");
    assert!(matches!(second.lock(&lock), Err(Error::Locked { .. })));
    assert!(matches!(second.lock_shared(&lock), Err(Error::Locked { .. })));
    drop(there);
    let readers = [second.lock_shared(&lock).unwrap(), second.lock_shared(&lock).unwrap()];
    assert!(matches!(second.lock(&lock), Err(Error::Locked { .. })));
    drop(readers);
    second.lock(&lock).unwrap();
}
