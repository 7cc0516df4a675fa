//! Compression of blocks and of values: the algorithms, and the layout of compressed bytes (the uncompressed size as a
//! varint, then the output of the algorithm). Zstd needs the cargo feature `zstd`.
//!
//! Called by table builders and readers, by value GC, and by reads of values. The reader rejects sizes beyond the
//! highest ratio of the algorithm, so damaged bytes cannot make it allocate a lot of memory.

use std::path::Path;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

use crate::base::{Error, Result as EngineResult, varint};

/// The compression of a block or a value. Stored in tables, in the manifest and in records: do not renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum Compression {
    /// Not compressed.
    None = 0,
    /// LZ4 block format.
    #[default]
    Lz4 = 1,
    /// Zstandard at level 3: smaller than LZ4, but slower to read. Needs the cargo feature `zstd`.
    Zstd = 2,
}

impl Compression {
    /// Decodes a stored number.
    pub fn from_u8(byte: u8) -> Option<Compression> {
        match byte {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// True if this build can compress and decompress it.
    pub fn is_available(self) -> bool {
        self != Compression::Zstd || cfg!(feature = "zstd")
    }

    /// An error for `path` if this build cannot read the compression.
    pub(crate) fn check_available(self, path: &Path) -> EngineResult<()> {
        if self.is_available() { Ok(()) } else { Err(unavailable(path)) }
    }
}

/// The error that `path` is compressed with an algorithm which this build lacks.
#[cold]
pub(crate) fn unavailable(path: &Path) -> Error {
    let message = "it is compressed with zstd, and this build of cleavedb lacks the cargo feature `zstd`".to_owned();
    Error::Unsupported { path: path.to_owned(), message }
}

/// Highest ratio of LZ4: one byte decompresses to at most this many.
const LZ4_RATIO_MAX: usize = 255;

/// Highest ratio of zstd: one byte decompresses to at most this many (a run of 128 KiB in four bytes).
const ZSTD_RATIO_MAX: usize = 1 << 15;

/// Compression level of zstd.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 3;

/// Highest number of inputs that are not tried after one that did not compress.
const SKIPS_MAX: u32 = 15;

/// Compresses blocks or values, and reuses its working memory. After inputs that did not compress it skips more and
/// more of them (it tries at least one in sixteen) until one compresses.
#[derive(Default)]
pub struct Compressor {
    table: CompressTable,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// Inputs to skip before the next try, and the number that were skipped before the last one.
    skips_left: u32,
    skips: u32,
}

impl Compressor {
    /// Appends `raw` to `out`: compressed as `wanted` if that saves at least an eighth, otherwise uncompressed. Returns
    /// which.
    pub fn append(&mut self, wanted: Compression, raw: &[u8], out: &mut Vec<u8>) -> Compression {
        if self.append_if_smaller(wanted, raw, out) {
            return wanted;
        }
        out.extend_from_slice(raw);
        Compression::None
    }

    /// Appends `raw` to `out`, compressed as `wanted`, if that saves at least an eighth; otherwise, or if the input is
    /// skipped, appends nothing and returns false.
    pub fn append_if_smaller(&mut self, wanted: Compression, raw: &[u8], out: &mut Vec<u8>) -> bool {
        if wanted == Compression::None {
            return false;
        }
        if self.skips_left > 0 {
            self.skips_left -= 1;
            return false;
        }
        let start = out.len();
        varint::put(out, raw.len() as u64);
        let done = match wanted {
            Compression::Zstd => self.append_zstd(raw, out),
            _ => self.append_lz4(raw, out),
        };
        if done && out.len() - start <= raw.len() - raw.len() / 8 && !raw.is_empty() {
            self.skips = 0;
            return true;
        }
        out.truncate(start);
        self.skips = (2 * self.skips + 1).min(SKIPS_MAX);
        self.skips_left = self.skips;
        false
    }

    fn append_lz4(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        let body = out.len();
        out.resize(body + get_maximum_output_size(raw.len()), 0);
        let compressed = compress_into_with_table(raw, &mut out[body..], &mut self.table);
        out.truncate(body + compressed.as_ref().copied().unwrap_or_default());
        compressed.is_ok()
    }

    #[cfg(feature = "zstd")]
    fn append_zstd(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        let compressor = match self.zstd.take() {
            Some(compressor) => compressor,
            None => match zstd::bulk::Compressor::new(ZSTD_LEVEL) {
                Ok(compressor) => compressor,
                Err(_) => return false,
            },
        };
        let compressor = self.zstd.insert(compressor);
        let body = out.len();
        out.resize(body + zstd::zstd_safe::compress_bound(raw.len()), 0);
        let compressed = compressor.compress_to_buffer(raw, &mut out[body..]);
        out.truncate(body + compressed.as_ref().copied().unwrap_or_default());
        compressed.is_ok()
    }

    /// Never compresses; opening a database with this option is an error already.
    #[cfg(not(feature = "zstd"))]
    fn append_zstd(&mut self, _: &[u8], _: &mut Vec<u8>) -> bool {
        false
    }
}

/// Decompresses `payload` to at most `size_max` bytes.
///
/// # Errors
/// A description of the damage; the caller adds the file.
pub fn decompress(compression: Compression, mut payload: &[u8], size_max: usize) -> Result<Vec<u8>, &'static str> {
    let ratio_max = match compression {
        Compression::None => return Ok(payload.to_vec()),
        Compression::Lz4 => LZ4_RATIO_MAX,
        Compression::Zstd => ZSTD_RATIO_MAX,
    };
    let size = varint::take(&mut payload).and_then(|size| usize::try_from(size).ok());
    let size = size.ok_or("compressed data lack their size")?;
    if size > size_max || size > payload.len().saturating_mul(ratio_max) {
        return Err("compressed data declare an impossible size");
    }
    let mut raw = vec![0; size];
    let len = match compression {
        Compression::Zstd => decompress_zstd(payload, &mut raw),
        _ => decompress_into(payload, &mut raw).ok(),
    };
    if len == Some(size) { Ok(raw) } else { Err("compressed data do not decompress") }
}

#[cfg(feature = "zstd")]
fn decompress_zstd(payload: &[u8], raw: &mut [u8]) -> Option<usize> {
    zstd::bulk::decompress_to_buffer(payload, raw).ok()
}

#[cfg(not(feature = "zstd"))]
fn decompress_zstd(_: &[u8], _: &mut [u8]) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn compressible_bytes_are_compressed_and_random_ones_are_not() {
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

    #[cfg(feature = "zstd")]
    #[test]
    fn zstd_round_trips_and_is_smaller_than_lz4() {
        let mut compressor = Compressor::default();
        let text: Vec<u8> = (0..2000u32).flat_map(|n| format!("line {n} of a text; ").into_bytes()).collect();
        let (mut zstd, mut lz4) = (Vec::new(), Vec::new());
        assert_eq!(compressor.append(Compression::Zstd, &text, &mut zstd), Compression::Zstd);
        assert_eq!(compressor.append(Compression::Lz4, &text, &mut lz4), Compression::Lz4);
        assert!(zstd.len() < lz4.len(), "{} and {}", zstd.len(), lz4.len());
        assert_eq!(decompress(Compression::Zstd, &zstd, text.len()), Ok(text.clone()));
        assert!(decompress(Compression::Zstd, &zstd, text.len() - 1).is_err());
        for at in 0..zstd.len() {
            let mut damaged = zstd.clone();
            damaged[at] ^= 0x20;
            let _ = decompress(Compression::Zstd, &damaged, 1 << 20);
        }
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn without_the_feature_zstd_is_reported_as_unsupported() {
        let error = Compression::Zstd.check_available(Path::new("7.table")).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("cargo feature `zstd`"), "{error}");
    }

    #[test]
    fn incompressible_blocks_make_the_compressor_skip_more_blocks_up_to_a_limit() {
        let mut compressor = Compressor::default();
        let noise: Vec<u8> =
            (0..500u64).flat_map(|n| crate::format::checksum::xxh3_64(&n.to_le_bytes()).to_le_bytes()).collect();
        let text = b"abcdefgh".repeat(500);
        let mut append = |block: &[u8]| compressor.append(Compression::Lz4, block, &mut Vec::new());
        // Before the first failure every block is tried.
        assert!((0..100).all(|_| append(&text) == Compression::Lz4));
        assert_eq!(append(&noise), Compression::None);
        assert_eq!((append(&text), append(&text)), (Compression::None, Compression::Lz4));
        (0..1000).for_each(|_| assert_eq!(append(&noise), Compression::None));
        let waited = (0..100).position(|_| append(&text) == Compression::Lz4);
        assert!(waited.is_some_and(|waited| waited <= 15), "{waited:?}");
        assert!((0..100).all(|_| append(&text) == Compression::Lz4));
    }

    #[test]
    fn a_huge_declared_size_is_rejected_before_allocating() {
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
