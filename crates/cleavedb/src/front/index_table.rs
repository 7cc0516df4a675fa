//! The index table: recent versions in memory, hashed for point reads and sorted late.
//!
//! Versions are appended to pieces of [`PIECE_ENTRIES`] in arrival order; a hash table finds the newest version of a
//! key, and each version names the next older one. A full piece never changes again, so a scan shares it; the short piece that
//! is still being filled it copies. What a scan has sorted or copied the next one has. One writer at a time (the
//! commit path); any number of readers. Small values lie inside, large ones are addresses into the log. Range tombstones
//! lie apart ([`TombstoneIndex`]).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::tombstone_index::TombstoneIndex;
use crate::base::cursor::{compare, leading_bytes};
use crate::base::key::range_end;
use crate::base::kind::{Seqno, Stamp};
use crate::base::ranges::{KeyRange, Mark};
use crate::base::tombstones::{RangeTombstone, RangeTombstones, Stretch};
use crate::base::{Address, Cursor, FileId, Kind, Result, Slice, full_key};
use crate::format::record::Operation;
use crate::sched::sync::{Mutex, RwLock};

/// Versions in one piece; the most that a scan has to copy.
pub const PIECE_ENTRIES: usize = 512;
/// A scan merges at most this many pieces by itself; beyond, they join the table's sorted order.
const LOOSE_PIECES_MAX: usize = 8;
/// About how many versions are looked at to say how the bytes lie along the keys.
const MARKS: usize = 128;
const ENTRY_HEADER_BYTES: usize = 16;
/// What a version costs beside its bytes: its entry and its share of the hash table.
const ENTRY_OVERHEAD_BYTES: usize = std::mem::size_of::<IndexEntry>() + 10;

/// Recent versions, newest per key at hand.
pub struct IndexTable {
    inner: RwLock<Contents>,
    /// There are range tombstones: most tables have none, and their readers look no further.
    has_ranges: AtomicBool,
    ranges: RwLock<TombstoneIndex>,
    sorted: Mutex<Sorted>,
    bytes: AtomicUsize,
    value_bytes: AtomicU64,
    kept_bytes: AtomicU64,
    entries: AtomicUsize,
    seqno_min: AtomicU64,
    seqno_max: AtomicU64,
}

struct Contents {
    frozen: Arc<Vec<Arc<Piece>>>,
    tail: Piece,
    heads: HashTable<u32>,
    /// The full key that is being inserted, and its payload if that is an address: memory that is used again.
    scratch: Vec<u8>,
    payload: Vec<u8>,
}

/// What scans have sorted, kept for the next.
#[derive(Default)]
struct Sorted {
    /// The order of so many frozen pieces, the first ones.
    pieces: usize,
    order: Arc<Vec<u32>>,
    /// The order of those behind them, up to this one.
    loose_end: usize,
    loose: Arc<Vec<u32>>,
    /// A copy of the piece behind so many frozen ones, and its order.
    tail_at: usize,
    tail: Arc<Vec<Arc<Piece>>>,
    tail_order: Arc<Vec<u32>>,
}

#[derive(Default, Clone)]
struct Piece {
    bytes: Vec<u8>,
    entries: Vec<IndexEntry>,
}

#[derive(Clone, Copy)]
struct IndexEntry {
    start: u32,
    hash: u32,
    /// The number of the next older version of the key, plus one; 0 if there is none here.
    older: u32,
}

/// One version as a piece holds it: `payload_len u32 | key_len u32 | stamp u64 | key | payload`.
struct IndexVersion<'a> {
    key: &'a [u8],
    stamp: Stamp,
    payload: &'a [u8],
}

