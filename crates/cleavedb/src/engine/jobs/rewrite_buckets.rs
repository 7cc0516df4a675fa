//! Upkeep of buckets: operands that a newer base covers are dropped, the others are merged as far as their operator can, and
//! the bucket is rewritten into one extent, split, or joined with a neighbour. Buckets that cannot shrink so, or that their
//! keyspace does not want any more, are folded before (`engine/write/fold.rs`).
//!
//! The only job besides flushes that changes the directory; the two never run at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::key_versions::KeyVersion;
use crate::base::{FileId, KeyspaceId, Result, Seqno};
use crate::deltas::directory::{Bucket, Change, Directory};
use crate::deltas::policy::{BucketFigures, Chosen, Upkeep, choose, rewrites};
use crate::engine::binds::Binds;
use crate::engine::bucket_window::BucketWindows;
use crate::engine::buckets::{Circumstances, FoldAttempt, UnderTombstones};
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::compact::may_compact_when_idle;
use crate::engine::jobs::delta_segment::{Segment, SegmentWriter, change_directory, discard_rejected_segment};
use crate::engine::jobs::job::{Duty, Job, JobKind, Look, Offer, Plan};
use crate::engine::jobs::operands::Operands;
use crate::engine::jobs::outcome::Outcome;
use crate::engine::jobs::write_through::RewrittenLists;
use crate::engine::shortages::Need;
use crate::engine::snapshots::JobHorizon;
use crate::engine::view::View;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::format::buckets::{Extent, SEGMENT_LEVEL, keyspace_of};
use crate::format::edit::Edit;
use crate::format::interval::separator;
use crate::format::keyspace_record::DeltaPlacement;
use crate::format::meta::TableMeta;
use crate::levels::table::Table;
use crate::levels::version::Version;

/// Due when a bucket is full or crowded, when segments hold much that no bucket uses, or when buckets are no longer wanted.
pub(crate) const KIND: JobKind = JobKind { priority: Priority::Room, duties: &[Duty::All], next };
/// Due when the upkeep of a bucket is behind. It goes before flushes, on all threads that flush: flushes exclude upkeep, so
/// if one is due whenever the last one ends, upkeep would never begin.
pub(crate) const KIND_IF_URGENT: JobKind = JobKind {
    priority: Priority::Urgent,
    duties: &[Duty::Front, Duty::FrontAndSubtasks, Duty::All],
    next: next_if_urgent,
};

/// Lists for the operand cache take at most this part of the memory for jobs until they are published.
const LISTS_PART: usize = 16;

/// Rewrites buckets.
struct RewriteBuckets {
    upkeep: Vec<Upkeep>,
    /// The segments that the buckets have extents in, which the job may remove.
    segments: BTreeSet<FileId>,
    /// The lower bound of the bucket at which the next job goes on, if this one took some in turn.
    next: Option<Vec<u8>>,
    /// Due only because nothing else is.
    is_idle: bool,
}

fn next_if_urgent(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    let (view, sizes) = (&look.view, core.settings.tuning.bucket_sizes());
    let is_urgent = |figures| {
        // How full the front is takes longer to find out.
        sizes.is_urgent(figures, true) && sizes.is_urgent(figures, core.front_has_room(view))
    };
    if !is_urgent(view.directory.most()) {
        return None;
    }
    let job = due(core, state, look)?;
    // That of the buckets in question may be impossible now.
    let buckets = job.upkeep.iter().flat_map(|upkeep| &view.directory.buckets()[upkeep.buckets()]);
    let mut figures = buckets.map(|bucket| (bucket.extents.len(), bucket.bytes_newer()));
    figures.any(is_urgent).then(|| JobKind::begin(job)).flatten()
}

fn next(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    JobKind::begin(due(core, state, look)?)
}

fn due(core: &Core, state: &WorkState, look: &Look) -> Option<RewriteBuckets> {
    let view = &look.view;
    if view.directory.buckets().is_empty()
        || state.has(Sole::Buckets)
        || !state.shortages.may_try(Need::Compaction, look.now)
    {
        return None;
    }
    let due = core.due_upkeep(view, &state.quarantined, false);
    if !due.upkeep.is_empty() {
        return Some(RewriteBuckets::new(view, due, false));
    }
    let due = match may_compact_when_idle(core, state) {
        true => core.due_upkeep(view, &state.quarantined, true),
        false => Chosen::default(),
    };
    (!due.upkeep.is_empty()).then(|| RewriteBuckets::new(view, due, true))
}

