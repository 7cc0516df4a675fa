//! A bucket: entries one after the other in one allocation that fits them, without order. An entry is `tag u8 | key_len u8 |
//! place | key`; the tag is a byte of the hash that the directory does not use first. Keys of more than
//! [`INLINE_KEY_BYTES_MAX`] bytes lie beside the bucket, an allocation each, so that a search does not walk over them.
//!
//! Invariant: a key is in a bucket at most once. Called by the directory only, which knows the hashes.

use super::place::{Place, packed_len};

/// Longest key that lies in the bucket itself.
pub const INLINE_KEY_BYTES_MAX: usize = u8::MAX as usize;
/// What the allocator takes for an allocation, on average: its header, and the rounding up.
pub const ALLOCATION_BYTES: usize = 16;

/// Tag and length of the key.
const HEAD_BYTES: usize = 2;
/// A bucket without room grows by this many bytes and this part of it.
const GROWTH_BYTES: usize = 16;
const GROWTH_PART: usize = 32;

/// Entries whose hashes share their first bits.
#[derive(Debug, Default)]
pub struct Bucket {
    /// The entries, and room for some more.
    bytes: Box<[u8]>,
    /// Entries with long keys; most buckets have none.
    long: Option<Box<LongEntries>>,
    used: u32,
    count: u32,
    /// How many bits of their hashes all keys share.
    pub depth: u8,
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
    start: usize,
    key: usize,
    end: usize,
}

