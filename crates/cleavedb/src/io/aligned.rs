//! Memory for direct I/O: a zeroed buffer whose address and length are multiples of
//! [`BLOCK_IO_BYTES`](crate::base::limits::BLOCK_IO_BYTES).
//!
//! Safe code: a plain vector one block longer than requested, used from its first aligned byte on. The vector never
//! grows, so its memory never moves and stays aligned.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::base::limits::BLOCK_IO_BYTES;

/// A buffer that can be written with [`Access::Direct`](super::Access::Direct).
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// At least `bytes` zero bytes, rounded up to whole blocks (one block at least).
    pub fn new(bytes: usize) -> AlignedBuffer {
        let len = bytes.max(1).next_multiple_of(BLOCK_IO_BYTES);
        let memory = vec![0; len + BLOCK_IO_BYTES];
        let address = memory.as_ptr().addr();
        let start = address.next_multiple_of(BLOCK_IO_BYTES) - address;
        AlignedBuffer { memory, start, len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

/// Panics unless a direct write is aligned; an unaligned one is a defect of the engine, not of the disk.
pub(super) fn assert_aligned(bytes: &[u8], offset: u64) {
    assert!(offset.is_multiple_of(BLOCK_IO_BYTES as u64), "direct write at unaligned offset {offset}");
    assert!(bytes.len().is_multiple_of(BLOCK_IO_BYTES), "direct write of unaligned length {}", bytes.len());
    assert!(bytes.as_ptr().addr().is_multiple_of(BLOCK_IO_BYTES), "direct write from unaligned memory");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_length_are_aligned_and_content_is_zero() {
        for bytes in [0, 1, 4095, 4096, 4097, 100_000] {
            let mut buffer = AlignedBuffer::new(bytes);
            assert!(buffer.len() >= bytes && buffer.len() < bytes.max(1) + BLOCK_IO_BYTES);
            assert!(buffer.iter().all(|&byte| byte == 0));
            assert_aligned(&buffer, 0);
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn a_buffer_stays_aligned_when_it_is_moved() {
        let buffers: Vec<AlignedBuffer> = (0..5).map(|_| AlignedBuffer::new(1)).collect();
        let boxed: Vec<Box<AlignedBuffer>> = buffers.into_iter().map(Box::new).collect();
        for buffer in &boxed {
            assert_aligned(buffer, 8192);
        }
    }

    #[test]
    #[should_panic(expected = "unaligned length")]
    fn an_unaligned_length_panics() {
        assert_aligned(&AlignedBuffer::new(1)[..100], 0);
    }

    #[test]
    #[should_panic(expected = "unaligned offset")]
    fn an_unaligned_offset_panics() {
        assert_aligned(&AlignedBuffer::new(1), 512);
    }
}