impl Piece {
    fn version(&self, slot: usize) -> IndexVersion<'_> {
        let bytes = &self.bytes[self.entries[slot].start as usize..];
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (payload_len, key_len) = (word(0) as usize, word(4) as usize);
        let stamp = Stamp(word(8) as u64 | (word(12) as u64) << 32);
        let (key, rest) = bytes[ENTRY_HEADER_BYTES..].split_at(key_len);
        IndexVersion { key, stamp, payload: &rest[..payload_len] }
    }

    fn place(&self, piece: usize, slot: usize) -> PayloadPlace {
        let version = self.version(slot);
        let key_start = self.entries[slot].start as usize + ENTRY_HEADER_BYTES;
        let key = key_start..key_start + version.key.len();
        PayloadPlace { piece, payload_end: key.end + version.payload.len(), key, stamp: version.stamp }
    }

    fn push(&mut self, hash: u32, older: u32, prefix: &[u8], key: &[u8], stamp: Stamp, payload: &[u8]) {
        let start = u32::try_from(self.bytes.len()).expect("a piece of small payloads stays below 4 GiB");
        self.entries.push(IndexEntry { start, hash, older });
        self.bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&((prefix.len() + key.len()) as u32).to_le_bytes());
        self.bytes.extend_from_slice(&stamp.0.to_le_bytes());
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
    }
}

impl Contents {
    fn version(&self, number: u32) -> (IndexVersion<'_>, IndexEntry) {
        let (piece, slot) = (number as usize / PIECE_ENTRIES, number as usize % PIECE_ENTRIES);
        let piece = self.frozen.get(piece).map_or(&self.tail, |piece| &**piece);
        (piece.version(slot), piece.entries[slot])
    }
}

/// Spreads the 32 bits kept per entry over the 64 that the hash table looks at.
fn spread(hash: u32) -> u64 {
    (hash as u64) << 32 | hash as u64
}

/// The part of a key's hash that the table keeps.
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
            seqno_min: AtomicU64::new(u64::MAX),
            seqno_max: AtomicU64::new(0),
        }
    }

    /// Starts an insertion of one or more versions; readers wait until it ends.
    pub fn insert(&self) -> Inserter<'_> {
        Inserter { table: self, inner: self.inner.write() }
    }

    /// Memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of values that lie in the log behind addresses.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the records whose values stay in the log.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Relaxed)
    }

    /// Versions and range tombstones held.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// True if nothing was inserted yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sequence numbers held, first and last; `None` while empty.
    pub fn seqnos(&self) -> Option<(Seqno, Seqno)> {
        (!self.is_empty())
            .then(|| (Seqno(self.seqno_min.load(Ordering::Relaxed)), Seqno(self.seqno_max.load(Ordering::Relaxed))))
    }

    /// Shows the versions of a key at or below `snapshot`, newest first, until `visit` returns false.
    /// O(1) to find the key, then O(1) a version.
    pub fn visit(&self, full_key: &[u8], snapshot: Seqno, visit: &mut dyn FnMut(Stamp, Slice) -> bool) {
        let hash = hash_key(full_key);
        let inner = self.inner.read();
        let head = inner.heads.find(spread(hash), |&number| {
            let (version, entry) = inner.version(number);
            entry.hash == hash && version.key == full_key
        });
        let mut next = head.map(|&number| number + 1);
        while let Some(number) = next.filter(|&number| number > 0) {
            let (version, entry) = inner.version(number - 1);
            if version.stamp.seqno() <= snapshot && !visit(version.stamp, Slice::copy_from(version.payload)) {
                return;
            }
            next = Some(entry.older);
        }
    }

    /// Some range tombstones are held.
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

    /// A cursor over what is in the table now; later insertions do not show.
    /// O(new versions x log) to sort what no cursor has sorted before.
    pub fn cursors(&self) -> Vec<IndexCursor> {
        let mut sorted = self.sorted.lock();
        let frozen = {
            let inner = self.inner.read();
            sorted.take_tail(&inner);
            inner.frozen.clone()
        };
        self.sort_frozen(&mut sorted, &frozen);
        sorted.sort_tail();
        let all = [(&frozen, &sorted.order), (&frozen, &sorted.loose), (&sorted.tail, &sorted.tail_order)];
        let filled = all.into_iter().filter(|(_, order)| !order.is_empty());
        filled.map(|(pieces, order)| IndexCursor::new(pieces.clone(), order.clone())).collect()
    }

    /// One cursor over everything in a range of keys; the table must be sealed (no insertion may follow).
    pub fn sealed_cursor(&self, range: &KeyRange) -> IndexCursor {
        let pieces = self.all_pieces();
        let count = pieces.iter().map(|piece| piece.entries.len()).sum();
        let order = sort_within(&pieces, 0..count, range);
        IndexCursor::new(Arc::new(pieces), Arc::new(order))
    }

    /// How the bytes lie along the keys, from a sample of the versions that are in it now.
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

    /// Sorts the pieces that are new; if there are many that are not in the table's order, they join it.
    fn sort_frozen(&self, sorted: &mut Sorted, frozen: &[Arc<Piece>]) {
        if sorted.loose_end < frozen.len() {
            let new = sort_within(frozen, numbers(sorted.loose_end..frozen.len()), &KeyRange::default());
            self.bytes.fetch_add(size_of_val(&*new), Ordering::Relaxed);
            sorted.loose = Arc::new(merge_orders(frozen, &sorted.loose, &new));
            sorted.loose_end = frozen.len();
        }
        if sorted.pieces + LOOSE_PIECES_MAX < frozen.len() {
            sorted.order = Arc::new(merge_orders(frozen, &sorted.order, &sorted.loose));
            (sorted.pieces, sorted.loose) = (frozen.len(), Arc::default());
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

    /// Sorts what is new in the copy.
    fn sort_tail(&mut self) {
        let count = self.tail.first().map_or(0, |piece| piece.entries.len());
        if self.tail_order.len() < count {
            let new = sort_within(&self.tail, self.tail_order.len()..count, &KeyRange::default());
            self.tail_order = Arc::new(merge_orders(&self.tail, &self.tail_order, &new));
        }
    }
}

impl RangeTombstones for IndexTable {
    fn stretch(&self, key: &[u8], snapshot: Seqno) -> Result<Stretch> {
        Ok(self.ranges.read().stretch(key, snapshot))
    }
}

/// Where the next record of a frame lies.
pub struct RecordPlace {
    /// The log.
    pub log: FileId,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// Which values lie in the log and not in the index table, by their sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub struct SeparationThresholds {
    /// From this size on, while the key is in the front.
    pub in_front: usize,
    /// From this size on also when the key leaves the front. Operands come along whatever their size.
    pub for_good: usize,
}

impl SeparationThresholds {
    /// The value stays where it is when its key leaves the front.
    pub fn stays(self, kind: Kind, value_len: usize) -> bool {
        kind.inline() == Kind::Put && value_len >= self.for_good
    }
}

/// Exclusive right to insert.
pub struct Inserter<'a> {
    table: &'a IndexTable,
    inner: crate::sched::sync::RwLockWriteGuard<'a, Contents>,
}

