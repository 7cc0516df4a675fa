//! Flush: writes the oldest runs of the front to tables of HL0. Each version is routed by its shape (`route.rs`):
//! written inline, or as the address of a value that stays in its log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::tombstones::survivors;
use crate::base::versions::{Horizon, Retention, VersionRef, VersionSource};
use crate::base::{Cursor, Merging, Result, Seqno};
use crate::deltas::directory::Change;
use crate::engine::binds::Binds;
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::jobs::build_run::{claim_of, fragments_of_runs, seqnos_of};
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::delta_segment::{
    BucketRoute, FlushedOperands, Segment, change_directory, discard_rejected_segment, with_newest,
};
use crate::engine::jobs::front_exit::{FrontExit, logs_leave};
use crate::engine::jobs::job::{Duty, Job, JobKind, Look, Offer, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::jobs::route::{Routed, WindowRoom};
use crate::engine::jobs::write_tables::{Hl0Place, discard_rejected};
use crate::engine::pacer::Watched;
use crate::engine::shortages::Need;
use crate::engine::view::{Sources, View};
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::engine::write::pacing::unflushed_log_bytes;
use crate::format::buckets::SEGMENT_LEVEL;
use crate::format::edit::Edit;
use crate::front::run::Run;
use crate::io::Access;
use crate::levels::point_reads::newest_in;
use crate::levels::reference_cursor::ReferenceCursor;
use crate::levels::table::Table;
use crate::sched::clock::now;
use crate::values::record_notes::RecordNotes;

/// A flush that nobody asked for waits while HL0 is filled to this part of its limit, if the front has room or writers go around
/// background work...
const HL0_HELD_PART: usize = 2;
/// ...and logs have no more than this many times what makes a flush due.
const UNFLUSHED_TIMES: u64 = 2;

/// Due when the oldest runs are large enough, a caller waits for a flush, or the limits of memory or logs require it.
pub(crate) const KIND: JobKind =
    JobKind { priority: Priority::Flush, duties: &[Duty::Front, Duty::FrontAndSubtasks, Duty::All], next };

/// Writes the oldest runs, which are adjacent in age, to HL0; oldest first.
struct Flush(Vec<Arc<Run>>);

fn next(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    if state.has(Sole::FrontExit) || state.has(Sole::Buckets) || !state.shortages.may_try(Need::Flush, look.now) {
        return None;
    }
    let (tuning, view) = (&core.settings.tuning, &look.view);
    let is_awaited = || core.upkeep.lock().callers > 0 && core.front_has_room(view);
    if !view.directory.buckets().is_empty() && is_awaited() {
        return None;
    }
    // A full index table shrinks a little when it becomes a run, and is still worth a flush. With little space, each flush is
    // small.
    let flush_bytes = core.scheduler.setting().flush_bytes;
    let is_short = state.shortages.any_on(core.tier_of_hl0(flush_bytes));
    let flush_bytes = if is_short { flush_bytes.min(tuning.flush_bytes) } else { flush_bytes };
    let room = core.front_room(view);
    let gives_way = room.flush_bytes_max < tuning.flush_bytes;
    let flush_bytes = (if gives_way { flush_bytes.min(room.flush_bytes_max) } else { flush_bytes }) / 4 * 3;
    let mut total = 0;
    let mut oldest = Vec::new();
    for run in view.runs.iter().rev() {
        // A run that is being merged is flushed later, as part of the merged run.
        let is_merging = state.is_claimed(&Claims(vec![claim_of(std::slice::from_ref(run))]));
        if is_merging || total >= flush_bytes {
            break;
        }
        total += run.weight();
        oldest.push(run.clone());
    }
    let asked = oldest.first().is_some_and(|run| run.seqnos().0 <= state.flush_target);
    let is_due = total >= flush_bytes
        || asked
        || view.front_bytes() > room.front_bytes_max
        // Flushing bounds the number of logs, even if little in them is still live.
        || unflushed_log_bytes(view, core.work.flushed()).is_due(tuning, core.unflushed_bytes_max());
    let waits = || !is_short && waits_for_hl0(core, view, asked || !state.quarantined.is_empty());
    (is_due && !oldest.is_empty() && !waits()).then(|| JobKind::begin(Flush(oldest))).flatten()
}

/// True if the flush waits until HL0 is compacted: HL0 is full, or half full and the front can take more, so that writers need not
/// wait for that. `hurries`: a caller waits for the flush, or HL0 may not shrink.
fn waits_for_hl0(core: &Core, view: &View, hurries: bool) -> bool {
    let stop = core.settings.tuning.hl0_stop_tables;
    let (tables, half) = (view.version.levels()[0].tables().len(), (stop / HL0_HELD_PART).max(1));
    match (core.bypass.redirects(), hurries) {
        (true, true) => tables >= stop,
        (true, false) => tables >= half,
        (false, true) => false,
        // The garbage in what is not flushed is not known.
        (false, false) => {
            let unflushed = || unflushed_log_bytes(view, core.work.flushed()).all;
            let may_grow = || core.front_has_room(view) && unflushed() <= UNFLUSHED_TIMES * core.unflushed_bytes_max();
            tables >= stop || tables >= half && may_grow()
        }
    }
}

impl Job for Flush {
    fn profile(&self, core: &Core) -> Profile {
        Profile {
            name: "flush",
            claims: Claims::sole(Sole::FrontExit).and(Claim::Only(Sole::Buckets)).and(claim_of(&self.0)),
            binds: self.binds(core),
            class: Class::Mandatory,
            memory: MemoryShare::Own,
            need: Need::Flush,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::WithReserve(Box::new(|core| self.run(core))))
    }
}

impl Flush {
    /// A flush that carries values reads them from logs; it writes where HL0 has room now.
    fn binds(&self, core: &Core) -> Binds {
        let weight = self.0.iter().map(|run| run.weight()).sum();
        let writes = Binds::write(core.tier_of_hl0(weight));
        let carries = self.0.iter().any(|run| run.weight() > run.bytes() as u64);
        let view = core.published.view();
        let logs = view.logs.values().filter(|_| carries).map(|log| log.key().dir);
        Binds::reads_of(&core.dirs, logs) | writes
    }
}

/// A running flush; reports its end to listeners.
struct Begun {
    weight: u64,
    /// Bytes leaving the front, counted as user bytes.
    drained: u64,
    began: Duration,
}

impl Begun {
    fn report_end(&self, core: &Core, bytes_written: u64, succeeded: bool) {
        core.pacer.flush.end(succeeded);
        core.events.raise(Event::FlushEnded {
            bytes: self.weight,
            bytes_written,
            duration: now().saturating_sub(self.began),
            succeeded,
        });
    }
}

impl Flush {
    fn run(&self, core: &Core) -> Result<Outcome<'_>> {
        let runs = &self.0;
        let (view, snapshots) = core.snapshots.capture(&core.published);
        let published = snapshots.last().copied().unwrap_or_default();
        let flushed = match core.keyspaces.has_hashed() {
            // Records of hash keyspaces after the runs need no flush.
            true => view.settled_without(runs, published).max(seqnos_of(runs).1),
            false => seqnos_of(runs).1,
        };
        let weight: u64 = runs.iter().map(|run| run.weight()).sum();
        let drained = weight + runs.iter().map(|run| run.kept_bytes()).sum::<u64>();
        let begun = Begun { weight, drained, began: now() };
        core.events.raise(Event::FlushBegun { bytes: weight });
        core.pacer.flush.begin(drained, runs.iter().map(|run| run.entries()).sum());
        let written = core.with_room_for_hl0(weight, |place| core.write_runs(&view, runs, snapshots.clone(), place));
        let written = written.and_then(|Written { tables, born, operands }| {
            let exit = core.front_exit(&view, flushed, &tables);
            // No edit was begun, so the next attempt writes all of it again.
            let FrontExit { mut edit, until } = exit.inspect_err(|_| {
                tables
                    .iter()
                    .chain(operands.segment.iter().map(|segment| &segment.table))
                    .for_each(|table| table.mark_obsolete());
            })?;
            let mut change = Change::default();
            if let Some(segment) = &operands.segment {
                segment.add_to(&mut edit);
                change = with_newest(&view.directory, &segment.extents);
                change_directory(&mut edit, &change);
            }
            core.cut_logs(&view, until, &edit)?;
            core.current_survey.note_flushed(&core.published.view(), born, &edit.referenced);
            Ok((tables, operands, change, edit, until))
        });
        let (tables, operands, change, edit, until) = written.inspect_err(|_| begun.report_end(core, 0, false))?;
        let FlushedOperands { segment, crowds, flushing } = operands;
        let change = view_change(runs, &tables, segment.as_ref(), change, &edit);
        Ok(Outcome::edit(until, edit, change).then(move |core, installed| {
            let in_segment = segment.as_ref().map_or(0, |segment| segment.table.meta().size);
            let written = tables.iter().map(|table| table.meta().size).sum::<u64>() + in_segment;
            begun.report_end(core, if installed.is_ok() { written } else { 0 }, installed.is_ok());
            installed.inspect_err(|error| {
                discard_rejected(error, &tables);
                discard_rejected_segment(error, segment.as_ref());
            })?;
            flushing.end();
            core.upkeep.lock().note_crowds(crowds);
            core.counters.flush_table_bytes.fetch_add(written, Ordering::Relaxed);
            core.background_io.note(written);
            core.counters.flushed_bytes.fetch_add(begun.drained, Ordering::Relaxed);
            core.counters.flushed_weight.fetch_add(begun.weight, Ordering::Relaxed);
            core.work.note_flushed(flushed);
            core.review_hidden();
            core.counters.flushes.fetch_add(1, Ordering::Release);
            Ok(())
        }))
    }
}

