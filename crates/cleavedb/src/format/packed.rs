//! Packed rows: in a block of addresses, stamp and address of an entry take a few bytes instead of eight and up to thirty.
//! Each column is stored as what it is above its smallest value in the block, in as many bits as the largest needs. The
//! block begins with what that takes to read; the layout is in `docs/formats/table.md`.
//!
//! Called by the sorted block (`block.rs`), which decides where it pays.

use super::block::{FULL_KEY_BYTES_MAX, RawEntry};
use crate::base::limits::SEQNO_MAX;
use crate::base::{Address, FileId, Kind, Stamp, varint};

/// Kind, seqno, file, offset, bytes of the record beside key and value, above [`BESIDE_BIAS`], bytes of the value; the first
/// has the lowest bits. Stored: do not reorder.
const COLUMNS: usize = 6;
/// A value that is compressed where it lies is longer than its record, so that what is beside it is less than nothing.
const BESIDE_BIAS: u64 = 1 << 33;
/// The columns that are about stamps; only entries with an address have the others.
const STAMP_COLUMNS: usize = 2;
/// A row is no longer.
const ROW_BITS_MAX: u32 = 120;
const KIND_BITS_MAX: u32 = 4;
const SEQNO_BITS_MAX: u32 = 56;

// So that a stamp is in the first 64 bits of a row.
const _: () = assert!(KIND_BITS_MAX + SEQNO_BITS_MAX <= u64::BITS && SEQNO_MAX >> SEQNO_BITS_MAX == 0);
const _: () = assert!(ROW_BITS_MAX <= u128::BITS && SEQNO_BITS_MAX < u64::BITS);

/// The numbers of one entry, by column.
type Numbers = [u64; COLUMNS];

/// The numbers of an entry, and whether it has all of them; `None` if they cannot be stored in columns.
fn numbers_of(key_len: usize, stamp: Stamp, value: &[u8]) -> Option<(Numbers, bool)> {
    let (kind, seqno) = (stamp.kind()?, stamp.seqno().0);
    if !kind.is_address() {
        return Some(([kind as u64, seqno, 0, 0, 0, 0], false));
    }
    let address = Address::decode(value)?;
    let beside = (BESIDE_BIAS + u64::from(address.len)).checked_sub(u64::from(address.value_len) + key_len as u64)?;
    Some(([kind as u64, seqno, address.file.0, address.offset, beside, u64::from(address.value_len)], true))
}

/// How the rows of a block are stored.
#[derive(Clone, Copy)]
pub(super) struct PackedLayout {
    /// The length of every key; 0 if each entry says its own.
    key_len: usize,
    row_bytes: usize,
    /// Bits of each column.
    bits: [u8; COLUMNS],
    /// The smallest number of each.
    smallest: Numbers,
    /// Whether all entries have an address; `None` if their kinds differ.
    all_separated: Option<bool>,
}

impl PackedLayout {
    /// `None` if a row would be too long, or its kinds or seqnos too large.
    fn new(key_len: usize, bits: [u8; COLUMNS], smallest: Numbers) -> Option<PackedLayout> {
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

    /// Reads the layout off the front of `bytes`, which is where entries begin then.
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

    fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bits);
        varint::put(out, self.key_len as u64);
        self.smallest.iter().for_each(|&number| varint::put(out, number));
    }

    fn encoded_bytes(&self) -> usize {
        let numbers: usize = self.smallest.iter().map(|&number| varint::len(number)).sum();
        COLUMNS + varint::len(self.key_len as u64) + numbers
    }

    fn append_row(&self, numbers: &Numbers, has_all: bool, out: &mut Vec<u8>) {
        let (mut row, mut shift) = (0u128, 0);
        let stored = if has_all { COLUMNS } else { STAMP_COLUMNS };
        for (column, number) in numbers.iter().enumerate().take(stored) {
            row |= u128::from(number - self.smallest[column]) << shift;
            shift += self.bits[column];
        }
        out.extend_from_slice(&row.to_le_bytes()[..self.row_bytes]);
    }

    /// Parses the entry at `offset`, as far as that does not depend on the key before. `block` goes on for eight bytes
    /// at least behind the entries, which end at `end`.
    #[inline]
    pub fn entry(&self, block: &[u8], end: usize, offset: usize) -> Option<RawEntry> {
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
        Some(RawEntry { shared, suffix_start, stamp_start, value_start, end: value_start + value_len })
    }

    /// The stamp of the row at `start`.
    #[inline]
    pub fn stamp(&self, block: &[u8], start: usize) -> Stamp {
        let low = block[start..].first_chunk().expect("eight bytes at least follow the entries of a block");
        let low = u64::from_le_bytes(*low);
        let ([kind_bits, seqno_bits, ..], [kind, seqno, ..]) = (self.bits, self.smallest);
        // Neither shift reaches 64: see the assertion above.
        let seqno = seqno + (low >> kind_bits & ((1 << seqno_bits) - 1));
        Stamp(seqno << 8 | (kind + (low & ((1 << kind_bits) - 1))))
    }

    /// The address in the row at `start`, which belongs to a key of `key_len` bytes; `None` if it can be none.
    #[inline]
    pub fn address(&self, block: &[u8], start: usize, key_len: usize) -> Option<Address> {
        let mut bytes = [0; 16];
        bytes[..self.row_bytes].copy_from_slice(&block[start..start + self.row_bytes]);
        let mut row = u128::from_le_bytes(bytes);
        let [_, _, file, offset, beside, value_len] = std::array::from_fn(|column| {
            let bits = u32::from(self.bits[column]);
            let number = row as u64 & u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0);
            row >>= bits;
            self.smallest[column].wrapping_add(number)
        });
        let len = value_len.checked_add(beside)?.checked_add(key_len as u64)?.checked_sub(BESIDE_BIAS)?;
        let (len, value_len) = (u32::try_from(len).ok()?, u32::try_from(value_len).ok()?);
        Some(Address { file: FileId(file), offset, len, value_len })
    }
}

