//! Many reads at once: what lies side by side in one read, and the system is told of coming reads before it is asked for the
//! first, so that it has them in flight together ([`File::will_need`], decision records 016 and 024).
//!
//! Nothing here is an error: what could not be read is not handed out, and whoever needs it reads it by itself and meets the
//! error. Called by look-ups of many keys (`levels/batch.rs`) and by whoever fetches values (`db/fetch.rs`).

use std::ops::Range;
use std::sync::Arc;

use super::File;
use crate::base::FileId;

/// One read covers at most this much, unless a single piece is larger.
const READ_BYTES_MAX: u64 = 256 << 10;
/// The system is told of so many reads before the first of them is done.
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

/// The pieces, sorted by place, in groups that one read fetches: in one file, with less than `gap` bytes between them.
pub fn stretches<T>(sorted: &[T], gap: u64, place: impl Fn(&T) -> ReadPlace) -> Vec<Range<usize>> {
    let mut stretches = Vec::new();
    let mut from = 0;
    while let Some(first) = sorted.get(from).map(&place) {
        let mut end = first.end;
        let together = sorted[from + 1..].iter().take_while(|next| {
            let next = place(next);
            let joins = next.file == first.file
                && next.start < end.saturating_add(gap)
                && next.end.saturating_sub(first.start) <= READ_BYTES_MAX;
            end = if joins { end.max(next.end) } else { end };
            joins
        });
        let to = from + 1 + together.count();
        stretches.push(from..to);
        from = to;
    }
    stretches
}

/// The bytes that a read of sorted pieces covers.
pub fn span<T>(stretch: &[T], place: impl Fn(&T) -> ReadPlace) -> (u64, u64) {
    let start = stretch.first().map_or(0, |first| place(first).start);
    (start, stretch.iter().map(|piece| place(piece).end).max().unwrap_or(start))
}

/// A piece of an open file that is wanted, and for whom.
pub struct Wanted<T> {
    /// The file.
    pub file: Arc<dyn File>,
    /// Which piece of it.
    pub place: ReadPlace,
    /// Handed back with the bytes.
    pub whose: T,
}

/// Reads pieces of files, those in one read that have less than `gap` bytes between them, and hands out the bytes of each
/// by themselves, so that keeping one keeps nothing else in memory.
pub fn read_together<T>(mut wanted: Vec<Wanted<T>>, gap: u64, mut see: impl FnMut(&mut T, Vec<u8>)) {
    wanted.sort_unstable_by_key(|wanted| wanted.place);
    let stretches = stretches(&wanted, gap, |wanted| wanted.place);
    let reads: Vec<(Arc<dyn File>, u64, u64)> = stretches
        .iter()
        .map(|stretch| {
            let (start, end) = span(&wanted[stretch.clone()], |wanted| wanted.place);
            (wanted[stretch.start].file.clone(), start, end)
        })
        .collect();
    let many = reads.len() > 1;
    let tell = |(file, start, end): &(Arc<dyn File>, u64, u64)| file.will_need(*start, end - start);
    if many {
        reads.iter().take(READS_IN_FLIGHT).for_each(tell);
    }
    for (index, ((file, start, end), stretch)) in reads.iter().zip(stretches).enumerate() {
        let mut bytes = vec![0; (end - start) as usize];
        let read = if many { file.read_needed(&mut bytes, *start) } else { file.read_polled(&mut bytes, *start) };
        reads.get(index + READS_IN_FLIGHT).filter(|_| many).into_iter().for_each(tell);
        // Whoever needs what could not be read will say so.
        bytes.truncate(read.unwrap_or_default());
        match &mut wanted[stretch] {
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
                stretches(sorted, 16 * kib, |place| *place).iter().map(|found| found.len()).collect();
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
                Wanted { file: file.clone(), place: place(1, start, start + 100), whose: start as usize }
            });
            let mut found = 0;
            read_together(wanted.collect(), 50, |start, part| {
                // One that stands alone is handed out as far as it goes.
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
