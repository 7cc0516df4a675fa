//! Memory of the caches, apart from the heap: pieces of similar size lie side by side in cells, in slabs of pages that go
//! back to the system when they are empty. Each piece has its count of references before it ([`Cell`]).
//!
//! What a cache keeps lives long and ends in no order. On the heap, which has a part for each thread, the gaps that it leaves
//! are filled only by the thread that took the memory, and one small piece keeps a page resident (decision record 061).
//! Here any thread fills the gaps, the slab with the lowest address first, so that others become empty. After a cache has
//! shrunk, [`Cells::packing`] tells which pieces to move for that, and [`Cells::release_empty`] gives the slabs back.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::base::Gauge;
use crate::base::cell::{Cell, CellHome};

/// Bounds of the size of a slab: a cache has about this many, so that slabs of many classes with few cells take little of it.
const SLAB_BYTES: (usize, usize) = (32 << 10, 64 << 10);
const SLABS_TYPICAL: usize = 2048;
/// A slab has at least this many cells, so that its rest is small. Larger pieces come from the heap: the gaps that they leave have
/// whole pages, which go back to the system.
const CELLS_MIN: usize = 4;
/// Cells of each class are at most this much of their size larger than those of the class before, or by 16 bytes.
const CLASS_PART: usize = 16;
const CLASS_STEP_MIN: usize = 16;
const _: () = assert!(CLASS_STEP_MIN.is_multiple_of(Cell::ALIGNMENT) && SLAB_BYTES.0.is_multiple_of(Cell::ALIGNMENT));
/// Packing is worth its copies if it empties one of this many slabs, and at least as many slabs.
const WASTE_PART: usize = 8;

/// Memory of one cache. Cloned handles share it.
#[derive(Clone)]
pub struct Cells(Arc<Shared>);

struct Shared {
    area: Area,
    slab_bytes: usize,
    /// The sizes of cells, by class.
    sizes: Vec<usize>,
    slabs: Mutex<Slabs>,
    is_packing: AtomicBool,
    /// Bytes of the cells in use.
    gauge: Arc<Gauge>,
}

/// Address space for all slabs; none if the system refuses.
struct Area {
    start: NonNull<u8>,
    len: usize,
    #[cfg(not(any(miri, feature = "portable")))]
    _pages: Option<memmap2::MmapMut>,
}

// SAFETY: the pointer is to memory that the area owns until it is dropped. Each cell in it has one owner at a time.
unsafe impl Send for Area {}
// SAFETY: as for `Send`.
unsafe impl Sync for Area {}

impl Area {
    #[cfg(not(any(miri, feature = "portable")))]
    fn new(bytes: usize) -> Area {
        let mut pages = memmap2::MmapOptions::new().len(bytes).no_reserve_swap().map_anon().ok();
        // The system would put a large page where slabs were released.
        #[cfg(target_os = "linux")]
        let _ = pages.as_ref().map(|pages| pages.advise(memmap2::Advice::NoHugePage));
        let (start, len) = match &mut pages {
            Some(pages) => (NonNull::from(&mut pages[..]).cast(), bytes),
            None => (NonNull::dangling(), 0),
        };
        Area { start, len, _pages: pages }
    }

    #[cfg(any(miri, feature = "portable"))]
    fn new(_bytes: usize) -> Area {
        Area { start: NonNull::dangling(), len: 0 }
    }

    /// Gives pages back to the system; they read as zeros, or as they were, until they are written again.
    #[cfg(not(any(miri, feature = "portable")))]
    fn release(&self, offset: usize, len: usize) {
        let Some(pages) = &self._pages else { return };
        // SAFETY: no cell in the range has an owner, so nobody reads what was there.
        let _ = unsafe { pages.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, len) };
    }

    #[cfg(any(miri, feature = "portable"))]
    fn release(&self, _offset: usize, _len: usize) {}
}

/// Which cells are taken.
struct Slabs {
    /// Those used so far, by their place in the area.
    slabs: Vec<Slab>,
    /// Of these, the ones without cells in use: those whose pages the system has, and the others.
    released: BTreeSet<u32>,
    empty: BTreeSet<u32>,
    classes: Vec<Class>,
    /// Slabs that the last packing could not empty.
    excess_left: usize,
}

#[derive(Default)]
struct Slab {
    class: usize,
    taken: usize,
    /// A bit for each cell.
    bits: Vec<u64>,
}

#[derive(Default)]
struct Class {
    slabs: BTreeSet<u32>,
    with_room: BTreeSet<u32>,
    taken: usize,
}

