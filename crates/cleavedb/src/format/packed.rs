//! Packed rows: in a block of addresses, the stamp and the address of an entry take a few bytes, instead of eight and
//! up to thirty. This is frame-of-reference encoding: each column stores the difference from its minimum in the block,
//! in as many bits as the largest difference needs. The block starts with the minima and widths. Diagram:
//! `docs/formats/table.md`.
//!
//! Called by the sorted block (`block.rs`), which packs a block if that makes it smaller.

use super::block::BlockEntry;
use crate::base::file_set::FileSet;
use crate::base::limits::{FULL_KEY_BYTES_MAX, SEQNO_MAX};
use crate::base::{Address, FileId, Kind, Stamp, varint};

/// Kind, seqno, file, offset, bytes of the record other than key and value (plus [`OVERHEAD_BIAS`]), bytes of the
/// value; the first has the lowest bits. Stored: do not reorder.
const COLUMNS: usize = 6;
/// The column of the file.
const FILE_COLUMN: usize = 2;
/// Added to the overhead of a record, which is negative if the value is compressed: the value is then longer than its
/// record.
const OVERHEAD_BIAS: u64 = 1 << 33;
/// The columns of the stamp; only entries with an address use the others.
const STAMP_COLUMNS: usize = 2;
/// Largest width of a row.
const ROW_BITS_MAX: u32 = 120;
const KIND_BITS_MAX: u32 = 4;
const SEQNO_BITS_MAX: u32 = 56;

// A stamp lies within the first 64 bits of a row.
const _: () = assert!(KIND_BITS_MAX + SEQNO_BITS_MAX <= u64::BITS && SEQNO_MAX >> SEQNO_BITS_MAX == 0);
const _: () = assert!(ROW_BITS_MAX <= u128::BITS && SEQNO_BITS_MAX < u64::BITS);

/// One entry, by column.
type Row = [u64; COLUMNS];

/// The columns of an entry, and whether it has an address; `None` if it cannot be stored in columns.
fn row_of(key_len: usize, stamp: Stamp, value: &[u8]) -> Option<(Row, bool)> {
    let (kind, seqno) = (stamp.kind()?, stamp.seqno().0);
    if !kind.is_address() {
        return Some(([kind as u64, seqno, 0, 0, 0, 0], false));
    }
    let address = Address::decode(value)?;
    let overhead =
        (OVERHEAD_BIAS + u64::from(address.len)).checked_sub(u64::from(address.value_len) + key_len as u64)?;
    Some(([kind as u64, seqno, address.file.0, address.offset, overhead, u64::from(address.value_len)], true))
}

/// Widths and minima of the columns of a block.
#[derive(Clone, Copy)]
pub(super) struct PackedLayout {
    /// Length of every key; 0 if the entries store their key lengths.
    key_len: usize,
    row_bytes: usize,
    /// Width of each column, in bits.
    bits: [u8; COLUMNS],
    /// Minimum of each column.
    smallest: Row,
    /// Whether the entries have addresses; `None` if some do.
    all_separated: Option<bool>,
}

