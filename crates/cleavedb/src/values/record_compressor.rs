//! Compresses values as garbage collection moves them into a segment, if a compression is configured. Values in logs
//! are never compressed, which would slow writers down.
//!
//! A value that is already compressed stays as it is, whatever is configured now. Each value collection has its own
//! instance: values that did not compress earlier in the same job predict whether the next ones will (decision record
//! 027).

use crate::base::Kind;
use crate::base::limits::{COMPRESSED_RECORD_BYTES_MAX, COMPRESSED_VALUE_BYTES_MIN};
use crate::format::compression::{Compression, Compressor};
use crate::format::record::Record;

/// Compresses the values of records.
pub struct RecordCompressor {
    wanted: Compression,
    compressor: Compressor,
    /// The record compressed last.
    record: Vec<u8>,
    /// Total bytes of compressed values before compression...
    before: u64,
    /// ...and after it.
    after: u64,
}

impl RecordCompressor {
    /// Compresses with `wanted`, or not at all.
    pub fn new(wanted: Compression) -> RecordCompressor {
        RecordCompressor { wanted, compressor: Compressor::default(), record: Vec::new(), before: 0, after: 0 }
    }

    /// The record with its value compressed, if that saves enough.
    pub fn compress(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        if self.wanted == Compression::None {
            return None;
        }
        let record = Record::take_stored(&mut &bytes[..]).ok()?;
        let operation = &record.operation;
        let is_tried = record.compression == Compression::None
            && operation.kind == Kind::Put
            && operation.value.len() >= COMPRESSED_VALUE_BYTES_MIN
            && operation.record_bytes() <= COMPRESSED_RECORD_BYTES_MAX;
        let RecordCompressor { wanted, compressor, record: out, .. } = self;
        if !is_tried || !record.compressed(*wanted, out, |value, out| compressor.append_if_smaller(*wanted, value, out))
        {
            return None;
        }
        let before = operation.value.len();
        self.before += before as u64;
        self.after += (self.record.len() + before - operation.record_bytes()) as u64;
        Some(&self.record)
    }

    /// Total bytes of the compressed values, before and after compression.
    pub fn byte_totals(&self) -> (u64, u64) {
        (self.before, self.after)
    }

    /// Memory in use: as much as the largest record, and about as much for the tables of the algorithm.
    pub fn bytes(&self) -> usize {
        2 * self.record.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{KeyspaceId, Seqno};
    use crate::format::record::Operation;
    use crate::sched::random::Random;

    fn record(kind: Kind, value: &[u8]) -> Vec<u8> {
        let operation = Operation { kind, keyspace: KeyspaceId(3), key: b"key", value };
        [&operation.header(Seqno(42), operation.crc(Seqno(42))), operation.key, value].concat()
    }

    fn compressed_len(value: &[u8]) -> Option<usize> {
        RecordCompressor::new(Compression::Lz4).compress(&record(Kind::Put, value)).map(<[u8]>::len)
    }

    #[test]
    fn a_value_of_moderate_size_is_compressed_if_that_saves_an_eighth() {
        assert!(compressed_len(&[7; 1000]).is_some_and(|len| len < 100));
        assert!(compressed_len(&[7; COMPRESSED_VALUE_BYTES_MIN]).is_some());
        assert_eq!(compressed_len(&[7; COMPRESSED_VALUE_BYTES_MIN - 1]), None);
        let longest = vec![7; COMPRESSED_RECORD_BYTES_MAX - 26];
        assert!(compressed_len(&longest).is_some());
        assert_eq!(compressed_len(&[&longest[..], &[7]].concat()), None);
        let mut random = Random::new(5);
        let mut mixed = |zeros: usize| -> Vec<u8> {
            (0..1000).map(|at| if at < zeros { 0 } else { random.draw() as u8 }).collect()
        };
        // The zeros are saved, except about 20 B.
        assert_eq!(compressed_len(&mixed(0)), None);
        assert_eq!(compressed_len(&mixed(110)), None);
        assert!(compressed_len(&mixed(180)).is_some());
    }

    #[test]
    fn a_compressed_record_is_marked_decompresses_and_is_not_compressed_again() {
        let value = b"a value that compresses; ".repeat(30);
        let mut compressor = RecordCompressor::new(Compression::Lz4);
        let bytes = compressor.compress(&record(Kind::Put, &value)).unwrap().to_vec();
        assert_eq!(compressor.byte_totals(), (value.len() as u64, bytes.len() as u64 - 26));
        let mut rest = &bytes[..];
        let found = Record::take_stored(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!((found.compression, found.seqno, found.operation.key), (Compression::Lz4, Seqno(42), &b"key"[..]));
        assert_eq!(found.value(value.len()).unwrap(), &value[..]);
        assert!(found.value(value.len() - 1).is_err());
        assert_eq!(compressor.compress(&bytes), None);
        assert_eq!(RecordCompressor::new(Compression::None).compress(&record(Kind::Put, &value)), None);
        assert_eq!(compressor.compress(&record(Kind::Delta, &value)), None);
        // A log must not hold a compressed record.
        assert!(Record::take(&mut &bytes[..]).is_err());
    }
}
