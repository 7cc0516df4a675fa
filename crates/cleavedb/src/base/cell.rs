//! A piece of memory with reference-counted bytes, which goes back to its owner with the last reference. The count lies before
//! the bytes, so a reference leads to both at once.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Where cells come from, and go to.
pub trait CellHome: Send + Sync {
    /// The cell of `size` bytes that begins there is free.
    fn give_back(&self, start: NonNull<u8>, size: usize);
}

/// What lies at the beginning of a cell.
struct Header {
    /// The number of references.
    users: AtomicUsize,
    /// Number of the bytes after the header.
    len: u32,
    size: u32,
    home: Arc<dyn CellHome>,
}

/// A reference to the bytes of a cell.
pub struct Cell(NonNull<Header>);

impl Cell {
    /// What a cell takes beside its bytes.
    pub const HEADER_BYTES: usize = size_of::<Header>();
    /// Cells begin at a multiple of this.
    pub const ALIGNMENT: usize = align_of::<Header>();

    /// Fills a cell of `size` bytes with `parts`, one after the other.
    ///
    /// # Panics
    /// If the parts do not fit.
    ///
    /// # Safety
    /// `start` is a multiple of [`ALIGNMENT`](Cell::ALIGNMENT). `home` keeps the memory, and nobody else uses it, until the cell is
    /// given back. No part lies in it.
    pub unsafe fn fill(start: NonNull<u8>, size: usize, parts: &[&[u8]], home: Arc<dyn CellHome>) -> Cell {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        assert!(Cell::HEADER_BYTES + len <= size && u32::try_from(size).is_ok(), "the parts fit into the cell");
        let cell = Cell(start.cast());
        // SAFETY: the caller gives this memory, which is large enough, aligned, and nobody else's.
        unsafe {
            cell.0.write(Header { users: AtomicUsize::new(1), len: len as u32, size: size as u32, home });
            let mut end = cell.bytes();
            for part in parts {
                end.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                end = end.add(part.len());
            }
        }
        cell
    }

    /// True if both refer to the same cell.
    pub fn is(&self, other: &Cell) -> bool {
        self.0 == other.0
    }

    /// The size of the cell.
    pub fn held_bytes(&self) -> usize {
        self.header().size as usize
    }

    /// The bytes `start..start + len`; does not look whether the cell has as many.
    ///
    /// # Safety
    /// They are within the bytes of the cell.
    #[inline]
    pub unsafe fn part(&self, start: u32, len: u32) -> &[u8] {
        // SAFETY: `fill` has written them, by the caller's word, and nothing writes there while there is a reference.
        unsafe { std::slice::from_raw_parts(self.bytes().add(start as usize).as_ptr(), len as usize) }
    }

    fn header(&self) -> &Header {
        // SAFETY: `fill` has written it, and it stays until the last reference is dropped.
        unsafe { self.0.as_ref() }
    }

    fn bytes(&self) -> NonNull<u8> {
        // SAFETY: the header is followed by the bytes, in the same memory.
        unsafe { self.0.add(1).cast() }
    }
}

// SAFETY: the bytes are only read while there is a reference, and the count is atomic.
unsafe impl Send for Cell {}
// SAFETY: as for `Send`.
unsafe impl Sync for Cell {}

impl Clone for Cell {
    #[inline]
    fn clone(&self) -> Cell {
        // As in an `Arc`: a new reference comes from one that exists. Memory has no room for references that overflow the count, and
        // to forget that number of them would take centuries.
        self.header().users.fetch_add(1, Ordering::Relaxed);
        Cell(self.0)
    }
}

impl Deref for Cell {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: all of its bytes.
        unsafe { self.part(0, self.header().len) }
    }
}

impl Drop for Cell {
    #[inline]
    fn drop(&mut self) {
        // What others did with their references happens before the memory is used anew.
        if self.header().users.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.give_back();
        }
    }
}

impl Cell {
    /// Ends the cell. Called once, by the last reference.
    #[cold]
    fn give_back(&mut self) {
        // SAFETY: nobody else has a reference, and this one is being dropped, so nobody looks at the header again.
        let header = unsafe { self.0.read() };
        header.home.give_back(self.0.cast(), header.size as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives each cell memory of its own.
    #[derive(Default)]
    struct Boxes(AtomicUsize);

    fn boxed(home: &Arc<Boxes>, parts: &[&[u8]]) -> Cell {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let words = vec![0u64; (Cell::HEADER_BYTES + len).div_ceil(8) + 1].into_boxed_slice();
        let size = words.len() * 8;
        home.0.fetch_add(size, Ordering::Relaxed);
        let start = NonNull::from(Box::leak(words)).cast();
        // SAFETY: the memory was leaked, so it stays until `give_back`.
        unsafe { Cell::fill(start, size, parts, home.clone()) }
    }

    impl CellHome for Boxes {
        fn give_back(&self, start: NonNull<u8>, size: usize) {
            self.0.fetch_sub(size, Ordering::Relaxed);
            let words = std::ptr::slice_from_raw_parts_mut(start.cast::<u64>().as_ptr(), size / 8);
            // SAFETY: `boxed` has leaked it.
            drop(unsafe { Box::from_raw(words) });
        }
    }

    #[test]
    fn the_last_reference_gives_a_cell_back() {
        let home = Arc::new(Boxes::default());
        let cell = boxed(&home, &[b"key", b"", b"value"]);
        assert_eq!((&cell[..], cell.held_bytes()), (&b"keyvalue"[..], home.0.load(Ordering::Relaxed)));
        // SAFETY: there are as many.
        assert_eq!(unsafe { cell.part(3, 5) }, b"value");
        let others: Vec<Cell> = (0..4).map(|_| cell.clone()).collect();
        drop(cell);
        for other in others {
            assert_eq!(&other.clone()[..], b"keyvalue");
        }
        assert_eq!((home.0.load(Ordering::Relaxed), Arc::strong_count(&home)), (0, 1));
    }

    #[test]
    #[should_panic(expected = "the parts fit")]
    fn parts_that_do_not_fit_are_refused() {
        let mut memory = [0u64; 5];
        // SAFETY: nothing is written.
        let _ = unsafe { Cell::fill(NonNull::from(&mut memory).cast(), 40, &[&[1; 9]], Arc::<Boxes>::default()) };
    }
}
