//! How long operations of the simulated disk take.

use super::tests::two_disks;
use super::*;

#[test]
fn each_operation_takes_the_time_of_its_directory() {
    let took = crate::sched::sim::simulate(1, || {
        let (disk, files) = two_disks();
        disk.set_latency(Path::new("/other"), Duration::from_millis(7));
        files.map(|file| {
            let began = crate::sched::clock::now();
            file.write_at(b"x", 0).unwrap();
            file.sync().unwrap();
            crate::sched::clock::now() - began
        })
    });
    let [here, other] = took.unwrap();
    assert!(here < Duration::from_millis(1) && other >= Duration::from_millis(14), "{here:?}, {other:?}");
}

#[test]
fn prefetched_reads_take_the_time_of_one() {
    let took = crate::sched::sim::simulate(1, || {
        let (disk, [_, file]) = two_disks();
        file.write_at(&[7; 3 * 4096], 0).unwrap();
        disk.set_latency(Path::new("/other"), Duration::from_millis(7));
        let timed = |read: &dyn Fn()| {
            let began = crate::sched::clock::now();
            read();
            crate::sched::clock::now() - began
        };
        let mut buffer = [0; 8];
        assert_eq!(timed(&|| assert!(file.read_or_prefetch(&mut [0; 8], 0))).as_millis(), 0, "a cached page");
        let together = timed(&|| {
            assert!(!file.read_or_prefetch(&mut [0; 8], 4096));
            file.prefetch(8192, 8);
            assert_eq!([4096, 8192].map(|offset| file.read_prefetched(&mut [0; 8], offset).unwrap()), [8, 8]);
        });
        file.read_prefetched(&mut buffer, 4096).unwrap();
        assert_eq!(buffer, [7; 8]);
        (together, timed(&|| assert_eq!(file.read_prefetched(&mut [0; 8], 4096).unwrap(), 8)))
    });
    let (together, alone) = took.unwrap();
    let latency = Duration::from_millis(7);
    assert!(together >= latency && together < 2 * latency && alone >= latency, "{together:?}, {alone:?}");
}
