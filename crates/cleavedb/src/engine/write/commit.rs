//! The write path, top to bottom: limits, commit group, log, index table, publication.
//!
//! Writers queue up; the first becomes the leader and commits the batches of all waiting writers in one frame. Sequence
//! numbers are assigned only once the log has room, so a rejected group leaves no gap. A writer waits for durability
//! afterwards, without the commit lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::panics::guard_panic;
use crate::base::{Error, Result, Seqno};
use crate::engine::batch::Batch;
use crate::engine::commit_queue::{CommitState, WaitingWriter, WriterQueue};
use crate::engine::core::Core;
use crate::engine::pacer::REVIEW_BYTES;
use crate::engine::tuning::settings::{Durability, WriteOptions, check_interval};
use crate::engine::write::pacing::unflushed_log_bytes;
use crate::format::frame::{BodyChecksum, FrameHeader, FrameKind, HEADER_BYTES};
use crate::format::keyspace_record::KeyspaceKind;
use crate::front::index_table::{IndexTable, RecordPlace, SeparationThresholds};
use crate::front::log::LogFile;
use crate::front::log_writer::LogWriter;
use crate::sched::clock::now;
use crate::sched::sync::{Condvar, MutexGuard};

/// A group takes waiting batches until it holds this many bytes.
const GROUP_BYTES: u64 = 1 << 20;
/// Room left behind a frame, so that padding always fits.
const PADDING_ROOM: u64 = 2 * crate::base::limits::BLOCK_IO_BYTES as u64;

/// The buffer for the checksums of a group keeps at most this capacity for the next one.
const CRCS_KEPT: usize = 1 << 12;

impl Core {
    /// Writes a batch and returns once it has the requested durability. The batch is cleared on success and on every
    /// error but [`Error::WouldStall`], which leaves it unchanged.
    ///
    /// # Errors
    /// [`Error::WouldStall`] if the write would have to wait longer for background work than `options` allow.
    pub fn write(self: &Arc<Core>, batch: &mut Batch, options: WriteOptions) -> Result<()> {
        let written = self.write_batch(batch, options).map_err(|error| self.on_tier(error));
        if !matches!(written, Err(Error::WouldStall)) {
            batch.clear();
        }
        written
    }

