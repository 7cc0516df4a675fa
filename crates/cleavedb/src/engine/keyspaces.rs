//! The keyspaces of an open database. A keyspace is an id that prefixes its keys, so an additional keyspace costs only
//! the memory of its name and options. Changed by the calls that create, change and drop keyspaces; read by reads,
//! writes and jobs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::base::limits::SEPARATION_BYTES_DEFAULT;
use crate::base::{Error, KeyspaceId, MergeOperator, OperatorSource, Result, Seqno};
use crate::engine::manifest::ManifestState;
use crate::engine::scan_lengths::ScanLengths;
use crate::engine::tuning::sizes::Tuning;
use crate::format::compression::Compression;
use crate::format::keyspace_record::{DeltaPlacement, KeyspaceKind, KeyspaceRecord, Separation};
use crate::format::record::HEADER_BYTES;
use crate::hash::index::Spread;
use crate::hash::store::HashStore;
use crate::sched::sync::RwLock;

/// The name of the keyspace that every database has.
pub(crate) const DEFAULT_NAME: &str = "default";

/// The id of that keyspace.
pub(crate) const DEFAULT_ID: KeyspaceId = KeyspaceId(1);

/// The state of an open keyspace.
pub(crate) struct KeyspaceState {
    pub record: KeyspaceRecord,
    pub operator: Option<Arc<dyn MergeOperator>>,
    /// The compression chosen for this keyspace, if any.
    pub compression: Option<Compression>,
    /// The least size of a separated value, in bytes.
    separation: AtomicUsize,
    /// Flushes write its merge operands to buckets.
    deltas_in_buckets: AtomicBool,
    /// The index of a hash keyspace.
    pub hash: Option<Arc<HashStore>>,
    /// How many keys its scans return.
    pub scan_lengths: ScanLengths,
    /// The open database that it belongs to.
    pub database: u64,
    dropped: AtomicBool,
}

impl KeyspaceState {
    /// The least size of a separated value, in bytes.
    pub fn separation_bytes(&self) -> usize {
        self.separation.load(Ordering::Relaxed)
    }

    /// Where flushes write its merge operands.
    pub fn delta_placement(&self) -> DeltaPlacement {
        match self.deltas_in_buckets.load(Ordering::Relaxed) {
            true => DeltaPlacement::Buckets,
            false => DeltaPlacement::Levels,
        }
    }

    /// Rejects keyspaces that were dropped or belong to another database.
    pub fn check(&self, database: u64) -> Result<()> {
        if self.database != database {
            return Err(Error::input(format!("keyspace {:?} belongs to another database", self.record.name)));
        }
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::NotFound { what: format!("keyspace {:?} (it was dropped)", self.record.name) });
        }
        Ok(())
    }
}

/// The error of an operation that hash keyspaces do not have.
pub(crate) fn unsupported(operation: &str, keyspace: &KeyspaceState) -> Error {
    let name = &keyspace.record.name;
    Error::UnsupportedOperation {
        message: format!("{operation} needs an ordered keyspace, and keyspace {name:?} keeps its keys by hash"),
    }
}

/// All keyspaces of an open database.
pub(crate) struct Keyspaces {
    inner: RwLock<KeyspaceMaps>,
    operators: Vec<Arc<dyn MergeOperator>>,
    database: u64,
    /// The seed of the hashes of new indexes, and what these share.
    seed: u64,
    hash_spread: Spread,
    /// The least size of a separated value in keyspaces without an option of their own.
    separation_default: usize,
    /// No keyspace separates smaller values.
    separation_min: AtomicUsize,
    /// How often a keyspace was dropped, or its operands placed elsewhere.
    changes: AtomicU64,
}

#[derive(Default)]
struct KeyspaceMaps {
    by_name: BTreeMap<String, Arc<KeyspaceState>>,
    by_id: BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    /// The hash keyspaces among them.
    hashed: BTreeMap<KeyspaceId, Arc<KeyspaceState>>,
    /// Dropped keyspaces of which files may still have versions, each with the sequence number of the drop.
    dropped: BTreeMap<KeyspaceId, Seqno>,
    /// Memory of the keyspaces, here and in the manifest.
    bytes: usize,
}

