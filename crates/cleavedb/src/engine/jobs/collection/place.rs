//! Judges the records read from collected files, and gives the live ones their places: an extent for each group.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::base::Result;
use crate::engine::job_usage::note_records;
use crate::engine::jobs::collection::state::{Collection, Going, NewExtent};
use crate::format::group::Group;
use crate::format::values::Temperature;
use crate::values::files::Layout;
use crate::values::newest::{Fate, SeenRecord, SeenRecords};
use crate::values::placement::Survivor;

/// No extent on the fast tier is made for fewer bytes than this part of a log.
const READ_PART: u64 = 256;

impl Collection<'_> {
    /// Judges the records read, and moves the live ones.
    pub(super) fn settle(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.count_memory(batch.memory_bytes());
        self.judge(&mut batch);
        batch.seen.retain(|seen| seen.fate != Fate::Dead);
        note_records(batch.seen.len() as u64);
        self.core.counters.value_records_moved.fetch_add(batch.seen.len() as u64, Ordering::Relaxed);
        self.move_out(&batch)
    }

    /// Judges records read, and sorts them by key or hash.
    pub(super) fn judge(&self, batch: &mut SeenRecords) {
        if self.core.placement.keeps_key_order() {
            batch.order_by_key();
        }
        batch.judge(&self.horizon.snapshots);
    }

    /// Writes the survivors, an extent for each group, hot and cold ones apart, and one on the fast tier for those that readers
    /// were asking for.
    pub(super) fn move_out(&mut self, batch: &SeenRecords) -> Result<()> {
        let survivors: Vec<Survivor<'_>> = batch
            .seen
            .iter()
            .map(|seen| Survivor { order: seen.order, key: batch.key(seen), bytes: seen.len.into() })
            .collect();
        let placement = &self.core.placement;
        self.around.random_percent = chance_percent(self.steps, self.steps_up);
        let groups = placement.groups(&survivors, &self.around);
        drop(survivors);
        let is_read = self.read_ones(batch)?;
        // The records, arranged by group, and the extent that each goes to.
        let (mut parts, mut extents) = (Vec::with_capacity(batch.seen.len()), BTreeMap::<_, (u64, usize)>::new());
        let in_groups = groups.iter().flat_map(|(group, records)| std::iter::repeat_n(group, *records));
        for ((seen, group), is_read) in batch.seen.iter().zip(in_groups).zip(is_read) {
            let part = match is_read {
                true => (&Group::ALL, Temperature::Read),
                false => (group, self.temperature(seen)),
            };
            extents.entry(part).or_default().0 += u64::from(seen.len);
            parts.push((seen, part));
        }
        if extents.is_empty() {
            return Ok(());
        }
        for (&(group, temperature), (bytes, index)) in &mut extents {
            let id = self.core.new_file_id()?;
            *index = self.outputs.begin_extent(temperature, id, *bytes)?;
            self.extents.push(NewExtent { id, group: group.clone(), temperature });
        }
        let mut records: Vec<Going<'_>> = parts.iter().map(|(seen, part)| (*seen, extents[part].1)).collect();
        drop(parts);
        if placement.keeps_key_order() {
            self.copy_sorted(&records)?;
            for ((group, temperature), (_, index)) in extents {
                if temperature != Temperature::Read {
                    *self.around.groups.entry(group.clone()).or_default() += self.outputs.extent_bytes(index);
                }
            }
            return Ok(());
        }
        records.sort_unstable_by_key(|(seen, _)| (seen.file, seen.offset));
        self.copy(&records)
    }

    /// For each survivor, whether it goes to the fast tier: its value is cached, and the tier has room. They are what readers ask
    /// for when the cache has let them go (decision record 048).
    fn read_ones(&mut self, batch: &SeenRecords) -> Result<Vec<bool>> {
        let (core, seen) = (self.core, &batch.seen);
        let bytes_min = (core.settings.tuning.log_bytes / READ_PART).max(1);
        let room = if self.purpose.frees_space() { self.outputs.fast_room() } else { 0 };
        if room < bytes_min {
            return Ok(vec![false; seen.len()]);
        }
        let mut bytes = 0;
        let takes = |seen: &SeenRecord| {
            let fits = bytes + u64::from(seen.len) <= room && core.memory.value_cache.holds(batch.key(seen));
            bytes += if fits { seen.len.into() } else { 0 };
            fits
        };
        let is_read: Vec<bool> = seen.iter().map(takes).collect();
        match bytes >= bytes_min && self.outputs.claim_fast_room(bytes)? {
            true => Ok(is_read),
            false => Ok(vec![false; seen.len()]),
        }
    }

    /// A record that was not updated since it was last moved is cold (HashKV section 3.4). A record in a log has never
    /// been moved, and one on the fast tier was moved because readers asked for it.
    fn temperature(&self, seen: &SeenRecord) -> Temperature {
        let is_grouped = match self.victims[seen.file as usize].file.layout() {
            Layout::Log => false,
            Layout::Extent { temperature, .. } => *temperature != Temperature::Read,
        };
        match self.core.placement.separates_cold() && is_grouped && seen.fate == Fate::Kept {
            true => Temperature::Cold,
            false => Temperature::Hot,
        }
    }
}

/// Estimated percentage of records that arrived in random order, from the share of ascending neighbours: in random
/// order half of the neighbours ascend.
fn chance_percent(steps: u64, steps_up: u64) -> u64 {
    ((steps - steps_up) * 200).checked_div(steps).unwrap_or_default().min(100)
}
