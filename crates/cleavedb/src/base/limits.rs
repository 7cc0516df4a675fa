//! Every limit of the store, checked before anything durable happens, with the relations between them asserted at
//! compile time. Sizes are in bytes.

/// Shortest user key.
pub const KEY_BYTES_MIN: usize = 1;
/// Longest user key.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Values are shorter than this.
pub const VALUE_BYTES_LIMIT: usize = 1 << 30;
/// The encoded records of one batch are shorter than this, unless it is a single operation within its own limits.
pub const BATCH_BYTES_LIMIT: usize = 1 << 30;
/// Longest name of a keyspace.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;
/// Unless a user chose otherwise, values from this size on lie apart from their keys, and smaller ones with them. No larger
/// value than this lies in the index table. (HashKV, section 3.5: the best threshold lies between 128 and 256 B.)
pub const SEPARATION_BYTES_DEFAULT: usize = 192;
/// Unless a user chose otherwise, so much garbage may lie in files of values, in hundredths of what is live in them...
pub const GARBAGE_PERCENT_DEFAULT: u32 = 30;
/// ...and in bytes beside.
pub const GARBAGE_BYTES_DEFAULT: u64 = 256 << 20;
/// Smaller values are not compressed when they are moved: there is little to save.
pub const COMPRESSED_VALUE_BYTES_MIN: usize = 128;
/// Nor are those of larger records, which are copied piece by piece and not held as a whole.
pub const COMPRESSED_RECORD_BYTES_MAX: usize = 1 << 20;
/// The keyspace prefix of a full key.
pub const KEYSPACE_PREFIX_BYTES: usize = 4;
/// Unit of direct I/O and of torn writes that the formats align to.
pub const BLOCK_IO_BYTES: usize = 4096;
/// Sequence numbers use 56 bits, so that a stamp (sequence number and kind) fits one word.
pub const SEQNO_MAX: u64 = (1 << 56) - 1;
/// Largest number of a file. A file with a larger one is not ours.
pub const FILE_ID_MAX: u64 = (1 << 56) - 1;
/// Smallest `memory_budget` with which the store can work.
pub const MEMORY_BUDGET_MIN: usize = 16 << 20;

const _: () = assert!(FILE_ID_MAX < u64::MAX);
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(VALUE_BYTES_LIMIT <= u32::MAX as usize / 2);
const _: () = assert!(BATCH_BYTES_LIMIT >= VALUE_BYTES_LIMIT);
const _: () = assert!(COMPRESSED_VALUE_BYTES_MIN < COMPRESSED_RECORD_BYTES_MAX);
const _: () = assert!(BATCH_BYTES_LIMIT <= u32::MAX as usize / 2);
const _: () = assert!(SEPARATION_BYTES_DEFAULT < VALUE_BYTES_LIMIT);
