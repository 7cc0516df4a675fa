//! Liveness by look-up: a record lives if some table holds its address, or one that leads to it.
//!
//! That a table holds the version does not say so: what recovery wrote again (decision 004) lies in two logs, and tables name
//! one of them.

use std::sync::Arc;

use crate::base::{Address, Cursor, Kind, Result, Seqno, Stamp};
use crate::engine::jobs::collection::state::Collection;
use crate::levels::table::Table;
use crate::levels::table_cursor::TableCursor;
use crate::values::files::Located;
use crate::values::newest::{Batch, Fate, SeenRecord};

/// A record that is not among so many that follow is looked for through the index.
const STEPS_MAX: usize = 24;

impl Collection<'_> {
    /// Marks those records of a batch dead that no table names. They come in the order of their keys, newer versions first.
    /// Each table is gone through once, from one record to the next.
    pub(crate) fn look_up(&self, batch: &mut Batch, order: &[usize]) -> Result<()> {
        let mut referenced = vec![false; batch.seen.len()];
        for table in self.horizon.view.version.levels().iter().flat_map(|level| level.tables().iter()) {
            if table.meta().addresses > 0 {
                self.look_into(table, batch, order, &mut referenced)?;
            }
        }
        for &index in order.iter().filter(|index| !referenced[**index]) {
            batch.seen[index].fate = Fate::Dead;
        }
        Ok(())
    }

    fn look_into(&self, table: &Arc<Table>, batch: &Batch, order: &[usize], referenced: &mut [bool]) -> Result<()> {
        let meta = table.meta();
        let from = order.partition_point(|&index| batch.key(&batch.seen[index]) < &meta.smallest[..]);
        let mut cursor = None;
        for &index in &order[from..] {
            let (seen, key) = (&batch.seen[index], batch.key(&batch.seen[index]));
            if key >= &meta.end[..] {
                break;
            }
            if !referenced[index] && (meta.seqno_min..=meta.seqno_max).contains(&seen.seqno) {
                let address = address_in(table, &mut cursor, key, seen.seqno)?;
                referenced[index] = address.is_some_and(|address| self.leads_to(address, seen));
            }
        }
        Ok(())
    }

    /// Marks a record dead if no table names it: asked for by itself, as a read would.
    pub(crate) fn look_up_each(&self, batch: &mut Batch, index: usize) -> Result<()> {
        let (seen, key) = (&batch.seen[index], batch.key(&batch.seen[index]));
        for table in self.horizon.view.version.tables_for_key(key) {
            let meta = table.meta();
            if meta.addresses == 0 || !(meta.seqno_min..=meta.seqno_max).contains(&seen.seqno) {
                continue;
            }
            if let Some(cursor) = table.find(key, seen.seqno)?
                && let Some(address) = address_at(&cursor, key, seen.seqno)
                && self.leads_to(address, seen)
            {
                return Ok(());
            }
        }
        batch.seen[index].fate = Fate::Dead;
        Ok(())
    }

    /// An address leads to a record, straight or through redirect tables.
    fn leads_to(&self, address: Address, seen: &SeenRecord) -> bool {
        let file = self.victims[seen.file as usize].file.id();
        match self.horizon.view.values.locate(address) {
            Ok(Located::At(found, now)) => (found.id(), now.offset) == (file, seen.offset),
            Ok(Located::Dead | Located::Unknown) => false,
            // What cannot be told is kept.
            Err(_) => true,
        }
    }
}

/// The address that the table has for a version; the cursor goes forward to it.
fn address_in(
    table: &Arc<Table>,
    cursor: &mut Option<TableCursor>,
    key: &[u8],
    seqno: Seqno,
) -> Result<Option<Address>> {
    let is_before = |cursor: &TableCursor| cursor.valid() && (cursor.key(), seqno) < (key, cursor.stamp().seqno());
    let mut steps = if cursor.is_some() { 0 } else { STEPS_MAX };
    let cursor = cursor.get_or_insert_with(|| table.cursor(true));
    while steps < STEPS_MAX && is_before(cursor) {
        cursor.next()?;
        steps += 1;
    }
    if steps == STEPS_MAX {
        cursor.seek(key, Stamp::at(seqno))?;
    }
    Ok(address_at(cursor, key, seqno))
}

/// The address on which a cursor stands, if it is that of a version.
fn address_at(cursor: &TableCursor, key: &[u8], seqno: Seqno) -> Option<Address> {
    let stands = cursor.valid() && cursor.key() == key && cursor.stamp().seqno() == seqno;
    let is_separated = stands && cursor.stamp().kind() == Some(Kind::PutAt);
    is_separated.then(|| Address::decode(cursor.value())).flatten()
}
