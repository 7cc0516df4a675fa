//! `cleave keyspaces`: lists, creates and drops keyspaces.

use std::io::Write;

use cleavedb::KeyspaceOptions;

use crate::args::{KeyspaceChange, Keyspaces, Separation};
use crate::failure::Result;
use crate::form::escaped;
use crate::open;

/// `cleave keyspaces`.
pub fn run(args: &Keyspaces, out: &mut dyn Write) -> Result<()> {
    match &args.change {
        None => {
            for name in open::to_read(&args.database)?.keyspaces() {
                writeln!(out, "{}", escaped(name.as_bytes()))?;
            }
            Ok(())
        }
        Some(KeyspaceChange::Create { name, operator, separation }) => {
            let db = open::existing_or_new(&args.database)?;
            let mut options = KeyspaceOptions::new();
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
