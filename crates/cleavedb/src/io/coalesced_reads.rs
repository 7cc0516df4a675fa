//! Reads that coalesce neighbours: pieces of a file that lie close to each other are fetched by one read, with what lies
//! between them. [`stretches`] decides which pieces share a read, for everyone who reads many pieces: flush and value GC,
//! which read one stretch after the other, and look-ups of many keys and fetches of many values, which want all reads in
//! flight together ([`read_together`]; [`File::will_need`], decision records 016 and 024).

use std::ops::Range;
use std::sync::Arc;

use super::{File, read_exact_at};
use crate::base::{FileId, Result};

/// [`read_together`] announces at most this many reads to the system before the first of them is done.
const READS_IN_FLIGHT: usize = 64;

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadPlace {
    /// Which file.
    pub file: FileId,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Where it ends, in bytes.
    pub end: u64,
}

/// Which pieces share a read.
#[derive(Debug, Clone, Copy)]
pub struct Coalescing {
    /// Those of one file with less than this between them.
    pub gap_bytes: u64,
    /// As far as one read covers no more than this; a larger piece is read alone.
    pub read_bytes_max: u64,
}

/// Neighbouring pieces that one read fetches.
pub struct Stretch<'a, T> {
    /// The pieces, sorted by place. At least one.
    pub pieces: &'a [T],
    /// Where the read begins, in bytes.
    pub start: u64,
    /// Where it ends, in bytes.
    pub end: u64,
}

impl<T> Stretch<'_, T> {
    /// Bytes of the read.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Reads the stretch into `buffer`, in place of what is there.
    ///
    /// # Errors
    /// As [`read_exact_at`].
    pub fn read(&self, file: &dyn File, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.resize(self.bytes() as usize, 0);
        read_exact_at(file, buffer, self.start)
    }

    /// Where the bytes of one of the pieces are in the buffer.
    pub fn within(&self, piece: ReadPlace) -> Range<usize> {
        (piece.start - self.start) as usize..(piece.end - self.start) as usize
    }
}

/// The pieces, sorted by place, as stretches.
pub fn stretches<T>(
    sorted: &[T],
    coalescing: Coalescing,
    place: impl Fn(&T) -> ReadPlace,
) -> impl Iterator<Item = Stretch<'_, T>> {
    let Coalescing { gap_bytes, read_bytes_max } = coalescing;
    let mut rest = sorted;
    std::iter::from_fn(move || {
        let first = place(rest.first()?);
        let mut end = first.end;
        let neighbours = rest[1..].iter().take_while(|next| {
            let next = place(next);
            let joins = next.file == first.file
                && next.start < end.saturating_add(gap_bytes)
                && next.end.saturating_sub(first.start) <= read_bytes_max;
            end = if joins { end.max(next.end) } else { end };
            joins
        });
        let count = 1 + neighbours.count();
        let (pieces, others) = rest.split_at(count);
        rest = others;
        Some(Stretch { pieces, start: first.start, end })
    })
}

/// A piece of a file that is wanted, and for whom.
pub struct Wanted<T> {
    /// Which piece.
    pub place: ReadPlace,
    /// Handed back with the bytes.
    pub whose: T,
}

