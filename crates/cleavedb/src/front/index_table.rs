//! The index table: the index of the memtable. It has the newest versions in memory, hashed for point reads and sorted
//! only when a scan or a seal needs it.
//!
//! Versions are appended to pieces of [`PIECE_ENTRIES`] in arrival order. A hash table finds the newest version of a
//! key, and each version has the number of the next older one. A full piece is immutable, so scans share it; a scan
//! copies the piece that is still being filled. Later scans reuse what earlier ones have sorted and copied. There is
//! one writer at a time (the commit path) and any number of readers. Small values are stored inline, large ones as
//! addresses into the log. Range tombstones are stored separately ([`TombstoneIndex`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::index_cursor::IndexCursor;
use super::index_pieces::{
    ENTRY_HEADER_BYTES, IndexEntry, IndexVersion, PIECE_ENTRIES, Piece, merge_orders, numbers, sort_within,
};
use super::tombstone_index::TombstoneIndex;
use crate::base::key::range_end;
use crate::base::kind::{Seqno, Stamp};
use crate::base::ranges::{KeyRange, Mark};
use crate::base::tombstones::{RangeTombstone, RangeTombstones, TombstoneSpan};
use crate::base::{Address, Bytes, FileId, Kind, Result, Slice, full_key};
use crate::format::record::Operation;
use crate::sched::sync::{Mutex, RwLock};

/// Pieces that are kept out of the main order: if there are more, a scan merges them into it.
const RECENT_PIECES_MAX: usize = 8;
/// To make a run of an index table takes about as long per version as reads that pass through this many operands.
const PASSED_PER_ENTRY: usize = 8;
/// A reader gets older versions of a key in parts of about this many bytes, from the first to the largest: it may need few.
const CHAIN_BYTES: std::ops::RangeInclusive<usize> = 1 << 10..=256 << 10;
/// Approximate number of versions sampled for [`IndexTable::marks`].
const MARKS: usize = 128;
/// Memory of a version in addition to its bytes: its entry and its share of the hash table.
const ENTRY_OVERHEAD_BYTES: usize = std::mem::size_of::<IndexEntry>() + 10;

/// The versions of one memtable.
pub struct IndexTable {
    inner: RwLock<Contents>,
    /// True if there are range tombstones. Most tables have none, and readers then skip the search.
    has_ranges: AtomicBool,
    ranges: RwLock<TombstoneIndex>,
    sorted: Mutex<Sorted>,
    bytes: AtomicUsize,
    value_bytes: AtomicU64,
    kept_bytes: AtomicU64,
    entries: AtomicUsize,
    /// How many older versions reads have passed through.
    passed: AtomicUsize,
    seqno_min: AtomicU64,
    seqno_max: AtomicU64,
}

struct Contents {
    frozen: Arc<Vec<Arc<Piece>>>,
    tail: Piece,
    heads: HashTable<u32>,
    /// Reused buffers: the full key that is being inserted, and its payload if that is an address.
    scratch: Vec<u8>,
    payload: Vec<u8>,
}

/// Older versions of one key on their way to a reader. They are copied into one buffer: an allocation for each of a thousand operands
/// of a popular key would take longer than to copy them.
#[derive(Default)]
struct Chain {
    bytes: Vec<u8>,
    /// Each with the end of its payload.
    versions: Vec<(Stamp, usize)>,
}

impl Chain {
    fn push(&mut self, stamp: Stamp, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.versions.push((stamp, self.bytes.len()));
    }

    /// Passes all to `visit`, newest first, until it returns false. False if it did.
    fn pass_on(&mut self, visit: &mut dyn FnMut(Stamp, Slice) -> bool) -> bool {
        if self.versions.is_empty() {
            return true;
        }
        let bytes = Bytes::new(std::mem::take(&mut self.bytes));
        let mut start = 0;
        self.versions.drain(..).all(|(stamp, end)| {
            let payload = Slice::shared(bytes.clone(), start, end - start);
            start = end;
            visit(stamp, payload)
        })
    }
}

/// The orders that scans have sorted, kept for later scans.
#[derive(Default)]
struct Sorted {
    /// The main order: that of the first `pieces` frozen pieces.
    pieces: usize,
    order: Arc<Vec<u32>>,
    /// The order of the frozen pieces from `pieces` up to `recent_end`.
    recent_end: usize,
    recent: Arc<Vec<u32>>,
    /// A copy of the piece that was filled when there were `tail_at` frozen ones, and its order.
    tail_at: usize,
    tail: Arc<Vec<Arc<Piece>>>,
    tail_order: Arc<Vec<u32>>,
}

