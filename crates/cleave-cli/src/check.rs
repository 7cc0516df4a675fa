//! `cleave check`: every checksum of a closed database, and whether its files agree.

use std::io::Write;

use cleavedb::{Problem, Report};
use indicatif::{BinaryBytes, HumanCount};
use serde_json::{Value, json};

use crate::args;
use crate::failure::{Failure, Result};

/// `cleave check`. Damage is told line by line on stdout, and then makes the command fail.
pub fn run(args: &args::Check, out: &mut dyn Write) -> Result<()> {
    let report = cleavedb::check(&args.db).map_err(|error| Failure::of_database(&args.db, error))?;
    if args.json {
        writeln!(out, "{:#}", as_json(&report))?;
    } else {
        for problem in &report.problems {
            writeln!(out, "{problem}")?;
        }
        for note in &report.notes {
            writeln!(out, "note: {note}")?;
        }
        let Report { tables, versions, logs, records, bytes, .. } = &report;
        writeln!(
            out,
            "read {}: tables {tables} with versions {}, logs {logs} with records {}",
            BinaryBytes(*bytes),
            HumanCount(*versions),
            HumanCount(*records),
        )?;
    }
    out.flush()?;
    match report.problems.len() {
        0 => {
            if !args.json {
                writeln!(out, "sound")?;
            }
            Ok(())
        }
        1 => Err(Failure::new(format!("{} is damaged: 1 problem", args.db.display()))),
        count => Err(Failure::new(format!("{} is damaged: {count} problems", args.db.display()))),
    }
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
