//! Coalesced reads: neighbouring ranges of a file are fetched by one read, and reads are prefetched before the first of
//! them is made, so that the device has many in flight ([`File::prefetch`], decision records 016 and 024).
//!
//! No call here fails: ranges that could not be read are left out, and the caller meets the error when it reads such a range
//! by itself. Called by lookups of many keys (`levels/batch.rs`) and by fetches of values (`engine/read/fetch.rs`).

use std::ops::Range;
use std::sync::Arc;

use super::storage::File;
use crate::base::FileId;

/// Size limit of one read, unless a single range is larger.
const READ_BYTES_MAX: u64 = 256 << 10;
/// Number of reads that are prefetched before the first of them is made.
const READS_IN_FLIGHT: usize = 64;

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

/// Groups sorted ranges into reads: ranges of one file with less than `gap` bytes between them share a read.
pub fn coalesce<T>(sorted: &[T], gap: u64, range_of: impl Fn(&T) -> ReadRange) -> Vec<Range<usize>> {
    let mut reads = Vec::new();
    let mut from = 0;
    while let Some(first) = sorted.get(from).map(&range_of) {
        let mut end = first.end;
        let joined = sorted[from + 1..].iter().take_while(|next| {
            let next = range_of(next);
            let joins = next.file == first.file
                && next.start < end.saturating_add(gap)
                && next.end.saturating_sub(first.start) <= READ_BYTES_MAX;
            end = if joins { end.max(next.end) } else { end };
            joins
        });
        let to = from + 1 + joined.count();
        reads.push(from..to);
        from = to;
    }
    reads
}

/// The start and the end of a read of sorted ranges.
pub fn span<T>(ranges: &[T], range_of: impl Fn(&T) -> ReadRange) -> (u64, u64) {
    let start = ranges.first().map_or(0, |first| range_of(first).start);
    (start, ranges.iter().map(|range| range_of(range).end).max().unwrap_or(start))
}

/// A request for a range of an open file.
pub struct ReadRequest<T> {
    /// The file.
    pub file: Arc<dyn File>,
    /// The range.
    pub range: ReadRange,
    /// Passed back with the bytes.
    pub context: T,
}

/// Reads ranges of files; those with less than `gap` bytes between them share a read. Each range is passed to `see` in a
/// vector of its own, so that keeping one keeps no other bytes in memory.
pub fn read_coalesced<T>(mut requests: Vec<ReadRequest<T>>, gap: u64, mut see: impl FnMut(&mut T, Vec<u8>)) {
    requests.sort_unstable_by_key(|request| request.range);
    let groups = coalesce(&requests, gap, |request| request.range);
    let reads: Vec<(Arc<dyn File>, u64, u64)> = groups
        .iter()
        .map(|group| {
            let (start, end) = span(&requests[group.clone()], |request| request.range);
            (requests[group.start].file.clone(), start, end)
        })
        .collect();
    let many = reads.len() > 1;
    let prefetch = |(file, start, end): &(Arc<dyn File>, u64, u64)| file.prefetch(*start, end - start);
    if many {
        reads.iter().take(READS_IN_FLIGHT).for_each(prefetch);
    }
    for (index, ((file, start, end), group)) in reads.iter().zip(groups).enumerate() {
        let mut bytes = vec![0; (end - start) as usize];
        let read = if many { file.read_prefetched(&mut bytes, *start) } else { file.read_polled(&mut bytes, *start) };
        reads.get(index + READS_IN_FLIGHT).filter(|_| many).into_iter().for_each(prefetch);
        // After an error the caller reads the range again and reports it.
        bytes.truncate(read.unwrap_or_default());
        match &mut requests[group] {
            [] => {}
            [single] => see(&mut single.context, bytes),
            several => {
                for request in several {
                    let within = (request.range.start - start) as usize..(request.range.end - start) as usize;
                    if let Some(content) = bytes.get(within) {
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
            let lens: Vec<usize> = coalesce(sorted, 16 * kib, |range| *range).iter().map(|found| found.len()).collect();
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
                ReadRequest { file: file.clone(), range: range(1, start, start + 100), context: start as usize }
            });
            let mut found = 0;
            read_coalesced(requests.collect(), 50, |start, part| {
                // A range that is read alone is passed on up to the end of the file.
                assert!(part == bytes[*start..][..part.len()], "{start}");
                found += usize::from(part.len() == 100);
            });
            found
        };
        let whole = (0..300).filter(|number| number * 7919 % 101_000 + 100 <= 100_000).count();
        assert_eq!(read(), whole);
        disk.set_faults(Faults { fail_read_one_in: Some(2), ..Faults::default() });
        assert!((1..whole).contains(&read()));
    }
}