/// Reads pieces of files with all reads in flight together, and passes each piece's bytes to `see` in a vector of their own,
/// so that keeping one keeps nothing else in memory. `open` opens the file of a piece.
///
/// Nothing here is an error: a piece that cannot be read is left out, or cut short if it is alone in its read. The caller
/// reads it by itself then, and reports the error.
pub fn read_together<T>(
    mut wanted: Vec<Wanted<T>>,
    coalescing: Coalescing,
    open: impl Fn(&T) -> Option<Arc<dyn File>>,
    mut see: impl FnMut(&mut T, Vec<u8>),
) {
    wanted.sort_unstable_by_key(|wanted| wanted.place);
    let mut from = 0;
    let reads: Vec<(Range<usize>, u64, u64)> = stretches(&wanted, coalescing, |wanted| wanted.place)
        .map(|stretch| {
            let pieces = from..from + stretch.pieces.len();
            from = pieces.end;
            (pieces, stretch.start, stretch.end)
        })
        .collect();
    let many = reads.len() > 1;
    let announce = |wanted: &[Wanted<T>], (pieces, start, end): &(Range<usize>, u64, u64)| {
        if let Some(file) = open(&wanted[pieces.start].whose) {
            file.will_need(*start, end - start);
        }
    };
    if many {
        reads.iter().take(READS_IN_FLIGHT).for_each(|read| announce(&wanted, read));
    }
    for (index, (pieces, start, end)) in reads.iter().enumerate() {
        let Some(file) = open(&wanted[pieces.start].whose) else { continue };
        let mut bytes = vec![0; (end - start) as usize];
        let read = if many { file.read_needed(&mut bytes, *start) } else { file.read_polled(&mut bytes, *start) };
        if let Some(next) = reads.get(index + READS_IN_FLIGHT) {
            announce(&wanted, next);
        }
        bytes.truncate(read.unwrap_or_default());
        match &mut wanted[pieces.clone()] {
            [] => {}
            [single] => see(&mut single.whose, bytes),
            pieces => {
                for piece in pieces {
                    let within = (piece.place.start - start) as usize..(piece.place.end - start) as usize;
                    if let Some(part) = bytes.get(within) {
                        see(&mut piece.whose, part.to_vec());
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

    fn place(file: u64, start: u64, end: u64) -> ReadPlace {
        ReadPlace { file: FileId(file), start, end }
    }

    #[test]
    fn neighbours_of_one_file_share_a_read_of_bounded_size() {
        let kib = 1 << 10;
        let cases: [(&[ReadPlace], &[usize]); 6] = [
            (&[], &[]),
            (&[place(1, 0, 10), place(1, 10, 20), place(1, 10, 20), place(2, 20, 30)], &[3, 1]),
            (&[place(1, 0, kib), place(1, 17 * kib - 1, 18 * kib), place(1, 34 * kib, 35 * kib)], &[2, 1]),
            // A large piece stands alone, and hides nothing behind it.
            (&[place(1, 0, kib), place(1, kib, 900 * kib), place(1, 900 * kib, 901 * kib)], &[1, 1, 1]),
            // One that lies within another does not end the read early.
            (&[place(1, 0, 100 * kib), place(1, kib, 2 * kib), place(1, 101 * kib, 102 * kib)], &[3]),
            (&[place(1, 0, 200 * kib), place(1, 200 * kib, 256 * kib), place(1, 256 * kib, 257 * kib)], &[2, 1]),
        ];
        for (sorted, expected) in cases {
            let lens: Vec<usize> =
                stretches(sorted, COALESCING, |place| *place).map(|stretch| stretch.pieces.len()).collect();
            assert_eq!(lens, expected, "{sorted:?}");
        }
    }

    #[test]
    fn every_piece_gets_its_own_bytes_and_what_cannot_be_read_gets_none() {
        let disk = SimDisk::new();
        let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number / 7) as u8).collect();
        disk.write_file(Path::new("/f"), &bytes);
        let file = disk.open_read(Path::new("/f"), Access::Buffered).unwrap();
        let read = || {
            let wanted = (0..300_u64).map(|number| {
                // In no order; far apart and near; the last ones lie beyond the end.
                let start = number * 7919 % 101_000;
                Wanted { place: place(1, start, start + 100), whose: start as usize }
            });
            let mut found = 0;
            let coalescing = Coalescing { gap_bytes: 50, ..COALESCING };
            read_together(
                wanted.collect(),
                coalescing,
                |_| Some(file.clone()),
                |start, part| {
                    // One that stands alone is handed out as far as it goes.
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
