//! Values that a compaction folds from deltas and a base. One that reaches the separation threshold of its keyspace goes
//! into a segment of the job, and the table gets its address: otherwise merges would bring values back into the tables.
//!
//! Each subtask that folds such a value writes one segment. Its extents are in key order; they become part of the
//! database with the edit that adds the tables, and after a failure they are removed. Without merges nothing is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::memory::Counted;
use crate::base::versions::{DeltaFigures, Retention, VersionRef, VersionSource};
use crate::base::{
    Address, Cursor, Error, FileId, FileKey, FileKind, KeyspaceId, Kind, Result, Seqno, Stamp, split_key,
};
use crate::engine::core::Core;
use crate::engine::jobs::collection::remove_unreferenced;
use crate::format::group::Group;
use crate::format::interval::{Interval, bound_at, bound_behind};
use crate::format::record::Operation;
use crate::format::values::{Temperature, ValuePlace};
use crate::values::record_compressor::RecordCompressor;
use crate::values::record_notes::RecordNotes;
use crate::values::segment::{ExtentPlace, SegmentBuilder};

/// An extent ends at the border of a cluster once it has this many bytes; a smaller one goes on, as one of all keys.
const EXTENT_BYTES_MIN: u64 = 64 << 10;
/// Bytes of records between two checks of the limit on I/O.
const LIMITED_TOGETHER: u64 = 128 << 10;
/// A record is passed on in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// This many deltas of a key are folded however small they are, because every read of the key applies all of them.
const DELTAS_MAX: usize = 16;

/// True if deltas are worth being folded into a separated base of `base_bytes`. That reads the base, writes as much, and leaves
/// as much garbage; deltas that stay are written again with their table. (Decision record 049.)
pub(crate) fn is_worth_folding(deltas: DeltaFigures, base_bytes: usize) -> bool {
    deltas.bytes >= base_bytes || deltas.count >= DELTAS_MAX
}

/// The extents that a job has written.
#[derive(Default)]
pub(crate) struct FoldedExtents {
    /// The segments.
    pub files: Vec<FileKey>,
    /// Where the extents are.
    pub places: Vec<(FileId, ValuePlace)>,
    records: Vec<RecordNotes>,
}

impl FoldedExtents {
    /// Adds those of a subtask, and notes what lives in them.
    pub fn add(&mut self, core: &Core, other: FoldedExtents) {
        self.files.extend(other.files);
        self.places.extend(other.places);
        other.records.into_iter().for_each(|records| core.current_survey.note_folded(records));
    }
}

/// The versions of a compaction, those that were folded as addresses if they are large enough.
pub(crate) struct FoldedValues<'a, 'w, C> {
    source: Retention<'a, C>,
    writer: &'a mut FoldWriter<'w>,
    /// The version that the source stands on, if its value was written.
    written: Option<(Stamp, Vec<u8>)>,
}

impl<'a, 'w, C: Cursor> FoldedValues<'a, 'w, C> {
    pub fn new(source: Retention<'a, C>, writer: &'a mut FoldWriter<'w>) -> FoldedValues<'a, 'w, C> {
        FoldedValues { source, writer, written: None }
    }
}

impl<C: Cursor> VersionSource for FoldedValues<'_, '_, C> {
    type Error = Error;

    fn advance(&mut self) -> Result<bool> {
        self.written = None;
        if !self.source.advance()? {
            return Ok(false);
        }
        if self.source.was_read_ahead() {
            let (key, stamp, value) = self.source.current();
            if stamp.kind() == Some(Kind::Put) && self.writer.takes(key, value) {
                let address = self.writer.write(key, stamp.seqno(), value)?;
                let mut payload = Vec::with_capacity(Address::ENCODED_BYTES_MAX);
                address.encode(&mut payload);
                self.written = Some((Stamp::new(stamp.seqno(), Kind::PutAt), payload));
            }
        }
        Ok(true)
    }

    fn current(&self) -> VersionRef<'_> {
        let (key, stamp, value) = self.source.current();
        match &self.written {
            Some((stamp, payload)) => (key, *stamp, payload),
            None => (key, stamp, value),
        }
    }
}

