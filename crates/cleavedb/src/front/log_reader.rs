//! Reads a log from its start: from the file, then those frames that are only in the ring. Reading stops at the first
//! offset without a valid frame; the reader can then search for evidence that frames behind it had been synced (rule 3).
//!
//! Called by recovery and by the log check.

use crate::base::{Error, FileId, Result, Seqno};
use crate::format::checksum::agrees;
use crate::format::frame::{
    BodyChecksum, FrameHeader, FrameKind, HEADER_BYTES, LOG_HEADER_BYTES, LOG_VERSION, LogHeader, decode_log_header,
};
use crate::format::record::Record;
use crate::io::File;

const WINDOW_BYTES: usize = 1 << 20;
/// Bytes announced ahead of a read.
const AHEAD_BYTES: u64 = 2 * WINDOW_BYTES as u64;
const BLOCK: u64 = crate::base::limits::BLOCK_IO_BYTES as u64;

/// A frame whose checksums match.
pub struct Frame<'a> {
    /// Its header.
    pub header: FrameHeader,
    /// Offset of the frame.
    pub offset: u64,
    /// The records, back to back; all of them are intact.
    pub body: &'a [u8],
    /// The frame, or a part of it, is not in the file yet.
    pub from_ring: bool,
}

/// Reads frames in order.
pub struct LogReader<'a> {
    file: &'a dyn File,
    id: FileId,
    ring: Option<&'a [u8]>,
    len: u64,
    offset: u64,
    window: Vec<u8>,
    window_offset: u64,
    frame: Vec<u8>,
}

/// The result of opening a log.
pub enum Opened<'a> {
    /// A log.
    Log(LogReader<'a>),
    /// The header is all zeros.
    Blank,
}

impl<'a> LogReader<'a> {
    /// The file number in the header of a log.
    pub fn own_id(file: &dyn File) -> Result<FileId> {
        let mut block = vec![0; LOG_HEADER_BYTES];
        let read = file.read_at(&mut block, 0)?;
        match decode_log_header(&block[..read]) {
            LogHeader::Log(id) => Ok(id),
            LogHeader::OtherVersion(version) => Err(other_version(file, version)),
            LogHeader::Invalid => Err(Error::corruption(file.path(), 0, "log header is damaged")),
        }
    }