impl Contents {
    fn version(&self, number: u32) -> (IndexVersion<'_>, IndexEntry) {
        let (piece, slot) = (number as usize / PIECE_ENTRIES, number as usize % PIECE_ENTRIES);
        let piece = self.frozen.get(piece).map_or(&self.tail, |piece| &**piece);
        (piece.version(slot), piece.entries[slot])
    }
}

/// Extends the 32 bits of hash stored per entry to the 64 bits that the hash table uses.
fn spread(hash: u32) -> u64 {
    (hash as u64) << 32 | hash as u64
}

/// The part of the hash of a full key that entries store.
fn hash_key(full: &[u8]) -> u32 {
    xxh3_64(full) as u32
}

impl Default for IndexTable {
    fn default() -> IndexTable {
        IndexTable::new()
    }
}

impl IndexTable {
    /// An empty table.
    pub fn new() -> IndexTable {
        IndexTable {
            inner: RwLock::new(Contents {
                frozen: Arc::default(),
                tail: Piece::default(),
                heads: HashTable::new(),
                scratch: Vec::new(),
                payload: Vec::with_capacity(Address::ENCODED_BYTES_MAX),
            }),
            has_ranges: AtomicBool::new(false),
            ranges: RwLock::new(TombstoneIndex::default()),
            sorted: Mutex::new(Sorted::default()),
            bytes: AtomicUsize::new(0),
            value_bytes: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            entries: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
            seqno_min: AtomicU64::new(u64::MAX),
            seqno_max: AtomicU64::new(0),
        }
    }

    /// Starts an insertion of one or more versions; readers wait until the inserter is dropped.
    pub fn insert(&self) -> Inserter<'_> {
        Inserter { table: self, inner: self.inner.write() }
    }

    /// Memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the separated values, which are in the log.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the records whose values stay in the log when the table is flushed.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Relaxed)
    }

    /// Number of versions and range tombstones.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Reads have passed through so many operands of popular keys that a run, which has these merged, would have been cheaper.
    pub fn is_slow_to_read(&self) -> bool {
        self.passed.load(Ordering::Relaxed) / PASSED_PER_ENTRY > self.len()
    }

    /// True if nothing has been inserted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lowest and the highest sequence number; `None` if the table is empty.
    pub fn seqnos(&self) -> Option<(Seqno, Seqno)> {
        (!self.is_empty())
            .then(|| (Seqno(self.seqno_min.load(Ordering::Relaxed)), Seqno(self.seqno_max.load(Ordering::Relaxed))))
    }

    /// Passes the versions of `full_key` at or below `snapshot` to `visit`, newest first, until it returns false.
    /// O(1) to find the key, then O(1) per version. Beyond the first one it also looks at versions that `visit` may not want: up to
    /// the next base, or some hundred KiB.
    pub fn visit(&self, full_key: &[u8], snapshot: Seqno, visit: &mut dyn FnMut(Stamp, Slice) -> bool) {
        let hash = hash_key(full_key);
        let inner = self.inner.read();
        let head = inner.heads.find(spread(hash), |&number| {
            let (version, entry) = inner.version(number);
            entry.hash == hash && version.key == full_key
        });
        let mut next = head.map_or(0, |&number| number + 1);
        let mut chain = Chain::default();
        let (mut is_first, mut passed, mut part_bytes) = (true, 0, *CHAIN_BYTES.start());
        while let Some(number) = next.checked_sub(1) {
            let (version, entry) = inner.version(number);
            next = entry.older;
            if version.stamp.seqno() > snapshot {
                continue;
            }
            // Most reads need one version. A caller keeps it alone, and not the bytes of others with it.
            if is_first {
                is_first = false;
                if !visit(version.stamp, Slice::copy_from(version.payload)) {
                    return;
                }
                continue;
            }
            chain.push(version.stamp, version.payload);
            passed += 1;
            let is_base = version.stamp.kind().is_some_and(Kind::is_base);
            if is_base || chain.bytes.len() >= part_bytes {
                if !chain.pass_on(visit) {
                    break;
                }
                part_bytes = (2 * part_bytes).min(*CHAIN_BYTES.end());
            }
        }
        chain.pass_on(visit);
        if passed > 0 {
            self.passed.fetch_add(passed, Ordering::Relaxed);
        }
    }

    /// True if the table has range tombstones.
    #[inline]
    pub fn has_ranges(&self) -> bool {
        self.has_ranges.load(Ordering::Acquire)
    }

    /// The newest range tombstone that covers a key for a reader at `snapshot`; 0 if there is none.
    #[inline]
    pub fn cover(&self, full_key: &[u8], snapshot: Seqno) -> Seqno {
        if self.has_ranges() { self.ranges.read().cover(full_key, snapshot) } else { Seqno::ZERO }
    }

    /// All range tombstones, oldest first; the table must be sealed.
    pub fn tombstones(&self) -> Vec<RangeTombstone> {
        self.ranges.read().tombstones().to_vec()
    }

    /// How many range tombstones are in it.
    pub fn range_count(&self) -> usize {
        if self.has_ranges() { self.ranges.read().tombstones().len() } else { 0 }
    }

    /// Cursors that together contain all versions in the table now; later insertions are not visible.
    /// O(n log n) in the number of versions that no earlier call has sorted.
    pub fn cursors(&self) -> Vec<IndexCursor> {
        let mut sorted = self.sorted.lock();
        let frozen = {
            let inner = self.inner.read();
            sorted.take_tail(&inner);
            inner.frozen.clone()
        };
        self.sort_frozen(&mut sorted, &frozen);
        sorted.sort_tail();
        let all = [(&frozen, &sorted.order), (&frozen, &sorted.recent), (&sorted.tail, &sorted.tail_order)];
        let filled = all.into_iter().filter(|(_, order)| !order.is_empty());
        filled.map(|(pieces, order)| IndexCursor::new(pieces.clone(), order.clone())).collect()
    }

    /// One cursor over all versions in a range of keys. The table must be sealed: no insertion may follow.
    pub fn sealed_cursor(&self, range: &KeyRange) -> IndexCursor {
        let pieces = self.all_pieces();
        let count = pieces.iter().map(|piece| piece.entries.len()).sum();
        let order = sort_within(&pieces, 0..count, range);
        IndexCursor::new(Arc::new(pieces), Arc::new(order))
    }

    /// The distribution of bytes over keys, from a sample of the versions.
    pub fn marks(&self) -> Vec<Mark> {
        let pieces = self.all_pieces();
        let step = (self.len() / MARKS).max(1);
        let bytes = (self.bytes() * step / self.len().max(1)) as u64;
        let slots = pieces.iter().flat_map(|piece| (0..piece.entries.len()).map(move |slot| piece.version(slot).key));
        slots.step_by(step).map(|key| Mark::new(key, bytes)).collect()
    }

    fn all_pieces(&self) -> Vec<Arc<Piece>> {
        let inner = self.inner.read();
        inner.frozen.iter().cloned().chain([Arc::new(inner.tail.clone())]).collect()
    }

    /// Sorts new frozen pieces, and merges the recent order into the main order if it has too many pieces.
    fn sort_frozen(&self, sorted: &mut Sorted, frozen: &[Arc<Piece>]) {
        if sorted.recent_end < frozen.len() {
            let new = sort_within(frozen, numbers(sorted.recent_end..frozen.len()), &KeyRange::default());
            self.bytes.fetch_add(size_of_val(&*new), Ordering::Relaxed);
            sorted.recent = Arc::new(merge_orders(frozen, &sorted.recent, &new));
            sorted.recent_end = frozen.len();
        }
        if sorted.pieces + RECENT_PIECES_MAX < frozen.len() {
            sorted.order = Arc::new(merge_orders(frozen, &sorted.order, &sorted.recent));
            (sorted.pieces, sorted.recent) = (frozen.len(), Arc::default());
        }
    }
}

