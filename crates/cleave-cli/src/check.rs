//! `cleave check`: every checksum of a closed database, and whether its files agree.

use std::io::{self, Write};

use cleavedb::{Problem, Report};
use indicatif::{BinaryBytes, HumanCount};
use serde_json::{Value, json};

use crate::args;
use crate::failure::{Failure, Result};

/// `cleave check`. Damage is told line by line on stdout, and then makes the command fail, also if nobody reads that
/// far.
pub fn run(args: &args::Check, out: &mut dyn Write) -> Result<()> {
    let database = &args.database;
    let report = database.options().check_files(&database.path);
    let report = report.map_err(|error| Failure::of_database(database, error))?;
    let told = if args.json { writeln!(out, "{:#}", as_json(&report)) } else { tell(&report, out) };
    let told = told.and_then(|()| out.flush());
    match report.problems.len() {
        0 => Ok(told?),
        1 => Err(Failure::new(format!("{database} is damaged: 1 problem"))),
        count => Err(Failure::new(format!("{database} is damaged: {count} problems"))),
    }
}

fn tell(report: &Report, out: &mut dyn Write) -> io::Result<()> {
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
