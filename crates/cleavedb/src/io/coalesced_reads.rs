//! Coalesced reads: ranges of a file that lie close to each other are fetched by one read, with the bytes between them.
//! [`coalesce`] decides which ranges share a read. Called by flush and value GC, which make one read after the other, and,
//! through [`read_coalesced`], by lookups of many keys and fetches of many values, which read what is cached and prefetch
//! the rest, so that the device has many reads in flight ([`File::read_or_prefetch`], decision records 016 and 024).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::storage::{File, read_exact_at};
use crate::base::{FileId, Result};

/// [`read_coalesced`] prefetches at most this many reads before it makes the first of them. A cached read is none of them.
const READS_IN_FLIGHT: usize = 64;
/// A longer read is not tried before it is prefetched, and holds no memory while it is in flight.
const TRIED_BYTES_MAX: u64 = 64 << 10;

/// A range of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadRange {
    /// The file.
    pub file: FileId,
    /// Offset of its first byte.
    pub start: u64,
    /// Offset behind its last byte.
    pub end: u64,
}

/// The limits within which ranges share a read.
#[derive(Debug, Clone, Copy)]
pub struct Coalescing {
    /// Ranges of one file share a read if fewer bytes than this lie between them,
    pub gap_bytes: u64,
    /// and if the read covers at most this many bytes. A larger range is read alone.
    pub read_bytes_max: u64,
}

/// One read and the neighbouring pieces that it fetches.
pub struct CoalescedRead<'a, T> {
    /// The pieces, sorted by range; at least one.
    pub pieces: &'a [T],
    /// Offset of the first byte of the read.
    pub start: u64,
    /// Where it ends, in bytes.
    pub end: u64,
}

impl<T> CoalescedRead<'_, T> {
    /// Length of the read in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Replaces the content of `buffer` by the bytes of the read.
    ///
    /// # Errors
    /// As [`read_exact_at`].
    pub fn read(&self, file: &dyn File, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.resize(self.bytes() as usize, 0);
        read_exact_at(file, buffer, self.start)
    }

    /// The position of a range in the buffer.
    pub fn within(&self, range: ReadRange) -> Range<usize> {
        (range.start - self.start) as usize..(range.end - self.start) as usize
    }
}

/// Groups pieces, sorted by range, into reads.
pub fn coalesce<T>(
    sorted: &[T],
    coalescing: Coalescing,
    range_of: impl Fn(&T) -> ReadRange,
) -> impl Iterator<Item = CoalescedRead<'_, T>> {
    let Coalescing { gap_bytes, read_bytes_max } = coalescing;
    let mut rest = sorted;
    std::iter::from_fn(move || {
        let first = range_of(rest.first()?);
        let mut end = first.end;
        let neighbours = rest[1..].iter().take_while(|next| {
            let next = range_of(next);
            let joins = next.file == first.file
                && next.start < end.saturating_add(gap_bytes)
                && next.end.saturating_sub(first.start) <= read_bytes_max;
            end = if joins { end.max(next.end) } else { end };
            joins
        });
        let count = 1 + neighbours.count();
        let (pieces, others) = rest.split_at(count);
        rest = others;
        Some(CoalescedRead { pieces, start: first.start, end })
    })
}

/// A request for a range of a file.
pub struct ReadRequest<T> {
    /// The range.
    pub range: ReadRange,
    /// Identifies the request to the caller.
    pub context: T,
}

/// Reads ranges of files with many reads in flight, and passes the bytes of each to `see` in a vector of their own, so that
/// keeping one keeps no other bytes in memory. `open` opens the file of a request.
///
/// Never fails: a range that cannot be read is left out, or cut short if it is alone in its read. The caller then reads it
/// again by itself and reports the error.
pub fn read_coalesced<T>(
    mut requests: Vec<ReadRequest<T>>,
    coalescing: Coalescing,
    open: impl Fn(&T) -> Option<Arc<dyn File>>,
    mut see: impl FnMut(&mut T, Vec<u8>),
) {
    requests.sort_unstable_by_key(|request| request.range);
    let mut rest = &mut requests[..];
    let mut reads = Vec::new();
    while !rest.is_empty() {
        let next = coalesce(rest, coalescing, |request| request.range).next();
        let Some((start, end, count)) = next.map(|read| (read.start, read.end, read.pieces.len())) else { break };
        let (pieces, others) = rest.split_at_mut(count);
        reads.push((pieces, start, end));
        rest = others;
    }
    let is_single = reads.len() == 1;
    let mut waiting = VecDeque::new();
    for (pieces, start, end) in reads {
        // No more files are open than reads are in flight.
        let Some(file) = open(&pieces[0].context) else { continue };
        let read = OpenRead { pieces, start, end, file };
        if is_single {
            read.make(&mut see, |file, buffer, offset| file.read_polled(buffer, offset));
            continue;
        }
        waiting.extend(read.make_if_cached(&mut see));
        if waiting.len() == READS_IN_FLIGHT {
            waiting.pop_front().into_iter().for_each(|read| read.make_prefetched(&mut see));
        }
    }
    waiting.into_iter().for_each(|read| read.make_prefetched(&mut see));
}

