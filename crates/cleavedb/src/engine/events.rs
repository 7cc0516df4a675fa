//! What the store does in the background, told to listeners: flushes, compactions, stalls, the pace of writers, failures.
//!
//! Events are queued where they happen, often under locks, and told by a thread of their own, one after the other, in the
//! order in which they happened. So a listener holds up nothing, may use the database, and does no harm if it panics.
//! Without a listener there is neither thread nor queue.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Result;
use crate::base::panics::guard_panic;
use crate::sched::sync::{Condvar, Mutex};
use crate::sched::thread::{JoinHandle, try_spawn};

/// So many events wait at most; a listener that is slower than that loses the oldest.
const WAITING_MAX: usize = 4096;

thread_local! {
    /// This thread tells listeners of events.
    static TELLS: Cell<bool> = const { Cell::new(false) };
}

/// Something that happened. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Runs are about to be written to tables of HL0.
    FlushBegun {
        /// The runs, with the values that go into the tables.
        bytes: u64,
    },
    /// A flush is over.
    FlushEnded {
        /// The runs, with the values that went into the tables.
        bytes: u64,
        /// The tables that they became; 0 if it failed.
        bytes_written: u64,
        /// How long it took.
        duration: Duration,
        /// The tables are part of the database now.
        succeeded: bool,
    },
    /// Tables are about to be merged into a level. (Tables that move or go as they are cost nothing and are not told.)
    CompactionBegun {
        /// The upper level; 0 is HL0.
        from: usize,
        /// The level that is written.
        to: usize,
        /// The tables that are read.
        bytes: u64,
    },
    /// A compaction is over.
    CompactionEnded {
        /// The upper level.
        from: usize,
        /// The level that was written.
        to: usize,
        /// The tables that were read.
        bytes: u64,
        /// The tables that were written; 0 if it failed.
        bytes_written: u64,
        /// How long it took.
        duration: Duration,
        /// The new tables have taken the place of the old ones.
        succeeded: bool,
    },
    /// A writer waits until a background job is done. Each writer tells for itself.
    StallBegun,
    /// It goes on, or has given up.
    StallEnded {
        /// How long it waited.
        duration: Duration,
    },
    /// Writers together may go so fast from now on. Small changes are not told.
    PaceChanged {
        /// In bytes per second: `None` while they are free, 0 while they are stopped.
        bytes_per_second: Option<u64>,
    },
    /// A background job found storage full; it is tried again.
    NoSpace {
        /// What could not grow.
        path: PathBuf,
    },
    /// A background job could not open or make a file, because the process has too many open; it is tried again.
    TooManyFiles {
        /// The file.
        path: PathBuf,
    },
    /// A compaction could not read a table. It is left where it is, and takes part in no compaction that nobody asked for,
    /// until the database is opened again. The range of keys in it is compacted no more; all else goes on.
    TableQuarantined {
        /// The table.
        path: PathBuf,
        /// What was wrong.
        cause: String,
    },
    /// At open there were files whose names are those of database files, which this database has not made. It leaves them
    /// alone.
    UnknownFiles {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// Writes are refused until the database is opened again.
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// So many events before this one were not told, because listeners were too slow.
    Lost {
        /// How many.
        count: u64,
    },
}

/// Hears of events. See [`Options::listener`](crate::Options::listener).
pub trait Listener: Send + Sync {
    /// Is called from a thread that does nothing else, outside of all locks. It may use the database; a panic ends this
    /// call and nothing else.
    fn event(&self, event: &Event);
}

/// The way from where something happens to those who listen.
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
    /// Starts the thread, if anyone listens.
    pub fn new(listeners: Vec<Arc<dyn Listener>>) -> Result<Events> {
        if listeners.is_empty() {
            return Ok(Events::default());
        }
        let told = Arc::new(Told { listeners, queue: Mutex::default(), changed: Condvar::new() });
        let teller = told.clone();
        let thread = try_spawn("cleave-events", move || teller.run())?;
        Ok(Events { told: Some(told), thread: Mutex::new(Some(thread)) })
    }

    /// Something happened. Never waits for a listener.
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

    /// Returns when everything has been told, and ends the thread. A listener that calls this does not wait for itself.
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

/// Whoever makes events may be given up before it is closed.
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
            assert!(!self.panics, "a listener of a test that panics");
        }
    }

    fn pace(number: u64) -> Event {
        Event::PaceChanged { bytes_per_second: Some(number) }
    }

    #[test]
    fn all_hear_everything_in_order_though_one_panics() {
        let (good, bad) = (Arc::new(Notes::default()), Arc::new(Notes { panics: true, ..Notes::default() }));
        let events = Events::new(vec![bad.clone(), good.clone()]).unwrap();
        (0..100).for_each(|number| events.raise(pace(number)));
        events.finish();
        let all: Vec<Event> = (0..100).map(pace).collect();
        assert_eq!(*good.heard.lock(), all);
        assert_eq!(*bad.heard.lock(), all);
    }

    #[test]
    fn a_listener_that_sleeps_holds_up_nobody_and_hears_what_it_lost() {
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
