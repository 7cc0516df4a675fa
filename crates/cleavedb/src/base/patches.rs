//! The built-in merge operator `patches`, which overwrites parts of a value. Unlike `field-patch`, any two of its operands
//! combine into one, so that a key that is merged often has one operand in each run and table.
//!
//! Registered with the other built-in operators ([`operators`](super::operators)).

use super::limits::VALUE_BYTES_LIMIT;
use super::operator::MergeOperator;

/// Length of the header of a patch: offset and length.
const HEADER_BYTES: usize = 8;

/// `patches`: overwrites parts of the value.
///
/// Operand: patches in ascending order, none overlapping another. Each is its offset (u32, little-endian), its length (the
/// same, at least 1), then the bytes that go there. A value that ends before a patch does grows to that size, zeros
/// filling what no patch wrote; a missing value is an empty one. [`Patches::operand`] makes operands of one patch;
/// operands that ascend may be joined end to end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patches;

/// One patch: where it goes, and its bytes.
type Patch<'a> = (usize, &'a [u8]);

impl Patches {
    /// The operand that writes `bytes`, at least one, at `offset`.
    pub fn operand(offset: u32, bytes: &[u8]) -> Vec<u8> {
        let mut operand = Vec::with_capacity(HEADER_BYTES + bytes.len());
        push(&mut operand, (offset as usize, bytes));
        operand
    }

    /// The patches of an operand; `None` if it is malformed. O(length).
    fn decode(operand: &[u8]) -> Option<Vec<Patch<'_>>> {
        let (mut patches, mut rest, mut end) = (Vec::new(), operand, 0);
        while !rest.is_empty() {
            let (offset, after) = rest.split_first_chunk::<4>()?;
            let (length, after) = after.split_first_chunk::<4>()?;
            let (offset, length) = (u32::from_le_bytes(*offset) as usize, u32::from_le_bytes(*length) as usize);
            let (bytes, after) = after.split_at_checked(length)?;
            if length == 0 || offset < end {
                return None;
            }
            end = offset.checked_add(length)?;
            patches.push((offset, bytes));
            rest = after;
        }
        Some(patches)
    }
}

/// Appends a patch, all of whose numbers fit.
fn push(operand: &mut Vec<u8>, (offset, bytes): Patch<'_>) {
    operand.extend_from_slice(&(offset as u32).to_le_bytes());
    operand.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    operand.extend_from_slice(bytes);
}

/// An operand being written, in ascending order. Patches that touch become one.
#[derive(Default)]
struct Joined {
    operand: Vec<u8>,
    /// Where the last patch begins in the operand, and ends in the value.
    last: Option<(usize, usize)>,
}

impl Joined {
    fn add(&mut self, (offset, bytes): Patch<'_>) {
        match self.last {
            Some((header, end)) if end == offset => {
                self.operand.extend_from_slice(bytes);
                let length = (self.operand.len() - header - HEADER_BYTES) as u32;
                self.operand[header + 4..header + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
                self.last = Some((header, end + bytes.len()));
            }
            _ => {
                self.last = Some((self.operand.len(), offset + bytes.len()));
                push(&mut self.operand, (offset, bytes));
            }
        }
    }
}

impl MergeOperator for Patches {
    fn name(&self) -> &str {
        "patches"
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut value = base.unwrap_or_default().to_vec();
        for operand in operands {
            let patches = Patches::decode(operand).ok_or_else(|| {
                let what = "patches needs operands of ascending patches (offset, length, bytes)";
                format!("{what}, and one of {} bytes is not that", operand.len())
            })?;
            for (start, bytes) in patches {
                let end = start + bytes.len();
                if end >= VALUE_BYTES_LIMIT {
                    return Err(format!(
                        "a patch up to byte {end} would exceed the limit of {VALUE_BYTES_LIMIT} bytes"
                    ));
                }
                if value.len() < end {
                    value.resize(end, 0);
                }
                value[start..end].copy_from_slice(bytes);
            }
        }
        Ok(value)
    }

    /// All patches of `newer`, and between them what is left of those of `older`.
    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let (below, above) = (Patches::decode(older)?, Patches::decode(newer)?);
        let mut joined = Joined { operand: Vec::with_capacity(older.len() + newer.len()), last: None };
        let mut below = below.into_iter();
        let mut rest = below.next();
        for patch in above {
            let (start, end) = (patch.0, patch.0 + patch.1.len());
            while let Some((offset, bytes)) = rest.filter(|(offset, _)| *offset < start) {
                let before = bytes.len().min(start - offset);
                joined.add((offset, &bytes[..before]));
                // The rest of a patch that reaches into the newer one is looked at again.
                rest = if before < bytes.len() { Some((start, &bytes[before..])) } else { below.next() };
            }
            joined.add(patch);
            while let Some((offset, bytes)) = rest.filter(|(offset, _)| *offset < end) {
                let hidden = bytes.len().min(end - offset);
                rest = if hidden < bytes.len() { Some((end, &bytes[hidden..])) } else { below.next() };
            }
        }
        rest.into_iter().chain(below).for_each(|patch| joined.add(patch));
        (joined.operand.len() < VALUE_BYTES_LIMIT).then_some(joined.operand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"key";

    fn patches(of: &[(u32, &[u8])]) -> Vec<u8> {
        of.iter().flat_map(|(offset, bytes)| Patches::operand(*offset, bytes)).collect()
    }

    fn full(base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        Patches.full_merge(KEY, base, operands)
    }

    #[test]
    fn patches_overwrite_and_grow_with_zeros() {
        assert_eq!(full(Some(b"hello"), &[&patches(&[(1, b"a"), (4, b"y!")])]), Ok(b"hally!".to_vec()));
        assert_eq!(full(None, &[&patches(&[(2, b"x")]), &patches(&[])]), Ok(b"\0\0x".to_vec()));
    }

    #[test]
    fn malformed_operands_are_rejected() {
        let whole = patches(&[(1, b"ab"), (7, b"c")]);
        for cut in (1..whole.len()).filter(|cut| *cut != 10) {
            assert!(full(None, &[&whole[..cut]]).is_err(), "cut at {cut}");
            assert_eq!(Patches.partial_merge(KEY, &whole, &whole[..cut]), None);
        }
        for bad in [patches(&[(3, b"ab"), (4, b"c")]), patches(&[(3, b"a"), (1, b"c")]), patches(&[(3, b"")])] {
            assert!(full(None, &[&bad]).unwrap_err().contains("ascending"));
        }
        let far = patches(&[(u32::MAX, b"x")]);
        assert!(full(None, &[&far]).unwrap_err().contains("limit"));
    }

    #[test]
    fn any_two_operands_combine_and_the_newer_one_wins() {
        let older = patches(&[(0, b"aaaa"), (6, b"bb"), (10, b"c")]);
        for (newer, wanted) in [
            (patches(&[]), older.clone()),
            (patches(&[(1, b"xy")]), patches(&[(0, b"axya"), (6, b"bb"), (10, b"c")])),
            (patches(&[(4, b"zz"), (20, b"q")]), patches(&[(0, b"aaaazzbb"), (10, b"c"), (20, b"q")])),
            (patches(&[(3, b"123456789")]), patches(&[(0, b"aaa123456789")])),
            (patches(&[(12, b"e")]), patches(&[(0, b"aaaa"), (6, b"bb"), (10, b"c"), (12, b"e")])),
        ] {
            assert_eq!(Patches.partial_merge(KEY, &older, &newer), Some(wanted));
        }
    }
}