impl PackedLayout {
    /// Takes a layout off the front of `bytes`; the entries follow it.
    pub fn take(bytes: &mut &[u8]) -> Option<PackedLayout> {
        let (&bits, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        let key_len = usize::try_from(varint::take(bytes)?).ok()?;
        let mut smallest = [0; COLUMNS];
        for number in &mut smallest {
            *number = varint::take(bytes)?;
        }
        PackedLayout::new(key_len, bits, smallest)
    }

    /// `None` if a row would be too wide, or its kinds or seqnos too large.
    fn new(key_len: usize, bits: [u8; COLUMNS], smallest: Row) -> Option<PackedLayout> {
        let row_bits: u32 = bits.iter().map(|&bits| u32::from(bits)).sum();
        let [kind_bits, seqno_bits, ..] = bits;
        let row_fits = row_bits <= ROW_BITS_MAX && bits.iter().all(|&bits| u32::from(bits) <= u64::BITS);
        let stamps_fit = u32::from(kind_bits) <= KIND_BITS_MAX && u32::from(seqno_bits) <= SEQNO_BITS_MAX;
        let numbers_fit = smallest[0] >> KIND_BITS_MAX == 0 && smallest[1] <= SEQNO_MAX;
        let all_separated = (kind_bits == 0).then(|| is_separated(Stamp(smallest[0])));
        let row_bytes = row_bits.div_ceil(8) as usize;
        let layout = PackedLayout { key_len, row_bytes, bits, smallest, all_separated };
        (key_len <= FULL_KEY_BYTES_MAX && row_fits && stamps_fit && numbers_fit).then_some(layout)
    }

    fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bits);
        varint::put(out, self.key_len as u64);
        self.smallest.iter().for_each(|&number| varint::put(out, number));
    }

    fn encoded_bytes(&self) -> usize {
        let numbers: usize = self.smallest.iter().map(|&number| varint::len(number)).sum();
        COLUMNS + varint::len(self.key_len as u64) + numbers
    }

    fn append_row(&self, numbers: &Row, has_address: bool, out: &mut Vec<u8>) {
        let (mut row, mut shift) = (0u128, 0);
        let stored = if has_address { COLUMNS } else { STAMP_COLUMNS };
        for (column, number) in numbers.iter().enumerate().take(stored) {
            row |= u128::from(number - self.smallest[column]) << shift;
            shift += self.bits[column];
        }
        out.extend_from_slice(&row.to_le_bytes()[..self.row_bytes]);
    }

    /// Parses the entry at `offset`; the caller compares `shared` with the previous key. The entries end at `end`, and
    /// `block` has at least eight more bytes.
    #[inline]
    pub fn entry(&self, block: &[u8], end: usize, offset: usize) -> Option<BlockEntry> {
        let mut rest = block[..end].get(offset..)?;
        let shared = usize::try_from(varint::take(&mut rest)?).ok()?;
        let suffix_len = match self.key_len {
            0 => usize::try_from(varint::take(&mut rest)?).ok()?,
            key_len => key_len.checked_sub(shared)?,
        };
        let suffix_start = end - rest.len();
        rest = rest.get(suffix_len.checked_add(self.row_bytes)?..)?;
        let stamp_start = suffix_start + suffix_len;
        let is_separated = self.all_separated.unwrap_or_else(|| is_separated(self.stamp(block, stamp_start)));
        let value_len = if is_separated { 0 } else { usize::try_from(varint::take(&mut rest)?).ok()? };
        let value_start = end - rest.len();
        let key_fits = shared <= FULL_KEY_BYTES_MAX && suffix_len <= FULL_KEY_BYTES_MAX - shared;
        if !key_fits || value_len > rest.len() {
            return None;
        }
        Some(BlockEntry { shared, suffix_start, stamp_start, value_start, end: value_start + value_len })
    }

    /// The stamp in the row at `start`.
    #[inline]
    pub fn stamp(&self, block: &[u8], start: usize) -> Stamp {
        let low = block[start..].first_chunk().expect("at least eight bytes follow the entries of a block");
        let low = u64::from_le_bytes(*low);
        let ([kind_bits, seqno_bits, ..], [kind, seqno, ..]) = (self.bits, self.smallest);
        // Both shifts are below 64: see the assertions above.
        let seqno = seqno + (low >> kind_bits & ((1 << seqno_bits) - 1));
        Stamp(seqno << 8 | (kind + (low & ((1 << kind_bits) - 1))))
    }

    /// The file of the address in the row at `start`.
    #[inline]
    pub fn file(&self, block: &[u8], start: usize) -> FileId {
        let mut bytes = [0; 16];
        bytes[..self.row_bytes].copy_from_slice(&block[start..start + self.row_bytes]);
        let [kind_bits, seqno_bits, file_bits, ..] = self.bits.map(u32::from);
        let row = (u128::from_le_bytes(bytes) >> (kind_bits + seqno_bits)) as u64;
        FileId(self.smallest[FILE_COLUMN].wrapping_add(row & column_mask(file_bits)))
    }

    /// False if no address of the block leads to one of `files`.
    pub fn may_lead_to(&self, files: &FileSet) -> bool {
        let first = self.smallest[FILE_COLUMN];
        let last = first.saturating_add(column_mask(self.bits[FILE_COLUMN].into()));
        files.has_between(FileId(first), FileId(last))
    }

    /// The address in the row at `start`, of a key of `key_len` bytes; `None` if the row is not a valid address.
    #[inline]
    pub fn address(&self, block: &[u8], start: usize, key_len: usize) -> Option<Address> {
        let mut bytes = [0; 16];
        bytes[..self.row_bytes].copy_from_slice(&block[start..start + self.row_bytes]);
        let mut row = u128::from_le_bytes(bytes);
        let [_, _, file, offset, overhead, value_len] = std::array::from_fn(|column| {
            let bits = u32::from(self.bits[column]);
            let number = row as u64 & column_mask(bits);
            row >>= bits;
            self.smallest[column].wrapping_add(number)
        });
        let len = value_len.checked_add(overhead)?.checked_add(key_len as u64)?.checked_sub(OVERHEAD_BIAS)?;
        let (len, value_len) = (u32::try_from(len).ok()?, u32::try_from(value_len).ok()?);
        Some(Address { file: FileId(file), offset, len, value_len })
    }
}

/// The lowest `bits` bits, up to 64.
#[inline]
fn column_mask(bits: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0)
}