    /// Checks the header of the log; the reader is positioned before the first frame.
    pub fn open(file: &'a dyn File, id: FileId, ring: Option<&'a [u8]>) -> Result<Opened<'a>> {
        let mut block = vec![0; LOG_HEADER_BYTES];
        let read = file.read_at(&mut block, 0)?;
        match decode_log_header(&block[..read]) {
            LogHeader::Log(found) if found == id => {}
            LogHeader::Log(found) => {
                let message = format!("the header is that of log {}, not of log {}", found.0, id.0);
                return Err(Error::corruption(file.path(), 0, message));
            }
            LogHeader::OtherVersion(version) => return Err(other_version(file, version)),
            LogHeader::Invalid if block.iter().all(|&byte| byte == 0) => return Ok(Opened::Blank),
            LogHeader::Invalid => return Err(Error::corruption(file.path(), 0, "log header is damaged")),
        }
        Ok(Opened::Log(LogReader {
            len: file.len()?,
            file,
            id,
            ring,
            offset: LOG_HEADER_BYTES as u64,
            window: Vec::new(),
            window_offset: 0,
            frame: Vec::new(),
        }))
    }

    /// Offset of the next frame.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next frame; `None` if there is no valid frame at [`offset`](LogReader::offset).
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>> {
        let offset = self.offset;
        let found = match self.read_from_file(offset)? {
            Some(header) => Some((header, false)),
            None => self.read_from_ring(offset).map(|header| (header, true)),
        };
        let Some((header, from_ring)) = found else {
            return Ok(None);
        };
        self.offset += header.frame_bytes();
        Ok(Some(Frame { header, offset, body: &self.frame, from_ring }))
    }

    /// Encodes the current frame, whose header is `header`, as the file should contain it.
    pub fn frame_bytes(&self, frame_offset: u64, header: &FrameHeader) -> Vec<u8> {
        let mut bytes = header.encode(self.id, frame_offset).to_vec();
        bytes.extend_from_slice(&self.frame);
        bytes
    }

    /// Searches behind the offset where reading stopped for a frame whose sync point is `seqno` or later.
    /// The first frame after a sync starts at a block border, so a search from every border finds all such frames.
    /// O(size of the file).
    pub fn find_sync_mark(&mut self, seqno: Seqno) -> Result<Option<u64>> {
        let mut border = self.offset.next_multiple_of(BLOCK);
        while border + HEADER_BYTES as u64 <= self.len {
            let mut offset = border;
            while let Some(header) = self.header_at(offset)? {
                if header.sync_point >= seqno {
                    return Ok(Some(offset));
                }
                offset += header.frame_bytes();
            }
            border = (offset + 1).next_multiple_of(BLOCK);
        }
        Ok(None)
    }

    /// Why there is no valid frame where reading stopped: the offset and a description of the damage.
    pub fn explain(&mut self) -> Result<(u64, String)> {
        let (offset, len) = (self.offset, self.len);
        let Some(header) = self.header_at(offset)? else {
            let cut = offset + HEADER_BYTES as u64 > len;
            let why = if cut { format!("the file ends at {len}") } else { "there is no frame here".to_owned() };
            return Ok((offset, why));
        };
        let end = offset + header.frame_bytes();
        if end > len {
            return Ok((offset, format!("the frame ends at {end}, but the file ends at {len}")));
        }
        let mut body = vec![0; header.body_len as usize];
        let body_offset = offset + HEADER_BYTES as u64;
        self.file.read_at(&mut body, body_offset)?;
        let mut rest = &body[..];
        for index in 0..header.count as u64 {
            let at = body_offset + (body.len() - rest.len()) as u64;
            match Record::take(&mut rest) {
                Ok(record) if record.seqno.0 == header.first_seqno.0 + index => {}
                Ok(record) => {
                    return Ok((
                        at,
                        format!("the record has sequence number {}, which is out of order", record.seqno.0),
                    ));
                }
                Err(why) => return Ok((at, why.to_owned())),
            }
        }
        Ok((offset, "the records do not match the body checksum of the frame".to_owned()))
    }

    /// Continues behind damage, at the first frame that starts at a block border below `end`; false if there is none.
    pub fn skip_damage(&mut self, end: u64) -> Result<bool> {
        let mut border = (self.offset + 1).next_multiple_of(BLOCK);
        while border < end.min(self.len) {
            if self.header_at(border)?.is_some() {
                self.offset = border;
                return Ok(true);
            }
            border += BLOCK;
        }
        Ok(false)
    }

    fn header_at(&mut self, offset: u64) -> Result<Option<FrameHeader>> {
        let id = self.id;
        Ok(self.read(offset, HEADER_BYTES)?.and_then(|bytes| FrameHeader::decode(bytes, id, offset)))
    }

    fn read_from_file(&mut self, offset: u64) -> Result<Option<FrameHeader>> {
        let Some(header) = self.header_at(offset)? else {
            return Ok(None);
        };
        if offset + header.frame_bytes() > self.len {
            return Ok(None);
        }
        let mut body = std::mem::take(&mut self.frame);
        body.resize(header.body_len as usize, 0);
        let whole = if body.len() <= WINDOW_BYTES {
            match self.read(offset + HEADER_BYTES as u64, body.len())? {
                Some(bytes) => {
                    body.copy_from_slice(bytes);
                    true
                }
                None => false,
            }
        } else {
            self.file.read_at(&mut body, offset + HEADER_BYTES as u64)? == body.len()
        };
        self.frame = body;
        Ok((whole && body_is_valid(&header, &self.frame)).then_some(header))
    }

    fn read_from_ring(&mut self, offset: u64) -> Option<FrameHeader> {
        let ring = self.ring?;
        let mut bytes = [0; HEADER_BYTES];
        copy_from_ring(ring, offset, &mut bytes)?;
        let header = FrameHeader::decode(&bytes, self.id, offset)?;
        if header.frame_bytes() > ring.len() as u64 || offset + header.frame_bytes() > self.len {
            return None;
        }
        self.frame.resize(header.body_len as usize, 0);
        copy_from_ring(ring, offset + HEADER_BYTES as u64, &mut self.frame)?;
        body_is_valid(&header, &self.frame).then_some(header)
    }

    /// Returns `len` bytes at `offset` from the window; `None` beyond the end of the file.
    fn read(&mut self, offset: u64, len: usize) -> Result<Option<&[u8]>> {
        let window_end = self.window_offset + self.window.len() as u64;
        if offset < self.window_offset || offset + len as u64 > window_end {
            // What is there of it stays.
            let passed = offset.checked_sub(self.window_offset).map_or(usize::MAX, |passed| passed as usize);
            self.window.drain(..passed.min(self.window.len()));
            let kept = self.window.len();
            let rest = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
            self.window.resize(rest.min(WINDOW_BYTES + HEADER_BYTES).max(kept), 0);
            let read = self.file.read_at(&mut self.window[kept..], offset + kept as u64)?;
            self.window.truncate(kept + read);
            self.window_offset = offset;
            let end = offset + self.window.len() as u64;
            self.file.read_ahead(end, AHEAD_BYTES.min(self.len.saturating_sub(end)));
        }
        let start = (offset - self.window_offset) as usize;
        Ok(self.window.get(start..start + len))
    }
}

