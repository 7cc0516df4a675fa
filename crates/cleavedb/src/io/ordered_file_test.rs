use std::path::Path;
use std::time::Duration;

use super::*;
use crate::base::Gauge;
use crate::io::read_ahead::ReadAhead;
use crate::io::{Access, Faults, SimDisk, Storage, read_exact_at};
use crate::sched::clock::now;
use crate::sched::random::Random;
use crate::sched::sim::simulate;
use crate::sched::thread::{limit_threads, sleep};

const FILE: &str = "/slow/f";

/// A disk with a file of this many bytes, and the bytes.
fn disk_with(len: usize) -> (SimDisk, Vec<u8>) {
    let disk = SimDisk::new();
    let bytes: Vec<u8> = (0..len as u32).map(|at| (at / 5 + at / 4096) as u8).collect();
    disk.write_file(Path::new(FILE), &bytes);
    (disk, bytes)
}

/// The file, and what counts the memory of its pieces.
fn open(disk: &SimDisk, pool_bytes: usize) -> (OrderedFile, Arc<AheadThreads>, Arc<Gauge>) {
    let gauge = Arc::<Gauge>::default();
    let threads = AheadThreads::new(Arc::new(ReadAhead::new(pool_bytes, gauge.clone())));
    let file = disk.open_read(Path::new(FILE), Access::Direct).unwrap();
    (OrderedFile::new(file, threads.clone()), threads, gauge)
}

/// Reads and announcements in no sensible order, with every amount of memory and of threads, and with reads that fail.
#[test]
fn reads_return_the_bytes_of_the_file_whatever_was_announced() {
    for seed in 0..60 {
        let done = simulate(seed, move || {
            let mut random = Random::new(seed);
            let (disk, bytes) = disk_with(700_000);
            let pool_bytes = [0, 64 << 10, 1 << 20, 16 << 20][seed as usize % 4];
            let (file, threads, gauge) = open(&disk, pool_bytes);
            limit_threads(if seed % 3 == 0 { Some(seed as usize % 2) } else { None });
            let fails = seed % 5 == 4;
            if fails {
                disk.set_faults(Faults { fail_read_one_in: Some(4), seed, ..Faults::default() });
            }
            let mut at = 0;
            for _ in 0..80 {
                let len = random.below(100_000) as usize;
                match random.below(8) {
                    0..4 => file.read_ahead(at + random.below(50_000), random.below(400_000)),
                    4 => at = random.below(710_000),
                    5 if seed % 7 == 1 => threads.stop(),
                    _ => {
                        let mut buffer = vec![0; len];
                        match file.read_at(&mut buffer, at) {
                            Ok(count) => {
                                let start = bytes.len().min(at as usize);
                                let wanted = &bytes[start..bytes.len().min(at as usize + len)];
                                assert!(buffer[..count] == *wanted, "{len} at {at}");
                            }
                            Err(_) => assert!(fails),
                        }
                        at += len as u64;
                    }
                }
                assert!(gauge.get() <= pool_bytes);
            }
            drop(file);
            drop(threads);
            limit_threads(None);
            gauge.get()
        });
        assert_eq!(done.unwrap(), 0, "all memory is given back");
    }
}

/// The time that a reader takes that works as long on each piece as the disk takes for it.
fn time_to_read(announces: bool) -> Duration {
    let taken = simulate(1, move || {
        let (disk, bytes) = disk_with(4 << 20);
        let (file, _threads, _) = open(&disk, 16 << 20);
        disk.set_latency(Path::new("/slow"), Duration::from_millis(1));
        let began = now();
        let mut buffer = vec![0; 256 << 10];
        // Not at the borders of blocks.
        for at in (100..bytes.len() as u64 - buffer.len() as u64).step_by(buffer.len()) {
            read_exact_at(&file, &mut buffer, at).unwrap();
            assert!(buffer == bytes[at as usize..][..buffer.len()]);
            if announces {
                file.read_ahead(at + buffer.len() as u64, 512 << 10);
            }
            sleep(Duration::from_millis(1));
        }
        now().saturating_sub(began)
    });
    taken.unwrap()
}

#[test]
fn what_is_announced_is_read_while_the_reader_works() {
    let (before, after) = (time_to_read(false), time_to_read(true));
    assert!(before >= Duration::from_millis(30), "{before:?}");
    assert!(after <= Duration::from_millis(18), "{after:?}");
}

#[test]
fn what_is_passed_or_given_up_needs_no_memory() {
    let left = simulate(2, || {
        let (disk, _) = disk_with(4 << 20);
        let (file, _threads, gauge) = open(&disk, 16 << 20);
        file.read_ahead(0, 1 << 20);
        let announced = gauge.get();
        read_exact_at(&file, &mut [0; 100], 1 << 20).unwrap();
        // What a thread was reading is given back once it is read.
        sleep(Duration::from_millis(1));
        let passed = gauge.get();
        file.read_ahead(2 << 20, 1 << 20);
        // The reader goes back.
        file.read_ahead(0, 4096);
        sleep(Duration::from_millis(1));
        (announced, passed, gauge.get())
    });
    assert_eq!(left.unwrap(), (1 << 20, 0, 4096));
}
