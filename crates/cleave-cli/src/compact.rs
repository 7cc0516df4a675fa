//! `cleave compact`: compacts every keyspace, or one, into its lowest level, which reclaims the space of overwritten and
//! deleted records.

use cleavedb::{Keyspace, KeyspaceKind, Result as EngineResult, Stats};
use indicatif::BinaryBytes;

use crate::failure::Result;
use crate::{args, open, progress};

/// `cleave compact`.
pub fn run(args: &args::Compact) -> Result<()> {
    let db = open::to_write(&args.database)?;
    let keyspaces = match &args.keyspace {
        Some(name) => vec![db.open_keyspace(name)?],
        None => {
            let all =
                db.keyspaces().iter().map(|name| db.open_keyspace(name)).collect::<EngineResult<Vec<Keyspace>>>()?;
            // Hash keyspaces have no levels.
            all.into_iter().filter(|keyspace| keyspace.kind() == KeyspaceKind::Ordered).collect()
        }
    };
    let before = table_bytes(&db.stats());
    for keyspace in &keyspaces {
        db.compact_range(keyspace, ..)?;
    }
    let after = table_bytes(&db.stats());
    db.close()?;
    progress::note(&format!("compacted the tables from {} to {}", BinaryBytes(before), BinaryBytes(after)));
    Ok(())
}

fn table_bytes(stats: &Stats) -> u64 {
    stats.levels.iter().map(|level| level.bytes).sum()
}
