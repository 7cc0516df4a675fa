//! Reads many keys at once, with one view and one sequence number for all. Keys are looked up in key order, so that
//! neighbours share blocks. Blocks missing from the block cache are read for all keys together, and so are separated
//! values. Decision records 016 and 024 have the figures.

use crate::base::key_versions::KeyVersions;
use crate::base::{FileId, Result, Seqno, Slice, full_key};
use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::layer::{Layer, collect_versions};
use crate::engine::read::get::CachedValue;
use crate::engine::view::View;
use crate::levels::point_reads::{ManyKeys, OneKey, Unanswered, read_missing};

/// The most keys looked up together; with more, they would evict each other's blocks from a small cache.
const KEYS_TOGETHER: usize = 512;

/// A key without an answer yet.
struct Open<'a> {
    index: usize,
    key: &'a [u8],
    full: Vec<u8>,
}

/// Looks keys up, given in key order, in rounds: a round answers those whose blocks are cached, then reads the blocks that
/// the others need. `found` gets no answer for a key whose block was read and evicted, or could not be read.
fn in_rounds<K>(
    keys: impl Iterator<Item = K>,
    mut look_up: impl FnMut(&K) -> Result<KeyVersions, Unanswered>,
    mut found: impl FnMut(K, Option<Result<KeyVersions>>),
) {
    let mut open: Vec<(K, Vec<(FileId, u64)>)> = keys.map(|key| (key, Vec::new())).collect();
    while !open.is_empty() {
        let (mut missing, mut waiting) = (Vec::new(), Vec::new());
        for (key, mut waited_for) in open {
            match look_up(&key) {
                Ok(versions) => found(key, Some(Ok(versions))),
                Err(Unanswered::Failed(error)) => found(key, Some(Err(error))),
                Err(Unanswered::NotCached(block)) if !waited_for.contains(&block.place()) => {
                    waited_for.push(block.place());
                    missing.push(block);
                    waiting.push((key, waited_for));
                }
                Err(Unanswered::NotCached(_)) => found(key, None),
            }
        }
        open = waiting;
        read_missing(missing);
    }
}

/// One keyspace at one view and sequence number.
struct Moment<'a> {
    core: &'a Core,
    view: &'a View,
    seqno: Seqno,
    keyspace: &'a KeyspaceState,
}

impl Core {
    /// The values of `keys`, in the order of `keys`: the newest, or those visible at the sequence number of a snapshot.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        keys: &[K],
        snapshot: Option<Seqno>,
    ) -> Vec<Result<Option<Slice>>> {
        if let Some(index) = &keyspace.hash {
            return self.multi_get_hashed(keyspace, index, keys, snapshot);
        }
        let (view, seqno) = match snapshot {
            Some(seqno) => (self.published.view(), seqno),
            None => self.published.read(),
        };
        let moment = Moment { core: self, view: &view, seqno, keyspace };
        let mut answers: Vec<Result<Option<Slice>>> =
            keys.iter().map(|key| self.check_read(keyspace, key.as_ref()).map(|()| None)).collect();
        let mut order: Vec<usize> = (0..keys.len()).filter(|&index| answers[index].is_ok()).collect();
        order.sort_unstable_by_key(|&index| keys[index].as_ref());
        for together in order.chunks(KEYS_TOGETHER) {
            let open = together.iter().map(|&index| {
                let key = keys[index].as_ref();
                Open { index, key, full: full_key(keyspace.record.id, key) }
            });
            moment.answer(open.collect(), &mut answers);
        }
        answers
    }

    /// What `layers` hold of full keys, given in their order, at or below `seqno`, as [`collect_versions`] finds it: for jobs,
    /// which look up many keys.
    pub fn collect_many<'a>(
        &self,
        layers: &[Layer],
        keys: impl Iterator<Item = &'a [u8]>,
        seqno: Seqno,
    ) -> Vec<Result<KeyVersions>> {
        let mut tables = ManyKeys::default();
        let mut all: Vec<Result<KeyVersions>> = Vec::new();
        let keys = keys.inspect(|_| all.push(Ok(KeyVersions::default()))).enumerate().collect::<Vec<_>>();
        let look_up = |(_, key): &(usize, &[u8])| {
            let mut versions = KeyVersions::default();
            collect_versions(layers, key, seqno, &mut tables, &mut versions).map(|()| versions)
        };
        in_rounds(keys.into_iter(), look_up, |(index, key), found| {
            all[index] = found.unwrap_or_else(|| {
                let mut versions = KeyVersions::default();
                collect_versions(layers, key, seqno, &mut OneKey::default(), &mut versions).map(|()| versions)
            });
        });
        all
    }
}

impl Moment<'_> {
    /// Answers keys, given in key order. The last step fetches the separated values.
    fn answer<'a>(&self, open: Vec<Open<'a>>, answers: &mut [Result<Option<Slice>>]) {
        let mut tables = ManyKeys::with_operands(&self.core.memory.operands);
        let mut separated: Vec<(Open<'a>, KeyVersions)> = Vec::new();
        in_rounds(
            open.into_iter(),
            |key| self.look_up(key, &mut tables),
            |key, found| match found {
                Some(Ok(versions)) if versions.is_separated() => separated.push((key, versions)),
                Some(found) => answers[key.index] = self.resolve(&key, found),
                // This key is read alone.
                None => answers[key.index] = self.core.get_in(self.view, self.keyspace, key.key, self.seqno),
            },
        );
        let versions = separated.iter_mut().flat_map(|(key, versions)| {
            let full = &key.full[..];
            versions.separated().map(move |version| (full, version))
        });
        self.core.fetch_together(self.view, versions, true, None);
        for (key, versions) in separated {
            answers[key.index] = self.resolve(&key, Ok(versions));
        }
    }

    /// The versions of one key, from memory and the block cache.
    fn look_up(&self, key: &Open<'_>, tables: &mut ManyKeys<'_>) -> Result<KeyVersions, Unanswered> {
        let mut versions = self.core.down_to_fold(self.keyspace, &key.full);
        collect_versions(self.view.layers_of(self.keyspace.record.kind), &key.full, self.seqno, tables, &mut versions)?;
        if let Some(list) = tables.take_operands() {
            self.core.cache_operands(&key.full, list);
        }
        Ok(versions)
    }

    fn resolve(&self, key: &Open<'_>, found: Result<KeyVersions>) -> Result<Option<Slice>> {
        let value = found.and_then(|versions| {
            let cached = CachedValue::of_table(versions.base_table());
            self.core.value_of(self.view, self.keyspace, &key.full, &versions, Some(&cached))
        });
        self.core.unless_closed(value)
    }
}