impl Slab {
    /// Takes the first free cell.
    fn take(&mut self) -> usize {
        let word = self.bits.iter().position(|bits| *bits != u64::MAX).expect("the slab has room");
        let bit = self.bits[word].trailing_ones() as usize;
        self.bits[word] |= 1 << bit;
        self.taken += 1;
        word * 64 + bit
    }

    fn give_back(&mut self, cell: usize) {
        let bit = 1 << (cell % 64);
        assert!(self.bits[cell / 64] & bit != 0, "a cell is given back once");
        self.bits[cell / 64] &= !bit;
        self.taken -= 1;
    }
}

impl Cells {
    /// Cells for a cache of at most `capacity_bytes`; they count as [`Cell::held_bytes`], and are counted in `gauge`.
    pub fn new(capacity_bytes: usize, gauge: Arc<Gauge>) -> Cells {
        let (least, most) = SLAB_BYTES;
        // Whole pages.
        let slab_bytes = (capacity_bytes / SLABS_TYPICAL).next_power_of_two().clamp(least, most).max(page_bytes());
        let mut sizes = vec![64];
        while let Some(last) = sizes.last().filter(|last| **last < slab_bytes / CELLS_MIN) {
            let step = (1 << last.ilog2()) / CLASS_PART;
            sizes.push(last + step.max(CLASS_STEP_MIN));
        }
        // The rest of a slab goes to its cells.
        let widened = |size: usize| slab_bytes / (slab_bytes / size) / Cell::ALIGNMENT * Cell::ALIGNMENT;
        let sizes: Vec<usize> = sizes.into_iter().map(widened).collect();
        let classes = sizes.iter().map(|_| Class::default()).collect();
        // Addresses are not memory: a cache is larger while others lend it theirs, and slabs are not full.
        let bytes = capacity_bytes.saturating_mul(2).saturating_add(sizes.len() * slab_bytes);
        let area = Area::new(bytes / slab_bytes * slab_bytes);
        let (slabs, released, empty) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        let slabs = Mutex::new(Slabs { slabs, released, empty, classes, excess_left: 0 });
        Cells(Arc::new(Shared { area, slab_bytes, sizes, slabs, is_packing: AtomicBool::new(false), gauge }))
    }

    /// A cell with a copy of the `parts`, one after the other; `None` if they are too large, or no slab is left.
    pub fn copy_of(&self, parts: &[&[u8]]) -> Option<Cell> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let class = self.0.sizes.partition_point(|size| *size < Cell::HEADER_BYTES + len);
        let offset = self.0.take(class)?;
        let size = self.0.sizes[class];
        self.0.gauge.add(size);
        // SAFETY: the cell is within the area, which lives as long as its home, and nobody else has it. Slabs begin at pages, and
        // sizes are multiples of the alignment.
        Some(unsafe { Cell::fill(self.0.area.start.add(offset), size, parts, self.0.clone()) })
    }

    /// Bytes of slabs that the system has not got back.
    #[cfg(test)]
    pub fn resident_bytes(&self) -> usize {
        let slabs = self.0.slabs.lock();
        (slabs.slabs.len() - slabs.released.len()) * self.0.slab_bytes
    }

    /// Gives empty slabs back to the system. Makes a system call for each stretch of them.
    pub fn release_empty(&self) {
        let empty = std::mem::take(&mut self.0.slabs.lock().empty);
        // Nobody takes them meanwhile.
        let mut rest = empty.iter().copied().peekable();
        while let Some(first) = rest.next() {
            let mut end = first + 1;
            while rest.next_if_eq(&end).is_some() {
                end += 1;
            }
            let slab_bytes = self.0.slab_bytes;
            self.0.area.release(first as usize * slab_bytes, (end - first) as usize * slab_bytes);
        }
        self.0.slabs.lock().released.extend(empty);
    }

    /// What to move so that slabs become empty; `None` if that would not be many, or another thread does so.
    pub fn packing(&self) -> Option<Packing> {
        let mut slabs = self.0.slabs.lock();
        let by_class = self.0.excess(&slabs);
        let excess: usize = by_class.iter().sum();
        // Pieces that users hold are not moved: no second try before there are many others.
        slabs.excess_left = slabs.excess_left.min(excess);
        let used = slabs.slabs.len() - slabs.released.len() - slabs.empty.len();
        if excess - slabs.excess_left < WASTE_PART.max(used / WASTE_PART)
            || self.0.is_packing.swap(true, Ordering::AcqRel)
        {
            return None;
        }
        let mut moving = vec![false; slabs.slabs.len()];
        for (class, excess) in slabs.classes.iter().zip(by_class) {
            class.slabs.iter().rev().take(excess).for_each(|slab| moving[*slab as usize] = true);
        }
        Some(Packing { of: self.0.clone(), moving })
    }
}

