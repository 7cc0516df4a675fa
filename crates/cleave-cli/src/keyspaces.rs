//! `cleave keyspaces`: lists, creates and drops keyspaces.

use std::io::Write;

use cleavedb::{DeltaPlacement, KeyspaceOptions};

use crate::args::{KeyspaceChange, Keyspaces, Separation};
use crate::failure::Result;
use crate::form::escaped;
use crate::open;

/// `cleave keyspaces`.
pub fn run(args: &Keyspaces, out: &mut dyn Write) -> Result<()> {
    match &args.change {
        None => {
            let db = open::to_read(&args.database)?;
            for name in db.keyspaces() {
                let note = match db.open_keyspace(&name)?.deltas() {
                    DeltaPlacement::Levels => "",
                    DeltaPlacement::Buckets => "\tdeltas=buckets",
                };
                writeln!(out, "{}{note}", escaped(name.as_bytes()))?;
            }
            Ok(())
        }
        Some(KeyspaceChange::Create { name, operator, separation, deltas }) => {
            let db = open::existing_or_new(&args.database)?;
            let mut options = KeyspaceOptions::new().deltas((*deltas).into());
            if let Some(operator) = operator {
                options = options.merge_operator(operator);
            }
            if let Some(Separation(bytes)) = separation {
                options = options.separation(*bytes);
            }
            db.create_keyspace(name, options)?;
            Ok(db.close()?)
        }
        Some(KeyspaceChange::Drop { name }) => {
            let db = open::to_write(&args.database)?;
            db.drop_keyspace(name)?;
            Ok(db.close()?)
        }
    }
}
