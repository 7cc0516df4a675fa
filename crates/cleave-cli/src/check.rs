//! `cleave check`: verifies all checksums of a closed database and the consistency of its files.

use std::io::{self, Write};

use cleavedb::{Problem, Report};
use indicatif::{BinaryBytes, HumanCount};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::{args, open};

/// `cleave check`. Problems are reported on stdout, one per line. The command fails if there is any, even if stdout is
/// closed.
pub fn run(args: &args::Check, out: &mut dyn Write) -> Result<()> {
    let database = &args.database;
    let report = database.options().and_then(|options| options.check_files(&database.path));
    let report = report.map_err(|error| open::failure_of(database, error))?;
    let written = if args.json { writeln!(out, "{:#}", as_json(&report)) } else { print(&report, out) };
    let written = written.and_then(|()| out.flush());
    match report.problems.len() {
        0 => Ok(written?),
        1 => Err(Failure::new(format!("{database} is damaged: 1 problem"))),
        count => Err(Failure::new(format!("{database} is damaged: {count} problems"))),
    }
}

fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for problem in &report.problems {
        writeln!(out, "{problem}")?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    let Report { tables, versions, logs, records, bytes, .. } = report;
    writeln!(
        out,
        "read {}: tables {tables} with versions {}, logs {logs} with records {}",
        BinaryBytes(*bytes),
        HumanCount(*versions),
        HumanCount(*records),
    )?;
    if report.is_sound() { writeln!(out, "sound") } else { Ok(()) }
}

fn as_json(report: &Report) -> Value {
    let problem = |problem: &Problem| json!({"file": problem.path.to_string_lossy(), "offset": problem.offset, "message": problem.message});
    json!({
        "sound": report.is_sound(),
        "problems": report.problems.iter().map(problem).collect::<Vec<Value>>(),
        "notes": report.notes,
        "tables": report.tables,
        "versions": report.versions,
        "logs": report.logs,
        "records": report.records,
        "bytes": report.bytes,
    })
}
