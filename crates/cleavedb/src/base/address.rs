//! Addresses of records: file, offset and lengths. The length of the whole record as stored is included, so one read
//! fetches the record.

use super::{limits, varint};

/// The number of a file; never reused within a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub u64);

/// The location of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The log or segment.
    pub file: FileId,
    /// Offset of the record, in bytes.
    pub offset: u64,
    /// Length of the whole record as stored, in bytes.
    pub len: u32,
    /// Length of the uncompressed value, in bytes. An uncompressed value is the last part of the record; a compressed
    /// one may be longer than `len`.
    pub value_len: u32,
}

impl Address {
    /// Longest encoding, in bytes.
    pub const ENCODED_BYTES_MAX: usize = 30;

    /// Appends the encoding: four varints.
    pub fn encode(self, out: &mut Vec<u8>) {
        varint::put(out, self.file.0);
        varint::put(out, self.offset);
        varint::put(out, self.len as u64);
        varint::put(out, self.value_len as u64);
    }

    /// Writes the encoding to the front of `out`; returns its length.
    pub fn write(self, out: &mut [u8; Address::ENCODED_BYTES_MAX]) -> usize {
        let mut end = 0;
        for number in [self.file.0, self.offset, u64::from(self.len), u64::from(self.value_len)] {
            end += varint::write(&mut out[end..], number);
        }
        end
    }

    /// Decodes an address that fills `bytes` exactly.
    pub fn decode(mut bytes: &[u8]) -> Option<Address> {
        let file = FileId(varint::take(&mut bytes)?);
        let offset = varint::take(&mut bytes)?;
        let len = u32::try_from(varint::take(&mut bytes)?).ok()?;
        let value_len = u32::try_from(varint::take(&mut bytes)?).ok()?;
        let fits = value_len <= len || (value_len as usize) < limits::VALUE_BYTES_LIMIT;
        (bytes.is_empty() && fits).then_some(Address { file, offset, len, value_len })
    }

    /// Upper bound of the memory for the record or its decompressed value, in bytes.
    pub fn bytes_max(self) -> u32 {
        self.len.max(self.value_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_reject_trailing_bytes() {
        let address = Address { file: FileId(u64::MAX), offset: 1 << 40, len: 1019, value_len: 1000 };
        let mut bytes = Vec::new();
        address.encode(&mut bytes);
        let mut written = [0; Address::ENCODED_BYTES_MAX];
        let len = address.write(&mut written);
        assert_eq!(written[..len], bytes);
        assert_eq!(Address::decode(&bytes), Some(address));
        bytes.push(0);
        assert_eq!(Address::decode(&bytes), None);
        assert_eq!(Address::decode(&[]), None);
    }

    #[test]
    fn a_value_may_be_longer_than_its_record_but_not_longer_than_the_limit() {
        let decoded = |value_len| {
            let mut bytes = Vec::new();
            Address { file: FileId(1), offset: 28, len: 100, value_len }.encode(&mut bytes);
            Address::decode(&bytes).map(Address::bytes_max)
        };
        let limit = limits::VALUE_BYTES_LIMIT as u32;
        assert_eq!([7, 5000, limit - 1, limit].map(decoded), [Some(100), Some(5000), Some(limit - 1), None]);
    }
}