fn other_version(file: &dyn File, version: u32) -> Error {
    let message = format!("log format version {version} is not the supported version {LOG_VERSION}");
    Error::Unsupported { path: file.path().to_owned(), message }
}

/// Copies from the content of the ring, where the byte at log offset `o` is at `o` modulo the size of the ring.
fn copy_from_ring(ring: &[u8], offset: u64, buffer: &mut [u8]) -> Option<()> {
    let start = (offset % (ring.len() as u64).max(1)) as usize;
    let first = buffer.len().min(ring.len() - start);
    let (head, tail) = buffer.split_at_mut(first);
    head.copy_from_slice(&ring[start..start + first]);
    tail.copy_from_slice(ring.get(..tail.len())?);
    Some(())
}

/// True if all records of a body are intact, have consecutive sequence numbers, and match the body checksum.
fn body_is_valid(header: &FrameHeader, mut body: &[u8]) -> bool {
    if header.kind == FrameKind::Padding {
        return header.count == 0;
    }
    let mut sum = BodyChecksum::default();
    for index in 0..header.count as u64 {
        match Record::take(&mut body) {
            Ok(record) if record.seqno.0 == header.first_seqno.0 + index => sum.add(record.crc),
            _ => return false,
        }
    }
    body.is_empty() && header.count > 0 && agrees(header.body_crc, sum.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::frame::encode_log_header;
    use crate::io::{Access, SimDisk, Storage};
    use std::path::Path;

    #[test]
    fn a_log_of_another_version_is_unsupported_and_not_corrupt() {
        let (disk, path) = (SimDisk::new(), Path::new("/00000003.log"));
        let mut header = encode_log_header(FileId(3)).to_vec();
        header[8..12].copy_from_slice(&(LOG_VERSION + 1).to_le_bytes());
        let crc = crc32c::crc32c(&header[..20]);
        header[20..24].copy_from_slice(&crc.to_le_bytes());
        disk.write_file(path, &header);
        let file = disk.open_read(path, Access::Buffered).unwrap();
        assert!(matches!(LogReader::own_id(&*file), Err(Error::Unsupported { .. })));
        assert!(matches!(LogReader::open(&*file, FileId(3), None), Err(Error::Unsupported { .. })));
    }
}