    fn write_batch(self: &Arc<Core>, batch: &mut Batch, options: WriteOptions) -> Result<()> {
        let durability = options.durability.unwrap_or(self.settings.durability);
        if let Durability::Interval(interval) = durability {
            check_interval(interval)?;
        }
        self.check_writable()?;
        batch.check(self.database)?;
        if batch.is_empty() {
            return if durability == Durability::Sync { self.sync() } else { Ok(()) };
        }
        let deadline = options.stall_max.map(|stall_max| now().saturating_add(stall_max));
        self.wait_for_room(batch.record_bytes(), deadline)?;
        self.wait_for_buckets(batch, deadline)?;
        let crowded = if batch.writes_hashed() { self.fold_chains(batch)? } else { Vec::new() };
        let seqno = self.commit(batch, deadline)?;
        self.fold_crowded(&crowded);
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Sync => self.sync_to(seqno),
            Durability::Interval(interval) => self.sync_within(interval),
        }
    }

    /// Queues a batch and returns its last sequence number once it is visible. [`Error::WouldStall`] leaves the batch
    /// unchanged.
    fn commit(&self, batch: &mut Batch, deadline: Option<Duration>) -> Result<Seqno> {
        if let Some(deadline) = deadline {
            self.logs.wait_for_buffer(deadline)?;
        }
        let mut queue = self.commit.queue.lock();
        if !queue.has_leader && queue.waiting.is_empty() {
            queue.has_leader = true;
            drop(queue);
            let result = self.commit_alone(batch);
            let next = self.commit.queue.lock().end_turn();
            next.iter().for_each(|next| next.notify_one());
            return result;
        }
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        let wakes = Arc::new(Condvar::new());
        queue.waiting.push_back(WaitingWriter { ticket, batch: std::mem::take(batch), wakes: wakes.clone() });
        loop {
            if let Some(result) = queue.results.remove(&ticket) {
                return result;
            }
            if !queue.has_leader {
                queue.has_leader = true;
                queue = self.lead(queue);
                continue;
            }
            match deadline.map(|deadline| deadline.saturating_sub(now())) {
                None => wakes.wait(&mut queue),
                Some(Duration::ZERO) => {
                    // If the batch is not in the queue, a leader has taken it and its result will come.
                    let place = queue.waiting.iter().position(|waiting| waiting.ticket == ticket);
                    let Some(waiting) = place.and_then(|place| queue.waiting.remove(place)) else {
                        wakes.wait(&mut queue);
                        continue;
                    };
                    *batch = waiting.batch;
                    return Err(Error::WouldStall);
                }
                Some(rest) => {
                    wakes.wait_for(&mut queue, rest);
                }
            }
        }
    }

    /// Commits a single batch while no other writer waits.
    fn commit_alone(&self, batch: &mut Batch) -> Result<Seqno> {
        let mut commit = self.commit.lock();
        let committed = self
            .check_open()
            .and_then(|()| batch.check(self.database))
            .and_then(|()| self.check_index_room(batch, 0).map(drop))
            .and_then(|()| self.check_poison())
            .and_then(|()| self.append_guarded(&mut commit, &[batch]))
            .map(|()| commit.last_seqno);
        drop(commit);
        committed
    }

    /// Commits one group of waiting batches, and wakes their writers and the next leader, each alone: to wake all would
    /// cost more than the commit.
    fn lead<'a>(&'a self, mut queue: MutexGuard<'a, WriterQueue>) -> MutexGuard<'a, WriterQueue> {
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(waiting) = queue.waiting.front() {
            if !group.is_empty() && bytes + waiting.batch.record_bytes() > GROUP_BYTES {
                break;
            }
            bytes += waiting.batch.record_bytes();
            group.extend(queue.waiting.pop_front());
        }
        drop(queue);
        let results = self.commit_group(&group);
        let mut queue = self.commit.queue.lock();
        queue.results.extend(group.iter().map(|waiting| waiting.ticket).zip(results));
        let next = queue.end_turn();
        drop(queue);
        group.iter().map(|waiting| &waiting.wakes).chain(&next).for_each(|wakes| wakes.notify_one());
        self.commit.queue.lock()
    }

    fn commit_group(&self, group: &[WaitingWriter]) -> Vec<Result<Seqno>> {
        let mut commit = self.commit.lock();
        // A keyspace may have been dropped, or the database closed, while the batch waited.
        let mut new_bytes = 0;
        let mut check = |batch: &Batch| {
            self.check_open()?;
            batch.check(self.database)?;
            new_bytes += self.check_index_room(batch, new_bytes)?;
            Ok(Seqno::ZERO)
        };
        let mut results: Vec<Result<Seqno>> = group.iter().map(|waiting| check(&waiting.batch)).collect();
        let accepted: Vec<&Batch> = group
            .iter()
            .zip(&results)
            .filter(|(_, result)| result.is_ok())
            .map(|(waiting, _)| &waiting.batch)
            .collect();
        if accepted.is_empty() {
            return results;
        }
        let mut last = commit.last_seqno;
        let outcome = self.check_poison().and_then(|()| self.append_guarded(&mut commit, &accepted));
        drop(accepted);
        for (waiting, result) in group.iter().zip(&mut results).filter(|(_, result)| result.is_ok()) {
            last.0 += waiting.batch.len() as u64;
            *result = match &outcome {
                Ok(()) => Ok(last),
                Err(error) => Err(error.clone()),
            };
        }
        results
    }

    /// Appends a group. A panic becomes an error, so that the followers of a panicking leader do not wait forever.
    pub(super) fn append_guarded(&self, commit: &mut CommitState, group: &[&Batch]) -> Result<()> {
        let appended = guard_panic("a commit", || self.append_group(commit, group));
        if let Err(error @ Error::Poisoned { .. }) = &appended {
            self.poison(error);
        }
        appended
    }

    /// Appends one frame for the group to the log, inserts it into the index table, and publishes it.
    fn append_group(&self, commit: &mut CommitState, group: &[&Batch]) -> Result<()> {
        let body_bytes: u64 = group.iter().map(|batch| batch.record_bytes()).sum();
        let frame_bytes = HEADER_BYTES as u64 + body_bytes;
        let capacity_max = self.log_capacity_max();
        let has_room = |writer: &LogWriter| writer.has_room(frame_bytes + PADDING_ROOM, capacity_max);
        if !commit.writer.as_ref().is_some_and(has_room) {
            self.rotate_log(commit, frame_bytes + PADDING_ROOM)?;
        }
        let frame_offset = match self.append_frame(commit, group, body_bytes) {
            Ok(offset) => offset,
            Err(error) => return Err(self.give_up_frame(commit, error)),
        };
        let first_seqno = commit.last_seqno.next();
        let first = self.insert_group(commit, group, frame_offset);
        self.counters.user_bytes.fetch_add(body_bytes, Ordering::Relaxed);
        self.counters.log_bytes.fetch_add(frame_bytes, Ordering::Relaxed);
        match group.iter().any(|batch| batch.writes_hashed()) {
            true => {
                let bytes = self.index_and_publish(group, first, first_seqno, commit.last_seqno);
                commit.writer.iter().filter_map(|writer| writer.active()).for_each(|log| log.note_indexed(bytes));
            }
            false => self.published.publish(commit.last_seqno),
        }
        if self.settings.tuning.is_full(&commit.active) {
            self.seal(commit);
        }
        commit.unreviewed += frame_bytes;
        if commit.unreviewed >= REVIEW_BYTES {
            commit.unreviewed = 0;
            self.update_pace();
        }
        Ok(())
    }

    fn append_frame(&self, commit: &mut CommitState, group: &[&Batch], body_bytes: u64) -> Result<u64> {
        let first_seqno = commit.last_seqno.next();
        let CommitState { writer, crcs, .. } = commit;
        let writer = writer.as_mut().expect("a log exists before a frame is appended");
        crcs.clear();
        let mut sum = BodyChecksum::default();
        let operations = || group.iter().flat_map(|batch| batch.operations());
        for (index, operation) in operations().enumerate() {
            let crc = operation.crc(Seqno(first_seqno.0 + index as u64));
            crcs.push(crc);
            sum.add(crc);
        }
        let header = FrameHeader {
            kind: FrameKind::Records,
            body_len: body_bytes as u32,
            count: crcs.len() as u32,
            first_seqno,
            sync_point: self.horizon.durable(),
            body_crc: sum.get(),
        };
        let log = writer.active().expect("a frame is appended to an active log").id();
        let offset = writer.begin(header.frame_bytes())?;
        writer.push(&header.encode(log, offset))?;
        for (index, operation) in operations().enumerate() {
            writer.push(&operation.header(Seqno(first_seqno.0 + index as u64), crcs[index]))?;
            writer.push(operation.key)?;
            writer.push(operation.value)?;
        }
        writer.finish(Seqno(first_seqno.0 + crcs.len() as u64 - 1))?;
        crcs.shrink_to(CRCS_KEPT);
        Ok(offset)
    }

    /// Abandons a frame that could not be appended. A full disk leaves the log unchanged (rule 9); any other error
    /// poisons the database.
    fn give_up_frame(&self, commit: &mut CommitState, error: Error) -> Error {
        if matches!(error, Error::NoSpace { .. })
            && commit.writer.as_mut().is_some_and(|writer| writer.abandon().is_ok())
        {
            return error;
        }
        self.poison(&error);
        error
    }

    /// Hands the operations on ordered keyspaces to the index table; returns where the first record lies.
    fn insert_group(&self, commit: &mut CommitState, group: &[&Batch], frame_offset: u64) -> RecordPlace {
        let writer = commit.writer.as_ref().expect("the log writer has appended the frame");
        let log = writer.active().expect("the frame was appended to the active log").id();
        let CommitState { active, last_seqno, .. } = commit;
        let mut inserter = active.insert();
        let first = RecordPlace { log, offset: frame_offset + HEADER_BYTES as u64 };
        let mut place = first;
        let (in_front, mut for_good) = (self.keyspaces.separation_min(), self.keyspaces.separations());
        for batch in group {
            let mut kind_of = batch.kinds();
            for operation in batch.operations() {
                *last_seqno = last_seqno.next();
                match kind_of(operation.keyspace) {
                    KeyspaceKind::Ordered => {
                        let may_stay = operation.value.len() >= in_front;
                        let after_flush = if may_stay { for_good(operation.keyspace) } else { usize::MAX };
                        let thresholds = SeparationThresholds { in_front, after_flush };
                        inserter.add_record(&operation, *last_seqno, &mut place, thresholds);
                    }
                    KeyspaceKind::Hash => place.offset += operation.record_bytes() as u64,
                }
            }
        }
        first
    }

    /// Switches to a new log that has room for `bytes`. After a transient error nothing was written, and the next write
    /// tries again with the same log.
    fn rotate_log(&self, commit: &mut CommitState, bytes: u64) -> Result<()> {
        self.map_ring()?;
        let log = self.guarded(self.take_log(bytes))?;
        if let Err(error) = self.fit_writer(commit, &log) {
            self.logs.put_back(log);
            return Err(error);
        }
        self.published.update(|view| {
            let mut logs = (*view.logs).clone();
            logs.insert(log.id(), log.clone());
            view.with(|sources| sources.logs = Arc::new(logs))
        });
        let writer = commit.writer.as_mut().expect("a log writer was fitted to the log");
        commit.unsynced.extend(writer.rotate(log));
        self.seal_before_indexed(commit);
        self.note_hashed_change();
        self.work.wake();
        Ok(())
    }

    /// Seals an index table that is not full if it keeps many bytes of hash keyspaces in the front, so that a flush lets their
    /// logs go. What waits to be flushed already will do the same.
    fn seal_before_indexed(&self, commit: &mut CommitState) {
        let view = self.published.view();
        let is_waiting = !view.sealed.is_empty() || !view.runs.is_empty();
        let logs = || unflushed_log_bytes(&view, self.work.flushed());
        if !is_waiting && logs().keeps_much_indexed(&self.settings.tuning, self.unflushed_bytes_max()) {
            self.seal(commit);
        }
    }

    /// Makes sure that the log writer uses the ring that `log` was made for, and that recovery will find that ring.
    fn fit_writer(&self, commit: &mut CommitState, log: &LogFile) -> Result<()> {
        if commit.writer.as_ref().is_some_and(|writer| writer.fits(log)) {
            return Ok(());
        }
        let fitting = LogWriter::new(self.log_back_end(log)?);
        if let Some(writer) = &mut commit.writer {
            // New logs use a larger ring. The old ring must not be needed for recovery once its name is replaced.
            commit.unsynced.extend(self.guarded(writer.end())?);
        }
        self.guarded(self.rename_ring(log))?;
        commit.writer = Some(fitting);
        // The buffers of the log have other sizes now; before the first log the caches had their memory.
        self.fit_cache();
        Ok(())
    }

    /// Seals the active index table and replaces it by an empty one. The caller holds the commit lock, so the sealed
    /// table contains only whole, published groups.
    pub fn seal(&self, commit: &mut CommitState) {
        if commit.active.is_empty() {
            return;
        }
        commit.active = Arc::new(IndexTable::new());
        self.published.update(|view| {
            view.with(|sources| {
                let full = std::mem::replace(&mut sources.active, commit.active.clone());
                sources.sealed.insert(0, full);
            })
        });
        self.fit_cache();
        self.update_pace();
        self.work.wake();
    }
}

#[cfg(test)]
#[path = "commit_test.rs"]
mod tests;
