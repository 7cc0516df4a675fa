//! What lives is found in the tables: they are gone through once, and whatever leads to a file that is emptied is taken down.
//! Nothing of the files themselves is read but what will be moved, and what is found lives for certain. That costs a step
//! for each entry of the tables that name the files, so it is the way as long as these are small beside what would be read and
//! looked up instead (decision 025).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Evacuation;
use crate::base::{Address, Cursor, Error, FileId, Kind, Result};
use crate::format::group::group_hash;
use crate::format::values::Names;
use crate::levels::table::Table;
use crate::values::files::{Entry, Located};
use crate::values::newest::{Fate, Seen};

/// Reading so much of a file, and noting the keys in it, costs as much as going on by one entry of a table.
const BYTES_PER_STEP: u64 = 64;
/// To judge a record, with a look-up, costs as much as so many entries.
const STEPS_PER_RECORD: u64 = 24;

/// Tables, and of what they name how much lies in the files that are emptied, by their own names.
pub(super) struct Naming {
    tables: Vec<Arc<Table>>,
    direct: BTreeMap<FileId, u64>,
    /// The files that are emptied, and those that were emptied into them, or into others of these.
    leading: BTreeSet<FileId>,
}

impl Evacuation<'_> {
    /// The tables to go through, if that is cheaper than to read the files.
    pub(super) fn naming(&self, reach: &Names) -> Result<Option<Naming>> {
        let view = &self.horizon.view;
        let victims = || self.victims.iter().map(|victim| &victim.file);
        let mut leading: BTreeSet<FileId> = victims().map(|file| file.id()).collect();
        // Records only move into files with higher numbers.
        for (id, entry) in view.values.files.iter().rev() {
            if let Entry::Moved(redirect) = entry
                && redirect.to().iter().any(|to| leading.contains(to))
            {
                leading.insert(*id);
            }
        }
        let mut naming = Naming { tables: Vec::new(), direct: BTreeMap::new(), leading };
        let mut entries = 0;
        for table in view.version.levels().iter().flat_map(|level| level.tables().iter()) {
            let names = table.names()?;
            if !naming.leading.iter().any(|file| names.of(*file).records > 0) {
                continue;
            }
            for file in victims() {
                *naming.direct.entry(file.id()).or_default() += names.of(file.id()).records;
            }
            entries += table.meta().entries;
            naming.tables.push(table.clone());
        }
        let (mut bytes, mut records) = (0, 0);
        for file in victims() {
            let (size, live) = (file.end() - file.start(), reach.of(file.id()));
            bytes += size;
            // The dead are as large as the living.
            records += (u128::from(size) * u128::from(live.records) / u128::from(live.bytes.max(1))) as u64;
        }
        Ok((entries <= bytes / BYTES_PER_STEP + records * STEPS_PER_RECORD).then_some(naming))
    }

    /// Moves whatever the tables lead to.
    pub(super) fn move_named(&mut self, naming: &Naming) -> Result<()> {
        let index_of: BTreeMap<FileId, u32> =
            (0..).zip(&self.victims).map(|(index, it)| (it.file.id(), index)).collect();
        let view = self.horizon.view.clone();
        let mut direct: BTreeMap<FileId, u64> = BTreeMap::new();
        for table in &naming.tables {
            let mut cursor = table.cursor(false);
            cursor.seek_first()?;
            while cursor.valid() {
                if cursor.stamp().kind() == Some(Kind::PutAt)
                    && let Some(address) = Address::decode(cursor.value())
                    && naming.leading.contains(&address.file)
                {
                    let found = match index_of.get(&address.file) {
                        Some(index) => {
                            *direct.entry(address.file).or_default() += 1;
                            Some((*index, address))
                        }
                        None => match view.values.locate(address)? {
                            Located::At(file, now) => index_of.get(&file.id()).map(|index| (*index, now)),
                            Located::Dead | Located::Unknown => None,
                        },
                    };
                    if let Some((file, Address { offset, len, .. })) = found {
                        let (hash, seqno) = (group_hash(cursor.key()), cursor.stamp().seqno());
                        let seen = Seen { hash, seqno, key: 0..0, file, offset, len, fate: Fate::Kept };
                        self.batch.add(cursor.key(), seen);
                    }
                }
                cursor.next()?;
                if self.batch.bytes() >= self.batch_bytes_max {
                    self.settle_found()?;
                }
            }
            self.core.counters.bytes_read.fetch_add(table.meta().size, Ordering::Relaxed);
        }
        // Were one overlooked, it would be lost.
        if let Some((file, expected)) =
            naming.direct.iter().find(|(file, named)| direct.get(file).unwrap_or(&0) != *named)
        {
            let found = direct.get(file).copied().unwrap_or_default();
            let message =
                format!("tables say that they name {expected} records of file {}, and {found} were found", file.0);
            return Err(Error::corruption(&self.core.slow, 0, message));
        }
        self.settle_found()
    }

    fn settle_found(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.counted.set(batch.bytes() + self.redirects.bytes() + super::BUFFER_BYTES);
        self.core.counters.judged_by_look_up.fetch_add(batch.seen.len() as u64, Ordering::Relaxed);
        batch.judge(&self.horizon.snapshots);
        batch.seen.retain(|seen| seen.fate.lives());
        self.move_out(&batch)
    }
}
