//! A record of an import or export file, and the check of its limits. Readers check them, so that the error can give the
//! position in the file.

use cleavedb::limits::{KEY_BYTES_MAX, KEY_BYTES_MIN, VALUE_BYTES_LIMIT};

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// Checks the limits of the engine for a key and a value.
///
/// # Errors
/// A sentence with the length and the limit.
pub fn check_limits(key_len: usize, value_len: usize) -> Result<(), String> {
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key_len) {
        return Err(format!("a key of {key_len} bytes, but {KEY_BYTES_MIN} to {KEY_BYTES_MAX} are allowed"));
    }
    if value_len >= VALUE_BYTES_LIMIT {
        return Err(format!("a value of {value_len} bytes, but it must be shorter than {VALUE_BYTES_LIMIT}"));
    }
    Ok(())
}
