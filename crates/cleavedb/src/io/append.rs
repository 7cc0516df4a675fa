//! Appending to a part of a file in large writes, through the page cache or past it. Direct writes are of whole blocks, so
//! the bytes of an incomplete block wait for the next ones, and the last block is padded with zeros.

use super::aligned::AlignedBuffer;
use super::storage::{Access, File};
use crate::base::Result;
use crate::base::limits::BLOCK_IO_BYTES;

/// Memory from which direct writes are made; several appenders may share it.
pub struct WriteBuffer(Option<AlignedBuffer>);

impl WriteBuffer {
    /// For writes of up to `bytes` to files that were created with this access.
    pub fn new(access: Access, bytes: usize) -> WriteBuffer {
        WriteBuffer((access == Access::Direct).then(|| AlignedBuffer::new(bytes)))
    }

    /// Writes bytes that begin at a block, padded with zeros if the writes are direct.
    pub fn write(&mut self, file: &dyn File, bytes: &[u8], mut offset: u64) -> Result<()> {
        let Some(aligned) = &mut self.0 else { return file.write_at(bytes, offset) };
        for part in bytes.chunks(aligned.len()) {
            let padded = part.len().next_multiple_of(BLOCK_IO_BYTES);
            aligned[..part.len()].copy_from_slice(part);
            aligned[part.len()..padded].fill(0);
            file.write_at(&aligned[..padded], offset)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn is_direct(&self) -> bool {
        self.0.is_some()
    }
}

/// Appends from an offset on, which is a multiple of [`BLOCK_IO_BYTES`].
pub struct Appender {
    /// Bytes to be written. Callers may add to them, and change those that are left.
    pub pending: Vec<u8>,
    offset: u64,
}

impl Appender {
    /// Begins at `offset`.
    pub fn new(offset: u64) -> Appender {
        Appender { pending: Vec::new(), offset }
    }

    /// Offset of the first pending byte.
    pub fn written_to(&self) -> u64 {
        self.offset
    }

    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.pending.len() as u64
    }

    /// Writes the pending bytes, as far as they fill blocks if the writes are direct, and lets the system begin to write
    /// them to storage.
    pub fn write(&mut self, file: &dyn File, buffer: &mut WriteBuffer) -> Result<()> {
        let len = self.pending.len();
        let ready = if buffer.is_direct() { len / BLOCK_IO_BYTES * BLOCK_IO_BYTES } else { len };
        buffer.write(file, &self.pending[..ready], self.offset)?;
        file.write_back(self.offset, ready as u64);
        self.offset += ready as u64;
        self.pending.drain(..ready);
        Ok(())
    }

    /// Writes all pending bytes. Padding may follow them.
    pub fn finish(&mut self, file: &dyn File, buffer: &mut WriteBuffer) -> Result<()> {
        buffer.write(file, &self.pending, self.offset)?;
        self.offset = self.end();
        self.pending = Vec::new();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::io::{SimDisk, Storage, read_whole};

    #[test]
    fn appended_bytes_are_in_the_file_in_order_and_followed_by_zeros_only() {
        for access in [Access::Buffered, Access::Direct] {
            let (disk, path) = (SimDisk::new(), Path::new("/f"));
            let file = disk.create(path, access).unwrap();
            let mut buffer = WriteBuffer::new(access, 8192);
            let (mut appender, mut wanted) = (Appender::new(4096), vec![0; 4096]);
            for step in 0..40_u8 {
                let bytes = vec![step + 1; 100 + 997 * usize::from(step % 7)];
                appender.pending.extend_from_slice(&bytes);
                wanted.extend_from_slice(&bytes);
                if step % 3 == 0 {
                    appender.write(&*file, &mut buffer).unwrap();
                }
                assert_eq!(appender.end(), wanted.len() as u64);
            }
            appender.finish(&*file, &mut buffer).unwrap();
            assert_eq!(appender.end(), wanted.len() as u64);
            let found = read_whole(&disk, path).unwrap();
            assert_eq!(found[..wanted.len()], wanted);
            assert!(found[wanted.len()..].iter().all(|byte| *byte == 0) && found.len() < wanted.len() + BLOCK_IO_BYTES);
        }
    }
}
