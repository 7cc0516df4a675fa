//! The crash of the tour: a second process writes batches and reports each one that was acknowledged; it is killed with
//! SIGKILL in the middle; then the database must hold every acknowledged record, and no part of a batch.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use cleavedb::{Db, Keyspace, WriteBatch};
use indicatif::HumanCount;

use super::{Guide, check};
use crate::args::Database;
use crate::failure::{Failure, Result};
use crate::form::escaped;
use crate::{open, progress};

const KEYSPACE: &str = "crash";
const BATCH_RECORDS: u64 = 100;
/// A loader that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// Runs the loader, kills it after about `records` records, recovers and verifies. Gives back the recovered database.
pub fn show(path: &Path, records: u64, guide: &mut Guide<'_>) -> Result<Db> {
    guide.step("Crash: kill -9 a process in the middle of its writes, and recover")?;
    let (acknowledged, pid) = load_and_kill(path, (records / BATCH_RECORDS).max(1))?;
    let records = HumanCount(acknowledged * BATCH_RECORDS);
    guide.say(&format!(
        "process {pid} was killed after {records} acknowledged records, in batches of {BATCH_RECORDS}"
    ))?;
    guide.say("(Durability::Buffered: no write waited for a sync)")?;

    let start = Instant::now();
    let db = open::to_write(&Database::at(path))?;
    let took = start.elapsed();
    let found = verify(&db.open_keyspace(KEYSPACE)?, acknowledged)?;
    let (records, more) = (HumanCount(found * BATCH_RECORDS), found - acknowledged);
    guide.say(&format!(
        "recovery took {:.3} s: {records} records, every acknowledged one among them",
        took.as_secs_f64()
    ))?;
    guide.say(&format!("batches are whole; {more} more had been written but not yet reported"))?;
    Ok(db)
}

/// Starts the loader and kills it once it has reported `batches`. How many it did report, and its process id.
fn load_and_kill(path: &Path, batches: u64) -> Result<(u64, u32)> {
    let program =
        std::env::current_exe().map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(&program);
    command.arg("tour-loader").arg(path).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|error| Failure::file(&program, "start", &error))?;
    let mut loader = Loader(child);
    let reports = loader.0.stdout.take().expect("the child's stdout was asked for as a pipe");
    let reports = receive(reports);

    let bar = progress::records("loading", batches * BATCH_RECORDS);
    let mut acknowledged = 0;
    while acknowledged < batches {
        match reports.recv_timeout(SILENCE_MAX) {
            Ok(count) => acknowledged = count,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(format!("the loader ended by itself after {acknowledged} batches")));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(Failure::new(format!("the loader hangs after {acknowledged} batches")));
            }
        }
        bar.set_position(acknowledged * BATCH_RECORDS);
    }
    let pid = loader.0.id();
    let status = loader.kill()?;
    bar.finish_and_clear();
    // What still lies in the pipe was acknowledged too.
    acknowledged = reports.into_iter().last().unwrap_or(acknowledged);
    check(status == Some(SIGKILL), || format!("the loader ended by itself before it was killed (signal {status:?})"))?;
    Ok((acknowledged, pid))
}

/// Reads the loader's reports as they come, until the pipe closes.
fn receive(reports: ChildStdout) -> Receiver<u64> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let counts = BufReader::new(reports).lines().map_while(|line| line.ok()?.parse().ok());
        for count in counts {
            if sender.send(count).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The second process. It is killed when this goes, whatever the reason.
struct Loader(Child);

impl Loader {
    /// Kills with SIGKILL. The signal that ended the process.
    fn kill(&mut self) -> Result<Option<i32>> {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        killed.map(|status| status.signal()).map_err(|error| Failure::new(format!("cannot kill the loader: {error}")))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // After an error the tour only wants to be rid of the process; a dead one cannot be killed twice.
        let _ = self.kill();
    }
}

/// The keyspace must hold batches 0, 1, 2, ... whole and in the right content, at least those acknowledged. How many.
fn verify(keyspace: &Keyspace, acknowledged: u64) -> Result<u64> {
    let mut count = 0;
    for found in keyspace.iter()? {
        let (key, value) = found?;
        let (expected_key, expected_value) = record(count / BATCH_RECORDS, count % BATCH_RECORDS);
        check(key[..] == *expected_key.as_bytes(), || {
            format!("after recovery {} stands where {expected_key} should be", escaped(&key))
        })?;
        check(value[..] == *expected_value.as_bytes(), || format!("after recovery {expected_key} has a wrong value"))?;
        count += 1;
    }
    let (batches, rest) = (count / BATCH_RECORDS, count % BATCH_RECORDS);
    check(rest == 0, || format!("after recovery only {rest} of {BATCH_RECORDS} records of batch {batches} are there"))?;
    check(batches >= acknowledged, || {
        format!("{acknowledged} batches were acknowledged, and only {batches} are there after recovery")
    })?;
    Ok(batches)
}

/// Key and value of a record: both say where they belong, and the value is long enough to be torn.
fn record(batch: u64, number: u64) -> (String, String) {
    let key = format!("{batch:08}/{number:03}");
    let value = format!("{key};").repeat(12);
    (key, value)
}

/// The hidden command `tour-loader`: writes batch after batch, and reports on `out` how many are acknowledged.
pub fn load_until_killed(path: &Path, out: &mut dyn Write) -> Result<()> {
    let db = open::to_write(&Database::at(path))?;
    let keyspace = db.keyspace(KEYSPACE)?;
    // Ends when the process is killed, or with a broken pipe if the tour is gone.
    for number in 0.. {
        let mut batch = WriteBatch::new();
        for (key, value) in (0..BATCH_RECORDS).map(|index| record(number, index)) {
            batch.put(&keyspace, key, value);
        }
        db.write(batch)?;
        writeln!(out, "{}", number + 1)?;
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `verify` says of a database with these batches, after `change`.
    fn verdict(batches: u64, acknowledged: u64, change: impl FnOnce(&Keyspace)) -> Result<u64, String> {
        let db = Db::in_memory().unwrap();
        let keyspace = db.keyspace(KEYSPACE).unwrap();
        for (key, value) in (0..batches).flat_map(|batch| (0..BATCH_RECORDS).map(move |number| record(batch, number))) {
            keyspace.put(key, value).unwrap();
        }
        change(&keyspace);
        verify(&keyspace, acknowledged).map_err(|failure| failure.to_string())
    }

    #[test]
    fn whole_batches_pass_also_those_not_reported() {
        assert_eq!(verdict(3, 3, |_| ()), Ok(3));
        assert_eq!(verdict(3, 2, |_| ()), Ok(3));
    }

    #[test]
    fn lost_torn_and_changed_records_are_found() {
        assert!(verdict(3, 4, |_| ()).unwrap_err().contains("only 3 are there"));
        let torn = verdict(3, 2, |keyspace| keyspace.delete(record(2, BATCH_RECORDS - 1).0).unwrap());
        assert!(torn.unwrap_err().contains("only 99 of 100"));
        let gap = verdict(3, 3, |keyspace| keyspace.delete(record(1, 5).0).unwrap());
        assert!(gap.unwrap_err().contains("00000001/006 stands where 00000001/005 should be"));
        let changed = verdict(3, 3, |keyspace| keyspace.put(record(1, 5).0, "other").unwrap());
        assert!(changed.unwrap_err().contains("wrong value"));
    }
}
