//! Moves records in key order, for placements that sort.
//!
//! Records are judged one key range at a time, with all listed ones of the range in the collected files. If these exceed the
//! memory limit, higher keys are left to another pass over the files. So all versions of a key are judged together, and
//! the extents of one job do not overlap. Live records are put in order in memory. If all of a job fit, their bytes are kept
//! from the read of their keys (`staged.rs`); else as many at a time as fit are read again, in the order of their files, with
//! large reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{FileId, Result};
use crate::engine::jobs::collection::copy::{CopiedRecord, check_seen, copy_large, place, write};
use crate::engine::jobs::collection::read::{ReadRecord, for_each_live};
use crate::engine::jobs::collection::state::{Collection, Going, Victim};
use crate::format::group::Group;
use crate::format::values::Moved;
use crate::io::coalesced_reads::{CoalescedRead, Coalescing, ReadRange, coalesce};
use crate::io::{File, Pages, read_exact_at};
use crate::values::files::{Layout, ValueFile};
use crate::values::newest::{Fate, SeenRecord};
use crate::values::survey::KnownLive;

/// Several records within this distance are read in one read.
const GAP_BYTES: u64 = 8 << 10;
/// Reads within this distance are announced to the system together: reading a gap costs less than another read.
const ANNOUNCED_GAP_BYTES: u64 = 32 << 10;
/// This many reads are announced ahead of the one that is made, of two pieces in all; a read that a user waits for is never
/// behind more.
const AHEAD_READS: usize = 32;

/// The keys moved by one pass over the files.
struct Pass {
    from: Vec<u8>,
    /// Keys from here on are left to later passes.
    to: Option<Vec<u8>>,
    /// For each file, the offset of the first record left to later passes.
    left: Vec<Option<u64>>,
}

impl Pass {
    fn takes(&self, key: &[u8]) -> bool {
        *key >= *self.from && !self.leaves(key)
    }

    fn leaves(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_some_and(|to| *key >= **to)
    }

    fn leave(&mut self, file: u32, offset: u64) {
        let first = &mut self.left[file as usize];
        *first = Some(first.map_or(offset, |first| first.min(offset)));
    }
}

/// Reads that are announced to the system before they are made.
struct Announcements {
    pieces: VecDeque<ReadRange>,
    /// Those that were announced, and are not read yet.
    coming: VecDeque<ReadRange>,
    coming_bytes: u64,
    coming_bytes_max: u64,
}

impl Announcements {
    /// All reads of records that are sorted by place, each of at most `piece_bytes`.
    fn of(order: &[Going<'_>], piece_bytes: u64) -> Announcements {
        let limits = Coalescing { gap_bytes: ANNOUNCED_GAP_BYTES, read_bytes_max: piece_bytes };
        let range = |piece: CoalescedRead<'_, Going<'_>>| ReadRange { end: piece.end, ..place(&piece.pieces[0]) };
        let pieces = coalesce(order, limits, place).map(range).collect();
        Announcements { pieces, coming: VecDeque::new(), coming_bytes: 0, coming_bytes_max: 2 * piece_bytes }
    }

    /// The next piece to announce before the read that begins at `now`.
    fn next_before(&mut self, now: ReadRange) -> Option<ReadRange> {
        while let Some(read) = self.coming.front()
            && (read.file, read.end) <= (now.file, now.start)
        {
            self.coming_bytes -= read.end - read.start;
            self.coming.pop_front();
        }
        if self.coming_bytes >= self.coming_bytes_max || self.coming.len() >= AHEAD_READS {
            return None;
        }
        let next = self.pieces.pop_front()?;
        self.coming_bytes += next.end - next.start;
        self.coming.push_back(next);
        Some(next)
    }
}

/// The victims that are being read, or of which reads were announced.
#[derive(Default)]
struct Sources(BTreeMap<u32, Arc<dyn File>>);

impl Sources {
    fn open(&mut self, victims: &[Victim], index: u32) -> Result<Arc<dyn File>> {
        if let Some(open) = self.0.get(&index) {
            return Ok(open.clone());
        }
        let opened = victims[index as usize].file.stored().file_in_order()?;
        self.0.insert(index, opened.clone());
        Ok(opened)
    }