/// Writes the values of a subtask. Drops what it has written unless it is [finished](FoldWriter::finish).
pub(crate) struct FoldWriter<'a> {
    core: &'a Core,
    /// The separation threshold of a keyspace.
    separation: Box<dyn FnMut(KeyspaceId) -> usize + 'a>,
    segment: Option<Segment>,
}

/// The segment of a subtask.
struct Segment {
    key: FileKey,
    builder: SegmentBuilder,
    /// Bounds that an extent should not cross, ascending; `None` if extents have no key ranges.
    borders: Option<Vec<Vec<u8>>>,
    compressor: RecordCompressor,
    /// The record written last.
    record: Vec<u8>,
    extents: Vec<FoldedExtent>,
    records: RecordNotes,
    values: u64,
    bytes: u64,
    /// Bytes since the last check of the limit on I/O.
    unlimited: u64,
    counted: Counted,
}

/// An extent, of which the last one is being written.
struct FoldedExtent {
    id: FileId,
    first: Vec<u8>,
    last: Vec<u8>,
    bytes: u64,
    /// How many borders lie at or before its keys.
    borders: usize,
    /// It has crossed one.
    is_loose: bool,
}

impl<'a> FoldWriter<'a> {
    /// A writer for a job.
    pub fn new(core: &'a Core) -> FoldWriter<'a> {
        FoldWriter { core, separation: Box::new(core.keyspaces.separations()), segment: None }
    }

    fn takes(&mut self, key: &[u8], value: &[u8]) -> bool {
        split_key(key).is_some_and(|(keyspace, _)| value.len() >= (self.separation)(keyspace))
    }

    /// Writes the value of a version; returns its address.
    fn write(&mut self, key: &[u8], seqno: Seqno, value: &[u8]) -> Result<Address> {
        let core = self.core;
        let segment = match &mut self.segment {
            Some(segment) => segment,
            none => none.insert(Segment::create(core)?),
        };
        let (address, bytes) = segment.add(core, key, seqno, value)?;
        // The base was read, and this is written.
        segment.unlimited += 2 * bytes;
        if segment.unlimited >= LIMITED_TOGETHER {
            core.limit_io(std::mem::take(&mut segment.unlimited));
        }
        Ok(address)
    }

    /// Syncs the segment and its name; returns what the edit is to name.
    pub fn finish(mut self) -> Result<FoldedExtents> {
        let Some(segment) = self.segment.take() else { return Ok(FoldedExtents::default()) };
        let (core, key) = (self.core, segment.key);
        let finished = segment.finish(core);
        finished.inspect_err(|_| remove_unreferenced(core, &[key]))
    }
}

impl Drop for FoldWriter<'_> {
    fn drop(&mut self) {
        if let Some(Segment { key, builder, .. }) = self.segment.take() {
            drop(builder);
            remove_unreferenced(self.core, &[key]);
        }
    }
}

impl Segment {
    fn create(core: &Core) -> Result<Segment> {
        let tuning = &core.settings.tuning;
        let key = core.new_file(FileKind::Segment, core.dirs.of_new(FileKind::Segment))?;
        let (access, buffer_bytes) = (core.readers.access_in(key.dir), tuning.extent_buffer_bytes());
        let buffers = (buffer_bytes, buffer_bytes);
        let builder = SegmentBuilder::create(&*core.storage, &core.dirs.path(key), key.id, access, buffers);
        let builder = builder.inspect_err(|_| remove_unreferenced(core, &[key]))?;
        Ok(Segment {
            key,
            builder,
            borders: core.placement.borders(&core.published.view().values.figures().candidates),
            compressor: RecordCompressor::new(tuning.value_compression),
            record: Vec::new(),
            extents: Vec::new(),
            records: RecordNotes::at_most(tuning.noted_records_max()),
            values: 0,
            bytes: 0,
            unlimited: 0,
            counted: core.memory.jobs.hold(buffer_bytes),
        })
    }