impl Inserter<'_> {
    /// Inserts a record that lies at `place`, and moves the place behind it: a value that is too short to lie apart
    /// goes inside, for a longer one its address.
    pub fn add_record(
        &mut self,
        operation: &Operation<'_>,
        seqno: Seqno,
        place: &mut RecordPlace,
        apart: SeparationThresholds,
    ) {
        let prefix = operation.keyspace.prefix();
        let len = operation.record_bytes();
        let value_len = operation.value.len();
        if operation.kind == Kind::DeleteRange {
            let start = full_key(operation.keyspace, operation.key);
            self.add_range(start, range_end(operation.keyspace, operation.value), seqno);
        } else if value_len < apart.in_front {
            self.add(&prefix, operation.key, Stamp::new(seqno, operation.kind), operation.value, 0);
        } else {
            let (len, value_bytes) = (len as u32, value_len as u32);
            let address = Address { file: place.log, offset: place.offset, len, value_len: value_bytes };
            let mut payload = std::mem::take(&mut self.inner.payload);
            payload.clear();
            address.encode(&mut payload);
            self.add(&prefix, operation.key, Stamp::new(seqno, operation.kind.addressed()), &payload, value_len);
            self.inner.payload = payload;
            if apart.stays(operation.kind, value_len) {
                self.table.kept_bytes.fetch_add(len as u64, Ordering::Relaxed);
            }
        }
        place.offset += len as u64;
    }

    /// Inserts one version; sequence numbers only grow. `value_bytes` is what lies in the log behind an address.
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
            // Some more than the last piece took, so that most do not have to grow; what is left over goes back.
            tail.bytes.reserve(full.bytes.len() + full.bytes.len() / 16);
            full.bytes.shrink_to_fit();
            tail.entries.reserve(PIECE_ENTRIES);
            Arc::make_mut(frozen).push(Arc::new(full));
        }
        let bytes = ENTRY_HEADER_BYTES + ENTRY_OVERHEAD_BYTES + prefix.len() + key.len() + payload.len();
        self.table.value_bytes.fetch_add(value_bytes as u64, Ordering::Relaxed);
        self.count(bytes, stamp.seqno());
    }

    /// Inserts a range tombstone; sequence numbers only grow.
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

