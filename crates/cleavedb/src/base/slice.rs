//! Reference-counted bytes. Reads return a [`Slice`]: it points into the block, run or buffer that contains the value
//! and keeps it alive, so a value is not copied on its way to the caller.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::cell::Cell;
use super::memory::Gauge;

/// Immutable bytes that all clones share: on the heap, or in a cell.
#[derive(Clone)]
pub struct Bytes(Owner);

#[derive(Clone)]
enum Owner {
    Heap(Arc<Buffer>),
    Cell(Cell),
}

/// Bytes that may be counted in a [`Gauge`] until they are dropped.
struct Buffer {
    bytes: Vec<u8>,
    gauge: Option<Arc<Gauge>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(gauge) = &self.gauge {
            gauge.subtract(self.bytes.capacity());
        }
    }
}

impl Bytes {
    /// Bytes that are not counted.
    pub fn new(bytes: Vec<u8>) -> Bytes {
        Bytes(Owner::Heap(Arc::new(Buffer { bytes, gauge: None })))
    }

    /// Bytes counted in `gauge` until they are dropped.
    pub fn counted(bytes: Vec<u8>, gauge: Arc<Gauge>) -> Bytes {
        gauge.add(bytes.capacity());
        Bytes(Owner::Heap(Arc::new(Buffer { bytes, gauge: Some(gauge) })))
    }

    /// The memory that the bytes take.
    pub fn held_bytes(&self) -> usize {
        match &self.0 {
            Owner::Heap(buffer) => buffer.bytes.capacity(),
            Owner::Cell(cell) => cell.held_bytes(),
        }
    }
}

impl From<Cell> for Bytes {
    fn from(cell: Cell) -> Bytes {
        Bytes(Owner::Cell(cell))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Owner::Heap(buffer) => &buffer.bytes,
            Owner::Cell(cell) => cell,
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Longest slice that is stored inline.
const SHORT_BYTES_MAX: usize = 22;
const _: () = assert!(size_of::<Slice>() == 24);

/// A cheap-to-clone view of immutable bytes: dereferences to `[u8]`.
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    /// Short bytes, in particular addresses, are stored inline.
    Short {
        len: u8,
        bytes: [u8; SHORT_BYTES_MAX],
    },
    Copied(Arc<[u8]>),
    Heap {
        owner: Arc<Buffer>,
        start: u32,
        len: u32,
    },
    /// Invariant: the cell has these bytes.
    Cell {
        owner: Cell,
        start: u32,
        len: u32,
    },
}

impl Slice {
    /// Copies `bytes` into a slice of its own.
    pub fn copy_from(bytes: &[u8]) -> Slice {
        if bytes.len() > SHORT_BYTES_MAX {
            return Slice(Repr::Copied(bytes.into()));
        }
        let mut short = [0; SHORT_BYTES_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Slice(Repr::Short { len: bytes.len() as u8, bytes: short })
    }

    /// The bytes `start..start + len` of `owner`, which the slice keeps alive. Does not copy.
    pub fn shared(owner: Bytes, start: usize, len: usize) -> Slice {
        assert!(start.checked_add(len).is_some_and(|end| end <= owner.len()), "a slice lies within its owner");
        match (u32::try_from(start), u32::try_from(len), owner.0) {
            (Ok(start), Ok(len), Owner::Heap(owner)) => Slice(Repr::Heap { owner, start, len }),
            (Ok(start), Ok(len), Owner::Cell(owner)) => Slice(Repr::Cell { owner, start, len }),
            (_, _, owner) => Slice::copy_from(&Bytes(owner)[start..start + len]),
        }
    }

    /// A slice that owns `bytes`.
    pub fn owned(bytes: Vec<u8>) -> Slice {
        let len = bytes.len();
        Slice::shared(Bytes::new(bytes), 0, len)
    }

    /// The memory that the slice keeps alive, in bytes, which may be more than its length.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.0 {
            Repr::Short { .. } => 0,
            Repr::Copied(bytes) => bytes.len(),
            Repr::Heap { owner, .. } => owner.bytes.capacity(),
            Repr::Cell { owner, .. } => owner.held_bytes(),
        }
    }

    /// The memory that the slice keeps alive and `other` does not.
    pub(crate) fn held_bytes_beside(&self, other: &Slice) -> usize {
        match (&self.0, &other.0) {
            (Repr::Heap { owner, .. }, Repr::Heap { owner: same, .. }) if Arc::ptr_eq(owner, same) => 0,
            (Repr::Cell { owner, .. }, Repr::Cell { owner: same, .. }) if owner.is(same) => 0,
            _ => self.held_bytes(),
        }
    }

    /// A part of this slice; copied only if the slice does not share a buffer.
    ///
    /// # Panics
    /// If `range` is not within the slice.
    pub fn subslice(&self, range: std::ops::Range<usize>) -> Slice {
        match &self.0 {
            Repr::Short { .. } | Repr::Copied(_) => Slice::copy_from(&self[range]),
            Repr::Heap { owner, start, len } => {
                let (start, len) = part_of(*start, *len, range);
                Slice(Repr::Heap { owner: owner.clone(), start, len })
            }
            Repr::Cell { owner, start, len } => {
                let (start, len) = part_of(*start, *len, range);
                Slice(Repr::Cell { owner: owner.clone(), start, len })
            }
        }
    }
}

/// Where a range of a slice begins in its owner, and its length.
fn part_of(start: u32, len: u32, range: std::ops::Range<usize>) -> (u32, u32) {
    assert!(range.start <= range.end && range.end <= len as usize, "a subslice lies within its slice");
    (start + range.start as u32, range.len() as u32)
}

impl Default for Slice {
    /// The empty slice.
    fn default() -> Slice {
        Slice::copy_from(&[])
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { len, bytes } => &bytes[..*len as usize],
            Repr::Copied(bytes) => bytes,
            Repr::Heap { owner, start, len } => &owner.bytes[*start as usize..(*start + *len) as usize],
            // SAFETY: the invariant of the slice.
            Repr::Cell { owner, start, len } => unsafe { owner.part(*start, *len) },
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::hash::Hash for Slice {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

macro_rules! equals_bytes {
    ($($other:ty),+) => {$(
        impl PartialEq<$other> for Slice {
            fn eq(&self, other: &$other) -> bool {
                **self == *AsRef::<[u8]>::as_ref(other)
            }
        }
    )+};
}

equals_bytes!([u8], &[u8], Vec<u8>, str, &str, String);

impl<const N: usize> PartialEq<[u8; N]> for Slice {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == other[..]
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Slice {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == other[..]
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Vec<u8> {
        slice.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_slice_keeps_its_owner_counted() {
        let gauge = Arc::new(Gauge::default());
        let buffer = Bytes::counted(b"hello world".to_vec(), gauge.clone());
        let word = Slice::shared(buffer, 6, 5);
        assert_eq!(word, b"world");
        assert_eq!(word.subslice(1..3), b"or");
        assert!(gauge.get() >= 11);
        drop(word);
        assert_eq!(gauge.get(), 0);
    }
}