/// What a flush has written.
struct Written {
    tables: Vec<Arc<Table>>,
    /// The records that the tables reference.
    born: RecordNotes,
    /// The operands that went to buckets.
    operands: FlushedOperands,
}

/// About this many flushed keys are looked up in tables, to learn how much older versions the flush hides.
const SAMPLED_KEYS: u64 = 48;

/// Versions whose addresses are noted, and a sample of their keys.
struct Noted<S> {
    source: S,
    born: RecordNotes,
    sample: Vec<Vec<u8>>,
    /// Versions until the next key of the sample, and from one to the next.
    until_sample: u64,
    sample_every: u64,
}

impl<S: VersionSource> VersionSource for Noted<S> {
    type Error = S::Error;

    fn advance(&mut self) -> Result<bool, S::Error> {
        let more = self.source.advance()?;
        if more {
            let (key, stamp, payload) = self.source.current();
            ReferenceCursor::address_in(stamp, payload).into_iter().for_each(|address| self.born.note(address));
            if self.until_sample == 0 {
                self.sample.push(key.to_vec());
                self.until_sample = self.sample_every;
            }
            self.until_sample -= 1;
        }
        Ok(more)
    }

    fn current(&self) -> VersionRef<'_> {
        self.source.current()
    }
}

/// The view without the runs and logs that leave the front, and with the new tables.
fn view_change<'a>(
    runs: &'a [Arc<Run>],
    tables: &[Arc<Table>],
    segment: Option<&Segment>,
    buckets: Change,
    edit: &Edit,
) -> impl FnOnce(&mut Sources) + 'a {
    let logs_leave = logs_leave(edit);
    let mut added: Vec<(usize, Arc<Table>)> = tables.iter().map(|table| (0, table.clone())).collect();
    added.extend(segment.map(|segment| (SEGMENT_LEVEL.into(), segment.table.clone())));
    let has_buckets = segment.is_some();
    let count = runs.len();
    move |sources| {
        let kept = sources.runs.len() - count;
        assert!(Arc::ptr_eq(&sources.runs[kept], &runs[count - 1]), "the oldest runs stay the oldest while they flush");
        sources.runs.truncate(kept);
        sources.version = Arc::new(sources.version.apply(&added, &[]));
        if has_buckets {
            sources.directory = Arc::new(sources.directory.apply(&buckets));
        }
        logs_leave(sources);
    }
}