impl Sorted {
    /// Copies the piece that is being filled, if it has changed.
    fn take_tail(&mut self, inner: &Contents) {
        let held = self.tail.first().map_or(0, |piece| piece.entries.len());
        if self.tail_at != inner.frozen.len() {
            (self.tail_at, self.tail_order) = (inner.frozen.len(), Arc::default());
        } else if held == inner.tail.entries.len() {
            return;
        }
        self.tail = Arc::new(vec![Arc::new(inner.tail.clone())]);
    }

    /// Sorts the new versions of the copy.
    fn sort_tail(&mut self) {
        let count = self.tail.first().map_or(0, |piece| piece.entries.len());
        if self.tail_order.len() < count {
            let new = sort_within(&self.tail, self.tail_order.len()..count, &KeyRange::default());
            self.tail_order = Arc::new(merge_orders(&self.tail, &self.tail_order, &new));
        }
    }
}

impl RangeTombstones for IndexTable {
    fn span_at(&self, key: &[u8], snapshot: Seqno) -> Result<TombstoneSpan> {
        Ok(self.ranges.read().span_at(key, snapshot))
    }
}

/// The position of the next record of a frame.
#[derive(Clone, Copy)]
pub struct RecordPlace {
    /// The log.
    pub log: FileId,
    /// The offset in the log, in bytes.
    pub offset: u64,
}

/// Value sizes, in bytes, from which on values are stored separately, in the log instead of the index table.
#[derive(Debug, Clone, Copy)]
pub struct SeparationThresholds {
    /// From this size on while the key is in the front.
    pub in_front: usize,
    /// From this size on after the key is flushed, too. Operands of any size are stored inline then.
    pub after_flush: usize,
}

