//! A bucket: its entries in one allocation that fits them, without order. Entries lie at the front one after the other, a place
//! and a key each. Slots lie at the back, that of entry `i` as the `i`-th from the end: `tag u8 | key_len u8`, where the tag
//! is a byte of the hash that the directory does not use first. All places of a bucket are packed in the same widths, so
//! a search compares slots and adds up lengths of keys, and touches no entry but those whose slot is the one wanted. Keys of
//! more than [`INLINE_KEY_BYTES_MAX`] bytes lie beside the bucket, an allocation each.
//!
//! Invariant: a key is in a bucket at most once. Called by the directory only, which knows the hashes.

use super::place::{PackedPlace, Place, Widths};

/// Longest key that lies in the bucket itself.
pub const INLINE_KEY_BYTES_MAX: usize = u8::MAX as usize;
/// What the allocator takes for an allocation, on average: its header, and the rounding up.
pub const ALLOCATION_BYTES: usize = 16;

/// Tag and length of the key.
const SLOT_BYTES: usize = 2;
/// A bucket without room grows by this many bytes and this part of it.
const GROWTH_BYTES: usize = 16;
const GROWTH_PART: usize = 32;

/// Entries whose hashes share their first bits.
#[derive(Debug, Default)]
pub struct Bucket {
    /// The entries, room for some more, and the slots.
    bytes: Box<[u8]>,
    /// Entries with long keys; most buckets have none.
    long: Option<Box<LongEntries>>,
    /// Bytes of the entries.
    used: u32,
    /// The number of entries in `bytes`.
    inline: u32,
    /// How the places in `bytes` are packed.
    widths: Widths,
    /// How many bits of their hashes all keys share.
    pub depth: u8,
}

/// An entry of a new bucket.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry<'a> {
    /// A byte of the key's hash.
    pub tag: u8,
    /// The key.
    pub key: &'a [u8],
    /// Its place.
    pub place: Place,
}

/// Entries with long keys.
#[derive(Debug, Default)]
struct LongEntries {
    /// In each its place, then its key.
    entries: Vec<Box<[u8]>>,
    /// Bytes of their allocations.
    bytes: usize,
}

/// An entry in the bytes of a bucket.
#[derive(Clone, Copy)]
struct Span {
    index: usize,
    tag: u8,
    start: usize,
    key: usize,
    end: usize,
}

impl Bucket {
    /// An empty bucket.
    pub fn new(depth: u8) -> Bucket {
        Bucket { depth, ..Bucket::default() }
    }