/// The numbers of the versions in full pieces.
fn numbers(pieces: Range<usize>) -> Range<usize> {
    pieces.start * PIECE_ENTRIES..pieces.end * PIECE_ENTRIES
}

/// Sorts the versions of these numbers whose keys lie within a range: their numbers in cursor order.
fn sort_within(pieces: &[Arc<Piece>], numbers: Range<usize>, keys: &KeyRange) -> Vec<u32> {
    let mut keyed: Vec<(u128, u32)> = Vec::new();
    for number in numbers {
        let number = number as u32;
        let key = version_at(pieces, number).key;
        if keys.holds(key) {
            keyed.push((leading_bytes(key), number));
        }
    }
    // The first sixteen bytes of the key settle most comparisons without touching the piece.
    keyed.sort_unstable_by(|left, right| left.0.cmp(&right.0).then_with(|| compare_at(pieces, left.1, right.1)));
    keyed.into_iter().map(|(_, number)| number).collect()
}

fn version_at(pieces: &[Arc<Piece>], number: u32) -> IndexVersion<'_> {
    pieces[number as usize / PIECE_ENTRIES].version(number as usize % PIECE_ENTRIES)
}

fn compare_at(pieces: &[Arc<Piece>], left: u32, right: u32) -> std::cmp::Ordering {
    let (left, right) = (version_at(pieces, left), version_at(pieces, right));
    compare(left.key, left.stamp, right.key, right.stamp)
}

fn merge_orders(pieces: &[Arc<Piece>], left: &[u32], right: &[u32]) -> Vec<u32> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut l, mut r) = (0, 0);
    while l < left.len() && r < right.len() {
        if compare_at(pieces, left[l], right[r]).is_lt() {
            merged.push(left[l]);
            l += 1;
        } else {
            merged.push(right[r]);
            r += 1;
        }
    }
    merged.extend_from_slice(&left[l..]);
    merged.extend_from_slice(&right[r..]);
    merged
}

/// A cursor over sorted versions of an index table, unchanged by later insertions.
pub struct IndexCursor {
    pieces: Arc<Vec<Arc<Piece>>>,
    order: Arc<Vec<u32>>,
    at: usize,
    place: PayloadPlace,
}

/// Where the version lies that a cursor stands on.
#[derive(Default)]
struct PayloadPlace {
    piece: usize,
    key: Range<usize>,
    payload_end: usize,
    stamp: Stamp,
}

impl IndexCursor {
    /// A cursor over versions in this order; not positioned.
    fn new(pieces: Arc<Vec<Arc<Piece>>>, order: Arc<Vec<u32>>) -> IndexCursor {
        IndexCursor { at: order.len(), pieces, order, place: PayloadPlace::default() }
    }

    /// Goes to a place in the order, and looks once at what is there.
    fn go(&mut self, at: usize) {
        self.at = at;
        if let Some(&number) = self.order.get(at) {
            let piece = number as usize / PIECE_ENTRIES;
            self.place = self.pieces[piece].place(piece, number as usize % PIECE_ENTRIES);
        }
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.pieces[self.place.piece].bytes[range]
    }

    fn lower_bound(&self, key: &[u8], stamp: Stamp) -> usize {
        self.order.partition_point(|&number| {
            let version = version_at(&self.pieces, number);
            compare(version.key, version.stamp, key, stamp).is_lt()
        })
    }
}

impl Cursor for IndexCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.at < self.order.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.bytes(self.place.key.clone())
    }

    #[inline]
    fn stamp(&self) -> Stamp {
        self.place.stamp
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.bytes(self.place.key.end..self.place.payload_end)
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.go(self.lower_bound(key, stamp));
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.go(self.lower_bound(key, stamp).checked_sub(1).unwrap_or(self.order.len()));
        Ok(())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.go(0);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.go(self.order.len().checked_sub(1).unwrap_or(self.order.len()));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.go(self.at + 1);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.go(self.at.checked_sub(1).unwrap_or(self.order.len()));
        Ok(())
    }
}

#[cfg(test)]
#[path = "index_table_test.rs"]
mod tests;
