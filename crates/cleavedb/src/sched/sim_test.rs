//! The behaviour of the simulated scheduler.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::sched::failure::{Stop, ThreadPanic};
use crate::sched::sync::{self, Condvar, RwLock};
use crate::sched::thread::{self, JoinHandle};
use crate::sched::{clock, sync::Mutex as SimMutex};

/// Threads that append their numbers to a shared list at yield points: the list shows the order of the run.
fn trace(seed: u64) -> SimReport<Vec<u64>> {
    simulate_with(SimConfig::new(seed), || {
        let list = Arc::new(SimMutex::new(Vec::new()));
        let threads: Vec<JoinHandle> = (0..4)
            .map(|number| {
                let list = Arc::clone(&list);
                thread::spawn(&format!("t{number}"), move || {
                    for _ in 0..10 {
                        yield_point();
                        list.lock().push(number);
                        if random(3) == 0 {
                            thread::sleep(Duration::from_millis(random(5)));
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let list = list.lock();
        list.clone()
    })
}

#[test]
fn a_seed_determines_the_order_and_seeds_differ() {
    let mut digests = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let (first, second) = (trace(seed), trace(seed));
        assert_eq!(first.result.unwrap(), second.result.unwrap());
        assert_eq!((first.digest, first.steps, first.elapsed), (second.digest, second.steps, second.elapsed));
        digests.insert(first.digest);
    }
    assert_eq!(digests.len(), 20);
}

#[test]
fn worlds_run_concurrently_without_affecting_each_other() {
    let expected = trace(7).digest;
    let runs: Vec<_> = (0..4).map(|_| std::thread::spawn(|| trace(7).digest)).collect();
    for run in runs {
        assert_eq!(run.join().unwrap(), expected);
    }
}

#[test]
fn a_mutex_excludes_other_threads_while_its_holder_yields() {
    for seed in 0..30 {
        let total = simulate(seed, || {
            let counter = Arc::new(SimMutex::new(0_u64));
            let threads: Vec<JoinHandle> = (0..3)
                .map(|_| {
                    let counter = Arc::clone(&counter);
                    thread::spawn("adder", move || {
                        for _ in 0..20 {
                            let mut counter = counter.lock();
                            let before = *counter;
                            yield_point();
                            *counter = before + 1;
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            *counter.lock()
        });
        assert_eq!(total.unwrap(), 60);
    }
}

#[test]
fn without_a_mutex_some_seed_loses_an_update() {
    let lost = (0..30).any(|seed| {
        let total = simulate(seed, || {
            let counter = Arc::new(AtomicU64::new(0));
            let other = Arc::clone(&counter);
            let add = |counter: &AtomicU64| {
                let before = counter.load(Ordering::SeqCst);
                yield_point();
                counter.store(before + 1, Ordering::SeqCst);
            };
            let thread = thread::spawn("adder", move || add(&other));
            add(&counter);
            thread.join().unwrap();
            counter.load(Ordering::SeqCst)
        });
        total.unwrap() == 1
    });
    assert!(lost, "the scheduler never switched between load and store");
}

#[test]
fn a_read_write_lock_is_shared_by_readers_and_exclusive_for_a_writer() {
    for seed in 0..20 {
        let shared = simulate(seed, || {
            let lock = Arc::new(RwLock::new((0_u32, 0_u32)));
            let readers_inside = Arc::new(AtomicU64::new(0));
            let readers_most = Arc::new(AtomicU64::new(0));
            let mut threads = Vec::new();
            for number in 0..4 {
                let lock = Arc::clone(&lock);
                let (inside, most) = (Arc::clone(&readers_inside), Arc::clone(&readers_most));
                threads.push(thread::spawn("t", move || {
                    for _ in 0..10 {
                        if number == 0 {
                            let mut pair = lock.write();
                            pair.0 += 1;
                            yield_point();
                            pair.1 += 1;
                        } else {
                            let pair = lock.read();
                            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            yield_point();
                            assert_eq!(pair.0, pair.1);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                }));
            }
            for thread in threads {
                thread.join().unwrap();
            }
            readers_most.load(Ordering::SeqCst)
        });
        assert!(shared.unwrap() > 1);
    }
}

#[test]
fn a_condition_variable_passes_items_between_threads() {
    for seed in 0..30 {
        let received = simulate(seed, || {
            let queue = Arc::new((SimMutex::new(Vec::new()), Condvar::new()));
            let from = Arc::clone(&queue);
            let sender = thread::spawn("sender", move || {
                for item in 0..20 {
                    from.0.lock().push(item);
                    from.1.notify_one();
                }
            });
            let mut received = Vec::new();
            while received.len() < 20 {
                let mut items = queue.0.lock();
                while items.is_empty() {
                    queue.1.wait(&mut items);
                }
                received.append(&mut items);
            }
            sender.join().unwrap();
            received
        });
        assert_eq!(received.unwrap(), (0..20).collect::<Vec<_>>());
    }
}

#[test]
fn notify_all_wakes_every_waiting_thread() {
    let woken = simulate(3, || {
        let gate = Arc::new((SimMutex::new(false), Condvar::new()));
        let threads: Vec<JoinHandle> = (0..5)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn("waiter", move || {
                    let mut open = gate.0.lock();
                    while !*open {
                        gate.1.wait(&mut open);
                    }
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(1));
        *gate.0.lock() = true;
        gate.1.notify_all();
        threads.into_iter().map(JoinHandle::join).filter(Result::is_ok).count()
    });
    assert_eq!(woken.unwrap(), 5);
}

#[test]
fn an_hour_of_virtual_time_passes_without_waiting() {
    let started = std::time::Instant::now();
    let report = simulate_with(SimConfig::new(1), || {
        let before = clock::now();
        thread::sleep(Duration::from_secs(3600));
        let (mutex, condvar) = (SimMutex::new(()), Condvar::new());
        let timed_out = condvar.wait_for(&mut mutex.lock(), Duration::from_secs(3600));
        (timed_out, clock::now() - before)
    });
    let (timed_out, passed) = report.result.unwrap();
    assert!(timed_out);
    assert!(passed >= Duration::from_secs(7200) && passed < Duration::from_secs(7201), "{passed:?}");
    assert!(report.elapsed >= passed);
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_notified_wait_did_not_time_out() {
    let timed_out = simulate(5, || {
        let pair = Arc::new((SimMutex::new(false), Condvar::new()));
        let other = Arc::clone(&pair);
        let thread = thread::spawn("notifier", move || {
            thread::sleep(Duration::from_secs(1));
            *other.0.lock() = true;
            other.1.notify_one();
        });
        let mut ready = pair.0.lock();
        let mut timed_out = pair.1.wait_for(&mut ready, Duration::from_millis(1));
        assert!(timed_out && !*ready);
        while !*ready {
            timed_out = pair.1.wait_for(&mut ready, Duration::from_secs(100));
        }
        drop(ready);
        thread.join().unwrap();
        timed_out
    });
    assert!(!timed_out.unwrap());
}

#[test]
fn two_locks_taken_in_opposite_order_are_reported_as_a_deadlock() {
    let failures: Vec<SimFailure> = (0..30)
        .filter_map(|seed| {
            simulate(seed, || {
                let locks = Arc::new((SimMutex::new(()), SimMutex::new(())));
                let other = Arc::clone(&locks);
                let thread = thread::spawn("backwards", move || {
                    let _second = other.1.lock();
                    yield_point();
                    let _first = other.0.lock();
                });
                {
                    let _first = locks.0.lock();
                    yield_point();
                    let _second = locks.1.lock();
                }
                let _ = thread.join();
            })
            .err()
        })
        .collect();
    assert!(!failures.is_empty() && failures.len() < 30);
    let text = failures[0].to_string();
    assert!(text.contains("deadlock") && text.contains("main (waits for a mutex)"), "{text}");
    assert!(text.contains("backwards (waits for a mutex)"), "{text}");
}

#[test]
fn a_detached_thread_that_waits_for_ever_is_a_deadlock() {
    let failure = simulate(1, || {
        let pair = Arc::new((SimMutex::new(()), Condvar::new()));
        thread::spawn("forgotten", move || pair.1.wait(&mut pair.0.lock()));
    })
    .unwrap_err();
    let Some(Stop::Deadlock { waiting }) = failure.stop else { panic!("{failure}") };
    assert_eq!(waiting, ["forgotten (waits for a condition variable)"]);
}

#[test]
fn a_panic_is_reported_with_thread_and_message() {
    let failure = simulate(1, || {
        thread::spawn("worker", || panic!("number {}", 5));
    })
    .unwrap_err();
    assert_eq!(failure.panics, [ThreadPanic { thread: "worker".to_owned(), message: "number 5".to_owned() }]);
    let failure = simulate(1, || -> u32 { panic!("main gives up") }).unwrap_err();
    assert!(failure.to_string().contains("thread 'main' panicked: main gives up"), "{failure}");
}

#[test]
fn a_panic_is_reported_while_other_threads_wait_for_the_panicked_one() {
    let failure = simulate(1, || -> u32 {
        let pair = Arc::new((SimMutex::new(()), Condvar::new()));
        let other = Arc::clone(&pair);
        thread::spawn("worker", move || other.1.wait(&mut other.0.lock()));
        panic!("before notifying");
    })
    .unwrap_err();
    assert_eq!(failure.panics[0].message, "before notifying");
    assert!(matches!(failure.stop, Some(Stop::Deadlock { .. })));
}

#[test]
fn a_panic_returned_by_join_does_not_fail_the_run() {
    let message = simulate(1, || {
        let thread = thread::spawn("worker", || panic!("seen"));
        *thread.join().unwrap_err().downcast::<&str>().unwrap()
    });
    assert_eq!(message.unwrap(), "seen");
}

#[test]
fn a_run_without_end_stops_at_the_step_limit() {
    let report = simulate_with(SimConfig { seed: 1, max_steps: 1000 }, || {
        loop {
            yield_point();
        }
    });
    let failure = report.result.unwrap_err();
    assert_eq!(failure.stop, Some(Stop::StepLimit { steps: 1000 }));
}

#[test]
fn outside_a_simulation_threads_and_locks_are_real() {
    yield_point();
    let pair = Arc::new((sync::Mutex::new(0), Condvar::new()));
    let other = Arc::clone(&pair);
    let thread = thread::spawn("plain", move || {
        *other.0.lock() += 1;
        other.1.notify_all();
    });
    let mut number = pair.0.lock();
    while *number == 0 {
        pair.1.wait_for(&mut number, Duration::from_millis(50));
    }
    assert!(pair.0.try_lock().is_none());
    drop(number);
    thread.join().unwrap();
    assert!(pair.1.wait_for(&mut pair.0.lock(), Duration::from_millis(1)));
    let failing = thread::spawn("failing", || panic!("as asked"));
    assert!(failing.join().is_err());
    assert!(random(10) < 10);
}
