//! Events of background work, reported to listeners: flushes, compactions, stalls, the pace of writers, failures.
//!
//! Events are queued where they happen, often under locks. A dedicated thread passes them to the listeners, one at a
//! time and in order. A listener therefore blocks no other thread and may use the database; its panics are caught.
//! Without listeners there is neither thread nor queue.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Result;
use crate::base::panics::guard_panic;
use crate::sched::sync::{Condvar, Mutex};
use crate::sched::thread::{JoinHandle, try_spawn};

/// Capacity of the event queue. If listeners are too slow, the oldest events are dropped.
const WAITING_MAX: usize = 4096;

thread_local! {
    /// This thread is the one that calls listeners.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// An event of background work. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A flush of runs to tables of HL0 begins.
    FlushBegun {
        /// Bytes of the runs, with the values that go into the tables.
        bytes: u64,
    },
    /// A flush has ended.
    FlushEnded {
        /// Bytes of the runs, with the values that went into the tables.
        bytes: u64,
        /// Bytes of the tables written; 0 if the flush failed.
        bytes_written: u64,
        /// How long it took.
        duration: Duration,
        /// True if the new tables are now part of the database.
        succeeded: bool,
    },
    /// A compaction of tables into a level begins. Tables that are moved or dropped without being read are not
    /// reported.
    CompactionBegun {
        /// The upper level; 0 is HL0.
        from: usize,
        /// The level that is written.
        to: usize,
        /// Bytes of the tables that are read.
        bytes: u64,
    },
    /// A compaction has ended.
    CompactionEnded {
        /// The upper level.
        from: usize,
        /// The level that was written.
        to: usize,
        /// Bytes of the tables that were read.
        bytes: u64,
        /// Bytes of the tables written; 0 if the compaction failed.
        bytes_written: u64,
        /// How long it took.
        duration: Duration,
        /// True if the new tables have replaced the old ones.
        succeeded: bool,
    },
    /// A writer is stopped until a background job ends. Each stopped writer is reported.
    StallBegun,
    /// A stopped writer continues, or its write has failed.
    StallEnded {
        /// How long it waited.
        duration: Duration,
    },
    /// The limit on the total write rate has changed. Small changes are not reported.
    PaceChanged {
        /// In bytes per second: `None` without a limit, 0 while writers are stopped.
        bytes_per_second: Option<u64>,
    },
    /// Writers begin to go around background work that is behind; see [`Bypass`](crate::Bypass).
    RedirectBegun,
    /// Background work has caught up.
    RedirectEnded {
        /// Bytes of records written meanwhile.
        bytes: u64,
        /// How long it took.
        duration: Duration,
    },
    /// A background job found storage full; it is tried again.
    NoSpace {
        /// The file or directory that could not grow.
        path: PathBuf,
    },
    /// A background job could not open or create a file because the process has too many open; it is tried again.
    TooManyFiles {
        /// The file.
        path: PathBuf,
    },
    /// A compaction could not read a table. The table is quarantined until the database is reopened: it stays in place,
    /// and background compactions leave out it and its range of keys. Only a compaction that a caller requests reads it
    /// again. All other work continues.
    TableQuarantined {
        /// The table.
        path: PathBuf,
        /// Why it could not be read.
        cause: String,
    },
    /// Opening found files that have names of database files but were not created by this database. They are not
    /// touched.
    UnknownFiles {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// Writes fail until the database is reopened.
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// Events before this one were dropped because listeners were too slow.
    Lost {
        /// The number of dropped events.
        count: u64,
    },
}

/// Receives events. See [`Options::listener`](crate::Options::listener).
pub trait Listener: Send + Sync {
    /// Called for each event from a dedicated thread, without any lock held. It may use the database. A panic ends only
    /// this call.
    fn event(&self, event: &Event);
}

/// The queue of events and the thread that passes them to listeners.
#[derive(Default)]
pub(crate) struct Events {
    told: Option<Arc<Told>>,
    thread: Mutex<Option<JoinHandle>>,
}

struct Told {
    listeners: Vec<Arc<dyn Listener>>,
    queue: Mutex<EventQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct EventQueue {
    waiting: VecDeque<Event>,
    lost: u64,
    stop: bool,
}

impl Events {
    /// Starts the thread if there are listeners.
    pub fn new(listeners: Vec<Arc<dyn Listener>>) -> Result<Events> {
        if listeners.is_empty() {
            return Ok(Events::default());
        }
        let told = Arc::new(Told { listeners, queue: Mutex::default(), changed: Condvar::new() });
        let teller = told.clone();
        let thread = try_spawn("cleave-events", move || teller.run())?;
        Ok(Events { told: Some(told), thread: Mutex::new(Some(thread)) })
    }

    /// Queues an event. Never waits for a listener.
    pub fn raise(&self, event: Event) {
        let Some(told) = &self.told else { return };
        let mut queue = told.queue.lock();
        if queue.waiting.len() == WAITING_MAX {
            queue.waiting.pop_front();
            queue.lost += 1;
        }
        queue.waiting.push_back(event);
        drop(queue);
        told.changed.notify_all();
    }

    /// Waits until all queued events were passed to listeners, and ends the thread. A call from a listener does not
    /// wait.
    pub fn finish(&self) {
        let Some(told) = &self.told else { return };
        told.queue.lock().stop = true;
        told.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|_| !TELLS.get()) {
            // Panics of listeners were caught.
            let _ = thread.join();
        }
    }
}

/// A database may be dropped without a close.
impl Drop for Events {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Told {
    fn run(&self) {
        TELLS.set(true);
        let mut queue = self.queue.lock();
        loop {
            let lost = std::mem::take(&mut queue.lost);
            let event = match lost {
                0 => queue.waiting.pop_front(),
                count => Some(Event::Lost { count }),
            };
            match event {
                Some(event) => {
                    drop(queue);
                    for listener in &self.listeners {
                        let told = guard_panic("a listener", || {
                            listener.event(&event);
                            Ok(())
                        });
                        drop(told);
                    }
                    queue = self.queue.lock();
                }
                None if queue.stop => return,
                None => self.changed.wait(&mut queue),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Notes {
        heard: Mutex<Vec<Event>>,
        panics: bool,
    }

    impl Listener for Notes {
        fn event(&self, event: &Event) {
            self.heard.lock().push(event.clone());
            assert!(!self.panics, "the listener of a test panics");
        }
    }

    fn pace(number: u64) -> Event {
        Event::PaceChanged { bytes_per_second: Some(number) }
    }

    #[test]
    fn every_listener_receives_all_events_in_order_even_if_one_panics() {
        let (good, bad) = (Arc::new(Notes::default()), Arc::new(Notes { panics: true, ..Notes::default() }));
        let events = Events::new(vec![bad.clone(), good.clone()]).unwrap();
        (0..100).for_each(|number| events.raise(pace(number)));
        events.finish();
        let all: Vec<Event> = (0..100).map(pace).collect();
        assert_eq!(*good.heard.lock(), all);
        assert_eq!(*bad.heard.lock(), all);
    }

    #[test]
    fn a_blocked_listener_delays_no_event_source_and_receives_the_number_of_lost_events() {
        struct Slow(Mutex<u64>, Mutex<bool>, Condvar);
        impl Listener for Slow {
            fn event(&self, event: &Event) {
                let mut go = self.1.lock();
                while !*go {
                    self.2.wait(&mut go);
                }
                *self.0.lock() += match event {
                    Event::Lost { count } => *count,
                    _ => 1,
                };
            }
        }
        let slow = Arc::new(Slow(Mutex::default(), Mutex::default(), Condvar::new()));
        let events = Events::new(vec![slow.clone()]).unwrap();
        let count = 3 * WAITING_MAX as u64;
        (0..count).for_each(|number| events.raise(pace(number)));
        *slow.1.lock() = true;
        slow.2.notify_all();
        events.finish();
        assert_eq!(*slow.0.lock(), count);
    }
}
