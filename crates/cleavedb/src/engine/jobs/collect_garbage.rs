//! Collection: files of values that are garbage for a good part give their space back. What is live in them is copied into a
//! new segment, an extent for each group of keys, with redirect tables from the old places to the new; tables go on naming
//! the old ones until compactions pass by (DESIGN sections 1 and 2). Logs and the extents of a group are emptied alike. On the
//! way values are compressed, if that is asked for (`values/record_compressor.rs`).
//!
//! What lives is found in the tables that name the files (`collect_garbage/find.rs`), where that is cheaper than to read these. Otherwise
//! files are gone through twice: once for the bases in them, and once for what lives. A record is dead then if a newer base of
//! its key is among those that the job reads and no snapshot tells the two apart ([`values::newest`](crate::values::newest));
//! what is left may still be referenced by no table, and is looked up there, by key and sequence number, if the placement says so
//! or the ledger knows of more garbage than has been found.
//!
//! What lives is copied in the order in which it lies in the files, or, by a placement that sorts, in that of keys
//! (`collect_garbage/sorted.rs`).

mod copy;
mod find;
mod sorted;
mod look_up;

use crate::engine::snapshots::JobHorizon;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::memory::Counted;
use crate::base::{Error, FileId, Kind, Result, Seqno, full_key};
use crate::engine::core::Core;
use crate::engine::jobs::collect_garbage::copy::Going;
use crate::engine::manifest::file_names::{redirect_name, segment_name};
use crate::engine::view::View;
use crate::format::edit::Edit;
use crate::format::frame::{FrameKind, HEADER_BYTES};
use crate::format::group::Group;
use crate::format::record::Record;
use crate::format::references::References;
use crate::format::values::{EXTENT_ALIGN, Moved, Temperature, ValuePlace};
use crate::front::log_reader::{LogReader, Opened};
use crate::io::File;
use crate::values::files::Entry;
use crate::values::newest::{Fate, SeenRecord, SeenRecords};
use crate::values::placement::{Liveness, PlacementContext, Survivor};
use crate::values::record_compressor::RecordCompressor;
use crate::values::redirect::{RedirectBuilder, Shape, TABLES_MAX};
use crate::values::segment::{EXTENT_HEADER_BYTES, Extent, ExtentPlace, SegmentBuilder};
use crate::values::value_file::{Layout, ValueFile};

/// What reading takes, and writing a few extents beside each other, in bytes.
const BUFFER_BYTES: usize = 4 << 20;
/// Survivors are looked up if they are more than is live for all that the ledger knows by this, in hundredths.
const HIDDEN_PERCENT: u64 = 10;

/// A file that is emptied, and the extents that its live records went to.
struct Victim {
    file: Arc<ValueFile>,
    to: Vec<(FileId, Moved)>,
    /// Bytes that were saved by compressing what went there.
    saved: u64,
}

/// An extent that is being written.
struct NewExtent {
    id: FileId,
    group: Group,
    temperature: Temperature,
}

/// Moves what is live out of files into a segment.
struct Collection<'a> {
    core: &'a Core,
    horizon: JobHorizon,
    around: PlacementContext,
    victims: Vec<Victim>,
    /// What has been read and not been judged yet.
    batch: SeenRecords,
    batch_bytes_max: usize,
    /// In what has been read and not been judged yet, the ledger knows of so much that is live, and so much that is not, in
    /// bytes.
    known_live: u64,
    known_garbage: u64,
    /// All that was moved was looked up.
    is_proven: bool,
    /// For the sake of order alone: it ends at once when something else is to be done.
    yields: bool,
    has_yielded: bool,
    /// Of the records of logs, how many there were, and how many had a greater key than the one before.
    steps: u64,
    steps_up: u64,
    /// The segment, and its extents, once there is something to write.
    segment: Option<SegmentBuilder>,
    extents: Vec<NewExtent>,
    compressor: RecordCompressor,
    redirects: RedirectBuilder,
    /// Files that were made.
    paths: Vec<PathBuf>,
    /// Bytes written to these.
    written: u64,
    /// Memory of all this.
    counted: Counted,
}

impl Core {
    /// Moves what is live in files of values into one segment; returns how many bytes are given back.
    pub fn collect_garbage(&self, victims: &[FileId]) -> Result<u64> {
        let mut collection = Collection::plan(self, victims);
        if collection.victims.is_empty() {
            return Ok(0);
        }
        let given_back = self.carry_out(&mut collection)?;
        self.counters.value_collection_bytes.fetch_add(collection.written, Ordering::Relaxed);
        self.counters.value_collections.fetch_add(1, Ordering::Relaxed);
        Ok(given_back)
    }

