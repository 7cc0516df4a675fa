//! `cleave stats`: the statistics of a database, as a picture or as JSON. If another process has the database open, they
//! come from the page that its owner writes.

use std::io::Write;

use crate::failure::{Failure, Result};
use crate::{args, figures, live, open, watch};

/// `cleave stats`.
pub fn run(args: &args::Stats, out: &mut dyn Write) -> Result<()> {
    if args.watch {
        return watch::watch(args, out);
    }
    let db = match open::to_read(&args.database) {
        Ok(db) => db,
        // The owner publishes its statistics.
        Err(failure @ Failure::OpenElsewhere(_)) => {
            return match live::read(&args.database)? {
                Some(live) => watch::show(&live, args.json, out),
                None => Err(failure),
            };
        }
        Err(failure) => return Err(failure),
    };
    let stats = db.stats();
    if args.json {
        writeln!(out, "{:#}", figures::as_json(&stats))?;
        return Ok(());
    }
    figures::draw(&stats, out)
}
