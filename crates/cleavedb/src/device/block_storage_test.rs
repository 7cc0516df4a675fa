use super::super::emulated::{EmulatedSsd, SsdParameters};
use super::super::{KvDevice, WithDevice};
use super::*;
use crate::io::{SimDisk, read_whole};
use crate::sched::random::Random;

const BLOCK: u64 = 4096;

fn device(disk: &SimDisk, blocks: u64) -> Arc<EmulatedSsd> {
    let parameters = SsdParameters { kv_percent: 50, ..SsdParameters::unthrottled() };
    let parameters = parameters.with_capacity(2 * blocks * BLOCK);
    EmulatedSsd::open_on(Arc::new(disk.clone()), Path::new("/ssd"), parameters).unwrap()
}

/// A disk with a device of this many blocks on its block side, and the directory of that.
fn storage(disk: &SimDisk, blocks: u64) -> (WithDevice, PathBuf) {
    let device = device(disk, blocks);
    let dir = device.block_side().unwrap().dir().to_owned();
    let storage = WithDevice::new(Arc::new(disk.clone()), device).unwrap();
    storage.create_dir_all(&dir).unwrap();
    (storage, dir)
}

fn is_full<T>(result: Result<T>, of: &Path) -> bool {
    matches!(result, Err(Error::NoSpace { path, .. }) if path == of)
}

#[test]
fn files_take_no_more_than_the_capacity_and_what_they_leave_is_free() {
    let disk = SimDisk::new();
    let (storage, dir) = storage(&disk, 10);
    let free = || storage.free_bytes(&dir) / BLOCK;
    assert_eq!((storage.file_system_bytes(&dir), free()), (10 * BLOCK, 10));
    let elsewhere = storage.create(Path::new("/elsewhere"), Access::Buffered).unwrap();
    assert_eq!(storage.file_system_bytes(Path::new("/")), u64::MAX);
    elsewhere.write_at(&vec![1; 20 * BLOCK as usize], 0).unwrap();
    let path = dir.join("a");
    let file = storage.create(&path, Access::Buffered).unwrap();
    assert!(file.allocate(6 * BLOCK).unwrap());
    assert_eq!(free(), 4);
    assert!(is_full(file.allocate(10 * BLOCK + 1), &path));
    assert_eq!((free(), file.len().unwrap()), (4, 6 * BLOCK), "as before");
    // What was allocated has room whatever others take.
    let other = dir.join("b");
    let b = storage.create(&other, Access::Buffered).unwrap();
    b.write_at(&vec![1; 4 * BLOCK as usize], 0).unwrap();
    assert!(is_full(b.write_at(&[1], 4 * BLOCK), &other));
    file.write_at(&vec![2; 6 * BLOCK as usize], 0).unwrap();
    assert!(is_full(file.truncate(7 * BLOCK), &path));
    file.truncate(2 * BLOCK + 1).unwrap();
    assert_eq!(free(), 3);
    // A removed file keeps its space as long as it is open.
    storage.remove(&other).unwrap();
    assert_eq!(free(), 3);
    drop(b);
    assert_eq!(free(), 7);
    assert_eq!(read_whole(&storage, &path).unwrap().len() as u64, 2 * BLOCK + 1);
    // An allocation that fails for another reason claims nothing.
    disk.set_faults(crate::io::Faults { fail_write_after: Some(0), ..crate::io::Faults::default() });
    assert!(matches!(file.allocate(5 * BLOCK), Err(Error::Io { .. })));
    assert_eq!(free(), 7);
}

/// The names of a file share its bytes, also for who counts them at the next open.
#[test]
fn a_file_with_two_names_counts_once_and_no_name_crosses_the_border() {
    let disk = SimDisk::new();
    let (there, dir) = storage(&disk, 10);
    let copy = dir.join("checkpoint");
    there.create_dir_all(&copy).unwrap();
    let file = there.create(&dir.join("a"), Access::Buffered).unwrap();
    file.write_at(&vec![1; 6 * BLOCK as usize], 0).unwrap();
    file.sync().unwrap();
    drop(file);
    assert!(there.link(&dir.join("a"), &copy.join("a")).unwrap());
    assert_eq!(there.free_bytes(&copy), 4 * BLOCK);
    assert!(!there.link(&dir.join("a"), Path::new("/a")).unwrap(), "it is another device");
    assert!(matches!(there.rename(&dir.join("a"), Path::new("/a")), Err(Error::Io { .. })));
    drop(there);
    let (there, _) = storage(&disk, 10);
    assert_eq!(there.free_bytes(&dir), 4 * BLOCK);
    there.remove(&dir.join("a")).unwrap();
    assert_eq!(there.free_bytes(&dir), 4 * BLOCK, "the checkpoint has it");
    there.remove(&copy.join("a")).unwrap();
    assert_eq!(there.free_bytes(&dir), 10 * BLOCK);
}