impl SeparationThresholds {
    /// True if a value stays in the log when its key is flushed.
    pub fn stays(self, kind: Kind, value_len: usize) -> bool {
        kind.inline() == Kind::Put && value_len >= self.after_flush
    }
}

/// Exclusive access for insertions.
pub struct Inserter<'a> {
    table: &'a IndexTable,
    inner: crate::sched::sync::RwLockWriteGuard<'a, Contents>,
}

impl Inserter<'_> {
    /// Inserts the record at `place`, and moves `place` behind it. Values below the threshold are stored inline, larger
    /// ones as their address.
    pub fn add_record(
        &mut self,
        operation: &Operation<'_>,
        seqno: Seqno,
        place: &mut RecordPlace,
        thresholds: SeparationThresholds,
    ) {
        let prefix = operation.keyspace.prefix();
        let len = operation.record_bytes();
        let value_len = operation.value.len();
        if operation.kind == Kind::DeleteRange {
            let start = full_key(operation.keyspace, operation.key);
            self.add_range(start, range_end(operation.keyspace, operation.value), seqno);
        } else if value_len < thresholds.in_front {
            self.add(&prefix, operation.key, Stamp::new(seqno, operation.kind), operation.value, 0);
        } else {
            let (len, value_bytes) = (len as u32, value_len as u32);
            let address = Address { file: place.log, offset: place.offset, len, value_len: value_bytes };
            let mut payload = std::mem::take(&mut self.inner.payload);
            payload.clear();
            address.encode(&mut payload);
            self.add(&prefix, operation.key, Stamp::new(seqno, operation.kind.addressed()), &payload, value_len);
            self.inner.payload = payload;
            if thresholds.stays(operation.kind, value_len) {
                self.table.kept_bytes.fetch_add(len as u64, Ordering::Relaxed);
            }
        }
        place.offset += len as u64;
    }

    /// Inserts one version; sequence numbers must ascend. `value_bytes` is the size of the value if the payload is an
    /// address.
    pub fn add(&mut self, prefix: &[u8], key: &[u8], stamp: Stamp, payload: &[u8], value_bytes: usize) {
        let Contents { frozen, tail, heads, scratch, .. } = &mut *self.inner;
        let number = (frozen.len() * PIECE_ENTRIES + tail.entries.len()) as u32;
        scratch.clear();
        scratch.extend_from_slice(prefix);
        scratch.extend_from_slice(key);
        let hash = hash_key(scratch);
        let lookup = |number: u32| {
            let (piece, slot) = (number as usize / PIECE_ENTRIES, number as usize % PIECE_ENTRIES);
            (frozen.get(piece).map_or(&*tail, |piece| &**piece), slot)
        };
        let same = |&other: &u32| {
            let (piece, slot) = lookup(other);
            piece.entries[slot].hash == hash && piece.version(slot).key == *scratch
        };
        let rehash = |&other: &u32| {
            let (piece, slot) = lookup(other);
            spread(piece.entries[slot].hash)
        };
        let older = match heads.entry(spread(hash), same, rehash) {
            hashbrown::hash_table::Entry::Occupied(mut entry) => std::mem::replace(entry.get_mut(), number) + 1,
            hashbrown::hash_table::Entry::Vacant(entry) => {
                entry.insert(number);
                0
            }
        };
        tail.push(hash, older, prefix, key, stamp, payload);
        if tail.entries.len() == PIECE_ENTRIES {
            let mut full = std::mem::take(tail);
            // Reserve a little more than the full piece has used, so that most pieces need not grow; free what is
            // unused.
            tail.bytes.reserve(full.bytes.len() + full.bytes.len() / 16);
            full.bytes.shrink_to_fit();
            tail.entries.reserve(PIECE_ENTRIES);
            Arc::make_mut(frozen).push(Arc::new(full));
        }
        let bytes = ENTRY_HEADER_BYTES + ENTRY_OVERHEAD_BYTES + prefix.len() + key.len() + payload.len();
        self.table.value_bytes.fetch_add(value_bytes as u64, Ordering::Relaxed);
        self.count(bytes, stamp.seqno());
    }

    /// Inserts a range tombstone; sequence numbers must ascend.
    pub fn add_range(&mut self, start: Vec<u8>, end: Vec<u8>, seqno: Seqno) {
        let bytes = self.table.ranges.write().push(start, end, seqno);
        self.table.has_ranges.store(true, Ordering::Release);
        self.count(bytes, seqno);
    }

    fn count(&self, bytes: usize, seqno: Seqno) {
        self.table.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.table.entries.fetch_add(1, Ordering::Relaxed);
        self.table.seqno_min.fetch_min(seqno.0, Ordering::Relaxed);
        self.table.seqno_max.fetch_max(seqno.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "index_table_test.rs"]
mod tests;
