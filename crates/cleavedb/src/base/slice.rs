//! Reference-counted bytes. Reads return a [`Slice`]: it points into the block, run or buffer that contains the value
//! and keeps it alive, so a value is not copied on its way to the caller.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::cell::Cell;
use super::memory::Gauge;

/// Bytes that may be counted in a [`Gauge`] until they are dropped.
pub struct Buffer {
    memory: Memory,
    gauge: Option<Arc<Gauge>>,
}

enum Memory {
    Heap(Vec<u8>),
    Cell(Cell),
}

impl Memory {
    fn held_bytes(&self) -> usize {
        match self {
            Memory::Heap(bytes) => bytes.capacity(),
            Memory::Cell(cell) => cell.held_bytes(),
        }
    }
}

impl Buffer {
    /// Bytes that are not counted.
    pub fn new(bytes: Vec<u8>) -> Buffer {
        Buffer { memory: Memory::Heap(bytes), gauge: None }
    }

    /// Bytes counted in `gauge` until they are dropped.
    pub fn counted(bytes: Vec<u8>, gauge: Arc<Gauge>) -> Buffer {
        Buffer::counted_in(Memory::Heap(bytes), gauge)
    }

    /// The same for bytes in a cell.
    pub fn in_cell(cell: Cell, gauge: Arc<Gauge>) -> Buffer {
        Buffer::counted_in(Memory::Cell(cell), gauge)
    }

    fn counted_in(memory: Memory, gauge: Arc<Gauge>) -> Buffer {
        gauge.add(memory.held_bytes());
        Buffer { memory, gauge: Some(gauge) }
    }

    /// The memory that the bytes take.
    pub fn held_bytes(&self) -> usize {
        self.memory.held_bytes()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(gauge) = &self.gauge {
            gauge.subtract(self.memory.held_bytes());
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(bytes) => bytes,
            Memory::Cell(cell) => cell,
        }
    }
}

impl fmt::Debug for Buffer {
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
    Shared {
        owner: Arc<Buffer>,
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
    pub fn shared(owner: Arc<Buffer>, start: usize, len: usize) -> Slice {
        assert!(start + len <= owner.len(), "a slice lies within its owner");
        match (u32::try_from(start), u32::try_from(len)) {
            (Ok(start), Ok(len)) => Slice(Repr::Shared { owner, start, len }),
            _ => Slice::copy_from(&owner[start..start + len]),
        }
    }

    /// A slice that owns `bytes`.
    pub fn owned(bytes: Vec<u8>) -> Slice {
        let len = bytes.len();
        Slice::shared(Arc::new(Buffer::new(bytes)), 0, len)
    }

    /// The memory that the slice keeps alive, in bytes, which may be more than its length.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.0 {
            Repr::Short { .. } => 0,
            Repr::Copied(bytes) => bytes.len(),
            Repr::Shared { owner, .. } => owner.held_bytes(),
        }
    }

    /// A part of this slice; copied only if the slice does not share a buffer.
    ///
    /// # Panics
    /// If `range` is not within the slice.
    pub fn subslice(&self, range: std::ops::Range<usize>) -> Slice {
        match &self.0 {
            Repr::Short { .. } | Repr::Copied(_) => Slice::copy_from(&self[range]),
            Repr::Shared { owner, start, len } => {
                assert!(range.start <= range.end && range.end <= *len as usize, "a subslice lies within its slice");
                Slice::shared(owner.clone(), *start as usize + range.start, range.len())
            }
        }
    }
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
            Repr::Shared { owner, start, len } => &owner[*start as usize..(*start + *len) as usize],
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
        let buffer = Arc::new(Buffer::counted(b"hello world".to_vec(), gauge.clone()));
        let word = Slice::shared(buffer, 6, 5);
        assert_eq!(word, b"world");
        assert_eq!(word.subslice(1..3), b"or");
        assert!(gauge.get() >= 11);
        drop(word);
        assert_eq!(gauge.get(), 0);
    }
}
