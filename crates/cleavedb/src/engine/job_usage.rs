//! What background jobs use: processor time of all their threads, bytes read and written, and records moved, by kind of job.
//!
//! A thread measures each piece of a job that it runs ([`measure`]). Bytes and records are noted where they are counted, by the
//! thread that runs the piece. A piece may run others at its yield points; what these use is theirs alone.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::sched::clock::thread_cpu_time;
use crate::sched::sync::Mutex;

thread_local! {
    /// What the calling thread has noted since it began, without its own processor time.
    static NOTED: Cell<JobUsage> = const { Cell::new(JobUsage::NONE) };
    /// What pieces that have ended in this thread used.
    static MEASURED: Cell<JobUsage> = const { Cell::new(JobUsage::NONE) };
}

/// What jobs used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JobUsage {
    pub cpu: Duration,
    /// Bytes read and written, as far as background I/O is counted (`background_io.rs`).
    pub bytes: u64,
    /// Records of values that were copied.
    pub records: u64,
}

impl JobUsage {
    const NONE: JobUsage = JobUsage { cpu: Duration::ZERO, bytes: 0, records: 0 };

    /// All that the calling thread has used since it began.
    fn of_thread() -> JobUsage {
        let noted = NOTED.get();
        JobUsage { cpu: noted.cpu + thread_cpu_time(), ..noted }
    }

    fn plus(self, other: JobUsage) -> JobUsage {
        let JobUsage { cpu, bytes, records } = other;
        JobUsage { cpu: self.cpu + cpu, bytes: self.bytes + bytes, records: self.records + records }
    }

    fn minus(self, other: JobUsage) -> JobUsage {
        JobUsage {
            cpu: self.cpu.saturating_sub(other.cpu),
            bytes: self.bytes.saturating_sub(other.bytes),
            records: self.records.saturating_sub(other.records),
        }
    }
}

/// Notes bytes that the calling thread has read or written for the job that it runs.
pub(crate) fn note_bytes(bytes: u64) {
    note(JobUsage { bytes, ..JobUsage::NONE });
}

/// Notes records that it has copied.
pub(crate) fn note_records(records: u64) {
    note(JobUsage { records, ..JobUsage::NONE });
}

/// Notes the processor time of a thread that helped with the job and has ended.
pub(crate) fn note_cpu_of_helper(cpu: Duration) {
    note(JobUsage { cpu, ..JobUsage::NONE });
}

fn note(usage: JobUsage) {
    NOTED.set(NOTED.get().plus(usage));
}

/// Runs a piece of a job, and returns what it used, without the pieces of other jobs within it.
pub(crate) fn measure<T>(run: impl FnOnce() -> T) -> (T, JobUsage) {
    let (began, measured) = (JobUsage::of_thread(), MEASURED.get());
    let result = run();
    let used = JobUsage::of_thread().minus(began);
    let within = MEASURED.get().minus(measured);
    MEASURED.set(measured.plus(used));
    (result, used.minus(within))
}

/// The jobs of one kind since the open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JobTotal {
    /// Jobs that have ended, in whatever way.
    pub ended: u64,
    pub used: JobUsage,
}

/// What the jobs of each kind have used, by the names of kinds.
#[derive(Default)]
pub(crate) struct JobTotals {
    by: Mutex<BTreeMap<&'static str, JobTotal>>,
}

impl JobTotals {
    /// Adds what a piece of a job used.
    pub fn add(&self, kind: &'static str, usage: JobUsage) {
        let mut by = self.by.lock();
        let total = by.entry(kind).or_default();
        total.used = total.used.plus(usage);
    }

    /// Counts a job that has ended.
    pub fn count(&self, kind: &'static str) {
        self.by.lock().entry(kind).or_default().ended += 1;
    }

    /// Processor time of some kinds.
    pub fn cpu_of(&self, kinds: &[&str]) -> Duration {
        let by = self.by.lock();
        kinds.iter().filter_map(|kind| by.get(kind)).map(|total| total.used.cpu).sum()
    }

    /// The totals, in the order of names.
    pub fn all(&self) -> Vec<(&'static str, JobTotal)> {
        self.by.lock().iter().map(|(kind, total)| (*kind, *total)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::sched::clock::now;
    use crate::sched::thread::{sleep, spawn};

    fn work(least: Duration) {
        let (began, at) = (thread_cpu_time(), now());
        while thread_cpu_time() - began < least {
            std::hint::black_box((0..1000).sum::<u64>());
            assert!(now() - at < Duration::from_secs(600), "no processor time was counted");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no clock of threads")]
    fn a_piece_is_charged_for_itself_and_not_for_others_at_its_yield_points() {
        let ms = Duration::from_millis;
        let ((inner, idle), outer) = measure(|| {
            note_bytes(10);
            let ((), inner) = measure(|| {
                work(ms(30));
                note_bytes(7);
                note_records(3);
            });
            work(ms(2));
            note_bytes(1);
            let ((), idle) = measure(|| sleep(ms(5)));
            (inner, idle)
        });
        assert_eq!((inner.bytes, inner.records, outer.bytes, outer.records), (7, 3, 11, 0));
        assert!(inner.cpu >= ms(30) && outer.cpu >= ms(2) && outer.cpu < ms(30), "{inner:?}, {outer:?}");
        assert!(idle.cpu < ms(5), "{idle:?}");
        // What a thread of its own did, and what another piece measures afterwards.
        let helped = Arc::new(AtomicU64::new(0));
        let cpu = helped.clone();
        let helper = spawn("helping", move || {
            work(ms(3));
            cpu.store(thread_cpu_time().as_nanos() as u64, Ordering::Relaxed);
        });
        helper.join().unwrap();
        let helped = Duration::from_nanos(helped.load(Ordering::Relaxed));
        let ((), after) = measure(|| note_cpu_of_helper(helped));
        assert!(after.cpu >= ms(3) && after.bytes == 0, "{after:?}");
    }

    #[test]
    fn totals_add_up_by_kind() {
        let totals = JobTotals::default();
        let usage = |cpu, bytes, records| JobUsage { cpu: Duration::from_millis(cpu), bytes, records };
        totals.add("flush", usage(1, 2, 3));
        totals.add("compaction", usage(10, 20, 30));
        totals.add("flush", usage(100, 200, 300));
        totals.count("flush");
        let flush = JobTotal { ended: 1, used: usage(101, 202, 303) };
        let compaction = JobTotal { ended: 0, used: usage(10, 20, 30) };
        assert_eq!(totals.cpu_of(&["flush", "compaction", "seal"]), Duration::from_millis(111));
        assert_eq!(totals.all(), [("compaction", compaction), ("flush", flush)]);
    }
}