impl Core {
    /// Idle time may bring upkeep, as far as is known without a look at every bucket.
    pub fn wants_idle_upkeep(&self, view: &View, quarantined: &BTreeSet<FileId>) -> bool {
        let tombstones = || newest_tombstones(&tables_with_tombstones(&view.version), None);
        !view.directory.buckets().is_empty()
            && view.directory.seqnos().is_some_and(|(oldest, _)| oldest < tombstones())
            && !self.due_upkeep(view, quarantined, true).upkeep.is_empty()
    }

    /// The upkeep that is due, without buckets that a quarantined segment is part of.
    fn due_upkeep(&self, view: &View, quarantined: &BTreeSet<FileId>, is_idle: bool) -> Chosen {
        let oldest = self.snapshots.oldest(&self.published);
        let mut memory = self.upkeep.lock();
        let covering = if is_idle { tables_with_tombstones(&view.version) } else { Vec::new() };
        let now = Circumstances {
            oldest: if memory.waits_for_snapshot() { oldest } else { Seqno::ZERO },
            tombstones: newest_tombstones(&covering, None),
            keyspace_changes: self.keyspaces.changes(),
            writers_wait: self.pacer.is_limited.load(Ordering::Relaxed),
            quarantined: quarantined.len(),
        };
        if memory.is_nothing_due(&view.directory, now, is_idle) {
            return Chosen::default();
        }
        let dropped = self.keyspaces.dropped();
        let mut known: Option<(KeyspaceId, bool, bool)> = None;
        let mut figures = Vec::with_capacity(view.directory.buckets().len());
        for bucket in view.directory.buckets() {
            let keyspace = keyspace_of(&bucket.lower).unwrap_or(KeyspaceId(0));
            let (_, is_dropped, leaves) = match known {
                Some(known) if known.0 == keyspace => known,
                _ => {
                    let leaves = self.keyspaces.delta_placement(keyspace) == DeltaPlacement::Levels;
                    *known.insert((keyspace, dropped.contains_key(&keyspace), leaves))
                }
            };
            let was_tried = || {
                let attempt = memory.attempts.get(&bucket.lower);
                attempt.is_some_and(|(segments, held)| {
                    held.is_none_or(|held| held == oldest) && segments.iter().copied().eq(segments_of(bucket))
                })
            };
            figures.push(BucketFigures {
                keyspace,
                extents: bucket.extents.len(),
                bytes: bucket.bytes(),
                bytes_newer: bucket.bytes_newer(),
                is_dropped,
                leaves: leaves && !bucket.extents.is_empty() && !was_tried(),
                may_fold: !now.writers_wait,
                is_blocked: segments_of(bucket).any(|segment| quarantined.contains(&segment)),
                is_in_sparse_segment: false,
                is_under_tombstones: is_idle
                    && memory.is_under_new_tombstones(bucket, newest_tombstones(&covering, Some(bucket)), oldest),
                crowd: memory.crowds.of(&bucket.lower),
            });
        }
        mark_sparse(view, &mut figures);
        let sizes = self.settings.tuning.bucket_sizes();
        let from = view.directory.buckets().partition_point(|bucket| bucket.lower < memory.next);
        let due = choose(&figures, from, sizes);
        if due.upkeep.is_empty() {
            memory.nothing_due[usize::from(is_idle)] = Some((Arc::downgrade(&view.directory), now));
        }
        due
    }
}

impl Core {
    /// Rewrites the buckets that overlap the full keys from `start` up to, not including, `end`, and waits. Called by users.
    pub fn rewrite_buckets_within(self: &Arc<Core>, start: &[u8], end: &[u8]) -> Result<()> {
        if self.published.view().directory.overlapping(start, Some(end)).is_empty() {
            return Ok(());
        }
        self.upkeep.lock().callers += 1;
        let mut from = Some(start.to_vec());
        let mut result = Ok(false);
        while let Some(lower) = from.take().filter(|_| result.is_ok()) {
            result = self.run_as_caller(|_| {
                let view = self.published.view();
                let within = view.directory.overlapping(&lower, Some(end));
                let sizes = self.settings.tuning.bucket_sizes();
                let upkeep = rewrites(&view.directory.buckets()[within.clone()], within.start, sizes);
                let last = upkeep.last().map(|last| view.directory.buckets()[last.buckets().start].clone());
                from = last.as_ref().and_then(|last| last.upper.clone());
                Some(last.map(|_| RewriteBuckets::new(&view, Chosen { upkeep, next: None }, false)))
            });
        }
        self.upkeep.lock().callers -= 1;
        self.work.wake_all();
        result.map(drop)
    }
}

