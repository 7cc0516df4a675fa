//! Judges the records read from collected files, and gives the live ones their places: an extent for each group.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::base::{FileKind, Result};
use crate::engine::jobs::collection::state::{Collection, Going, NewExtent};
use crate::format::group::Group;
use crate::format::values::Temperature;
use crate::values::files::Layout;
use crate::values::newest::{Fate, SeenRecord, SeenRecords};
use crate::values::placement::Survivor;
use crate::values::segment::SegmentBuilder;

impl Collection<'_> {
    /// Judges the records read, and moves the live ones.
    pub(super) fn settle(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.count_memory(batch.memory_bytes());
        batch.judge(&self.horizon.snapshots);
        batch.seen.retain(|seen| seen.fate != Fate::Dead);
        self.core.counters.value_records_moved.fetch_add(batch.seen.len() as u64, Ordering::Relaxed);
        self.move_out(&batch)
    }

    /// Writes the survivors, an extent for each group, hot and cold ones apart.
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
        // The records, arranged by group.
        let mut rest = &batch.seen[..];
        let runs = groups.iter().map(|(group, records)| (group, rest.split_off(..*records).unwrap_or_default()));
        let runs: Vec<(&Group, &[SeenRecord])> = runs.collect();
        let mut extents = BTreeMap::<(&Group, Temperature), (u64, usize)>::new();
        for (group, run) in &runs {
            for seen in *run {
                extents.entry((*group, self.temperature(seen))).or_default().0 += u64::from(seen.len);
            }
        }
        if extents.is_empty() {
            return Ok(());
        }
        for (&(group, temperature), (bytes, index)) in &mut extents {
            let id = self.core.new_file_id()?;
            *index = self.extents.len();
            self.segment()?.begin_extent(id, *bytes);
            self.extents.push(NewExtent { id, group: group.clone(), temperature });
        }
        let going = runs.iter().flat_map(|(group, run)| run.iter().map(|seen| (*group, seen)));
        let mut records: Vec<Going<'_>> =
            going.map(|(group, seen)| (seen, extents[&(group, self.temperature(seen))].1)).collect();
        if placement.keeps_key_order() {
            self.copy_sorted(&records)?;
            for ((group, _), (_, index)) in extents {
                let bytes = self.segment()?.extent_bytes(index);
                *self.around.groups.entry(group.clone()).or_default() += bytes;
            }
            return Ok(());
        }
        records.sort_unstable_by_key(|(seen, _)| (seen.file, seen.offset));
        self.copy(&records)
    }

    /// A record that was not updated since it was last moved is cold (HashKV section 3.4). A record in a log has never
    /// been moved.
    pub(super) fn temperature(&self, seen: &SeenRecord) -> Temperature {
        let is_new = matches!(self.victims[seen.file as usize].file.layout(), Layout::Log);
        match self.core.placement.separates_cold() && !is_new && seen.fate == Fate::Kept {
            true => Temperature::Cold,
            false => Temperature::Hot,
        }
    }

    /// The segment, created when there is something to write.
    pub(super) fn segment(&mut self) -> Result<&mut SegmentBuilder> {
        if self.segment.is_none() {
            let core = self.core;
            let file = core.new_file(FileKind::Segment, core.dirs.of_new(FileKind::Segment))?;
            let path = core.dirs.path(file);
            self.made.push(file);
            self.segment = Some(SegmentBuilder::create(
                &*core.storage,
                &path,
                file.id,
                core.readers.access_in(file.dir),
                core.settings.tuning.extent_buffer_bytes(),
            )?);
        }
        Ok(self.segment.as_mut().expect("the segment was created just above"))
    }
}

/// Estimated percentage of records that arrived in random order, from the share of ascending neighbours: in random
/// order half of the neighbours ascend.
fn chance_percent(steps: u64, steps_up: u64) -> u64 {
    ((steps - steps_up) * 200).checked_div(steps).unwrap_or_default().min(100)
}