    /// Nothing of the files before this one is read any more.
    fn close_before(&mut self, index: u32) {
        self.0 = self.0.split_off(&index);
    }
}

impl Collection<'_> {
    /// Moves the live records of the files, one key range at a time.
    pub(crate) fn move_by_key(&mut self, files: &[Arc<ValueFile>], known: &[KnownLive]) -> Result<()> {
        let listed = known.iter().map(|known| if let KnownLive::Listed(live) = known { live.count() } else { 0 }).sum();
        self.batch.reserve(listed, self.batch_bytes_max);
        let mut pass = Pass { from: Vec::new(), to: None, left: vec![None; files.len()] };
        let mut starts: Vec<Option<u64>> = files.iter().map(|file| Some(file.start())).collect();
        loop {
            for (index, file) in files.iter().enumerate() {
                let Some(start) = starts[index].filter(|_| !self.yields_now()) else { continue };
                self.read_for(&mut pass, index as u32, file, &known[index], start)?;
            }
            if self.yields_now() {
                return Ok(());
            }
            self.settle()?;
            self.staged.clear();
            match pass.to.take() {
                Some(to) if !self.has_yielded => pass.from = to,
                _ => return Ok(()),
            }
            // Every record left for later passes is at or after this offset.
            starts = std::mem::replace(&mut pass.left, vec![None; files.len()]);
        }
    }

    /// Pauses as the pace of value GC requires. True if the job must yield because other work than reordering is due.
    pub(crate) fn yields_now(&mut self) -> bool {
        self.throttle.pause();
        self.has_yielded |= self.yields && self.core.must_yield();
        self.has_yielded
    }

    /// Notes the records of a file that belong to a pass.
    fn read_for(&mut self, pass: &mut Pass, index: u32, file: &ValueFile, known: &KnownLive, start: u64) -> Result<()> {
        let counts = matches!(file.layout(), Layout::Log) && pass.from.is_empty();
        // What is behind the first key that is left is left, too.
        let is_sorted = matches!(file.layout(), Layout::Extent { group: Group::Range(_), .. });
        let mut last = Vec::new();
        let read = for_each_live(self.core, file, known, start, &mut |record| {
            self.throttle.pause();
            let ReadRecord { offset, key, .. } = *record;
            if counts {
                self.steps += 1;
                self.steps_up += u64::from(*key > *last);
                last.clear();
                last.extend_from_slice(key);
            }
            if pass.leaves(key) {
                pass.leave(index, offset);
                return Ok(!is_sorted);
            }
            if pass.takes(key) {
                self.note(index, file, record)?;
                if self.batch.bytes() >= self.batch_bytes_max {
                    self.narrow(pass);
                }
            }
            Ok(true)
        })?;
        self.core.counters.bytes_read.fetch_add(read, Ordering::Relaxed);
        Ok(())
    }

    /// Drops records known to be dead and, if those are less than half, the upper half of the keys.
    fn narrow(&mut self, pass: &mut Pass) {
        let all = self.batch.seen.len();
        let mut batch = std::mem::take(&mut self.batch);
        self.judge(&mut batch);
        self.batch = batch;
        self.batch.retain(|_, seen| seen.fate != Fate::Dead);
        let batch = &self.batch;
        if batch.seen.len() > all / 2 {
            let first = batch.key(&batch.seen[0]);
            let upper = &batch.seen[batch.seen.len() / 2..];
            let Some(bound) = upper.iter().map(|seen| batch.key(seen)).find(|key| *key != first) else {
                // All records are versions of one key.
                self.batch_bytes_max *= 2;
                return;
            };
            let bound = bound.to_vec();
            for seen in batch.seen.iter().filter(|seen| *batch.key(seen) >= *bound) {
                pass.leave(seen.file, seen.offset);
            }
            self.batch.retain(|key, _| *key < *bound);
            pass.to = Some(bound);
        }
        self.count_memory(self.batch.memory_bytes());
    }