#[inline]
fn is_separated(stamp: Stamp) -> bool {
    stamp.kind().is_some_and(Kind::is_address)
}

/// Collects minima and maxima while a block is filled, to compute its packed layout. Builders ask for the layout after each
/// entry, so it is kept: most entries do not change it.
pub(super) struct Packer {
    /// Minimum and maximum of each column.
    ranges: [(u64, u64); COLUMNS],
    /// The length of all keys, if they have the same length.
    key_len: Option<usize>,
    /// The layout for these, and its encoded length; `None` if a row would be too wide.
    layout: Option<(PackedLayout, usize)>,
    entries: usize,
    addresses: usize,
    /// Bytes of the entries without rows and without lengths of key suffixes.
    other_bytes: usize,
    suffix_len_bytes: usize,
    /// Some entry cannot be stored in columns.
    is_unpackable: bool,
}

impl Default for Packer {
    fn default() -> Packer {
        Packer {
            ranges: [(u64::MAX, 0); COLUMNS],
            key_len: None,
            layout: None,
            entries: 0,
            addresses: 0,
            other_bytes: 0,
            suffix_len_bytes: 0,
            is_unpackable: false,
        }
    }
}

impl Packer {
    /// Adds an entry whose key shares `shared` bytes with the previous key.
    pub fn add(&mut self, shared: usize, key_len: usize, stamp: Stamp, value: &[u8]) {
        let Some((numbers, has_address)) = row_of(key_len, stamp, value) else {
            self.is_unpackable = true;
            return;
        };
        let stored = if has_address { COLUMNS } else { STAMP_COLUMNS };
        let common_len = if self.entries == 0 { Some(key_len) } else { self.key_len.filter(|&len| len == key_len) };
        let mut is_changed = common_len != self.key_len;
        for (range, number) in self.ranges.iter_mut().zip(numbers).take(stored) {
            is_changed |= number < range.0 || number > range.1;
            *range = (range.0.min(number), range.1.max(number));
        }
        self.key_len = common_len;
        self.entries += 1;
        self.addresses += has_address as usize;
        if is_changed && self.addresses > 0 {
            self.layout = self.widest().map(|layout| (layout, layout.encoded_bytes()));
        }
        self.suffix_len_bytes += varint::len((key_len - shared) as u64);
        let value_bytes = if has_address { 0 } else { varint::len(value.len() as u64) + value.len() };
        self.other_bytes += varint::len(shared as u64) + key_len - shared + value_bytes;
    }

    /// The layout for the minima and maxima so far; `None` if a row would be too wide.
    fn widest(&self) -> Option<PackedLayout> {
        let bits = self.ranges.map(|(smallest, largest)| (u64::BITS - (largest - smallest).leading_zeros()) as u8);
        PackedLayout::new(self.key_len.unwrap_or(0), bits, self.ranges.map(|(smallest, _)| smallest))
    }

    /// The layout for the entries so far, and their packed size in bytes without restart points; `None` if there is no
    /// address among them or they cannot be packed. O(1).
    pub fn layout(&self) -> Option<(&PackedLayout, usize)> {
        let (layout, encoded_bytes) = self.layout.as_ref().filter(|_| !self.is_unpackable)?;
        let suffix_len_bytes = if layout.key_len == 0 { self.suffix_len_bytes } else { 0 };
        let entries = self.other_bytes + suffix_len_bytes + self.entries * layout.row_bytes;
        Some((layout, encoded_bytes + entries))
    }
}

impl PackedLayout {
    /// Packs `entries`, the entries of a block that is not packed, and moves the restart points in `restarts` to the
    /// new offsets.
    pub fn pack(&self, entries: &[u8], restarts: &mut [u32], block_bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(block_bytes);
        self.append(&mut out);
        let (mut offset, mut restarts) = (0, restarts.iter_mut().peekable());
        while offset < entries.len() {
            if let Some(restart) = restarts.next_if(|restart| **restart as usize == offset) {
                *restart = u32::try_from(out.len()).expect("a packed block is no larger than it was");
            }
            let entry = BlockEntry::parse(entries, offset).expect("the builder wrote the entries");
            let (key_len, stamp) = (entry.shared + entry.suffix_len(), entry.stamp(entries));
            let value = &entries[entry.value_start..entry.end];
            let (numbers, has_address) = row_of(key_len, stamp, value).expect("the packer has checked every entry");
            varint::put(&mut out, entry.shared as u64);
            if self.key_len == 0 {
                varint::put(&mut out, entry.suffix_len() as u64);
            }
            out.extend_from_slice(&entries[entry.suffix_start..entry.stamp_start]);
            self.append_row(&numbers, has_address, &mut out);
            if !has_address {
                varint::put_bytes(&mut out, value);
            }
            offset = entry.end;
        }
        out
    }
}
