//! A piece of memory that goes back to its owner when it is dropped.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Where cells come from, and go to.
pub trait CellHome: Send + Sync {
    /// The cell that begins there is free.
    fn give_back(&self, start: NonNull<u8>);
}

/// Bytes in memory that is given back when this is dropped.
pub struct Cell {
    start: NonNull<u8>,
    len: u32,
    size: u32,
    home: Arc<dyn CellHome>,
}

impl Cell {
    /// The first `len` bytes of a cell of `size` bytes.
    ///
    /// # Safety
    /// These bytes must have been written. Until the cell is given back, `home` must keep the memory, and nothing may write there.
    pub unsafe fn new(start: NonNull<u8>, len: u32, size: u32, home: Arc<dyn CellHome>) -> Cell {
        Cell { start, len, size, home }
    }

    /// The size of the cell, which may be more than the number of bytes.
    pub fn held_bytes(&self) -> usize {
        self.size as usize
    }
}

// SAFETY: nothing writes to the bytes while the cell lives.
unsafe impl Send for Cell {}
// SAFETY: as for `Send`: the bytes are only read.
unsafe impl Sync for Cell {}

impl Deref for Cell {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the caller of `new` has written this many bytes, and `home` keeps the memory until the cell is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.home.give_back(self.start);
    }
}