impl Core {
    /// Memory for the values that a flush of these runs fetches. It is worth that of caches if each of its reads goes to the device.
    fn window_room(&self, view: &View, runs: &[Arc<Run>]) -> WindowRoom {
        let carries = |run: &&Arc<Run>| run.weight() > run.bytes() as u64;
        let needed = |run: &Arc<Run>| WindowRoom::bytes_of(run.entries(), run.weight());
        let needed = runs.iter().filter(carries).map(needed).sum();
        let is_direct = view.logs.values().any(|log| self.readers.access_in(log.key().dir) == Access::Direct);
        WindowRoom::new(self, needed, is_direct)
    }

    /// Writes the tables and the segment of operands, and notes the records that they reference.
    fn write_runs(
        &self,
        view: &View,
        runs: &[Arc<Run>],
        snapshots: Vec<Seqno>,
        place: &Hl0Place<'_>,
    ) -> Result<Written> {
        let dropped = self.keyspaces.dropped();
        let dropped = |keyspace| dropped.contains_key(&keyspace);
        let ranges = fragments_of_runs(runs, &snapshots)?;
        let holds = |start: &[u8], end: &[u8]| {
            view.version.may_hold_range_from(0, start, end) || view.buckets_may_hold_range(start, end, Seqno::MAX)
        };
        let bottom = |start: &[u8], end: &[u8]| !holds(start, end);
        let ranges_left = survivors(&ranges, &snapshots, &bottom, &dropped);
        let horizon = Horizon {
            snapshots,
            bottom: &|key| view.version.tables_for_key(key).next().is_none() && !view.buckets_may_hold(key, Seqno::MAX),
            dropped: &dropped,
            operators: &self.keyspaces,
            fetch: None,
        };
        let mut cursor = Merging::new(runs.iter().rev().map(|run| run.cursor()).collect());
        cursor.seek_first()?;
        let source = Retention::new(cursor, horizon).with_ranges(&ranges);
        let routed = Routed::new(self, view, source, self.keyspaces.separations(), self.window_room(view, runs));
        let entries: u64 = runs.iter().map(|run| run.entries()).sum();
        let mut noted = Noted {
            source: BucketRoute::new(self, Watched::new(routed, Some(&self.pacer.flush)), &view.directory),
            born: RecordNotes::at_most(self.settings.tuning.noted_records_max()),
            sample: Vec::new(),
            until_sample: 0,
            sample_every: entries.div_ceil(SAMPLED_KEYS).max(1),
        };
        let tables = self.write_hl0(&mut noted, ranges_left, place)?;
        let is_there = |key: &&Vec<u8>| {
            let mut tables = view.version.tables_for_key(key);
            tables.any(|table| matches!(newest_in(table, key, Seqno::MAX), Ok(Some(_))))
        };
        let Noted { source, born, sample, .. } = noted;
        let finished = source.finish();
        let operands = finished.inspect_err(|_| tables.iter().for_each(|table| table.mark_obsolete()))?;
        // Where nothing is separated, nothing separated is hidden, and the look-ups would wait for the device for nothing.
        let hides = !born.is_empty() || !view.values.files.is_empty();
        let sample = if hides { sample } else { Vec::new() };
        let found = sample.iter().filter(is_there).count() as u64;
        self.work.space.note_sample(found, sample.len() as u64);
        for table in tables.iter().filter(|_| hides) {
            // A delta covers nothing.
            let bases = table.meta().entries.saturating_sub(table.meta().deltas);
            table.note_covering(bases * found / (sample.len() as u64).max(1));
        }
        Ok(Written { tables, born, operands })
    }
}
