//! A record on its way from or into a file, and the limits that are checked while it is still known where in the file it
//! stands.

use cleavedb::limits::{KEY_BYTES_MAX, KEY_BYTES_MIN, VALUE_BYTES_LIMIT};

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// Refuses here what the engine would refuse, while it is still known where in the file the record stands.
pub fn check_limits(key_len: usize, value_len: usize) -> Result<(), String> {
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key_len) {
        return Err(format!("a key of {key_len} bytes, and {KEY_BYTES_MIN} to {KEY_BYTES_MAX} are allowed"));
    }
    if value_len >= VALUE_BYTES_LIMIT {
        return Err(format!("a value of {value_len} bytes, and it must be shorter than {VALUE_BYTES_LIMIT}"));
    }
    Ok(())
}
