//! Subtasks: which thread ends the job, and how a failed subtask is handled.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::Db;
use crate::sched::sim::{simulate, yield_point};
use crate::sched::thread::spawn;

/// The behaviour of each subtask.
#[derive(Clone, Copy, PartialEq)]
enum SubtaskFate {
    Works,
    FindsNoSpace,
    CannotRead,
    Panics,
    /// Runs from yield point to yield point until it is interrupted.
    Endless,
}

#[derive(Default)]
struct Seen {
    joined: Mutex<Vec<Vec<usize>>>,
    discarded: Mutex<Vec<usize>>,
    begun: AtomicUsize,
    at_once: AtomicUsize,
    at_once_max: AtomicUsize,
}

struct Job {
    fates: Vec<SubtaskFate>,
    seen: Arc<Seen>,
}

impl SubtaskWork for Job {
    type Output = usize;

    fn count(&self) -> usize {
        self.fates.len()
    }

    fn subtask(&self, _: &Core, index: usize, yield_points: &YieldPoints<'_>) -> Result<usize, Interrupt> {
        self.seen.begun.fetch_add(1, Ordering::SeqCst);
        let at_once = self.seen.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.at_once_max.fetch_max(at_once, Ordering::SeqCst);
        yield_point();
        self.seen.at_once.fetch_sub(1, Ordering::SeqCst);
        match self.fates[index] {
            SubtaskFate::Works => Ok(index),
            SubtaskFate::FindsNoSpace => Err(Error::no_space(Path::new("/subtask")).into()),
            SubtaskFate::CannotRead => Err(Error::corruption("/subtask".as_ref(), 17, "bad").into()),
            SubtaskFate::Panics => panic!("subtask {index}"),
            SubtaskFate::Endless => loop {
                yield_point();
                yield_points.pass(usize::MAX)?;
            },
        }
    }

    fn join(&self, _: &Core, outputs: Vec<usize>) -> Result<Outcome<'_>> {
        self.seen.joined.lock().push(outputs);
        Ok(Outcome::nothing())
    }

    fn discard(&self, _: &Core, outputs: Vec<usize>) {
        self.seen.discarded.lock().extend(outputs);
    }
}

/// Runs a job on `threads` threads; returns each reported result of the job, and the recorded events.
fn run(seed: u64, threads: usize, fates: &[SubtaskFate]) -> (Vec<Result<()>>, Arc<Seen>) {
    let fates = fates.to_vec();
    let world = move || {
        let db = Db::in_memory().unwrap();
        let seen = Arc::new(Seen::default());
        let job: Arc<dyn Subtasks> = Arc::new(SubtaskJob::new(Job { fates, seen: seen.clone() }));
        let ends = Arc::new(Mutex::new(Vec::new()));
        let started = (0..threads).map(|_| {
            let (db, job, ends) = (db.clone(), job.clone(), ends.clone());
            spawn("worker", move || {
                while let Some(done) = Some(job.do_one(&db.inner.core, Worker::Other)) {
                    match done {
                        Done::Nothing => return,
                        Done::Subtask => {}
                        Done::Job(result) => ends.lock().push(result),
                    }
                }
            })
        });
        started.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!job.has_more());
        let ends = std::mem::take(&mut *ends.lock());
        (ends, seen)
    };
    simulate(seed, world).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn the_last_to_finish_joins_all_subtasks_once_and_in_order() {
    let mut at_once_max = 0;
    for seed in 0..30 {
        for threads in 1..5 {
            let (ends, seen) = run(seed, threads, &[SubtaskFate::Works; 5]);
            assert!(matches!(ends[..], [Ok(())]));
            assert_eq!(*seen.joined.lock(), [[0, 1, 2, 3, 4]]);
            assert!(seen.discarded.lock().is_empty());
            at_once_max = at_once_max.max(seen.at_once_max.load(Ordering::SeqCst));
        }
    }
    assert!(at_once_max >= 3, "threads work on subtasks at the same time");
}

#[test]
fn a_failed_subtask_ends_the_job_and_what_others_wrote_goes() {
    use SubtaskFate::{CannotRead, Endless, FindsNoSpace, Panics, Works};
    let mut alone_max = 0;
    for seed in 0..30 {
        for threads in 1..5 {
            let (ends, seen) = run(seed, threads, &[Works, Works, FindsNoSpace, Works, Works, Works, Works, Works]);
            assert!(matches!(ends[..], [Err(Error::NoSpace { .. })]));
            assert!(seen.joined.lock().is_empty());
            let discarded = seen.discarded.lock().len();
            assert!((2..8).contains(&discarded), "{discarded} subtasks were done");
            alone_max = alone_max.max(discarded * usize::from(threads == 1));
        }
        let (ends, seen) = run(seed, 2, &[Endless, FindsNoSpace]);
        assert!(matches!(ends[..], [Err(Error::NoSpace { .. })]), "to be stopped is no failure: {ends:?}");
        assert!(seen.joined.lock().is_empty() && seen.discarded.lock().is_empty());
        let (ends, _) = run(seed, 3, &[Endless, CannotRead, Endless]);
        assert!(
            matches!(&ends[..], [Err(Error::Corruption { path, offset: 17, .. })] if path.ends_with("subtask")),
            "{ends:?}"
        );
        let (ends, _) = run(seed, 3, &[Endless, CannotRead, FindsNoSpace]);
        assert!(matches!(ends[..], [Err(Error::Corruption { .. } | Error::NoSpace { .. })]), "{ends:?}");
        let (ends, _) = run(seed, 2, &[Works, Panics, Works]);
        assert!(matches!(ends[..], [Err(Error::Poisoned { .. })]), "{ends:?}");
    }
    assert_eq!(alone_max, 2, "no subtask is begun after the one that failed");
}

#[test]
fn of_several_failures_a_full_disk_is_not_the_one_reported() {
    use SubtaskFate::{CannotRead, FindsNoSpace};
    let both = |seed| {
        let (ends, seen) = run(seed, 2, &[FindsNoSpace, CannotRead]);
        let corrupt = matches!(ends[..], [Err(Error::Corruption { .. })]);
        (seen.begun.load(Ordering::SeqCst) == 2, corrupt)
    };
    let outcomes: Vec<(bool, bool)> = (0..40).map(both).collect();
    assert!(outcomes.iter().any(|(together, _)| *together));
    assert!(outcomes.iter().all(|(together, corrupt)| corrupt == together), "{outcomes:?}");
}