    /// The same, so that values lie in the order of their keys: without the reserve, and only until something else is to be
    /// done. A disk that is full is no error.
    pub fn reorder(&self, victims: &[FileId]) -> Result<()> {
        let mut collection = Collection::plan(self, victims);
        collection.yields = true;
        if collection.victims.is_empty() {
            return Ok(());
        }
        match self.carry_out(&mut collection) {
            Ok(_) => {
                self.counters.value_reorder_bytes.fetch_add(collection.written, Ordering::Relaxed);
                self.counters.value_reorders.fetch_add(u64::from(!collection.has_yielded), Ordering::Relaxed);
                Ok(())
            }
            Err(Error::NoSpace { .. }) => {
                self.work.lock().reorder_blocked = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Does what was planned; says how many bytes it gives back.
    fn carry_out(&self, collection: &mut Collection<'_>) -> Result<u64> {
        let before: u64 = collection.victims.iter().map(|victim| victim.file.end() - victim.file.start()).sum();
        let moved = collection.run();
        let places = moved.inspect_err(|_| self.remove_unreferenced(&collection.paths))?;
        if collection.has_yielded {
            self.remove_unreferenced(&collection.paths);
            return Ok(0);
        }
        // With the header of the redirect tables, so that no job is free of charge.
        let reordered = collection.yields.then_some(collection.written + EXTENT_ALIGN);
        let edit = Edit { values_placed: places, reordered, ..Edit::default() };
        // What is moved was durable already, so nothing has to be synced for the edit.
        self.install(Seqno::ZERO, edit, View::clone).inspect_err(|error| {
            if matches!(error, Error::NoSpace { .. }) {
                self.remove_unreferenced(&collection.paths);
            }
        })?;
        Ok(before.saturating_sub(collection.written))
    }

    /// No edit names them. If they cannot be removed, the next open does it.
    fn remove_unreferenced(&self, paths: &[PathBuf]) {
        for path in paths {
            let _ = self.storage.remove(path);
        }
    }
}

impl<'a> Collection<'a> {
    fn plan(core: &'a Core, victims: &[FileId]) -> Collection<'a> {
        let horizon = core.job_horizon();
        let values = &horizon.view.values;
        // A file that nothing led to any more has gone meanwhile.
        let found = victims.iter().filter_map(|victim| match values.files.get(victim) {
            Some(Entry::Here(file)) => Some(Victim { file: file.clone(), to: Vec::new(), saved: 0 }),
            _ => None,
        });
        let victims: Vec<_> = found.take(TABLES_MAX).collect();
        let mut around = PlacementContext::default();
        for candidate in values.candidates() {
            if victims.iter().all(|victim| victim.file.id() != candidate.file) {
                let live = candidate.live.min(candidate.bytes);
                match candidate.part {
                    Some((group, _)) => *around.groups.entry(group).or_default() += live,
                    None => around.in_logs += live,
                }
            }
        }
        Collection {
            core,
            horizon,
            around,
            victims,
            batch: SeenRecords::default(),
            batch_bytes_max: core.settings.tuning.judged_bytes_max(),
            known_live: 0,
            known_garbage: 0,
            is_proven: true,
            yields: false,
            has_yielded: false,
            steps: 0,
            steps_up: 0,
            written: 0,
            segment: None,
            extents: Vec::new(),
            compressor: RecordCompressor::new(core.settings.tuning.value_compression),
            redirects: RedirectBuilder::default(),
            paths: Vec::new(),
            counted: core.memory.jobs.hold(BUFFER_BYTES),
        }
    }

    /// Writes everything durably, unless it yields; returns where it is then.
    fn run(&mut self) -> Result<Vec<(FileId, ValuePlace)>> {
        let reach = self.horizon.view.values.state.reachable();
        let files: Vec<Arc<ValueFile>> = self.victims.iter().map(|victim| victim.file.clone()).collect();
        for file in &files {
            self.redirects.begin(file.id());
        }
        let reads_each = self.core.placement.liveness() == Liveness::LookUpEach;
        let reads_files = reads_each || !self.core.settings.tuning.finds_in_tables;
        match if reads_files { None } else { self.naming(&reach)? } {
            Some(naming) => self.move_named(&naming)?,
            None if self.core.placement.keeps_key_order() => self.move_by_key(&files, &reach)?,
            None => self.move_read(&files, &reach)?,
        }
        if self.has_yielded {
            return Ok(Vec::new());
        }
        let mut places = Vec::new();
        if let Some(segment) = self.segment.take() {
            let extents = self.core.guarded(segment.finish())?;
            self.written = EXTENT_ALIGN + extents.iter().map(ExtentPlace::space).sum::<u64>();
            for (NewExtent { id, group, temperature }, place) in self.extents.drain(..).zip(extents) {
                let ExtentPlace { segment, start, end } = place;
                places.push((id, ValuePlace::Extent { segment, start, end, group, temperature }));
            }
        }
        let redirect = self.core.new_file_id()?;
        let path = self.core.slow.join(redirect_name(redirect));
        self.paths.push(path.clone());
        // One shape for all of them.
        let is_compressed = self.victims.iter().any(|victim| victim.saved > 0);
        let saved_of = |victim: &Victim| is_compressed.then_some(victim.saved);
        let shape = if is_compressed { Shape::Lengths } else { Shape::Pairs };
        let tables = std::mem::take(&mut self.redirects).write(&*self.core.storage, &path, redirect, shape)?;
        self.core.guarded(self.core.storage.sync_dir(&self.core.slow))?;
        for (victim, (start, len)) in self.victims.drain(..).zip(tables) {
            let saved = saved_of(&victim);
            let Victim { file, to, .. } = victim;
            self.written += len;
            // What was looked up lives, whatever the ledger says of it.
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

    /// What reading, compressing and writing take, and the redirect tables.
    fn count_memory(&mut self, batch_bytes: usize) {
        self.counted.set(batch_bytes + self.redirects.bytes() + self.compressor.bytes() + BUFFER_BYTES);
    }

    /// Reads the files, and moves what lives of them.
    fn move_read(&mut self, files: &[Arc<ValueFile>], reach: &References) -> Result<()> {
        for (index, file) in (0..).zip(files) {
            self.read(index, file, reach.of(file.id()).bytes)?;
            self.core.counters.bytes_read.fetch_add(file.end() - file.start(), Ordering::Relaxed);
        }
        self.settle()
    }

    /// Takes note of the bases in a file, of which so many bytes are live for all that the ledger knows.
    fn read(&mut self, index: u32, file: &ValueFile, live: u64) -> Result<()> {
        let mut read_to = file.start();
        let size = (file.end() - file.start()).max(1);
        let mut see = |offset: u64, record: &Record<'_>| {
            self.note(index, offset, record);
            if self.batch.bytes() < self.batch_bytes_max {
                return Ok(());
            }
            let end = offset + record.operation.record_bytes() as u64;
            self.count_known(live, end - read_to, size);
            read_to = end;
            self.settle()
        };
        for_each_record(file, file.start(), &mut see)?;
        self.count_known(live, file.end() - read_to, size);
        Ok(())
    }

    /// So much of a file of `size` bytes has been read, of which the ledger knows so much that is live.
    fn count_known(&mut self, live: u64, read: u64, size: u64) {
        let live = (u128::from(live.min(size)) * u128::from(read) / u128::from(size)) as u64;
        self.known_live += live;
        self.known_garbage += read - live;
    }

    fn note(&mut self, file: u32, offset: u64, record: &Record<'_>) {
        let fate = match record.operation.kind {
            Kind::Put => Fate::Kept,
            Kind::Delete => Fate::Covering,
            // No base.
            _ => return,
        };
        let full = full_key(record.operation.keyspace, record.operation.key);
        let len = record.operation.record_bytes() as u32;
        let order = self.core.placement.order(&full);
        self.batch.add(&full, SeenRecord { order, seqno: record.seqno, key: 0..0, file, offset, len, fate });
    }

    /// Judges what has been read, and moves what lives.
    fn settle(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.count_memory(batch.bytes());
        let counters = &self.core.counters;
        let liveness = self.core.placement.liveness();
        if liveness == Liveness::LookUpEach {
            for index in 0..batch.seen.len() {
                self.look_up_each(&mut batch, index)?;
            }
        }
        batch.judge(&self.horizon.snapshots);
        let living: u64 = batch.seen.iter().filter(|seen| seen.fate.is_live()).map(|seen| u64::from(seen.len)).sum();
        let (known_live, garbage) = (std::mem::take(&mut self.known_live), std::mem::take(&mut self.known_garbage));
        let hidden = living.saturating_sub(known_live);
        let looks = match liveness {
            // In any case half of the garbage goes, so that what is emptied again is not what was emptied just now.
            Liveness::NewestWins => hidden > known_live / 100 * HIDDEN_PERCENT || hidden > garbage / 2,
            Liveness::LookUp => true,
            Liveness::LookUpEach => false,
        };
        self.is_proven &= looks || liveness == Liveness::LookUpEach;
        if looks {
            // The order of tables.
            let mut order: Vec<usize> =
                (0..batch.seen.len()).filter(|index| batch.seen[*index].fate.is_live()).collect();
            order.sort_unstable_by(|one, other| {
                let (one, other) = (&batch.seen[*one], &batch.seen[*other]);
                batch.key(one).cmp(batch.key(other)).then_with(|| other.seqno.cmp(&one.seqno))
            });
            self.look_up(&mut batch, &order)?;
        }
        let judged = batch.seen.len() as u64;
        let counter = if looks || liveness == Liveness::LookUpEach {
            &counters.judged_by_look_up
        } else {
            &counters.judged_alone
        };
        counter.fetch_add(judged, Ordering::Relaxed);
        batch.seen.retain(|seen| seen.fate.is_live());
        self.move_out(&batch)
    }

    /// Writes the survivors, an extent for each group, hot and cold ones apart.
    fn move_out(&mut self, batch: &SeenRecords) -> Result<()> {
        let survivors: Vec<Survivor<'_>> = batch
            .seen
            .iter()
            .map(|seen| Survivor { order: seen.order, key: batch.key(seen), bytes: seen.len.into() })
            .collect();
        let placement = &self.core.placement;
        self.around.random_percent = random_percent(self.steps, self.steps_up);
        let groups = placement.groups(&survivors, &self.around);
        drop(survivors);
        // The records that go to one group, one behind the other.
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

    /// What was not updated since it was last moved is cold (HashKV section 3.4). What comes from a log has not been moved
    /// before.
    fn temperature(&self, seen: &SeenRecord) -> Temperature {
        let is_new = matches!(self.victims[seen.file as usize].file.layout(), Layout::Log);
        match self.core.placement.separates_cold() && !is_new && seen.fate == Fate::Kept {
            true => Temperature::Cold,
            false => Temperature::Hot,
        }
    }

    /// The segment, which is made when there is something to write.
    fn segment(&mut self) -> Result<&mut SegmentBuilder> {
        if self.segment.is_none() {
            let core = self.core;
            let id = core.new_file_id()?;
            let path = core.slow.join(segment_name(id));
            self.paths.push(path.clone());
            self.segment =
                Some(SegmentBuilder::create(&*core.storage, &path, id, core.settings.tuning.extent_buffer_bytes())?);
        }
        Ok(self.segment.as_mut().expect("it was made just now"))
    }
}

/// How many records in a hundred came in an order of chance, if so many of so many came behind a lower key: half of those do.
fn random_percent(steps: u64, steps_up: u64) -> u64 {
    ((steps - steps_up) * 200).checked_div(steps).unwrap_or_default().min(100)
}

/// Goes through the records of a file that lie at `from` or behind it, and perhaps others before.
fn for_each_record(file: &ValueFile, from: u64, see: &mut dyn FnMut(u64, &Record<'_>) -> Result<()>) -> Result<()> {
    let source = file.stored().file()?;
    match file.layout() {
        Layout::Extent { start, .. } => {
            let start = from.saturating_sub(EXTENT_HEADER_BYTES as u64).max(*start);
            let extent = Extent { id: file.id(), start, end: file.end() };
            extent.for_each_record(&*source, &mut |offset, record, _| see(offset, record))
        }
        Layout::Log => for_each_record_of_log(file, &*source, see),
    }
}

/// Goes through all records of a log that has left the front.
fn for_each_record_of_log(
    log: &ValueFile,
    source: &dyn File,
    see: &mut dyn FnMut(u64, &Record<'_>) -> Result<()>,
) -> Result<()> {
    let path = log.stored().path();
    let Opened::Log(mut reader) = LogReader::open(source, log.id(), None)? else {
        return Err(Error::corruption(path, 0, "the log has no header"));
    };
    while reader.offset() < log.end() {
        let Some(frame) = reader.next_frame()? else {
            let (offset, why) = reader.explain()?;
            return Err(Error::corruption(path, offset, why));
        };
        let mut offset = frame.offset + HEADER_BYTES as u64;
        let mut rest = if frame.header.kind == FrameKind::Records { frame.body } else { &[] };
        while !rest.is_empty() {
            let before = rest.len();
            let record = Record::take(&mut rest).map_err(|reason| Error::corruption(path, offset, reason))?;
            see(offset, &record)?;
            offset += (before - rest.len()) as u64;
        }
    }
    Ok(())
}
