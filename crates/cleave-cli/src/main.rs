//! `cleave`, the command line program of CleaveDB. `cleave tour` demonstrates the store; the other commands work on a
//! database, whose directory is the first argument.
//!
//! Exit codes: 0 success, 1 failure or damage (stderr gives the reason), 2 wrong usage, 3 the database is open in another
//! process. A signal ends any command at once; like a crash it leaves a sound database.

mod args;
mod failure;
mod open;
mod form;
mod records;
mod keyspaces;
mod transfer;
mod stats;
mod watch;
mod live;
mod figures;
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

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe, as in `cleave scan DB | head`.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            // There is no way to report that stderr is closed.
            let _ = writeln!(io::stderr(), "cleave: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        Command::Tour(args) => tour::run(args, &mut out)?,
        Command::TourLoader { db } => tour::crash::load_until_killed(db, &mut out)?,
        Command::Import(args) => transfer::import::import(args)?,
        Command::Ingest(args) => transfer::ingest::ingest(args)?,
        Command::Export(args) => transfer::export::export(args, &mut out)?,
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