/// The unit in which the system takes memory back.
fn page_bytes() -> usize {
    #[cfg(not(any(miri, feature = "portable")))]
    return rustix::param::page_size();
    #[cfg(any(miri, feature = "portable"))]
    4096
}

/// Pieces to be copied to cells of their own once more, after which the old ones are dropped.
pub struct Packing {
    of: Arc<Shared>,
    /// By slab.
    moving: Vec<bool>,
}

impl Packing {
    /// True if the piece with these bytes should be moved.
    pub fn moves(&self, bytes: &[u8]) -> bool {
        let offset = (bytes.as_ptr() as usize).wrapping_sub(self.of.area.start.as_ptr() as usize);
        offset < self.of.area.len && self.moving.get(offset / self.of.slab_bytes) == Some(&true)
    }
}

impl Drop for Packing {
    fn drop(&mut self) {
        let mut slabs = self.of.slabs.lock();
        slabs.excess_left = self.of.excess(&slabs).iter().sum();
        self.of.is_packing.store(false, Ordering::Release);
    }
}

impl Shared {
    fn per_slab(&self, class: usize) -> usize {
        self.slab_bytes / self.sizes[class]
    }

    /// By class: how many slabs more than needed are in use.
    fn excess(&self, slabs: &Slabs) -> Vec<usize> {
        let needed = |(class, of): (usize, &Class)| of.slabs.len() - of.taken.div_ceil(self.per_slab(class));
        slabs.classes.iter().enumerate().map(needed).collect()
    }

    /// The offset of a free cell.
    fn take(&self, class: usize) -> Option<usize> {
        let size = *self.sizes.get(class)?;
        let per_slab = self.per_slab(class);
        let Slabs { slabs, released, empty, classes, .. } = &mut *self.slabs.lock();
        let class_of = &mut classes[class];
        let index = match class_of.with_room.first() {
            Some(index) => *index,
            None => {
                let index = match empty.pop_first().or_else(|| released.pop_first()) {
                    Some(index) => index,
                    None if (slabs.len() + 1) * self.slab_bytes <= self.area.len => {
                        slabs.push(Slab::default());
                        slabs.len() as u32 - 1
                    }
                    None => return None,
                };
                slabs[index as usize] = Slab { class, taken: 0, bits: vec![0; per_slab.div_ceil(64)] };
                class_of.slabs.insert(index);
                class_of.with_room.insert(index);
                index
            }
        };
        let slab = &mut slabs[index as usize];
        let cell = slab.take();
        class_of.taken += 1;
        if slab.taken == per_slab {
            class_of.with_room.remove(&index);
        }
        Some(index as usize * self.slab_bytes + cell * size)
    }
}

impl CellHome for Shared {
    fn give_back(&self, start: NonNull<u8>, size: usize) {
        self.gauge.subtract(size);
        let offset = start.as_ptr() as usize - self.area.start.as_ptr() as usize;
        let Slabs { slabs, empty, classes, .. } = &mut *self.slabs.lock();
        let index = offset / self.slab_bytes;
        let slab = &mut slabs[index];
        let (per_slab, class) = (self.per_slab(slab.class), &mut classes[slab.class]);
        slab.give_back(offset % self.slab_bytes / self.sizes[slab.class]);
        class.taken -= 1;
        let index = index as u32;
        if slab.taken + 1 == per_slab {
            class.with_room.insert(index);
        }
        if slab.taken == 0 {
            class.with_room.remove(&index);
            class.slabs.remove(&index);
            slab.bits = Vec::new();
            empty.insert(index);
        }
    }
}

#[cfg(all(test, not(any(miri, feature = "portable"))))]
mod tests {
    use super::*;

    /// Bytes that tell pieces apart.
    fn piece(number: usize, len: usize) -> Vec<u8> {
        (0..len).map(|at| (number * 31 + at) as u8).collect()
    }