#[inline]
fn is_separated(stamp: Stamp) -> bool {
    stamp.kind().is_some_and(Kind::is_address)
}

/// Finds out, while a block is filled, how it would be packed.
pub(super) struct Packer {
    /// Smallest and largest number of each column.
    ranges: [(u64, u64); COLUMNS],
    /// The length of all keys, if they have one.
    key_len: Option<usize>,
    entries: usize,
    addresses: usize,
    /// Bytes of the entries but for rows, and for the lengths of key suffixes.
    loose_bytes: usize,
    suffix_len_bytes: usize,
    /// Some entry does not fit columns.
    is_spoiled: bool,
}

impl Default for Packer {
    fn default() -> Packer {
        Packer {
            ranges: [(u64::MAX, 0); COLUMNS],
            key_len: None,
            entries: 0,
            addresses: 0,
            loose_bytes: 0,
            suffix_len_bytes: 0,
            is_spoiled: false,
        }
    }
}

impl Packer {
    /// One more entry, whose key shares `shared` bytes with the one before.
    pub fn note(&mut self, shared: usize, key_len: usize, stamp: Stamp, value: &[u8]) {
        let Some((numbers, has_all)) = numbers_of(key_len, stamp, value) else {
            self.is_spoiled = true;
            return;
        };
        let stored = if has_all { COLUMNS } else { STAMP_COLUMNS };
        for (range, number) in self.ranges.iter_mut().zip(numbers).take(stored) {
            *range = (range.0.min(number), range.1.max(number));
        }
        self.key_len = if self.entries == 0 { Some(key_len) } else { self.key_len.filter(|&len| len == key_len) };
        self.entries += 1;
        self.addresses += has_all as usize;
        self.suffix_len_bytes += varint::len((key_len - shared) as u64);
        let value_bytes = if has_all { 0 } else { varint::len(value.len() as u64) + value.len() };
        self.loose_bytes += varint::len(shared as u64) + key_len - shared + value_bytes;
    }

    /// How the entries so far are packed, and what they take then, in bytes, restart points left out; `None` if they are
    /// better left as they are.
    pub fn layout(&self) -> Option<(PackedLayout, usize)> {
        if self.is_spoiled || self.addresses == 0 {
            return None;
        }
        let bits = self.ranges.map(|(smallest, largest)| (u64::BITS - (largest - smallest).leading_zeros()) as u8);
        let layout = PackedLayout::new(self.key_len.unwrap_or(0), bits, self.ranges.map(|(smallest, _)| smallest))?;
        let suffix_len_bytes = if layout.key_len == 0 { self.suffix_len_bytes } else { 0 };
        let entries = self.loose_bytes + suffix_len_bytes + self.entries * layout.row_bytes;
        Some((layout, layout.encoded_bytes() + entries))
    }
}

impl PackedLayout {
    /// Packs `entries`, which are as they lie in a block that is not packed, with restart points at `restarts`; these are
    /// brought up to date.
    pub fn pack(&self, entries: &[u8], restarts: &mut [u32], block_bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(block_bytes);
        self.append(&mut out);
        let (mut offset, mut restarts) = (0, restarts.iter_mut().peekable());
        while offset < entries.len() {
            if let Some(restart) = restarts.next_if(|restart| **restart as usize == offset) {
                *restart = u32::try_from(out.len()).expect("a packed block is no larger than it was");
            }
            let entry = RawEntry::parse(entries, offset).expect("the builder wrote the entries");
            let (key_len, stamp) = (entry.shared + entry.suffix_len(), entry.plain_stamp(entries));
            let value = &entries[entry.value_start..entry.end];
            let (numbers, has_all) = numbers_of(key_len, stamp, value).expect("all entries were seen to fit");
            varint::put(&mut out, entry.shared as u64);
            if self.key_len == 0 {
                varint::put(&mut out, entry.suffix_len() as u64);
            }
            out.extend_from_slice(&entries[entry.suffix_start..entry.stamp_start]);
            self.append_row(&numbers, has_all, &mut out);
            if !has_all {
                varint::put_bytes(&mut out, value);
            }
            offset = entry.end;
        }
        out
    }
}
