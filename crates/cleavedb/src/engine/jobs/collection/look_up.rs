//! Liveness by look-up: a record is live if a version holds its address, or an address that redirects to it.
//!
//! The presence of the version in a table is not sufficient: records that recovery wrote again (decision 004) are in
//! two logs, and tables reference only one of them.

use crate::base::{Address, Result};
use crate::engine::jobs::collection::state::Collection;
use crate::engine::referrers::Wanted;
use crate::values::files::Located;
use crate::values::newest::{Fate, SeenRecord, SeenRecords};

impl Collection<'_> {
    /// Marks those records of a batch dead that nothing refers to. They come in the order of their keys, newer versions first.
    pub(crate) fn look_up(&self, batch: &mut SeenRecords, order: &[usize]) -> Result<()> {
        let version = |&index: &usize| {
            let seen = &batch.seen[index];
            Wanted { index, key: batch.key(seen), seqno: seen.seqno, is_referenced: false }
        };
        let mut wanted: Vec<Wanted<'_>> = order.iter().map(version).collect();
        for referrer in &self.referrers {
            referrer.look_up(&mut wanted, &|index, address| self.leads_to(address, &batch.seen[index]))?;
        }
        let dead = wanted.iter().filter(|version| !version.is_referenced);
        let dead: Vec<usize> = dead.map(|version| version.index).collect();
        dead.into_iter().for_each(|index| batch.seen[index].fate = Fate::Dead);
        Ok(())
    }

    /// Marks a record dead if nothing refers to it: asked for by itself, as a read would.
    pub(crate) fn look_up_each(&self, batch: &mut SeenRecords, index: usize) -> Result<()> {
        let (seen, key) = (&batch.seen[index], batch.key(&batch.seen[index]));
        for referrer in &self.referrers {
            if referrer.look_up_one(key, seen.seqno, &|address| self.leads_to(address, seen))? {
                return Ok(());
            }
        }
        batch.seen[index].fate = Fate::Dead;
        Ok(())
    }

    /// True if an address leads to a record, directly or through redirect tables.
    fn leads_to(&self, address: Address, seen: &SeenRecord) -> bool {
        let file = self.victims[seen.file as usize].file.id();
        match self.horizon.view.values.locate(address) {
            Ok(Located::At(found, now)) => (found.id(), now.offset) == (file, seen.offset),
            Ok(Located::Dead | Located::Unknown) => false,
            // Undecidable: the record is kept.
            Err(_) => true,
        }
    }
}
