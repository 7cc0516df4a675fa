//! Compression of blocks: which algorithms there are, and how a compressed block is laid out (the size before
//! compression as a varint, then the algorithm's own bytes).
//!
//! Called by table builders and table readers. A size is believed only within bounds, so damaged bytes cannot make the
//! reader allocate much more than they themselves take.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use crate::base::varint;

/// How the bytes of a block are compressed. Stored in tables and in the manifest: do not renumber. 2 is reserved for
/// zstd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Compression {
    /// As they are.
    None = 0,
    /// LZ4 block format.
    #[default]
    Lz4 = 1,
}

impl Compression {
    /// Decodes a stored number.
    pub fn from_u8(byte: u8) -> Option<Compression> {
        match byte {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            _ => None,
        }
    }
}

/// LZ4 turns one byte into at most this many.
const LZ4_RATIO_MAX: usize = 255;

/// After blocks that did not compress, at most so many are passed on without a try.
const SKIPS_MAX: u32 = 15;

/// Compresses blocks, keeping its working memory from one to the next. Where blocks do not compress it tries ever fewer
/// of them (one in sixteen in the end), until one does.
#[derive(Default)]
pub struct Compressor {
    table: CompressTable,
    /// Blocks to pass on before the next try, and how many that were the last time.
    skips_left: u32,
    skips: u32,
}

impl Compressor {
    /// Appends `raw`, compressed as `wanted`, to `out`, or as it is if that saves less than an eighth; returns which.
    pub fn append(&mut self, wanted: Compression, raw: &[u8], out: &mut Vec<u8>) -> Compression {
        let start = out.len();
        let skip = self.skips_left > 0;
        self.skips_left = self.skips_left.saturating_sub(u32::from(wanted == Compression::Lz4));
        if wanted == Compression::Lz4 && !skip {
            varint::put(out, raw.len() as u64);
            let body = out.len();
            out.resize(body + get_maximum_output_size(raw.len()), 0);
            if let Ok(len) = compress_into_with_table(raw, &mut out[body..], &mut self.table) {
                out.truncate(body + len);
                if out.len() - start <= raw.len() - raw.len() / 8 && !raw.is_empty() {
                    self.skips = 0;
                    return Compression::Lz4;
                }
            }
            out.truncate(start);
            self.skips = (2 * self.skips + 1).min(SKIPS_MAX);
            self.skips_left = self.skips;
        }
        out.extend_from_slice(raw);
        Compression::None
    }
}

/// Decompresses `payload`, which may not become longer than `size_max`.
///
/// # Errors
/// What is wrong with the bytes; the caller knows which file they are from.
pub fn decompress(compression: Compression, mut payload: &[u8], size_max: usize) -> Result<Vec<u8>, &'static str> {
    match compression {
        Compression::None => Ok(payload.to_vec()),
        Compression::Lz4 => {
            let size = varint::take(&mut payload).and_then(|size| usize::try_from(size).ok());
            let size = size.ok_or("a compressed block lacks its size")?;
            if size > size_max || size > payload.len().saturating_mul(LZ4_RATIO_MAX) {
                return Err("a compressed block claims to be larger than it can be");
            }
            let mut raw = vec![0; size];
            match decompress_into(payload, &mut raw) {
                Ok(len) if len == size => Ok(raw),
                _ => Err("a compressed block does not decompress"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn compressible_bytes_shrink_and_random_ones_stay_raw() {
        let mut compressor = Compressor::default();
        let repetitive = b"abcdefgh".repeat(100_000);
        let mut out = b"before".to_vec();
        assert_eq!(compressor.append(Compression::Lz4, &repetitive, &mut out), Compression::Lz4);
        assert!(out.len() < repetitive.len() / 50);
        assert_eq!(decompress(Compression::Lz4, &out[6..], repetitive.len()), Ok(repetitive.clone()));
        assert!(decompress(Compression::Lz4, &out[6..], repetitive.len() - 1).is_err());

        let noise: Vec<u8> =
            (0..500u64).flat_map(|n| crate::format::checksum::xxh3_64(&n.to_le_bytes()).to_le_bytes()).collect();
        let mut out = Vec::new();
        assert_eq!(compressor.append(Compression::Lz4, &noise, &mut out), Compression::None);
        assert_eq!(out, noise);
        out.clear();
        assert_eq!(compressor.append(Compression::None, &repetitive, &mut out), Compression::None);
        assert_eq!(out, repetitive);
        out.clear();
        assert_eq!(Compressor::default().append(Compression::Lz4, b"", &mut out), Compression::None);
    }

    #[test]
    fn blocks_that_do_not_compress_are_tried_ever_less_and_never_given_up() {
        let mut compressor = Compressor::default();
        let noise: Vec<u8> =
            (0..500u64).flat_map(|n| crate::format::checksum::xxh3_64(&n.to_le_bytes()).to_le_bytes()).collect();
        let text = b"abcdefgh".repeat(500);
        let mut append = |block: &[u8]| compressor.append(Compression::Lz4, block, &mut Vec::new());
        // Without a failure before it, every block is tried.
        assert!((0..100).all(|_| append(&text) == Compression::Lz4));
        assert_eq!(append(&noise), Compression::None);
        assert_eq!((append(&text), append(&text)), (Compression::None, Compression::Lz4));
        (0..1000).for_each(|_| assert_eq!(append(&noise), Compression::None));
        let waited = (0..100).position(|_| append(&text) == Compression::Lz4);
        assert!(waited.is_some_and(|waited| waited <= 15), "{waited:?}");
        assert!((0..100).all(|_| append(&text) == Compression::Lz4));
    }

    #[test]
    fn a_huge_declared_size_is_refused_before_allocating() {
        let mut bytes = Vec::new();
        varint::put(&mut bytes, 1 << 50);
        bytes.extend_from_slice(&[0; 32]);
        assert!(decompress(Compression::Lz4, &bytes, usize::MAX).is_err());
        assert!(decompress(Compression::Lz4, &[], 100).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decompress(Compression::Lz4, &bytes, 1 << 20);
        }

        #[test]
        fn any_bytes_round_trip(bytes in proptest::collection::vec(0u8..4, 0..2000)) {
            let mut out = Vec::new();
            let used = Compressor::default().append(Compression::Lz4, &bytes, &mut out);
            prop_assert_eq!(decompress(used, &out, bytes.len()), Ok(bytes));
        }
    }
}