/// Memory of a keyspace, here and in the manifest, without its names: two records, the state, and entries in three
/// maps.
const OVERHEAD_BYTES: usize = 400;

fn bytes_of(record: &KeyspaceRecord) -> usize {
    OVERHEAD_BYTES + 3 * record.name.len() + 2 * record.operator.as_ref().map_or(0, String::len)
}

impl Keyspaces {
    /// The keyspaces of a manifest, with the indexes that recovery has filled.
    pub fn new(
        state: &ManifestState,
        mut indexes: BTreeMap<KeyspaceId, Arc<HashStore>>,
        operators: Vec<Arc<dyn MergeOperator>>,
        database: u64,
        tuning: &Tuning,
    ) -> Keyspaces {
        let (separation_default, hash_spread) = (tuning.separation_bytes, tuning.hash_spread);
        let dropped = state.dropped.clone();
        let inner = RwLock::new(KeyspaceMaps { dropped, ..KeyspaceMaps::default() });
        let separation_min = AtomicUsize::new(separation_default.min(SEPARATION_BYTES_DEFAULT));
        let changes = AtomicU64::new(0);
        let seed = state.database;
        let keyspaces =
            Keyspaces { inner, operators, database, seed, hash_spread, separation_default, separation_min, changes };
        for record in state.keyspaces.values().cloned() {
            let index = indexes.remove(&record.id);
            keyspaces.add_with(record, index);
        }
        keyspaces
    }

    /// Adds a keyspace.
    pub fn add(&self, record: KeyspaceRecord) -> Arc<KeyspaceState> {
        self.add_with(record, None)
    }

    fn add_with(&self, record: KeyspaceRecord, index: Option<Arc<HashStore>>) -> Arc<KeyspaceState> {
        let new_index = || Arc::new(HashStore::new(self.seed, self.hash_spread, HEADER_BYTES));
        let hash = (record.kind == KeyspaceKind::Hash).then(|| index.unwrap_or_else(new_index));
        let operator = record.operator.as_deref().and_then(|name| self.find_operator(name));
        let compression = record.compression.and_then(Compression::from_u8);
        let dropped = AtomicBool::new(false);
        let separation = AtomicUsize::new(record.separation.bytes(self.separation_default));
        let (scan_lengths, database) = (ScanLengths::default(), self.database);
        let deltas_in_buckets = AtomicBool::new(record.deltas == DeltaPlacement::Buckets);
        let state = Arc::new(KeyspaceState {
            record,
            operator,
            compression,
            separation,
            deltas_in_buckets,
            hash,
            scan_lengths,
            database,
            dropped,
        });
        let mut inner = self.inner.write();
        match state.record.kind {
            KeyspaceKind::Ordered => {
                self.separation_min.fetch_min(state.separation_bytes(), Ordering::Relaxed);
            }
            KeyspaceKind::Hash => drop(inner.hashed.insert(state.record.id, state.clone())),
        }
        inner.bytes += bytes_of(&state.record);
        inner.by_name.insert(state.record.name.clone(), state.clone());
        inner.by_id.insert(state.record.id, state.clone());
        state
    }

    /// The registered operator of this name.
    pub fn find_operator(&self, name: &str) -> Option<Arc<dyn MergeOperator>> {
        self.operators.iter().find(|operator| operator.name() == name).cloned()
    }

    pub fn find(&self, name: &str) -> Option<Arc<KeyspaceState>> {
        self.inner.read().by_name.get(name).cloned()
    }

    /// The keyspace with this number, unless it was dropped.
    pub fn with_id(&self, id: KeyspaceId) -> Option<Arc<KeyspaceState>> {
        self.inner.read().by_id.get(&id).cloned()
    }

    pub fn names(&self) -> Vec<String> {
        self.inner.read().by_name.keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.inner.read().by_name.len()
    }

    /// Memory of all keyspaces, in bytes.
    pub fn bytes(&self) -> usize {
        self.inner.read().bytes
    }

