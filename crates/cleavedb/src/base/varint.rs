//! LEB128 variable-length integers and length-prefixed byte strings, which all formats use.

/// Longest encoding of a `u64`, in bytes.
pub const BYTES_MAX: usize = 10;

/// Appends `value`.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes `value` to the front of `out`, which must have room for it; returns the length of the encoding.
#[inline]
pub fn write(out: &mut [u8], mut value: u64) -> usize {
    let mut at = 0;
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
    at + 1
}

/// Length of the encoding of `value`, in bytes.
pub fn len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Takes one integer off the front of `bytes`; `None` if it is truncated or does not fit 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(first as u64);
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(BYTES_MAX).enumerate() {
        if index == BYTES_MAX - 1 && byte > 1 {
            return None;
        }
        value |= ((byte & 0x7f) as u64) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a length-prefixed byte string off the front of `bytes`.
pub fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(bytes)?).ok()?;
    let (head, tail) = bytes.split_at_checked(len)?;
    *bytes = tail;
    Some(head)
}

/// Appends a length-prefixed byte string.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip() {
        for value in [0, 1, 127, 128, 300, 1 << 21, u32::MAX as u64, 1 << 56, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(len(value), bytes.len());
            let mut rest = &bytes[..];
            assert_eq!(take(&mut rest), Some(value));
            assert!(rest.is_empty());
            for cut in 0..bytes.len() {
                assert_eq!(take(&mut &bytes[..cut]), None);
            }
        }
    }

    #[test]
    fn integers_that_exceed_64_bits_are_rejected() {
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        let mut two_to_the_64 = [0x80; 10];
        two_to_the_64[9] = 2;
        assert_eq!(take(&mut &two_to_the_64[..]), None);
    }
}