/// One read of [`read_coalesced`].
struct OpenRead<'a, T> {
    pieces: &'a mut [ReadRequest<T>],
    start: u64,
    end: u64,
    file: Arc<dyn File>,
}

impl<T> OpenRead<'_, T> {
    /// Makes the read if that takes no wait; otherwise prefetches it, and returns it.
    fn make_if_cached(self, see: &mut impl FnMut(&mut T, Vec<u8>)) -> Option<Self> {
        let len = self.end - self.start;
        if len > TRIED_BYTES_MAX {
            self.file.prefetch(self.start, len);
            return Some(self);
        }
        let mut bytes = vec![0; len as usize];
        if !self.file.read_or_prefetch(&mut bytes, self.start) {
            return Some(self);
        }
        self.pass_on(bytes, see);
        None
    }

    fn make_prefetched(self, see: &mut impl FnMut(&mut T, Vec<u8>)) {
        self.make(see, |file, buffer, offset| file.read_prefetched(buffer, offset));
    }

    fn make(self, see: &mut impl FnMut(&mut T, Vec<u8>), read: impl Fn(&dyn File, &mut [u8], u64) -> Result<usize>) {
        let mut bytes = vec![0; (self.end - self.start) as usize];
        let count = read(&*self.file, &mut bytes, self.start);
        bytes.truncate(count.unwrap_or_default());
        self.pass_on(bytes, see);
    }

    /// Passes on what was read.
    fn pass_on(self, bytes: Vec<u8>, see: &mut impl FnMut(&mut T, Vec<u8>)) {
        match self.pieces {
            [] => {}
            [single] => see(&mut single.context, bytes),
            several => {
                for request in several {
                    let within = request.range.start - self.start..request.range.end - self.start;
                    if let Some(content) = bytes.get(within.start as usize..within.end as usize) {
                        see(&mut request.context, content.to_vec());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Access, Faults, SimDisk, Storage};
    use std::path::Path;

    const COALESCING: Coalescing = Coalescing { gap_bytes: 16 << 10, read_bytes_max: 256 << 10 };

    fn range(file: u64, start: u64, end: u64) -> ReadRange {
        ReadRange { file: FileId(file), start, end }
    }

    #[test]
    fn neighbouring_ranges_of_one_file_share_a_read_of_bounded_size() {
        let kib = 1 << 10;
        let cases: [(&[ReadRange], &[usize]); 6] = [
            (&[], &[]),
            (&[range(1, 0, 10), range(1, 10, 20), range(1, 10, 20), range(2, 20, 30)], &[3, 1]),
            (&[range(1, 0, kib), range(1, 17 * kib - 1, 18 * kib), range(1, 34 * kib, 35 * kib)], &[2, 1]),
            // A large range is read alone, and the ranges behind it are still read.
            (&[range(1, 0, kib), range(1, kib, 900 * kib), range(1, 900 * kib, 901 * kib)], &[1, 1, 1]),
            // A range within another one does not end the read early.
            (&[range(1, 0, 100 * kib), range(1, kib, 2 * kib), range(1, 101 * kib, 102 * kib)], &[3]),
            (&[range(1, 0, 200 * kib), range(1, 200 * kib, 256 * kib), range(1, 256 * kib, 257 * kib)], &[2, 1]),
        ];
        for (sorted, expected) in cases {
            let lens: Vec<usize> = coalesce(sorted, COALESCING, |range| *range).map(|read| read.pieces.len()).collect();
            assert_eq!(lens, expected, "{sorted:?}");
        }
    }

    #[test]
    fn every_range_gets_its_own_bytes_and_failed_reads_are_left_out() {
        let disk = SimDisk::new();
        let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number / 7) as u8).collect();
        disk.write_file(Path::new("/f"), &bytes);
        let file = disk.open_read(Path::new("/f"), Access::Buffered).unwrap();
        let read = || {
            let requests = (0..300_u64).map(|number| {
                // In no order; some far apart, some near; the last ones lie beyond the end of the file.
                let start = number * 7919 % 101_000;
                ReadRequest { range: range(1, start, start + 100), context: start as usize }
            });
            let mut found = 0;
            let coalescing = Coalescing { gap_bytes: 50, ..COALESCING };
            read_coalesced(
                requests.collect(),
                coalescing,
                |_| Some(file.clone()),
                |start, part| {
                    // A range that is read alone is passed on up to the end of the file.
                    assert!(part == bytes[*start..][..part.len()], "{start}");
                    found += usize::from(part.len() == 100);
                },
            );
            found
        };
        let whole = (0..300).filter(|number| number * 7919 % 101_000 + 100 <= 100_000).count();
        assert_eq!(read(), whole);
        disk.set_faults(Faults { fail_read_one_in: Some(2), ..Faults::default() });
        assert!((1..whole).contains(&read()));
    }
}
