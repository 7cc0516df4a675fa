//! The bounds of a scan as full keys. Built by the handles in `api/` from ranges and prefixes of user keys; used by
//! scans and size estimates.

use std::ops::Bound;

use crate::base::key::prefix_end;
use crate::base::key_bounds::Between;
use crate::base::{KeyspaceId, full_key};

/// Full keys: from `lower`, up to but not including `upper`.
pub(crate) struct Bounds {
    pub lower: Vec<u8>,
    /// `None`: no upper bound.
    pub upper: Option<Vec<u8>>,
}

impl Bounds {
    /// The part of `keyspace` within `range`.
    pub fn of_range(keyspace: KeyspaceId, (start, end): Between<'_>) -> Bounds {
        let after = |key: &[u8]| {
            let mut full = full_key(keyspace, key);
            full.push(0);
            full
        };
        let lower = match start {
            Bound::Included(key) => full_key(keyspace, key),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => keyspace.prefix().to_vec(),
        };
        let upper = match end {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(full_key(keyspace, key)),
            Bound::Unbounded => prefix_end(&keyspace.prefix()),
        };
        Bounds { lower, upper }
    }

    pub fn of_prefix(keyspace: KeyspaceId, prefix: &[u8]) -> Bounds {
        let lower = full_key(keyspace, prefix);
        Bounds { upper: prefix_end(&lower), lower }
    }

    pub fn is_empty(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| *upper <= self.lower)
    }

    pub fn above(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_some_and(|upper| key >= &upper[..])
    }
}