    /// The hash keyspaces.
    pub fn hashed(&self) -> Vec<Arc<KeyspaceState>> {
        self.inner.read().hashed.values().cloned().collect()
    }

    /// There are hash keyspaces, or some were dropped lately.
    pub fn has_hashed(&self) -> bool {
        let inner = self.inner.read();
        !inner.hashed.is_empty() || !inner.dropped.is_empty()
    }

    /// Memory of the indexes of hash keyspaces, in bytes.
    pub fn index_bytes(&self) -> usize {
        let inner = self.inner.read();
        inner.hashed.values().filter_map(|keyspace| keyspace.hash.as_ref()).map(|index| index.memory_bytes()).sum()
    }

    /// Marks a keyspace as dropped at `seqno`. Jobs drop its versions when they next rewrite them.
    pub fn remove(&self, keyspace: &KeyspaceState, seqno: Seqno) {
        let mut inner = self.inner.write();
        keyspace.dropped.store(true, Ordering::Release);
        if inner.by_name.remove(&keyspace.record.name).is_some() {
            inner.bytes -= bytes_of(&keyspace.record);
        }
        inner.by_id.remove(&keyspace.record.id);
        inner.hashed.remove(&keyspace.record.id);
        inner.dropped.insert(keyspace.record.id, seqno);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Forgets dropped keyspaces of which no file has versions any more.
    pub fn forget(&self, keyspaces: &[KeyspaceId]) {
        let mut inner = self.inner.write();
        for keyspace in keyspaces {
            inner.dropped.remove(keyspace);
        }
    }

    /// Dropped keyspaces of which files may still have versions, each with the sequence number of the drop.
    pub fn dropped(&self) -> BTreeMap<KeyspaceId, Seqno> {
        self.inner.read().dropped.clone()
    }

    /// Values of at least this size stay in the log while their keys are in the front.
    pub fn separation_min(&self) -> usize {
        self.separation_min.load(Ordering::Relaxed)
    }

    /// Changes the least size of a separated value for values that are written to a keyspace from now on.
    pub fn set_separation(&self, keyspace: &KeyspaceState, separation: Separation) {
        let bytes = separation.bytes(self.separation_default);
        keyspace.separation.store(bytes, Ordering::Relaxed);
        self.separation_min.fetch_min(bytes, Ordering::Relaxed);
    }

    /// Changes where the next flush writes the merge operands of a keyspace.
    pub fn set_delta_placement(&self, keyspace: &KeyspaceState, deltas: DeltaPlacement) {
        keyspace.deltas_in_buckets.store(deltas == DeltaPlacement::Buckets, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// A number that has changed if a keyspace was dropped, or its operands placed elsewhere.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Where flushes write the merge operands of a keyspace.
    pub fn delta_placement(&self, keyspace: KeyspaceId) -> DeltaPlacement {
        self.inner.read().by_id.get(&keyspace).map_or(DeltaPlacement::Levels, |state| state.delta_placement())
    }

    /// The least size of a separated value of a keyspace, in bytes.
    pub fn separation_bytes(&self, keyspace: KeyspaceId) -> usize {
        self.inner.read().by_id.get(&keyspace).map_or(usize::MAX, |state| state.separation_bytes())
    }

    /// As [`separation_bytes`](Keyspaces::separation_bytes), for a sequence of versions: it caches the last result,
    /// because most versions are in the keyspace of the one before.
    pub fn separations(&self) -> impl FnMut(KeyspaceId) -> usize {
        let mut last = None;
        move |keyspace| match last {
            Some((known, bytes)) if known == keyspace => bytes,
            _ => last.insert((keyspace, self.separation_bytes(keyspace))).1,
        }
    }

    /// The compression chosen for a keyspace, if any.
    pub fn compression(&self, keyspace: KeyspaceId) -> Option<Compression> {
        self.inner.read().by_id.get(&keyspace).and_then(|state| state.compression)
    }
}

impl OperatorSource for Keyspaces {
    fn operator(&self, keyspace: KeyspaceId) -> Option<Arc<dyn MergeOperator>> {
        self.inner.read().by_id.get(&keyspace)?.operator.clone()
    }
}