    /// Adds a record; returns its address, and how many bytes it has.
    fn add(&mut self, core: &Core, key: &[u8], seqno: Seqno, value: &[u8]) -> Result<(Address, u64)> {
        self.begin_extent(core, key)?;
        let (keyspace, user_key) = split_key(key).expect("a version that was folded has a keyspace");
        let operation = Operation { kind: Kind::Put, keyspace, key: user_key, value };
        self.record.clear();
        self.record.extend_from_slice(&operation.header(seqno, operation.crc(seqno)));
        self.record.extend_from_slice(user_key);
        self.record.extend_from_slice(value);
        let stored = self.compressor.compress(&self.record).unwrap_or(&self.record);
        let (index, mut offset) = (self.extents.len() - 1, None);
        for piece in stored.chunks(PIECE_BYTES) {
            let at = self.builder.add(index, piece, piece.len() as u64)?;
            offset.get_or_insert(at);
        }
        let (len, bytes) = (stored.len() as u32, stored.len() as u64);
        let extent = &mut self.extents[index];
        let offset = offset.expect("a record has a header");
        let address = Address { file: extent.id, offset, len, value_len: value.len() as u32 };
        extent.bytes += bytes;
        extent.last.clear();
        extent.last.extend_from_slice(key);
        self.records.note(address);
        self.values += 1;
        self.bytes += bytes;
        let buffers = 2 * self.record.capacity() + self.compressor.bytes() + self.records.bytes();
        self.counted.set(core.settings.tuning.extent_buffer_bytes() + buffers);
        Ok((address, bytes))
    }

    /// Begins the next extent if `key` does not belong into the last one.
    fn begin_extent(&mut self, core: &Core, key: &[u8]) -> Result<()> {
        let from = self.extents.last().map_or(0, |extent| extent.borders);
        let borders = self.borders.as_deref().unwrap_or_default();
        let borders = from + borders[from..].iter().take_while(|border| &border[..] <= key).count();
        if let Some(extent) = self.extents.last_mut() {
            let crosses = borders > extent.borders;
            let bytes_max = if crosses { EXTENT_BYTES_MIN } else { core.settings.tuning.group_bytes };
            // Versions of one key stay together.
            if extent.bytes < bytes_max.max(EXTENT_BYTES_MIN) || extent.last == key {
                extent.is_loose |= crosses;
                extent.borders = borders;
                return Ok(());
            }
            self.builder.end_extent()?;
        }
        let id = core.new_file_id()?;
        self.builder.begin_open_extent(id);
        let (first, last) = (key.to_vec(), key.to_vec());
        self.extents.push(FoldedExtent { id, first, last, bytes: 0, borders, is_loose: self.borders.is_none() });
        Ok(())
    }

    fn finish(self, core: &Core) -> Result<FoldedExtents> {
        let Segment { key, builder, extents, records, values, bytes, .. } = self;
        let found = core.guarded(builder.finish())?;
        core.guarded(core.storage.sync_dir(core.dirs.of(key.dir)))?;
        let place = |(extent, place): (FoldedExtent, ExtentPlace)| {
            let ExtentPlace { segment, start, end } = place;
            let interval = || Interval::new(bound_at(&extent.first), bound_behind(&extent.last).as_deref());
            let range = (!extent.is_loose).then(interval).flatten();
            let group = range.map_or(Group::ALL, |interval| Group::Range(Arc::new(interval)));
            (extent.id, ValuePlace::Extent { segment, start, end, group, temperature: Temperature::Hot })
        };
        let places = extents.into_iter().zip(found).map(place).collect();
        core.counters.folded_values.fetch_add(values, Ordering::Relaxed);
        core.counters.folded_value_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(FoldedExtents { files: vec![key], places, records: vec![records] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_are_folded_once_they_are_as_large_as_the_base_or_many() {
        let cases = [
            ((1, 100), 1000, false),
            ((9, 999), 1000, false),
            ((1, 1000), 1000, true),
            ((15, 15), 1000, false),
            ((16, 16), 1000, true),
            ((1, 1 << 20), 1 << 20, true),
        ];
        for ((count, bytes), base_bytes, wanted) in cases {
            assert_eq!(is_worth_folding(DeltaFigures { count, bytes }, base_bytes), wanted, "{count} of {bytes} B");
        }
    }
}