    #[test]
    fn pieces_of_all_sizes_keep_their_bytes_and_larger_ones_are_refused() {
        let cells = Cells::new(128 << 20, Arc::default());
        let most = (16 << 10) - Cell::HEADER_BYTES;
        let kept: Vec<(Vec<u8>, Cell)> = (0..=most)
            .step_by(37)
            .map(|len| {
                let bytes = piece(len, len);
                let (head, tail) = bytes.split_at(len / 3);
                let cell = cells.copy_of(&[head, &[], tail]).unwrap();
                (bytes, cell)
            })
            .collect();
        for (bytes, cell) in &kept {
            assert_eq!(cell[..], bytes[..]);
            let len = Cell::HEADER_BYTES + bytes.len();
            assert!(cell.held_bytes() >= len && cell.held_bytes() <= (len + len / 3 + 16).max(64));
        }
        assert!(cells.copy_of(&[&piece(0, most), b"x"]).is_none());
        assert!(cells.resident_bytes() > 0);
        drop(kept);
        cells.release_empty();
        assert_eq!(cells.resident_bytes(), 0);
    }

    #[test]
    fn gaps_are_filled_before_another_slab_is_taken_and_there_is_an_end() {
        let cells = Cells::new(1 << 20, Arc::default());
        let mut kept: Vec<Cell> = (0..).map_while(|number| cells.copy_of(&[&piece(number, 1000)])).collect();
        assert!(kept.len() > 1000 && cells.copy_of(&[&[7; 1000]]).is_none());
        let resident = cells.resident_bytes();
        for round in 0..10 {
            let mut number = 0;
            kept.retain(|_| {
                number += 1;
                number % 3 != round % 3
            });
            kept.extend((0..).map_while(|number| cells.copy_of(&[&piece(number, 1010)])));
            assert_eq!(cells.resident_bytes(), resident);
        }
    }

    #[test]
    fn packing_empties_slabs_with_few_pieces() {
        let cells = Cells::new(4 << 20, Arc::default());
        let mut kept: Vec<(usize, Cell)> =
            (0..4000).map(|number| (number, cells.copy_of(&[&piece(number, 1000)]).unwrap())).collect();
        assert!(cells.packing().is_none(), "all slabs are full");
        let before = cells.resident_bytes();
        kept.retain(|(number, _)| number * 7919 % 10 < 3);
        cells.release_empty();
        assert!(cells.resident_bytes() > before / 10 * 9);
        let packing = cells.packing().unwrap();
        assert!(cells.packing().is_none(), "one at a time");
        for (number, cell) in &mut kept {
            if packing.moves(cell) {
                *cell = cells.copy_of(&[cell]).unwrap();
                assert!(!packing.moves(cell), "a moved piece is in a slab that stays");
            }
            assert_eq!(cell[..], piece(*number, 1000));
        }
        assert!(!packing.moves(b"elsewhere"));
        drop(packing);
        cells.release_empty();
        assert!(cells.resident_bytes() < before / 10 * 4);
        assert!(cells.packing().is_none());
    }

    #[test]
    fn pieces_that_cannot_be_moved_are_not_tried_again() {
        let cells = Cells::new(4 << 20, Arc::default());
        let mut kept: Vec<Cell> = (0..4000).map(|number| cells.copy_of(&[&piece(number, 1000)]).unwrap()).collect();
        let mut number = 0;
        kept.retain(|_| {
            number += 1;
            number % 8 == 0
        });
        drop(cells.packing().unwrap());
        assert!(cells.packing().is_none());
        // A try is worth it again once there are many others.
        let mut others: Vec<Cell> = (0..4000).map(|number| cells.copy_of(&[&piece(number, 600)]).unwrap()).collect();
        assert!(cells.packing().is_none(), "the slabs of the others are full");
        others.retain(|_| {
            number += 1;
            number % 8 == 0
        });
        let packing = cells.packing().unwrap();
        assert!(others.iter().any(|cell| packing.moves(cell)));
    }

    #[test]
    fn threads_take_and_give_back_cells_at_once() {
        let cells = Cells::new(1 << 20, Arc::default());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cells = &cells;
                scope.spawn(move || {
                    let mut kept = std::collections::VecDeque::new();
                    for number in 0..20_000 {
                        let bytes = piece(number + thread, 64 + number * 7 % 900);
                        kept.push_back((cells.copy_of(&[&bytes]).unwrap(), bytes));
                        if kept.len() > 100 {
                            let (cell, bytes) = kept.pop_front().unwrap();
                            assert_eq!(cell[..], bytes[..]);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_cell_outlives_its_cells() {
        let cells = Cells::new(1 << 20, Arc::default());
        let cell = cells.copy_of(&[b"kept"]).unwrap();
        drop(cells);
        assert_eq!(&cell[..], b"kept");
    }
}