/// The tables that have tombstones.
fn tables_with_tombstones(version: &Version) -> Vec<&TableMeta> {
    let tables = version.levels().iter().flat_map(|level| level.tables().iter());
    tables.map(|table| table.meta()).filter(|meta| meta.deletes + meta.range_deletes > 0).collect()
}

/// The highest sequence number of these tables, or of those that overlap a bucket.
fn newest_tombstones(tables: &[&TableMeta], bucket: Option<&Bucket>) -> Seqno {
    let overlaps =
        |meta: &&&TableMeta| bucket.is_none_or(|bucket| meta.end > bucket.lower && bucket.ends_after(&meta.smallest));
    tables.iter().filter(overlaps).map(|meta| meta.seqno_max).max().unwrap_or_default()
}

fn segments_of(bucket: &Bucket) -> impl Iterator<Item = FileId> {
    bucket.extents.iter().map(|extent| extent.segment)
}

/// If buckets use less than half of what segments hold, marks the buckets of the segment of which they use least. A segment that
/// is used as a whole is never marked, whatever its keys take in indexes.
fn mark_sparse(view: &View, figures: &mut [BucketFigures]) {
    let mut used: BTreeMap<FileId, u64> = BTreeMap::new();
    for extent in view.directory.buckets().iter().flat_map(|bucket| &bucket.extents) {
        *used.entry(extent.segment).or_default() += extent.entries;
    }
    // Bytes that no bucket uses, by the share of versions.
    let unused = |segment: &Arc<Table>| {
        let (size, entries) = (segment.meta().size, segment.meta().entries.max(1));
        let used = used.get(&segment.meta().id).copied().unwrap_or_default().min(entries);
        (u128::from(size) * u128::from(entries - used) / u128::from(entries)) as u64
    };
    let segments = view.version.segments();
    let all: u64 = segments.iter().map(|segment| segment.meta().size).sum();
    if segments.iter().map(unused).sum::<u64>() <= all / 2 {
        return;
    }
    let Some(emptiest) = segments.iter().max_by_key(|segment| unused(segment)).map(|it| it.meta().id) else { return };
    for (bucket, figures) in view.directory.buckets().iter().zip(figures) {
        figures.is_in_sparse_segment = segments_of(bucket).any(|segment| segment == emptiest);
    }
}

impl Job for RewriteBuckets {
    fn profile(&self, core: &Core) -> Profile {
        let reads = core.reads_of_tables(&self.segments);
        let tables = self.segments.iter().copied().map(Claim::Table);
        let claims = tables.fold(Claims::sole(Sole::Buckets), Claims::and);
        Profile {
            name: "rewrite buckets",
            claims: match self.is_idle {
                true => claims.and(Claim::Only(Sole::IdleTime)),
                false => claims,
            },
            binds: reads | Binds::CPU | Binds::write(core.dirs.slow_tier()),
            class: if self.is_idle { Class::Idle } else { Class::Mandatory },
            // That of flushes, none of which runs meanwhile.
            memory: MemoryShare::Own,
            need: Need::Compaction,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| self.run(core))))
    }

    fn unreadable_inputs(&self, core: &Core, path: &Path) -> Vec<FileId> {
        let version = core.published.view().version.clone();
        let lies_there = |id: &FileId| version.segment(*id).is_some_and(|segment| **segment.path() == *path);
        self.segments.iter().copied().filter(lies_there).collect()
    }
}

/// What a run of the job has come to.
struct Rewritten {
    segment: Option<Segment>,
    lists: RewrittenLists,
    change: Change,
    /// The newest base on whose evidence operands were dropped.
    evidence: Seqno,
    /// Covered operands are left that only a snapshot keeps.
    waits_for_snapshot: bool,
    /// Keys that were folded in their bucket, because their folds had been refused.
    folded: Vec<Vec<u8>>,
    /// Buckets that were split off another one, and that were joined to the one before them.
    splits: u64,
    joins: u64,
}

