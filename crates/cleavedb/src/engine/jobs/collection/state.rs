//! A running collection: the files it collects, those it makes, and the sequence of its stages.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::memory::Counted;
use crate::base::{DirId, FileId, Result};
use crate::engine::core::Core;
use crate::engine::current_survey::RunningCollection;
use crate::engine::jobs::collection::Purpose;
use crate::engine::jobs::collection::outputs::Outputs;
use crate::engine::jobs::collection::staged::StagedRecords;
use crate::engine::referrers::{Referrer, referrers_of};
use crate::engine::shortages::Need;
use crate::engine::snapshots::JobHorizon;
use crate::engine::throttle::Throttle;
use crate::format::group::Group;
use crate::format::values::{Moved, Temperature, ValuePlace};
use crate::values::files::{Entry, Layout, ValueFile};
use crate::values::newest::{SeenRecord, SeenRecords};
use crate::values::placement::PlacementContext;
use crate::values::record_compressor::RecordCompressor;
use crate::values::record_notes::RecordNotes;
use crate::values::redirect::{RedirectBuilder, Shape, TABLES_MAX};
use crate::values::segment::ExtentPlace;

/// A record, and the index of its target extent.
pub(super) type Going<'s> = (&'s SeenRecord, usize);

/// A collected file, and the extents that its live records were copied to.
pub(super) struct Victim {
    pub(super) file: Arc<ValueFile>,
    pub(super) to: Vec<(FileId, Moved)>,
    /// Bytes saved by compressing the records copied there.
    pub(super) saved: u64,
}

impl Victim {
    /// True unless it is a log.
    pub(super) fn is_extent(&self) -> bool {
        matches!(self.file.layout(), Layout::Extent { .. })
    }
}

/// An extent that is being written.
pub(super) struct NewExtent {
    pub(super) id: FileId,
    pub(super) group: Group,
    pub(super) temperature: Temperature,
}

/// Moves the live records of files into segments.
pub(crate) struct Collection<'a> {
    pub(super) core: &'a Core,
    pub(super) of: RunningCollection,
    pub(super) horizon: JobHorizon,
    /// The sources that may reference records of the files.
    pub(super) referrers: Vec<Box<dyn Referrer>>,
    pub(super) around: PlacementContext,
    pub(super) victims: Vec<Victim>,
    /// What has been read and not been judged yet.
    pub(super) batch: SeenRecords,
    pub(super) batch_bytes_max: usize,
    /// Every record that is moved was referenced when the job began.
    pub(super) is_proven: bool,
    pub(super) purpose: Purpose,
    /// The job only reorders values: it ends at once when other work is due.
    pub(super) yields: bool,
    pub(super) has_yielded: bool,
    pub(super) throttle: Throttle<'a>,
    /// The number of records read from logs, and how many of them had a greater key than their predecessor.
    pub(super) steps: u64,
    pub(super) steps_up: u64,
    pub(super) outputs: Outputs<'a>,
    /// The extents begun in them.
    pub(super) extents: Vec<NewExtent>,
    pub(super) compressor: RecordCompressor,
    pub(super) redirects: RedirectBuilder,
    /// The records at their new places.
    pub(super) copies: RecordNotes,
    /// Bytes written to the files made.
    pub(super) written: u64,
    /// The bytes of what has been read, if the job has memory for all of it.
    pub(super) staged: StagedRecords,
    /// Bytes of values that are read again and put in order together.
    pub(super) sorted_bytes: u64,
    /// Memory of the collection.
    pub(super) counted: Counted,
    /// It began while another collection was running.
    pub(super) is_beside: bool,
    /// What is set apart for its buffers in the memory of jobs; nothing if it began beside another collection.
    set_apart: usize,
    /// Memory for values to be put in order, and for buffers, that the caches give.
    _lent: Option<Counted>,
}