    /// A bucket of these entries, whose keys are different ones.
    pub fn of<'a>(depth: u8, entries: impl Iterator<Item = NewEntry<'a>> + Clone) -> Bucket {
        let mut bucket = Bucket::new(depth);
        let inline = || entries.clone().filter(|entry| !is_long(entry.key));
        bucket.widths = inline().fold(bucket.widths, |widths, entry| widths.max(entry.place.widths()));
        let beside_key = SLOT_BYTES + bucket.widths.packed_len();
        bucket.reserve(inline().map(|entry| beside_key + entry.key.len()).sum());
        for NewEntry { tag, key, place } in inline() {
            bucket.append(tag, &place.pack(bucket.widths), key);
        }
        for NewEntry { key, place, .. } in entries.filter(|entry| is_long(entry.key)) {
            bucket.put_long(key, place.pack(Widths::default()).as_bytes());
        }
        bucket
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.inline as usize + self.long.as_ref().map_or(0, |long| long.entries.len())
    }

    /// The memory that the bucket has allocated.
    pub fn memory_bytes(&self) -> usize {
        let inline = if self.bytes.is_empty() { 0 } else { self.bytes.len() + ALLOCATION_BYTES };
        let long = self.long.as_ref().map_or(0, |long| {
            let list = long.entries.capacity() * size_of::<Box<[u8]>>() + size_of::<LongEntries>();
            list + 2 * ALLOCATION_BYTES + long.bytes
        });
        inline + long
    }

    /// Address and length of the entries.
    #[cfg(test)]
    pub fn allocation(&self) -> (usize, usize) {
        (self.bytes.as_ptr() as usize, self.bytes.len())
    }

    /// The place of a key.
    pub fn get(&self, tag: u8, key: &[u8]) -> Option<Place> {
        match is_long(key) {
            true => self.long_of(key).map(|(_, entry)| Place::unpack(entry)),
            false => self.find(tag, key).map(|span| Place::unpack(&self.bytes[span.start..])),
        }
    }

    /// Reads the slots, which may lie in two lines of the processor's cache.
    pub fn touch_slots(&self) -> u8 {
        let ends = self.slots().first().zip(self.slots().last());
        ends.map_or(0, |([first, _], [last, _])| first ^ last)
    }

    /// Reads both ends of the entry that a look-up will compare first.
    pub fn touch_entry(&self, tag: u8, key: &[u8]) -> u8 {
        let slots = self.slots();
        let at = slots.iter().rposition(|slot| *slot == [tag, key.len() as u8]);
        let Some(at) = at.filter(|_| !is_long(key)) else { return 0 };
        let start = self.bytes_of(&slots[at + 1..]);
        let last = start + self.widths.packed_len() + key.len() - 1;
        self.bytes[start] ^ self.bytes[last]
    }

    /// Sets the place of a key; returns the one before.
    pub fn put(&mut self, tag: u8, key: &[u8], place: Place) -> Option<Place> {
        if is_long(key) {
            return self.put_long(key, place.pack(Widths::default()).as_bytes());
        }
        self.widen(place.widths());
        let packed = place.pack(self.widths);
        let Some(span) = self.find(tag, key) else {
            self.append(tag, &packed, key);
            return None;
        };
        let before = Place::unpack(&self.bytes[span.start..]);
        self.bytes[span.start..span.key].copy_from_slice(packed.as_bytes());
        Some(before)
    }

    /// Removes a key; returns its place.
    pub fn remove(&mut self, tag: u8, key: &[u8]) -> Option<Place> {
        if is_long(key) {
            let (index, _) = self.long_of(key)?;
            let long = self.long.as_mut()?;
            let entry = long.entries.swap_remove(index);
            long.bytes -= entry.len() + ALLOCATION_BYTES;
            long.entries.shrink_to(long.entries.len() + long.entries.len() / 2);
            if long.entries.is_empty() {
                self.long = None;
            }
            return Some(Place::unpack(&entry));
        }
        let span = self.find(tag, key)?;
        let place = Place::unpack(&self.bytes[span.start..]);
        self.cut(span);
        self.shrink();
        Some(place)
    }

    /// Visits all entries: key and place, in no order.
    pub fn for_each(&self, mut see: impl FnMut(&[u8], Place)) {
        for span in self.spans() {
            see(&self.bytes[span.key..span.end], Place::unpack(&self.bytes[span.start..]));
        }
        for entry in self.long.iter().flat_map(|long| &long.entries) {
            see(key_of(entry), Place::unpack(entry));
        }
    }

    /// Takes the keys for which `goes` is true to a new bucket. Both are one bit deeper then.
    pub fn split(&mut self, goes: impl Fn(&[u8]) -> bool) -> Bucket {
        let depth = self.depth + 1;
        let mut before = std::mem::replace(self, Bucket::new(depth));
        let long = before.long.take();
        let mut other = Bucket::new(depth);
        self.widths = before.widths;
        other.widths = before.widths;
        let is_going = |span: &Span| goes(&before.bytes[span.key..span.end]);
        let bytes = |going: bool| {
            let spans = before.spans().filter(|span| is_going(span) == going);
            spans.map(|span| SLOT_BYTES + span.end - span.start).sum()
        };
        self.reserve(bytes(false));
        other.reserve(bytes(true));
        for span in before.spans() {
            let to = if is_going(&span) { &mut other } else { &mut *self };
            to.append_entry(span.tag, &before.bytes[span.start..span.end]);
        }
        for entry in long.map(|long| long.entries).into_iter().flatten() {
            let to = if goes(key_of(&entry)) { &mut other } else { &mut *self };
            to.append_long(entry);
        }
        other
    }

    /// Takes all entries of its neighbour. The bucket is one bit less deep then.
    pub fn absorb(&mut self, mut other: Bucket) {
        self.depth -= 1;
        let widths = self.widths.max(other.widths);
        self.widen(widths);
        other.widen(widths);
        self.reserve(other.used as usize + other.inline as usize * SLOT_BYTES);
        let long = other.long.take();
        for span in other.spans() {
            self.append_entry(span.tag, &other.bytes[span.start..span.end]);
        }
        long.into_iter().flat_map(|long| long.entries).for_each(|entry| self.append_long(entry));
    }

    /// The slots, the last one first.
    fn slots(&self) -> &[[u8; SLOT_BYTES]] {
        let slots = &self.bytes[self.bytes.len() - self.inline as usize * SLOT_BYTES..];
        slots.as_chunks().0
    }

    /// All entries that do not have long keys.
    fn spans(&self) -> impl Iterator<Item = Span> {
        let place_len = self.widths.packed_len();
        let mut start = 0;
        self.slots().iter().rev().enumerate().map(move |(index, [tag, key_len])| {
            let key = start + place_len;
            let span = Span { index, tag: *tag, start, key, end: key + usize::from(*key_len) };
            start = span.end;
            span
        })
    }

    fn find(&self, tag: u8, key: &[u8]) -> Option<Span> {
        let slots = self.slots();
        let wanted = [tag, key.len() as u8];
        let place_len = self.widths.packed_len();
        let (mut end, mut start) = (slots.len(), 0);
        while let Some(at) = slots[..end].iter().rposition(|slot| *slot == wanted) {
            start += self.bytes_of(&slots[at + 1..end]);
            let span = Span {
                index: slots.len() - 1 - at,
                tag,
                start,
                key: start + place_len,
                end: start + place_len + key.len(),
            };
            if self.bytes[span.key..span.end] == *key {
                return Some(span);
            }
            (end, start) = (at, span.end);
        }
        None
    }

    /// What the entries of these slots take.
    fn bytes_of(&self, slots: &[[u8; SLOT_BYTES]]) -> usize {
        let keys: usize = slots.iter().map(|[_, key_len]| usize::from(*key_len)).sum();
        slots.len() * self.widths.packed_len() + keys
    }

    /// Packs all places in these widths, if theirs are smaller.
    fn widen(&mut self, widths: Widths) {
        let widths = widths.max(self.widths);
        if widths == self.widths {
            return;
        }
        let grown = (widths.packed_len() - self.widths.packed_len()) * self.inline as usize;
        let before = std::mem::replace(self, Bucket::new(self.depth));
        self.widths = widths;
        self.reserve(before.used as usize + grown + before.inline as usize * SLOT_BYTES);
        for span in before.spans() {
            let place = Place::unpack(&before.bytes[span.start..]).pack(widths);
            self.append(span.tag, &place, &before.bytes[span.key..span.end]);
        }
        self.long = before.long;
    }

    /// Removes an entry; those behind it move up.
    fn cut(&mut self, span: Span) {
        let used = self.used as usize;
        self.bytes.copy_within(span.end..used, span.start);
        self.used = (used - (span.end - span.start)) as u32;
        let len = self.bytes.len();
        let slots = len - self.inline as usize * SLOT_BYTES;
        self.bytes.copy_within(slots..len - (span.index + 1) * SLOT_BYTES, slots + SLOT_BYTES);
        self.inline -= 1;
    }

    fn append(&mut self, tag: u8, place: &PackedPlace, key: &[u8]) {
        let place = place.as_bytes();
        let len = SLOT_BYTES + place.len() + key.len();
        if self.taken() + len > self.bytes.len() {
            self.reserve(len.max(GROWTH_BYTES + self.used as usize / GROWTH_PART));
        }
        self.push_slot([tag, key.len() as u8]);
        self.push_bytes(place);
        self.push_bytes(key);
    }

    /// Appends an entry of another bucket with the same widths, for which there is room.
    fn append_entry(&mut self, tag: u8, entry: &[u8]) {
        self.push_slot([tag, (entry.len() - self.widths.packed_len()) as u8]);
        self.push_bytes(entry);
    }

    fn push_slot(&mut self, slot: [u8; SLOT_BYTES]) {
        self.inline += 1;
        let start = self.bytes.len() - self.inline as usize * SLOT_BYTES;
        self.bytes[start..start + SLOT_BYTES].copy_from_slice(&slot);
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.used as usize;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len() as u32;
    }

    /// Bytes of the entries and their slots.
    fn taken(&self) -> usize {
        self.used as usize + self.inline as usize * SLOT_BYTES
    }

    /// Makes room for exactly `bytes` more.
    fn reserve(&mut self, bytes: usize) {
        self.resize(self.taken() + bytes);
    }

    fn resize(&mut self, len: usize) {
        let slots_len = self.inline as usize * SLOT_BYTES;
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        let from = bytes.len() - slots_len;
        if len < bytes.len() {
            bytes.copy_within(from.., len - slots_len);
        }
        bytes.reserve_exact(len.saturating_sub(bytes.len()));
        let before = bytes.len();
        bytes.resize(len, 0);
        if before < len {
            bytes.copy_within(from..before, len - slots_len);
        }
        self.bytes = bytes.into_boxed_slice();
    }

    /// Gives memory back once a good part of the bucket is unused.
    fn shrink(&mut self) {
        let taken = self.taken();
        if self.bytes.len() - taken > 4 * (GROWTH_BYTES + taken / GROWTH_PART) {
            self.resize(taken);
        }
    }

    fn long_of(&self, key: &[u8]) -> Option<(usize, &[u8])> {
        let entries = &self.long.as_ref()?.entries;
        let index = entries.iter().position(|entry| *key_of(entry) == *key)?;
        Some((index, &entries[index]))
    }

    fn put_long(&mut self, key: &[u8], packed: &[u8]) -> Option<Place> {
        let entry: Box<[u8]> = [packed, key].concat().into_boxed_slice();
        let Some((index, _)) = self.long_of(key) else {
            self.append_long(entry);
            return None;
        };
        let long = self.long.as_mut().expect("the key was found among the long ones");
        long.bytes += entry.len();
        let before = std::mem::replace(&mut long.entries[index], entry);
        long.bytes -= before.len();
        Some(Place::unpack(&before))
    }

    fn append_long(&mut self, entry: Box<[u8]>) {
        let long = self.long.get_or_insert_default();
        long.bytes += entry.len() + ALLOCATION_BYTES;
        if long.entries.len() == long.entries.capacity() {
            long.entries.reserve_exact(1 + long.entries.len() / 8);
        }
        long.entries.push(entry);
    }
}

fn is_long(key: &[u8]) -> bool {
    key.len() > INLINE_KEY_BYTES_MAX
}

/// The key of an entry beside the bucket.
fn key_of(entry: &[u8]) -> &[u8] {
    &entry[Widths::of(entry[0]).packed_len()..]
}
