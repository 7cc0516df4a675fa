//! The statistics page (file STATS) of a database that another process has open, if that process is alive. Used by
//! `stats.rs`, `watch.rs`, and by `open.rs` for the error message.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use cleavedb::LiveStats;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::args::Database;
use crate::failure::Result;

/// A busy owner writes its page about once a second; an idle one does not write it.
const FRESH: Duration = Duration::from_secs(5);

/// The page of a database that a running process has open.
pub fn read(database: &Database) -> Result<Option<LiveStats>> {
    let dir = database.fast_dir.as_ref().unwrap_or(&database.path);
    let page = database.directories().live_stats(&database.path)?;
    Ok(page.filter(|page| is_alive(page.process) && (is_fresh(dir) || is_locked(dir))))
}

/// True if the process exists; also if that cannot be determined.
fn is_alive(process: u32) -> bool {
    let Some(pid) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) else { return true };
    !matches!(rustix::process::test_kill_process(pid), Err(Errno::SRCH))
}

/// True if the page was written recently.
fn is_fresh(dir: &Path) -> bool {
    let age = dir.join("STATS").metadata().and_then(|page| page.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age < FRESH)
}

/// True if the owner holds its lock. A crash leaves the page behind and its process id may be reused, but the lock is
/// released. Testing the lock takes it for a moment, so this is done only if the page is old.
fn is_locked(dir: &Path) -> bool {
    let lock = File::open(dir.join("LOCK"));
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}
