//! The crash step of the tour: a second process writes batches and reports each acknowledged one; it is killed with SIGKILL
//! while it writes. After recovery the database must contain every acknowledged record and no partial batch.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use cleavedb::{Db, Keyspace, WriteBatch};
use indicatif::HumanCount;

use super::guide::{Guide, check};
use crate::args::Database;
use crate::failure::{Failure, Result};
use crate::form::escaped;
use crate::{open, progress};

const KEYSPACE: &str = "crash";
const BATCH_RECORDS: u64 = 100;
/// A loader that reports nothing for this long is considered hung.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const SIGKILL: i32 = 9;

/// Runs the loader, kills it after about `records` records, recovers and verifies. Returns the recovered database.
pub fn show(path: &Path, records: u64, guide: &mut Guide<'_>) -> Result<Db> {
    guide.step("Crash: kill -9 a process while it writes, and recover")?;
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
        "recovery took {:.3} s: {records} records, including every acknowledged one",
        took.as_secs_f64()
    ))?;
    guide.say(&format!("all batches are complete; {more} more were written but not yet reported"))?;
    Ok(db)
}

/// Starts the loader and kills it once it has reported `batches`. Returns the number that it reported and its process id.
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
                return Err(Failure::new(format!("the loader exited after {acknowledged} batches")));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(Failure::new(format!(
                    "the loader reported nothing for a minute after {acknowledged} batches"
                )));
            }
        }
        bar.set_position(acknowledged * BATCH_RECORDS);
    }
    let pid = loader.0.id();
    let status = loader.kill()?;
    bar.finish_and_clear();
    // Batches that are still in the pipe were acknowledged too.
    acknowledged = reports.into_iter().last().unwrap_or(acknowledged);
    check(status == Some(SIGKILL), || format!("the loader exited before it was killed (signal {status:?})"))?;
    Ok((acknowledged, pid))
}

/// Receives the loader's reports until the pipe closes.
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

/// The second process, which is killed when this is dropped.
struct Loader(Child);

impl Loader {
    /// Kills the process with SIGKILL. Returns the signal that ended it.
    fn kill(&mut self) -> Result<Option<i32>> {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        killed.map(|status| status.signal()).map_err(|error| Failure::new(format!("cannot kill the loader: {error}")))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // After an error only the cleanup matters; killing a dead process fails, which is ignored.
        let _ = self.kill();
    }
}

/// Checks that the keyspace contains batches 0, 1, 2, ... completely and with the right content, and at least the
/// acknowledged ones. Returns their number.
fn verify(keyspace: &Keyspace, acknowledged: u64) -> Result<u64> {
    let mut count = 0;
    for found in keyspace.iter()? {
        let (key, value) = found?;
        let (expected_key, expected_value) = record(count / BATCH_RECORDS, count % BATCH_RECORDS);
        check(key[..] == *expected_key.as_bytes(), || {
            format!("after recovery {} was found instead of {expected_key}", escaped(&key))
        })?;
        check(value[..] == *expected_value.as_bytes(), || format!("after recovery {expected_key} has a wrong value"))?;
        count += 1;
    }
    let (batches, rest) = (count / BATCH_RECORDS, count % BATCH_RECORDS);
    check(rest == 0, || {
        format!("after recovery only {rest} of {BATCH_RECORDS} records of batch {batches} are present")
    })?;
    check(batches >= acknowledged, || {
        format!("{acknowledged} batches were acknowledged, but only {batches} are present after recovery")
    })?;
    Ok(batches)
}

/// Key and value of a record: both contain its position, and the value is long enough to be torn.
fn record(batch: u64, number: u64) -> (String, String) {
    let key = format!("{batch:08}/{number:03}");
    let value = format!("{key};").repeat(12);
    (key, value)
}

/// The hidden command `tour-loader`: writes batches and reports the number of acknowledged ones on `out`.
pub fn load_until_killed(path: &Path, out: &mut dyn Write) -> Result<()> {
    let db = open::to_write(&Database::at(path))?;
    let keyspace = db.keyspace(KEYSPACE)?;
    // The loop ends when the process is killed, or with a broken pipe if the tour has exited.
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

    /// The result of `verify` for a database with these batches, after `change`.
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
    fn complete_batches_pass_even_if_unreported() {
        assert_eq!(verdict(3, 3, |_| ()), Ok(3));
        assert_eq!(verdict(3, 2, |_| ()), Ok(3));
    }

    #[test]
    fn lost_torn_and_changed_records_are_detected() {
        assert!(verdict(3, 4, |_| ()).unwrap_err().contains("only 3 are present"));
        let torn = verdict(3, 2, |keyspace| keyspace.delete(record(2, BATCH_RECORDS - 1).0).unwrap());
        assert!(torn.unwrap_err().contains("only 99 of 100"));
        let gap = verdict(3, 3, |keyspace| keyspace.delete(record(1, 5).0).unwrap());
        assert!(gap.unwrap_err().contains("00000001/006 was found instead of 00000001/005"));
        let changed = verdict(3, 3, |keyspace| keyspace.put(record(1, 5).0, "other").unwrap());
        assert!(changed.unwrap_err().contains("wrong value"));
    }
}