impl RewriteBuckets {
    fn new(view: &View, Chosen { upkeep, next }: Chosen, is_idle: bool) -> RewriteBuckets {
        let buckets = view.directory.buckets();
        let extents = upkeep.iter().flat_map(|it| &buckets[it.buckets()]).flat_map(|bucket| &bucket.extents);
        let segments = extents.map(|extent| extent.segment).collect();
        // Behind the last one, the turn begins again.
        let next = next.map(|next| buckets.get(next).map(|bucket| bucket.lower.clone()).unwrap_or_default());
        RewriteBuckets { upkeep, segments, next, is_idle }
    }

    fn run(&self, core: &Core) -> Result<Outcome<'_>> {
        let directory = core.published.view().directory.clone();
        let buckets = directory.buckets();
        let mut folded = Vec::new();
        for upkeep in self.upkeep.iter().filter(|upkeep| matches!(upkeep, Upkeep::Fold(_))) {
            if core.fold_buckets(&buckets[upkeep.buckets()])? {
                folded.extend(buckets[upkeep.buckets()].iter().map(|bucket| bucket.lower.clone()));
            }
        }
        let horizon = core.job_horizon();
        let rewritten = self.rewrite(core, &horizon, &directory)?;
        let Rewritten { segment, lists, change, evidence, waits_for_snapshot, folded: in_buckets, splits, joins } =
            rewritten;
        let after = directory.apply(&change);
        let used = after.segments();
        let gone: Vec<FileId> = self.segments.difference(&used).copied().collect();
        let mut edit = Edit { tables_removed: gone.clone(), ..Edit::default() };
        segment.iter().for_each(|segment| segment.add_to(&mut edit));
        change_directory(&mut edit, &change);
        // The last one is the published number.
        let held = horizon.snapshots.first().copied().filter(|_| horizon.snapshots.len() > 1 && waits_for_snapshot);
        let rewritten = self.upkeep.iter().flat_map(|upkeep| &buckets[upkeep.buckets()]);
        let rewritten: Vec<Vec<u8>> = rewritten.map(|bucket| bucket.lower.clone()).collect();
        let attempts: Vec<(Vec<u8>, FoldAttempt)> = folded
            .into_iter()
            .filter_map(|lower| after.find(&lower).map(|bucket| (lower, segments_of(bucket).collect())))
            .map(|(lower, segments)| (lower, (segments, held)))
            .collect();
        let covering = tables_with_tombstones(&horizon.view.version);
        let written = segment.as_ref().map(|segment| segment.table.meta().id);
        let under: Vec<(Vec<u8>, UnderTombstones)> = after
            .buckets()
            .iter()
            .filter(|bucket| segments_of(bucket).any(|segment| Some(segment) == written))
            .map(|bucket| (bucket.lower.clone(), (newest_tombstones(&covering, Some(bucket)), held)))
            .collect();
        let added = segment.as_ref().map(|segment| (usize::from(SEGMENT_LEVEL), segment.table.clone()));
        let after = Arc::new(after);
        let left = after.clone();
        let seqno = evidence.max(segment.as_ref().map_or(Seqno::ZERO, |segment| segment.table.meta().seqno_max));
        let outcome = Outcome::edit(seqno, edit, move |sources| {
            for id in &gone {
                if let Some(table) = sources.version.segment(*id) {
                    table.mark_obsolete();
                }
            }
            let added: Vec<_> = added.into_iter().collect();
            sources.version = Arc::new(sources.version.apply(&added, &gone));
            sources.directory = after;
        });
        Ok(outcome.then(move |core, installed| {
            installed.inspect_err(|error| discard_rejected_segment(error, segment.as_ref()))?;
            if let Some(segment) = segment {
                lists.publish(segment.table.meta().id);
            }
            core.counters.bucket_rewrites.fetch_add(1, Ordering::Relaxed);
            core.counters.bucket_splits.fetch_add(splits, Ordering::Relaxed);
            core.counters.bucket_joins.fetch_add(joins, Ordering::Relaxed);
            let mut memory = core.upkeep.lock();
            rewritten.iter().for_each(|lower| memory.crowds.remove(lower));
            in_buckets.iter().for_each(|key| memory.note_folded(key));
            memory.attempts.retain(|lower, _| left.find(lower).is_some_and(|bucket| bucket.lower == *lower));
            memory.attempts.extend(attempts);
            memory.tombstones.retain(|lower, _| left.find(lower).is_some_and(|bucket| bucket.lower == *lower));
            memory.tombstones.extend(under);
            memory.crowds_read.retain(|lower| left.find(lower).is_some_and(|bucket| bucket.lower == *lower));
            memory.next = self.next.clone().unwrap_or_else(|| std::mem::take(&mut memory.next));
            Ok(())
        }))
    }

    fn rewrite(&self, core: &Core, horizon: &JobHorizon, directory: &Directory) -> Result<Rewritten> {
        let mut writer = SegmentWriter::new(core);
        let mut lists = RewrittenLists::new(core, core.settings.tuning.job_bytes / LISTS_PART);
        let mut set: BTreeMap<Vec<u8>, Vec<Extent>> = BTreeMap::new();
        let mut removed = Vec::new();
        let mut folded = Vec::new();
        let (mut evidence, mut waits_for_snapshot, mut joins) = (Seqno::ZERO, false, 0);
        let count_before = directory.buckets().len();
        let mut count = count_before;
        for upkeep in &self.upkeep {
            let buckets = &directory.buckets()[upkeep.buckets()];
            let (first, others) = buckets.split_first().expect("upkeep is of some bucket");
            if matches!(upkeep, Upkeep::Remove(_)) {
                removed.extend(buckets.iter().map(|bucket| bucket.lower.clone()));
                continue;
            }
            joins += others.len() as u64;
            set.insert(first.lower.clone(), Vec::new());
            removed.extend(others.iter().map(|bucket| bucket.lower.clone()));
            let mut operands = Operands::new(core, horizon);
            self.rewrite_one(core, buckets, &mut operands, (&mut writer, &mut lists), &mut count)?;
            evidence = evidence.max(operands.evidence);
            waits_for_snapshot |= operands.waits_for_snapshot;
            folded.append(&mut operands.folded);
        }
        let segment = writer.finish()?;
        for (lower, extent) in segment.iter().flat_map(|segment| &segment.extents) {
            set.insert(lower.clone(), vec![*extent]);
        }
        let written = segment.as_ref().map(|segment| segment.table.meta().id);
        let change = directory.without_empty(Change { removed, set: set.into_iter().collect() }, written);
        let splits = (count - count_before) as u64;
        Ok(Rewritten { segment, lists, change, evidence, waits_for_snapshot, folded, splits, joins })
    }

    /// Writes what is left of neighbouring buckets: to the first of them, or cut where it would be too full.
    fn rewrite_one(
        &self,
        core: &Core,
        buckets: &[Arc<Bucket>],
        operands: &mut Operands<'_>,
        (writer, lists): (&mut SegmentWriter<'_>, &mut RewrittenLists),
        count: &mut usize,
    ) -> Result<()> {
        let sizes = core.settings.tuning.bucket_sizes();
        let mut lower = buckets[0].lower.clone();
        let (mut part, mut rest) = (0, buckets.iter().map(|bucket| bucket.bytes()).sum::<u64>());
        let Some(source) = operands.horizon.view.buckets() else { return Ok(()) };
        let windows = BucketWindows::over(source, buckets, &core.memory.jobs)?;
        let Some(mut windows) = windows else { return Ok(()) };
        let mut before: Option<Vec<u8>> = None;
        while windows.advance()? {
            let bases = operands.bases_of(&windows.keys);
            for ((key, versions), base) in windows.keys.drain(..).zip(bases) {
                rest = rest.saturating_sub(bytes_of(&key, &versions));
                let kept = operands.compact(&key, versions, base);
                let bytes = bytes_of(&key, &kept);
                if *count < sizes.buckets_max && sizes.cuts(part, bytes + rest) {
                    let bound = before.as_ref().and_then(|before| separator(before, &key)).unwrap_or(&key);
                    (part, lower) = (0, bound.to_vec());
                    *count += 1;
                }
                part += bytes;
                for (stamp, payload) in &kept {
                    writer.add(&lower, &key, *stamp, payload)?;
                }
                lists.note(&key, &kept);
                core.limit_io(2 * bytes);
                before = Some(key);
            }
        }
        Ok(())
    }
}

/// Bytes of versions of a key, as extents count them.
fn bytes_of(key: &[u8], versions: &[KeyVersion]) -> u64 {
    versions.iter().map(|(_, payload)| (key.len() + payload.len()) as u64).sum()
}
