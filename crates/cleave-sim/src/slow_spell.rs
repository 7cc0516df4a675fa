//! A disk that becomes slow while the database is open, and fast again: a thread sleeps for a random time, makes each operation
//! on a directory take long, and ends that later. The simulation starts it.

use std::path::Path;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk};

/// When a directory is slow, and how slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowSpell {
    /// The directory.
    pub directory: &'static str,
    /// The time before it becomes slow.
    pub after: Duration,
    /// How long that lasts.
    pub lasts: Duration,
    /// What each operation takes then, and before and after.
    pub latency: Duration,
    /// See `latency`.
    pub usual: Duration,
}

impl SlowSpell {
    /// Starts the thread. It ends soon after the spell does.
    pub fn start(self, disk: &SimDisk) -> testing::JoinHandle {
        let disk = disk.clone();
        testing::spawn("slow spell", move || {
            testing::sleep(self.after);
            disk.set_latency(Path::new(self.directory), self.latency);
            testing::sleep(self.lasts);
            disk.set_latency(Path::new(self.directory), self.usual);
        })
    }
}
