//! `cleave`, the command line program of CleaveDB. `cleave tour` shows what the store does; the other commands work on
//! a database of yours, which is always the first argument.
//!
//! Exit codes: 0 done, 1 failed or damaged (stderr says why), 2 wrong usage, 3 the database is open elsewhere. A signal
//! ends any command at once and leaves a sound database, as a crash does.

mod args;
mod failure;
mod open;
mod form;
mod records;
mod keyspaces;
mod transfer;
mod stats;
mod live;
mod check;
mod checkpoint;
mod dump;
mod compact;
mod shell;
mod picture;
mod progress;
mod tour;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::failure::{Failure, Result};

/// The exit code for a database that another process has open.
const OPEN_ELSEWHERE: u8 = 3;

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough (`cleave scan DB | head`).
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to be told if stderr is closed too.
            let _ = writeln!(io::stderr(), "cleave: {failure}");
            if failure.is_open_elsewhere() { ExitCode::from(OPEN_ELSEWHERE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        Command::Tour(args) => tour::run(args, &mut out)?,
        Command::TourLoader { db } => tour::crash::load_until_killed(db, &mut out)?,
        Command::Import(args) => transfer::import(args)?,
        Command::Ingest(args) => transfer::ingest(args)?,
        Command::Export(args) => transfer::export(args, &mut out)?,
        Command::Put(args) => records::put(args)?,
        Command::Get(args) => records::get(args, &mut out)?,
        Command::Delete(args) => records::delete(args)?,
        Command::Merge(args) => records::merge(args)?,
        Command::Scan(args) => records::scan(args, &mut out)?,
        Command::Keyspaces(args) => keyspaces::run(args, &mut out)?,
        Command::Stats(args) => stats::run(args, &mut out)?,
        Command::Check(args) => check::run(args, &mut out)?,
        Command::Checkpoint(args) => checkpoint::run(args)?,
        Command::Dump(args) => dump::run(args, &mut out)?,
        Command::Compact(args) => compact::run(args)?,
        Command::Completions(args) => shell::completions(args, &mut out)?,
        Command::Man(args) => shell::man(args, &mut out)?,
    }
    Ok(out.flush()?)
}
