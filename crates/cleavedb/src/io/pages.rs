//! Large buffers of jobs, in pages of their own that go back to the system when the buffer is dropped.
//!
//! The allocator of glibc does the same for large blocks at first. Once it has freed one, it takes all blocks up to that
//! size (32 MiB at most) from the heap instead. The heap then has gaps as large as the buffers of a job, in which small
//! blocks settle, and resident memory grows with time (decision record 032).

use std::ops::{Deref, DerefMut};

/// Shorter buffers come from the heap: they leave small gaps, and a buffer for one read should not cost page faults.
const OWN_PAGES_FROM: usize = 2 << 20;

/// A buffer of fixed length, at first zeros. Memory that is never touched is not resident if the buffer has its own pages.
#[derive(Default)]
pub struct Pages(Memory);

enum Memory {
    Heap(Vec<u8>),
    #[cfg(not(any(miri, feature = "portable")))]
    Own(memmap2::MmapMut),
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Heap(Vec::new())
    }
}

impl Pages {
    /// `bytes` zeros.
    pub fn zeroed(bytes: usize) -> Pages {
        match bytes {
            OWN_PAGES_FROM.. => Pages(own_pages(bytes).unwrap_or_else(|| Memory::Heap(vec![0; bytes]))),
            _ => Pages(Memory::Heap(vec![0; bytes])),
        }
    }
}

/// `None` if the system refuses.
#[cfg(not(any(miri, feature = "portable")))]
fn own_pages(bytes: usize) -> Option<Memory> {
    let pages = memmap2::MmapMut::map_anon(bytes).ok()?;
    // A fault for each 2 MiB in place of one for each 4 KiB. Systems without such pages refuse, which changes nothing else.
    #[cfg(target_os = "linux")]
    let _ = pages.advise(memmap2::Advice::HugePage);
    Some(Memory::Own(pages))
}

#[cfg(any(miri, feature = "portable"))]
fn own_pages(_bytes: usize) -> Option<Memory> {
    None
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Heap(bytes) => bytes,
            #[cfg(not(any(miri, feature = "portable")))]
            Memory::Own(pages) => pages,
        }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Heap(bytes) => bytes,
            #[cfg(not(any(miri, feature = "portable")))]
            Memory::Own(pages) => pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_all_sizes_hold_zeros_and_then_what_is_written() {
        for bytes in [0, 1, OWN_PAGES_FROM - 1, OWN_PAGES_FROM, OWN_PAGES_FROM + 4097] {
            let mut pages = Pages::zeroed(bytes);
            assert!(pages.len() == bytes && pages.iter().all(|&byte| byte == 0));
            pages.fill(7);
            assert!(pages.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    #[cfg(not(any(miri, feature = "portable")))]
    fn only_large_buffers_have_pages_of_their_own() {
        let is_own = |bytes| matches!(Pages::zeroed(bytes).0, Memory::Own(_));
        assert_eq!([is_own(0), is_own(OWN_PAGES_FROM - 1), is_own(OWN_PAGES_FROM)], [false, false, true]);
    }
}