    /// Copies records, given in the order of their new places, to extents already begun.
    pub(crate) fn copy_sorted(&mut self, records: &[Going<'_>]) -> Result<()> {
        let extents: Vec<FileId> = self.extents.iter().map(|extent| extent.id).collect();
        // Records in memory are written in pieces, too, with pauses between them.
        let piece_bytes = self.core.settings.tuning.collected_piece_bytes();
        // For each file and extent: the extent's index among the targets of the file's records.
        let mut own = vec![vec![None; extents.len()]; self.victims.len()];
        let (mut gathered, mut buffer, mut rest) = (Pages::default(), Vec::new(), records);
        while let Some(((first, extent), others)) = rest.split_first() {
            if self.yields_now() {
                return Ok(());
            }
            let (mut bytes, mut staged) = (0, 0);
            let fits = rest.iter().take_while(|(seen, _)| {
                let of_kind = if seen.staged.is_some() { &mut staged } else { &mut bytes };
                *of_kind += u64::from(seen.len);
                bytes <= self.sorted_bytes && staged <= piece_bytes
            });
            let window = &rest[..fits.count().max(usize::from(first.staged.is_some()))];
            let mut arrived = |collection: &mut Self, seen: &SeenRecord, extent: usize, copy: CopiedRecord| {
                let victim = &mut collection.victims[seen.file as usize];
                let index = *own[seen.file as usize][extent].get_or_insert_with(|| {
                    victim.to.push((extents[extent], Moved::default()));
                    victim.to.len() - 1
                });
                victim.note(seen, index, copy, &mut collection.redirects);
                collection.copies.note(copy.address_in(extents[extent]));
            };
            if window.is_empty() {
                let source = self.victims[first.file as usize].file.stored().file_in_order()?;
                let copy = copy_large(&*source, first, *extent, &mut self.outputs, &mut buffer)?;
                arrived(self, first, *extent, copy);
                rest = others;
                continue;
            }
            // Read and written.
            self.throttle.note_waited(self.core.limit_io(2 * staged));
            self.gather(window, &mut gathered, &mut buffer)?;
            let mut at = 0;
            for (seen, extent) in window {
                let bytes = match seen.staged {
                    Some(staged) => self.staged.get(staged, seen.len),
                    None => {
                        at += seen.len as usize;
                        &gathered[at - seen.len as usize..at]
                    }
                };
                let copy = write(&mut self.outputs, &mut self.compressor, *extent, bytes)?;
                self.written += u64::from(copy.len);
                arrived(self, seen, *extent, copy);
            }
            rest = &rest[window.len()..];
        }
        Ok(())
    }

    /// Reads those records that were not kept, file by file and in file order, into their places in the buffer.
    fn gather(&mut self, window: &[Going<'_>], gathered: &mut Pages, buffer: &mut Vec<u8>) -> Result<()> {
        let mut end = 0;
        let mut order: Vec<Going<'_>> = Vec::new();
        for (seen, _) in window.iter().filter(|(seen, _)| seen.staged.is_none()) {
            order.push((seen, end));
            end += seen.len as usize;
        }
        if gathered.len() < end {
            *gathered = Pages::default();
            *gathered = Pages::zeroed(end);
        }
        order.sort_unstable_by_key(place);
        let piece_bytes = self.core.settings.tuning.collected_piece_bytes();
        let mut ahead = Announcements::of(&order, piece_bytes);
        let mut sources = Sources::default();
        for stretch in coalesce(&order, Coalescing { gap_bytes: GAP_BYTES, read_bytes_max: piece_bytes }, place) {
            self.throttle.pause();
            // Read and written.
            self.throttle.note_waited(self.core.limit_io(2 * (stretch.end - stretch.start)));
            while let Some(piece) = ahead.next_before(place(&stretch.pieces[0])) {
                sources.open(&self.victims, piece.file.0 as u32)?.read_ahead(piece.start, piece.end - piece.start);
            }
            let index = stretch.pieces[0].0.file;
            let source = sources.open(&self.victims, index)?;
            sources.close_before(index);
            if let [(seen, at)] = stretch.pieces {
                // A single record may exceed the intended buffer size.
                let bytes = &mut gathered[*at..*at + seen.len as usize];
                read_exact_at(&*source, bytes, seen.offset)?;
                check_seen(&*source, seen, bytes)?;
                continue;
            }
            stretch.read(&*source, buffer)?;
            for going in stretch.pieces {
                let (seen, at) = going;
                let bytes = &buffer[stretch.within(place(going))];
                check_seen(&*source, seen, bytes)?;
                gathered[*at..*at + bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}
