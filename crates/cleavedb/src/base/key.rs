//! Keyspaces and full keys. A full key is the keyspace id (four bytes, big-endian) followed by the user key, so that
//! byte order sorts by keyspace first, and one tree stores all keyspaces.

use super::limits::{KEY_BYTES_MAX, KEYSPACE_PREFIX_BYTES};

/// The number of a keyspace; never reused within a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

impl KeyspaceId {
    /// The first four bytes of every full key in this keyspace.
    pub fn prefix(self) -> [u8; KEYSPACE_PREFIX_BYTES] {
        self.0.to_be_bytes()
    }
}

/// Joins a keyspace and a user key.
pub fn full_key(keyspace: KeyspaceId, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(KEYSPACE_PREFIX_BYTES + key.len());
    full.extend_from_slice(&keyspace.prefix());
    full.extend_from_slice(key);
    full
}

/// Splits a full key; `None` if it is shorter than a keyspace prefix.
pub fn split_key(full: &[u8]) -> Option<(KeyspaceId, &[u8])> {
    let (prefix, key) = full.split_first_chunk::<KEYSPACE_PREFIX_BYTES>()?;
    Some((KeyspaceId(u32::from_be_bytes(*prefix)), key))
}

/// The full key at which a range of user keys up to `end` ends (exclusive); an empty `end` means the end of the
/// keyspace.
pub fn range_end(keyspace: KeyspaceId, end: &[u8]) -> Vec<u8> {
    match end.is_empty() {
        true => prefix_end(&keyspace.prefix()).unwrap_or_else(|| vec![0xff; KEYSPACE_PREFIX_BYTES + KEY_BYTES_MAX]),
        false => full_key(keyspace, end),
    }
}

/// The smallest byte string above all strings that start with `prefix`; `None` if all its bytes are 0xff.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=keep].to_vec();
    end[keep] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_keys_sort_by_keyspace_then_key() {
        let low = full_key(KeyspaceId(1), b"zzz");
        let high = full_key(KeyspaceId(256), b"a");
        assert!(low < high);
        assert_eq!(split_key(&high), Some((KeyspaceId(256), &b"a"[..])));
        assert_eq!(split_key(b"abc"), None);
    }

    #[test]
    fn a_range_without_an_end_ends_with_its_keyspace() {
        assert_eq!(range_end(KeyspaceId(1), b"k"), full_key(KeyspaceId(1), b"k"));
        assert_eq!(range_end(KeyspaceId(1), b""), KeyspaceId(2).prefix());
        assert!(range_end(KeyspaceId(u32::MAX), b"") > full_key(KeyspaceId(u32::MAX), &[0xff; 1000]));
    }

    #[test]
    fn prefix_end_drops_trailing_ff_bytes() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
