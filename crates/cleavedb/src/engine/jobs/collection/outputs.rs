//! The files that a collection makes: a segment on the slow tier, one on the fast tier for values that readers were asking for,
//! and the redirect table. Each is created when there is something to write.

use crate::base::{DirId, FileId, FileKey, FileKind, Result};
use crate::engine::core::Core;
use crate::engine::fast_tier::Occupant;
use crate::format::values::{EXTENT_ALIGN, Temperature};
use crate::values::segment::{EXTENT_HEADER_BYTES, ExtentPlace, SegmentBuilder};

/// The files that a collection makes.
pub(super) struct Outputs<'a> {
    core: &'a Core,
    /// All of them, also those that are complete.
    made: Vec<FileKey>,
    /// At most one in each directory.
    segments: Vec<Segment>,
    /// For each extent, in the order in which they begin: its segment, and its index there.
    extents: Vec<(usize, usize)>,
    /// Bytes on the fast tier that go with this job; `None` if it makes nothing there.
    leaving: Option<u64>,
    /// Bytes that the segment there takes, or may take.
    coming: u64,
}

/// A segment being written.
struct Segment {
    key: FileKey,
    builder: SegmentBuilder,
    extents: usize,
}

impl<'a> Outputs<'a> {
    /// Files of a job that takes `leaving` bytes from the fast tier, and makes nothing there if that is `None`.
    pub(super) fn new(core: &'a Core, leaving: Option<u64>) -> Outputs<'a> {
        Outputs { core, made: Vec::new(), segments: Vec::new(), extents: Vec::new(), leaving, coming: 0 }
    }

    /// The files made so far.
    pub(super) fn made(&self) -> &[FileKey] {
        &self.made
    }

    /// Bytes of records that an extent on the fast tier may have.
    pub(super) fn fast_room(&self) -> u64 {
        self.fast_space(FileKind::Segment).saturating_sub(3 * EXTENT_ALIGN)
    }

    /// Bytes that new files of this kind may take on the fast tier.
    fn fast_space(&self, kind: FileKind) -> u64 {
        self.leaving.map_or(0, |leaving| self.core.room_for_kept(kind, self.coming, leaving))
    }

    /// Takes the space for an extent of `bytes` on the fast tier; false if there is not so much.
    pub(super) fn claim_fast_room(&mut self, bytes: u64) -> Result<bool> {
        let index = self.segments.iter().position(|segment| segment.key.dir == DirId::HOME);
        let space = extent_space(bytes) + if index.is_some() { 0 } else { EXTENT_ALIGN };
        if self.fast_space(FileKind::Segment) < space {
            return Ok(false);
        }
        let id = match index {
            Some(index) => self.segments[index].key.id,
            None => self.core.new_file_id()?,
        };
        if !self.core.fast.claim(Occupant::File(id), self.coming + space) {
            return Ok(false);
        }
        self.coming += space;
        if index.is_none() {
            let key = FileKey { kind: FileKind::Segment, id, dir: DirId::HOME };
            let created = self.create_segment(key);
            created.inspect_err(|_| self.core.fast.release(Occupant::File(id)))?;
        }
        Ok(true)
    }

    /// Begins an extent whose records have `bytes` bytes, or fewer once compressed; returns its index. For
    /// [`Temperature::Read`] there must be [room](Outputs::claim_fast_room).
    pub(super) fn begin_extent(&mut self, temperature: Temperature, id: FileId, bytes: u64) -> Result<usize> {
        let dir = match temperature {
            Temperature::Read => DirId::HOME,
            Temperature::Hot | Temperature::Cold => self.core.dirs.of_new(FileKind::Segment),
        };
        let index = match self.segments.iter().position(|segment| segment.key.dir == dir) {
            Some(index) => index,
            None => {
                let key = self.core.new_file(FileKind::Segment, dir)?;
                self.create_segment(key)?;
                self.segments.len() - 1
            }
        };
        let segment = &mut self.segments[index];
        segment.builder.begin_extent(id, bytes);
        self.extents.push((index, segment.extents));
        segment.extents += 1;
        Ok(self.extents.len() - 1)
    }

    fn create_segment(&mut self, key: FileKey) -> Result<()> {
        let core = self.core;
        let tuning = &core.settings.tuning;
        let buffers = (tuning.extent_buffer_bytes(), tuning.segment_write_bytes());
        self.made.push(key);
        let access = core.readers.access_in(key.dir);
        let builder = SegmentBuilder::create(&*core.storage, &core.dirs.path(key), key.id, access, buffers)?;
        self.segments.push(Segment { key, builder, extents: 0 });
        Ok(())
    }

    /// Appends records of `announced` bytes, or fewer after compression, to an extent; returns their offset.
    pub(super) fn add(&mut self, extent: usize, records: &[u8], announced: u64) -> Result<u64> {
        let (segment, index) = self.extents[extent];
        self.segments[segment].builder.add(index, records, announced)
    }

    /// Length of an extent so far, in bytes.
    pub(super) fn extent_bytes(&self, extent: usize) -> u64 {
        let (segment, index) = self.extents[extent];
        self.segments[segment].builder.extent_bytes(index)
    }

    /// Syncs the segments; returns the location of each extent, and the bytes written. The caller syncs the
    /// [directories](Outputs::sync_directories).
    pub(super) fn finish_segments(&mut self) -> Result<(Vec<ExtentPlace>, u64)> {
        let (mut written, mut places) = (0, Vec::new());
        for Segment { key, builder, .. } in self.segments.drain(..) {
            let of_segment = self.core.guarded(builder.finish())?;
            let space = EXTENT_ALIGN + of_segment.iter().map(ExtentPlace::space).sum::<u64>();
            if key.dir == DirId::HOME && self.core.dirs.are_apart() {
                self.core.fast.note(Occupant::File(key.id), space);
                self.coming = space;
            }
            written += space;
            places.push(of_segment);
        }
        let place = |(segment, index): (usize, usize)| places[segment][index];
        Ok((self.extents.drain(..).map(place).collect(), written))
    }

    /// A new redirect table of `bytes`, on the fast tier if that has room.
    pub(super) fn new_redirect(&mut self, bytes: u64) -> Result<FileKey> {
        let core = self.core;
        let kind = FileKind::Redirect;
        let id = core.new_file_id()?;
        let is_fast = self.fast_space(kind) >= bytes && core.fast.claim(Occupant::File(id), bytes);
        let key = FileKey { kind, id, dir: if is_fast { DirId::HOME } else { core.dirs.of_new(kind) } };
        core.note_made_in(key.dir);
        self.made.push(key);
        Ok(key)
    }

    /// Makes the names of all files durable.
    pub(super) fn sync_directories(&self) -> Result<()> {
        let mut dirs: Vec<DirId> = self.made.iter().map(|file| file.dir).collect();
        dirs.sort_unstable();
        dirs.dedup();
        dirs.into_iter().try_for_each(|dir| self.core.guarded(self.core.storage.sync_dir(self.core.dirs.of(dir))))
    }
}

/// The most that an extent takes whose records have `bytes` bytes.
fn extent_space(bytes: u64) -> u64 {
    (EXTENT_HEADER_BYTES as u64 + bytes).next_multiple_of(EXTENT_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_takes_whole_blocks_with_its_header() {
        let cases = [(1, 4096), (4096 - 28, 4096), (4096 - 27, 8192), (8192, 12288)];
        for (bytes, wanted) in cases {
            assert_eq!(extent_space(bytes), wanted, "{bytes}");
        }
    }
}