#[test]
fn more_than_fits_is_counted_at_an_open_and_can_be_removed() {
    let disk = SimDisk::new();
    let (there, dir) = storage(&disk, 10);
    let file = there.create(&dir.join("a"), Access::Buffered).unwrap();
    file.write_at(&vec![1; 8 * BLOCK as usize], 0).unwrap();
    drop((file, there));
    let (there, _) = storage(&disk, 5);
    assert_eq!(there.free_bytes(&dir), 0);
    let file = there.create(&dir.join("b"), Access::Buffered).unwrap();
    assert!(is_full(file.write_at(&[1], 0), &dir.join("b")));
    there.remove(&dir.join("a")).unwrap();
    file.write_at(&[1], 0).unwrap();
    assert_eq!(there.free_bytes(&dir), 4 * BLOCK);
}

/// A database that uses the directory without the device leaves other files than those that were counted.
#[test]
fn each_open_counts_anew_unless_files_are_open() {
    let disk = SimDisk::new();
    let device = device(&disk, 10);
    let dir = device.block_side().unwrap().dir().to_owned();
    let open = || WithDevice::new(Arc::new(disk.clone()), device.clone()).unwrap();
    let first = open();
    first.create_dir_all(&dir).unwrap();
    let file = first.create(&dir.join("a"), Access::Buffered).unwrap();
    file.write_at(&vec![1; 3 * BLOCK as usize], 0).unwrap();
    let second = open();
    assert_eq!(second.free_bytes(&dir), 7 * BLOCK);
    file.write_at(&vec![1; BLOCK as usize], 3 * BLOCK).unwrap();
    assert_eq!(second.free_bytes(&dir), 6 * BLOCK, "the claim is the one of the open file");
    drop(file);
    disk.remove(&dir.join("a")).unwrap();
    disk.create(&dir.join("b"), Access::Buffered).unwrap().write_at(&[1], 0).unwrap();
    assert_eq!(open().free_bytes(&dir), 9 * BLOCK);
}

/// Against the count of the disk itself: all files lie on the block side. Where a file with holes is cut, the claim may be larger.
#[test]
fn random_operations_claim_what_the_disk_counts() {
    for seed in 0..12 {
        let (disk, mut random) = (SimDisk::new(), Random::new(seed));
        let (punches, cuts) = (seed % 3 > 0, seed % 3 < 2);
        let (there, dir) = storage(&disk, 100);
        let others = disk.used();
        let mut open: Vec<Arc<dyn File>> = Vec::new();
        for step in 0..600 {
            let [path, to] = [0, 1].map(|_| dir.join(format!("{}", random.below(6))));
            let file = match there.exists(&path).unwrap() {
                true => there.open(&path).unwrap(),
                false => there.create(&path, Access::Buffered).unwrap(),
            };
            let len = file.len().unwrap();
            let result = match random.below(9) {
                0 => there.remove(&path),
                1 if path != to => there.rename(&path, &to),
                2 if !there.exists(&to).unwrap() => there.link(&path, &to).map(drop),
                3 if cuts => file.truncate(random.below(len + 1)),
                4 => file.allocate(random.below(30 * BLOCK)).map(drop),
                // The engine writes nothing into holes.
                5 | 6 => file.write_at(&vec![1; random.below(50_000) as usize], len),
                7 if punches && len > BLOCK => {
                    let at = random.below((len - 1) / BLOCK) * BLOCK;
                    there.punch(&path, at, BLOCK).map(drop)
                }
                _ => {
                    open.truncate(random.below(4) as usize);
                    open.push(file.clone());
                    Ok(())
                }
            };
            assert!(result.is_ok() || matches!(result, Err(Error::NoSpace { .. })), "{result:?}");
            let claimed = 100 * BLOCK - there.free_bytes(&dir);
            let used = disk.used() - others;
            assert!(
                used == claimed || used < claimed && punches && cuts,
                "seed {seed}, step {step}: {used}, {claimed}"
            );
        }
    }
}