impl Bucket {
    /// An empty bucket.
    pub fn new(depth: u8) -> Bucket {
        Bucket { depth, ..Bucket::default() }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.count as usize
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

    /// The place of a key.
    pub fn get(&self, tag: u8, key: &[u8]) -> Option<Place> {
        match is_long(key) {
            true => self.long_of(key).map(|(_, entry)| Place::unpack(entry)),
            false => self.find(tag, key).map(|span| Place::unpack(&self.bytes[span.start + HEAD_BYTES..])),
        }
    }

    /// Sets the place of a key; returns the one before.
    pub fn put(&mut self, tag: u8, key: &[u8], place: Place) -> Option<Place> {
        let packed = place.pack();
        if is_long(key) {
            return self.put_long(key, packed.as_bytes());
        }
        let before = self.find(tag, key).map(|span| {
            let start = span.start + HEAD_BYTES;
            let before = Place::unpack(&self.bytes[start..]);
            match span.key - start == packed.as_bytes().len() {
                true => self.bytes[start..span.key].copy_from_slice(packed.as_bytes()),
                false => {
                    self.cut(span);
                    self.append(tag, packed.as_bytes(), key);
                }
            }
            before
        });
        if before.is_none() {
            self.append(tag, packed.as_bytes(), key);
            self.count += 1;
        }
        before
    }

    /// Removes a key; returns its place.
    pub fn remove(&mut self, tag: u8, key: &[u8]) -> Option<Place> {
        let place = if is_long(key) {
            let (index, _) = self.long_of(key)?;
            let long = self.long.as_mut()?;
            let entry = long.entries.swap_remove(index);
            long.bytes -= entry.len() + ALLOCATION_BYTES;
            long.entries.shrink_to(long.entries.len() + long.entries.len() / 2);
            if long.entries.is_empty() {
                self.long = None;
            }
            Place::unpack(&entry)
        } else {
            let span = self.find(tag, key)?;
            let place = Place::unpack(&self.bytes[span.start + HEAD_BYTES..]);
            self.cut(span);
            self.shrink();
            place
        };
        self.count -= 1;
        Some(place)
    }

    /// Visits all entries: key and place, in no order.
    pub fn for_each(&self, mut see: impl FnMut(&[u8], Place)) {
        let mut at = 0;
        while let Some(span) = self.span(at) {
            see(&self.bytes[span.key..span.end], Place::unpack(&self.bytes[span.start + HEAD_BYTES..]));
            at = span.end;
        }
        for entry in self.long.iter().flat_map(|long| &long.entries) {
            see(&entry[packed_len(entry[0])..], Place::unpack(entry));
        }
    }

    /// Takes the keys for which `goes` is true to a new bucket. Both are one bit deeper then.
    pub fn split(&mut self, goes: impl Fn(&[u8]) -> bool) -> Bucket {
        let depth = self.depth + 1;
        let before = std::mem::replace(self, Bucket::new(depth));
        let mut other = Bucket::new(depth);
        let is_going = |span: &Span| goes(&before.bytes[span.key..span.end]);
        let spans = || std::iter::successors(before.span(0), |span| before.span(span.end));
        let bytes =
            |going: bool| spans().filter(|span| is_going(span) == going).map(|span| span.end - span.start).sum();
        self.reserve(bytes(false));
        other.reserve(bytes(true));
        for span in spans() {
            let to = if is_going(&span) { &mut other } else { &mut *self };
            to.append_entry(&before.bytes[span.start..span.end]);
        }
        for entry in before.long.map(|long| long.entries).into_iter().flatten() {
            let to = if goes(&entry[packed_len(entry[0])..]) { &mut other } else { &mut *self };
            to.append_long(entry);
        }
        other
    }

    /// Takes all entries of its neighbour. The bucket is one bit less deep then.
    pub fn absorb(&mut self, other: Bucket) {
        self.depth -= 1;
        self.reserve(other.used as usize);
        let mut at = 0;
        while let Some(span) = other.span(at) {
            self.append_entry(&other.bytes[span.start..span.end]);
            at = span.end;
        }
        other.long.into_iter().flat_map(|long| long.entries).for_each(|entry| self.append_long(entry));
    }

    /// The entry that begins at `start`.
    fn span(&self, start: usize) -> Option<Span> {
        let bytes = &self.bytes[..self.used as usize];
        let [_, key_len, first, ..] = bytes.get(start..)? else { return None };
        let key = start + HEAD_BYTES + packed_len(*first);
        Some(Span { start, key, end: key + usize::from(*key_len) })
    }

    fn find(&self, tag: u8, key: &[u8]) -> Option<Span> {
        let mut at = 0;
        while let Some(span) = self.span(at) {
            if self.bytes[span.start] == tag && self.bytes[span.key..span.end] == *key {
                return Some(span);
            }
            at = span.end;
        }
        None
    }

    /// Removes an entry; those behind it move up.
    fn cut(&mut self, span: Span) {
        let used = self.used as usize;
        self.bytes.copy_within(span.end..used, span.start);
        self.used = (used - (span.end - span.start)) as u32;
    }

    fn append(&mut self, tag: u8, packed: &[u8], key: &[u8]) {
        let len = HEAD_BYTES + packed.len() + key.len();
        if self.used as usize + len > self.bytes.len() {
            self.reserve(len.max(GROWTH_BYTES + self.used as usize / GROWTH_PART));
        }
        self.push_bytes(&[tag, key.len() as u8]);
        self.push_bytes(packed);
        self.push_bytes(key);
    }

    /// Appends an entry of another bucket, for which there is room.
    fn append_entry(&mut self, entry: &[u8]) {
        self.push_bytes(entry);
        self.count += 1;
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.used as usize;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len() as u32;
    }

    /// Makes room for exactly `bytes` more.
    fn reserve(&mut self, bytes: usize) {
        self.resize(self.used as usize + bytes);
    }

    fn resize(&mut self, len: usize) {
        let mut bytes = std::mem::take(&mut self.bytes).into_vec();
        bytes.reserve_exact(len.saturating_sub(bytes.len()));
        bytes.resize(len, 0);
        self.bytes = bytes.into_boxed_slice();
    }

    /// Gives memory back once a good part of the bucket is unused.
    fn shrink(&mut self) {
        let used = self.used as usize;
        if self.bytes.len() - used > 4 * (GROWTH_BYTES + used / GROWTH_PART) {
            self.resize(used);
        }
    }

    fn long_of(&self, key: &[u8]) -> Option<(usize, &[u8])> {
        let entries = &self.long.as_ref()?.entries;
        let index = entries.iter().position(|entry| entry[packed_len(entry[0])..] == *key)?;
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
        self.count += 1;
    }
}

fn is_long(key: &[u8]) -> bool {
    key.len() > INLINE_KEY_BYTES_MAX
}
