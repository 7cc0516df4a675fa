//! A batch of operations in the form in which it is committed: the encoded operations, and the keyspaces that they
//! write to. Filled by the handles in `api/`, committed by `write/commit.rs`.

use std::ops::Bound;
use std::sync::Arc;

use crate::base::key::prefix_end;
use crate::base::{Error, KeyspaceId, Kind, Result, limits};
use crate::engine::keyspaces::{KeyspaceState, unsupported};
use crate::format::keyspace_record::KeyspaceKind;
use crate::format::record::{self, Operation};
use crate::hash::store::HashStore;

const ENTRY_HEADER_BYTES: usize = 11;

/// Operations to be committed atomically. A later operation on a key overrides an earlier one. If an operation exceeds
/// a limit, the batch keeps the error, and the write rejects the whole batch.
#[derive(Clone, Default)]
pub(crate) struct Batch {
    /// Operations, each `kind u8 | keyspace u32 | key_len u16 | value_len u32 | key | value`.
    bytes: Vec<u8>,
    len: usize,
    keyspaces: Vec<Arc<KeyspaceState>>,
    invalid: Option<Error>,
    /// It moves records and changes no value.
    is_move: bool,
}

impl Batch {
    /// A batch that moves records of the database: it changes no value that any reader sees.
    pub fn of_moves() -> Batch {
        Batch { is_move: true, ..Batch::default() }
    }

    /// It moves records and changes no value.
    pub fn is_move(&self) -> bool {
        self.is_move
    }

    /// Removes all keys between two bounds.
    pub fn delete_range(&mut self, keyspace: &Arc<KeyspaceState>, start: Bound<&[u8]>, end: Bound<&[u8]>) {
        for bound in [start, end] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound
                && key.len() > limits::KEY_BYTES_MAX
            {
                self.refuse(format!("a bound has at most {} bytes, this one has {}", limits::KEY_BYTES_MAX, key.len()));
                return;
            }
        }
        if keyspace.hash.is_some() {
            self.invalid.get_or_insert(unsupported("delete_range", keyspace));
            return;
        }
        match first_and_end(start, end) {
            Some((first, end)) => self.append(keyspace, Kind::DeleteRange, &first, &end),
            None => self.know(keyspace),
        }
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.invalid.is_none()
    }

    /// Removes all operations and keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.keyspaces.clear();
        self.len = 0;
        self.invalid = None;
        self.is_move = false;
    }

    /// Adds a copy of what the database has already, or an equal value. It was accepted once, whether or not its merge operator is
    /// there now, and the job that moves records bounds what is written together.
    pub fn push_copy(&mut self, keyspace: &Arc<KeyspaceState>, kind: Kind, key: &[u8], value: &[u8]) {
        self.encode(keyspace, kind, key, value);
    }

    pub fn push(&mut self, keyspace: &Arc<KeyspaceState>, kind: Kind, key: &[u8], value: &[u8]) {
        if let Err(error) = check_sizes(key, value) {
            self.invalid.get_or_insert(error);
            return;
        }
        self.append(keyspace, kind, key, value);
    }

    fn append(&mut self, keyspace: &Arc<KeyspaceState>, kind: Kind, key: &[u8], value: &[u8]) {
        let record_bytes = record::HEADER_BYTES + key.len() + value.len();
        // A single operation is limited by its own limits only.
        if self.len > 0 && self.record_bytes() as usize + record_bytes >= limits::BATCH_BYTES_LIMIT {
            self.refuse(format!("a batch is smaller than {} bytes", limits::BATCH_BYTES_LIMIT));
            return;
        }
        if kind == Kind::Delta && keyspace.operator.is_none() {
            self.refuse(match &keyspace.record.operator {
                Some(name) => {
                    format!("merge operator {name:?} of keyspace {:?} is not registered", keyspace.record.name)
                }
                None => format!("keyspace {:?} has no merge operator", keyspace.record.name),
            });
            return;
        }
        self.encode(keyspace, kind, key, value);
    }

    fn encode(&mut self, keyspace: &Arc<KeyspaceState>, kind: Kind, key: &[u8], value: &[u8]) {
        self.bytes.reserve(ENTRY_HEADER_BYTES + key.len() + value.len());
        self.bytes.push(kind as u8);
        self.bytes.extend_from_slice(&keyspace.record.id.0.to_le_bytes());
        self.bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.len += 1;
        self.know(keyspace);
    }

    /// Adds the keyspace to those that [`check`](Batch::check) examines when the batch is written.
    fn know(&mut self, keyspace: &Arc<KeyspaceState>) {
        if !self.keyspaces.iter().any(|other| Arc::ptr_eq(other, keyspace)) {
            self.keyspaces.push(keyspace.clone());
        }
    }

    /// Says of what kind the keyspaces of its operations are; fast for the keyspace asked for last.
    pub fn kinds(&self) -> impl FnMut(KeyspaceId) -> KeyspaceKind {
        let mut last = None::<(KeyspaceId, KeyspaceKind)>;
        move |id| match last {
            Some((known, kind)) if known == id => kind,
            _ => {
                let found = self.keyspaces.iter().find(|keyspace| keyspace.record.id == id);
                let kind = found.expect("a batch knows the keyspaces of its operations").record.kind;
                last = Some((id, kind));
                kind
            }
        }
    }

    /// Some operations write to hash keyspaces.
    pub fn writes_hashed(&self) -> bool {
        self.keyspaces.iter().any(|keyspace| keyspace.hash.is_some())
    }

    /// The hash index of the keyspace of an operation; fast for the keyspace asked for last.
    pub fn indexes<'a>(&'a self) -> impl FnMut(KeyspaceId) -> Option<&'a HashStore> {
        let mut last = None::<&KeyspaceState>;
        move |id| {
            let known = last.filter(|known| known.record.id == id);
            let of_id = || self.keyspaces.iter().find(|keyspace| keyspace.record.id == id).map(|keyspace| &**keyspace);
            last = known.or_else(of_id);
            last.and_then(|keyspace| keyspace.hash.as_deref())
        }
    }

    fn refuse(&mut self, message: String) {
        self.invalid.get_or_insert(Error::input(message));
    }

    /// Rejects a batch that exceeds a limit, or writes to a keyspace that was dropped or belongs to another database.
    pub fn check(&self, database: u64) -> Result<()> {
        if let Some(error) = &self.invalid {
            return Err(error.clone());
        }
        self.keyspaces.iter().try_for_each(|keyspace| keyspace.check(database))
    }

    /// Bytes of the records in the log.
    pub fn record_bytes(&self) -> u64 {
        self.bytes.len() as u64 + (self.len * (record::HEADER_BYTES - ENTRY_HEADER_BYTES)) as u64
    }

    /// Capacity of the buffer for operations, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The operations in order.
    pub fn operations(&self) -> Operations<'_> {
        Operations { rest: &self.bytes }
    }
}

