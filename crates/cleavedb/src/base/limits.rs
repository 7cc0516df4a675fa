//! All limits of the store. They are checked before anything durable happens; the relations between them are asserted
//! at compile time. Sizes are in bytes.

use super::error::{Error, Result};

/// Shortest user key.
pub const KEY_BYTES_MIN: usize = 1;
/// Longest user key.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Values are shorter than this.
pub const VALUE_BYTES_LIMIT: usize = 1 << 30;
/// The encoded records of one batch are shorter than this, unless the batch is a single operation within its own
/// limits.
pub const BATCH_BYTES_LIMIT: usize = 1 << 30;
/// Longest name of a keyspace.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;
/// Default separation threshold: values of at least this size are stored separately, smaller ones with their keys. The
/// index table contains no values of this size or more. HashKV, section 3.5, finds the best
/// threshold between 128 and 256 B.
pub const SEPARATION_BYTES_DEFAULT: usize = 192;
/// Space that may be taken beyond the live bytes of separated values, in percent of them...
pub const GARBAGE_PERCENT_DEFAULT: u32 = 32;
/// ...and the bytes allowed in addition.
pub const GARBAGE_BYTES_DEFAULT: u64 = 64 << 20;
/// A bucket of merge operands that is fuller than this after it was rewritten is split, in percent of its size (KDSep, section III).
pub const BUCKET_SPLIT_PERCENT_DEFAULT: u32 = 80;
/// Value GC does not compress smaller values: there is little to save.
pub const COMPRESSED_VALUE_BYTES_MIN: usize = 128;
/// Value GC does not compress the values of larger records: it copies these piece by piece and never has them in
/// memory.
pub const COMPRESSED_RECORD_BYTES_MAX: usize = 1 << 20;
/// Length of the keyspace prefix of a full key.
pub const KEYSPACE_PREFIX_BYTES: usize = 4;
/// Longest full key: keyspace prefix and user key.
pub const FULL_KEY_BYTES_MAX: usize = KEYSPACE_PREFIX_BYTES + KEY_BYTES_MAX;
/// Unit of direct I/O and of torn writes that the formats align to.
pub const BLOCK_IO_BYTES: usize = 4096;

/// The smallest budget of the fast tier, in bytes.
pub const FAST_BYTES_MIN: u64 = 64 << 20;
/// The smallest limit on background I/O, in bytes per second.
pub const BACKGROUND_IO_MIN: u64 = 1 << 20;
/// Sequence numbers have 56 bits, so that a stamp (sequence number and kind) fits one word.
pub const SEQNO_MAX: u64 = (1 << 56) - 1;
/// Largest file number. A file with a larger number does not belong to a database.
pub const FILE_ID_MAX: u64 = (1 << 56) - 1;
/// Smallest `memory_budget` that the store accepts.
pub const MEMORY_BUDGET_MIN: usize = 16 << 20;

const _: () = assert!(FILE_ID_MAX < u64::MAX);
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(VALUE_BYTES_LIMIT <= u32::MAX as usize / 2);
const _: () = assert!(BATCH_BYTES_LIMIT >= VALUE_BYTES_LIMIT);
const _: () = assert!(COMPRESSED_VALUE_BYTES_MIN < COMPRESSED_RECORD_BYTES_MAX);
const _: () = assert!(BATCH_BYTES_LIMIT <= u32::MAX as usize / 2);
const _: () = assert!(SEPARATION_BYTES_DEFAULT < VALUE_BYTES_LIMIT);

/// Checks the length of a user key that is read or written.
#[inline]
pub(crate) fn check_key(len: usize) -> Result<()> {
    match (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&len) {
        true => Ok(()),
        false => {
            Err(Error::input(format!("a key has from {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, this one has {len}")))
        }
    }
}
