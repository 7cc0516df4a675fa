//! The bytes of one simulated file, in pages that copies share until one of them is written, so that an image of a whole
//! disk is cheap. An absent page reads as zeros.
//!
//! Invariant: no page starts at or after the length, and in the last page all bytes after the length are zero.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page: the unit of sharing, and of what the kernel writes back from a mapping.
pub(super) const PAGE: usize = 4096;

type Page = [u8; PAGE];

/// The content of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Arc<Page>>,
    len: u64,
}

/// The numbers of the pages that a range of bytes touches.
pub(super) fn pages_of(offset: u64, len: u64) -> Range<u64> {
    offset / PAGE as u64..(offset + len).div_ceil(PAGE as u64)
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buffer` from `offset`; returns how many bytes there were before the end of the file.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = self.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let (number, within, step) = page_at(offset + done as u64, count - done);
            let target = &mut buffer[done..done + step];
            match self.pages.get(&number) {
                Some(page) => target.copy_from_slice(&page[within..within + step]),
                None => target.fill(0),
            }
            done += step;
        }
        count
    }

    /// Writes the bytes, growing the file if needed.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let (number, within, step) = page_at(offset + done as u64, bytes.len() - done);
            let page = self.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + step].copy_from_slice(&bytes[done..done + step]);
            done += step;
        }
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len() as u64);
        }
    }

    /// Cuts the file, or extends it with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.split_off(&len.div_ceil(PAGE as u64));
            self.zero_after(len);
        }
        self.len = len;
    }

    /// One page; None if it is all zeros.
    pub(super) fn page(&self, number: u64) -> Option<Arc<Page>> {
        self.pages.get(&number).cloned()
    }

    /// Replaces one page, as far as it lies within the length.
    pub(super) fn put_page(&mut self, number: u64, page: Option<Arc<Page>>) {
        if number * PAGE as u64 >= self.len {
            return;
        }
        match page {
            Some(page) => self.pages.insert(number, page),
            None => self.pages.remove(&number),
        };
        self.zero_after(self.len);
    }

    /// All bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Zeros the page that holds `len` from there on.
    fn zero_after(&mut self, len: u64) {
        let within = (len % PAGE as u64) as usize;
        if within > 0
            && let Some(page) = self.pages.get_mut(&(len / PAGE as u64))
            && page[within..].iter().any(|&byte| byte != 0)
        {
            Arc::make_mut(page)[within..].fill(0);
        }
    }
}

/// The page of an offset, the offset within it, and how many of `left` bytes lie in it.
fn page_at(offset: u64, left: usize) -> (u64, usize, usize) {
    let within = (offset % PAGE as u64) as usize;
    (offset / PAGE as u64, within, left.min(PAGE - within))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::random::Random;

    #[test]
    fn content_equals_a_vector_under_random_operations() {
        let mut random = Random::new(1);
        let mut content = Content::default();
        let mut model: Vec<u8> = Vec::new();
        for _ in 0..500 {
            let offset = random.below(20_000) as usize;
            match random.below(4) {
                0 => {
                    content.set_len(offset as u64);
                    model.resize(offset, 0);
                }
                _ => {
                    let bytes: Vec<u8> = (0..random.below(9000)).map(|_| random.draw() as u8).collect();
                    content.write(&bytes, offset as u64);
                    if !bytes.is_empty() && model.len() < offset + bytes.len() {
                        model.resize(offset + bytes.len(), 0);
                    }
                    if !bytes.is_empty() {
                        model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                    }
                }
            }
            assert_eq!(content.len(), model.len() as u64);
            assert!(content.to_vec() == model);
        }
    }

    #[test]
    fn a_copy_keeps_its_bytes_when_the_original_is_written() {
        let mut content = Content::default();
        content.write(&[1; 10_000], 0);
        let copy = content.clone();
        content.write(&[2; 10], 5000);
        content.set_len(6000);
        assert_eq!(copy.to_vec(), vec![1; 10_000]);
    }

    #[test]
    fn a_page_is_cut_at_the_length() {
        let mut content = Content::default();
        content.set_len(100);
        content.put_page(0, Some(Arc::new([7; PAGE])));
        content.put_page(1, Some(Arc::new([7; PAGE])));
        content.set_len(5000);
        let bytes = content.to_vec();
        assert!(bytes[..100] == [7; 100] && bytes[100..].iter().all(|&byte| byte == 0));
    }
}