/// The first key of a range (empty: unbounded) and the first key after it (empty: unbounded); `None` if the range is
/// empty. The bounds do not exceed the key size limit.
fn first_and_end(start: Bound<&[u8]>, end: Bound<&[u8]>) -> Option<(Vec<u8>, Vec<u8>)> {
    // A key of the greatest length is a prefix of no other key.
    let after = |key: &[u8]| match key.len() {
        limits::KEY_BYTES_MAX => prefix_end(key),
        _ => Some([key, &[0][..]].concat()),
    };
    let first = match start {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => after(key)?,
        Bound::Unbounded => Vec::new(),
    };
    let end = match end {
        Bound::Included(key) => after(key).unwrap_or_default(),
        Bound::Excluded([]) => return None,
        Bound::Excluded(key) => key.to_vec(),
        Bound::Unbounded => Vec::new(),
    };
    (end.is_empty() || first < end).then_some((first, end))
}

fn check_sizes(key: &[u8], value: &[u8]) -> Result<()> {
    limits::check_key(key.len())?;
    if value.len() >= limits::VALUE_BYTES_LIMIT {
        let (limit, len) = (limits::VALUE_BYTES_LIMIT, value.len());
        return Err(Error::input(format!("a value has less than {limit} bytes, this one has {len}")));
    }
    Ok(())
}

/// Iterates over a batch.
pub(crate) struct Operations<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Operations<'a> {
    type Item = Operation<'a>;

    fn next(&mut self) -> Option<Operation<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<ENTRY_HEADER_BYTES>()?;
        let kind = Kind::from_u8(header[0]).expect("a batch contains only known kinds");
        let keyspace = KeyspaceId(u32::from_le_bytes([header[1], header[2], header[3], header[4]]));
        let key_len = u16::from_le_bytes([header[5], header[6]]) as usize;
        let value_len = u32::from_le_bytes([header[7], header[8], header[9], header[10]]) as usize;
        let (key, rest) = rest.split_at(key_len);
        let (value, rest) = rest.split_at(value_len);
        self.rest = rest;
        Some(Operation { kind, keyspace, key, value })
    }
}
