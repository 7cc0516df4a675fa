//! `cleave keyspaces`: lists, creates and drops keyspaces.

use std::io::Write;

use cleavedb::{DeltaPlacement, KeyspaceKind, KeyspaceOptions};

use crate::args::{KeyspaceChange, Keyspaces, Kind, Separation};
use crate::failure::Result;
use crate::form::escaped;
use crate::open;

/// `cleave keyspaces`.
pub fn run(args: &Keyspaces, out: &mut dyn Write) -> Result<()> {
    match &args.change {
        None => {
            let db = open::to_read(&args.database)?;
            for name in db.keyspaces() {
                let keyspace = db.open_keyspace(&name)?;
                let note = match (keyspace.kind(), keyspace.deltas()) {
                    (KeyspaceKind::Hash, _) => "\tkind=hash",
                    (KeyspaceKind::Ordered, DeltaPlacement::Levels) => "",
                    (KeyspaceKind::Ordered, DeltaPlacement::Buckets) => "\tdeltas=buckets",
                };
                writeln!(out, "{}{note}", escaped(name.as_bytes()))?;
            }
            Ok(())
        }
        Some(KeyspaceChange::Create { name, operator, separation, deltas, kind }) => {
            let db = open::existing_or_new(&args.database)?;
            let mut options = match kind {
                Kind::Ordered => KeyspaceOptions::new().deltas((*deltas).into()),
                Kind::Hash => KeyspaceOptions::hash(),
            };
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