impl<'a> Collection<'a> {
    pub(super) fn plan(core: &'a Core, of: RunningCollection, victims: &[FileId], purpose: Purpose) -> Collection<'a> {
        let horizon = core.job_horizon();
        let values = &horizon.view.values;
        // A file that became unreferenced has been deleted meanwhile.
        let found = victims.iter().filter_map(|victim| match values.files.get(victim) {
            Some(Entry::Here(file)) => Some(Victim { file: file.clone(), to: Vec::new(), saved: 0 }),
            _ => None,
        });
        let victims: Vec<_> = found.take(TABLES_MAX).collect();
        let on_fast =
            victims.iter().filter(|victim| victim.is_extent() && victim.file.stored().key().dir == DirId::HOME);
        let leaving = on_fast.map(|victim| victim.file.end() - victim.file.start()).sum();
        // What found no space may have found none there.
        let is_short = core.work.lock().shortages.is_unmet(Need::Collection);
        let leaving = (!is_short).then_some(leaving);
        let mut around = PlacementContext::default();
        for candidate in &values.figures().candidates {
            if victims.iter().all(|victim| victim.file.id() != candidate.file) {
                let live = candidate.live.min(candidate.bytes);
                match &candidate.part {
                    // Of all keys, and few.
                    Some((_, Temperature::Read)) => {}
                    None => around.in_logs += live,
                    Some((group, _)) => *around.groups.entry(group.clone()).or_default() += live,
                }
            }
        }
        let (mut sorted, mut records) = (0, 0);
        if core.placement.keeps_key_order() {
            let reach = values.state.reachable();
            for victim in &victims {
                let reached = reach.of(victim.file.id());
                (sorted, records) = (sorted + reached.bytes, records + reached.records);
            }
        }
        let is_beside = core.current_survey.collections() > 1;
        let tuning = &core.settings.tuning;
        let own = tuning.collection_buffer_bytes() + tuning.sorted_bytes_by_gc();
        let set_apart = if is_beside { 0 } else { own };
        let (sorted_bytes, lent) = memory_to_sort(core, sorted, !is_beside);
        let staged = StagedRecords::at_most(staged_bytes(sorted, records, sorted_bytes));
        Collection {
            core,
            of,
            referrers: referrers_of(&horizon.view),
            horizon,
            around,
            victims,
            batch: SeenRecords::default(),
            batch_bytes_max: core.settings.tuning.judged_bytes_max(),
            is_proven: false,
            purpose,
            yields: purpose == Purpose::Order { yields: true },
            has_yielded: false,
            throttle: match purpose {
                Purpose::Space { pauses: true } => Throttle::of_gc(core),
                _ => Throttle::none(),
            },
            steps: 0,
            steps_up: 0,
            written: 0,
            outputs: Outputs::new(core, leaving),
            extents: Vec::new(),
            compressor: RecordCompressor::new(core.settings.tuning.value_compression),
            redirects: RedirectBuilder::default(),
            copies: RecordNotes::at_most(core.settings.tuning.noted_records_max()),
            sorted_bytes: (sorted_bytes - staged.memory_bytes()) as u64,
            staged,
            counted: if is_beside { core.memory.staging.hold(0) } else { core.memory.jobs.hold(set_apart) },
            is_beside,
            set_apart,
            _lent: lent,
        }
    }

    /// Writes everything durably, unless the job yields; returns the new places of the records. With `walks`, a walk
    /// finds what lives.
    pub(super) fn run(&mut self, walks: bool) -> Result<Vec<(FileId, ValuePlace)>> {
        let reach = self.horizon.view.values.state.reachable();
        let files: Vec<Arc<ValueFile>> = self.victims.iter().map(|victim| victim.file.clone()).collect();
        for file in &files {
            self.redirects.begin(file.id());
        }
        let known = match self.core.placement.looks_up_each() {
            true => Some(self.look_up_each()?),
            false => self.known_live(walks)?,
        };
        let Some(known) = known else { return Ok(Vec::new()) };
        match self.core.placement.keeps_key_order() {
            true => self.move_by_key(&files, &known)?,
            false => self.move_read(&files, &known)?,
        }
        if self.has_yielded {
            return Ok(Vec::new());
        }
        let mut places = Vec::new();
        let (extents, written) = self.outputs.finish_segments()?;
        self.written = written;
        for (NewExtent { id, group, temperature }, place) in self.extents.drain(..).zip(extents) {
            let ExtentPlace { segment, start, end } = place;
            places.push((id, ValuePlace::Extent { segment, start, end, group, temperature }));
        }
        // The same layout for all of them.
        let is_compressed = self.victims.iter().any(|victim| victim.saved > 0);
        let saved_of = |victim: &Victim| is_compressed.then_some(victim.saved);
        let shape = if is_compressed { Shape::Lengths } else { Shape::Pairs };
        let file = self.outputs.new_redirect(self.redirects.space_max(shape))?;
        let (redirect, path) = (file.id, self.core.dirs.path(file));
        let access = self.core.readers.access_in(file.dir);
        let tables =
            std::mem::take(&mut self.redirects).write(&*self.core.storage, (&path, access), redirect, shape)?;
        self.outputs.sync_directories()?;
        for (victim, (start, len)) in self.victims.drain(..).zip(tables) {
            let saved = saved_of(&victim);
            let Victim { file, to, .. } = victim;
            self.written += len;
            // Some of what an older survey listed may be dead by now: as much as the ledger says.
            let unproven = if self.is_proven { 0 } else { to.iter().map(|(_, moved)| moved.records).sum() };
            let reachable = reach.of(file.id()).records.max(unproven);
            places.push((file.id(), ValuePlace::Moved { redirect, start, len, reachable, saved, to: to.into() }));
        }
        self.count_compressed();
        Ok(places)
    }

    fn count_compressed(&self) {
        let (before, after) = self.compressor.byte_totals();
        self.core.counters.compressed_from.fetch_add(before, Ordering::Relaxed);
        self.core.counters.compressed_to.fetch_add(after, Ordering::Relaxed);
    }

    /// Memory for reading, compressing, writing and the redirect tables.
    pub(super) fn count_memory(&mut self, batch_bytes: usize) {
        let buffers = self.redirects.bytes() + self.copies.bytes() + self.compressor.bytes();
        self.counted.set(batch_bytes + buffers + self.set_apart);
    }
}

/// Bytes of values that a job sorts in memory at a time, of `sorted` bytes in all, and what the caches give for that, or for all
/// of its buffers if it has nothing of its own: each part that is sorted reads all files of the job.
fn memory_to_sort(core: &Core, sorted: u64, has_own: bool) -> (usize, Option<Counted>) {
    let tuning = &core.settings.tuning;
    let own = tuning.sorted_bytes_by_gc();
    // With some more than the records, for those that must be read again.
    let sorted = usize::try_from(sorted.saturating_add(sorted / 4)).unwrap_or(usize::MAX);
    let wanted = tuning.sorted_bytes_max().min(sorted);
    // No more than the caches can give now.
    let beside = if has_own { 0 } else { tuning.beside_bytes };
    let more = wanted.saturating_sub(own).min(core.spare_of_caches().saturating_sub(beside));
    let taken = if has_own { more } else { more + beside };
    if taken == 0 {
        return (own, None);
    }
    (own + more, Some(core.borrow_from_caches(taken)))
}

/// Live bytes that a collection which begins now reads only once, as far as the caches can give memory for them; `beside` another
/// one, they give all of its memory. One that does not sort has no limit.
pub(crate) fn read_once_bytes(core: &Core, beside: bool) -> u64 {
    if !core.placement.keeps_key_order() {
        return u64::MAX;
    }
    let tuning = &core.settings.tuning;
    let taken = if beside { tuning.beside_bytes } else { 0 };
    let given = core.spare_of_caches().saturating_sub(taken);
    staged_live_max((tuning.sorted_bytes_by_gc() + given).min(tuning.sorted_bytes_max()))
}

/// Records larger than this are not kept when their keys are read: not all of such a record is read then.
const STAGED_RECORD_MAX: u64 = 8 << 10;

/// Of `sorted_bytes` of memory, what is used to keep `bytes` of live records from the read of their keys: all or nothing, as
/// another read of some would look at all files.
fn staged_bytes(bytes: u64, records: u64, sorted_bytes: usize) -> usize {
    // The ledger may count less than what is read.
    let staged = bytes.saturating_add(bytes / 16);
    let fits = staged <= (sorted_bytes / 8 * 7) as u64 && bytes <= records.saturating_mul(STAGED_RECORD_MAX);
    if fits { staged as usize } else { 0 }
}

/// The most live bytes for which [`staged_bytes`] keeps all.
fn staged_live_max(sorted_bytes: usize) -> u64 {
    (sorted_bytes / 8 * 7 / 17 * 16) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_if_all_of_a_job_fit_and_are_read_with_their_keys() {
        assert_eq!(staged_bytes(16 << 20, 16 << 10, 32 << 20), 17 << 20);
        assert_eq!(staged_bytes(26 << 20, 26 << 10, 32 << 20), (26 << 20) / 16 * 17);
        assert_eq!(staged_bytes(27 << 20, 27 << 10, 32 << 20), 0);
        assert_eq!([staged_bytes(16 << 20, 1 << 10, 32 << 20), staged_bytes(0, 0, 8)], [0, 0]);
        assert_eq!(staged_bytes(u64::MAX, u64::MAX, usize::MAX), 0);
        for sorted_bytes in [1 << 10, 822_613, 5_898_240, 128 << 20] {
            let most = staged_live_max(sorted_bytes);
            let kept = [most, most / 16 * 17].map(|bytes| staged_bytes(bytes, bytes / 1000 + 1, sorted_bytes) > 0);
            assert_eq!(kept, [true, false], "{sorted_bytes}");
        }
    }
}
