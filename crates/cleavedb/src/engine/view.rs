//! The view of a read: one immutable list of layers with all versions of the database.
//!
//! A view also has the parts of the stores by kind ([`Sources`]), which jobs replace. Readers use [`View::layers`]
//! only. A view is always built from its sources, so the two cannot differ.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::{FileId, Seqno, verify};
use crate::deltas::directory::Directory;
use crate::engine::buckets::Buckets;
use crate::engine::layer::{Layer, in_order};
use crate::format::keyspace_record::KeyspaceKind;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::front::run::Run;
use crate::levels::version::Version;
use crate::values::files::ValueFiles;

/// The parts of the stores at one moment, by kind, as jobs use and replace them.
#[derive(Clone)]
pub(crate) struct Sources {
    /// The index table that takes new versions.
    pub active: Arc<IndexTable>,
    /// Sealed index tables that wait to become runs; newest first.
    pub sealed: Vec<Arc<IndexTable>>,
    /// Newest first.
    pub runs: Vec<Arc<Run>>,
    /// The tables.
    pub version: Arc<Version>,
    /// The buckets of the delta store; their segments are in `version`.
    pub directory: Arc<Directory>,
    /// The logs that addresses may reference.
    pub logs: Arc<BTreeMap<FileId, Arc<LogFile>>>,
    /// The value files that addresses in tables may reference.
    pub values: Arc<ValueFiles>,
}

/// All layers and files with versions at one moment. While a view is held, its files are not deleted.
pub(crate) struct View {
    layers: Vec<Layer>,
    buckets: Option<Arc<Buckets>>,
    sources: Sources,
}

/// Gives jobs access to the sources.
impl Deref for View {
    type Target = Sources;

    fn deref(&self) -> &Sources {
        &self.sources
    }
}

impl View {
    /// The view of these sources. O(tables of HL0 + levels).
    pub fn new(sources: Sources) -> View {
        let index_tables = std::iter::once(&sources.active).chain(&sources.sealed).cloned().map(Layer::IndexTable);
        let runs = sources.runs.iter().cloned().map(Layer::Run);
        let has_buckets = !sources.directory.buckets().is_empty();
        let buckets = || Arc::new(Buckets::new(sources.directory.clone(), sources.version.clone()));
        let buckets = has_buckets.then(buckets);
        let levels = Layer::of_version(&sources.version);
        let layers = index_tables.chain(runs).chain(levels).chain(buckets.clone().map(Layer::Buckets));
        let layers: Vec<Layer> = layers.collect();
        verify!(in_order(&layers), "the layers of a view are listed newest first");
        View { layers, buckets, sources }
    }

    /// The view after a change of the sources.
    pub fn with(&self, change: impl FnOnce(&mut Sources)) -> View {
        let mut sources = self.sources.clone();
        change(&mut sources);
        View::new(sources)
    }

    /// What a merge of tables needs: the tables, the buckets, and where records have moved; the active index table is held, too. A
    /// job that takes seconds must hold no file of values, or what value GC empties meanwhile would take space until its end.
    pub fn of_tables(&self) -> View {
        self.with(|sources| {
            (sources.sealed, sources.runs, sources.logs) = (Vec::new(), Vec::new(), Arc::default());
            sources.values = Arc::new(sources.values.moves());
        })
    }

    /// All layers, newest first (rule 1).
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// All that holds versions of keyspaces of a kind, newest first.
    pub fn layers_of(&self, kind: KeyspaceKind) -> &[Layer] {
        match kind {
            KeyspaceKind::Ordered => &self.layers,
            // The index of the keyspace has all.
            KeyspaceKind::Hash => &[],
        }
    }

    /// All layers but the buckets, newest first.
    pub fn layers_beside_buckets(&self) -> &[Layer] {
        match self.layers.split_last() {
            Some((last, others)) if last.is_ageless() => others,
            _ => &self.layers,
        }
    }

    /// The buckets, if there are any.
    pub fn buckets(&self) -> Option<&Arc<Buckets>> {
        self.buckets.as_ref()
    }

    /// A bucket may hold a version of the key that is not newer than `newest`, so that tombstones up to that one must stay in the
    /// levels to cover it.
    pub fn buckets_may_hold(&self, key: &[u8], newest: Seqno) -> bool {
        self.buckets.as_ref().is_some_and(|buckets| buckets.may_hold(key, newest))
    }

    /// As [`buckets_may_hold`](View::buckets_may_hold), for any key from `start` up to, not including, `end`.
    pub fn buckets_may_hold_range(&self, start: &[u8], end: &[u8], newest: Seqno) -> bool {
        self.buckets.as_ref().is_some_and(|buckets| buckets.may_hold_range(start, end, newest))
    }

    /// True if all versions are in tables.
    pub fn front_is_empty(&self) -> bool {
        self.active.is_empty() && self.sealed.is_empty() && self.runs.is_empty()
    }

    /// Everything up to this sequence number is in tables or in indexes once these oldest runs are in tables, if `published` was
    /// published before the call.
    pub fn settled_without(&self, flushed: &[Arc<Run>], published: Seqno) -> Seqno {
        let stays = |run: &&Arc<Run>| !flushed.iter().any(|flushed| Arc::ptr_eq(flushed, run));
        let tables = std::iter::once(&self.active).chain(&self.sealed).filter_map(|table| table.seqnos());
        let first = tables.chain(self.runs.iter().filter(stays).map(|run| run.seqnos())).map(|(first, _)| first).min();
        first.map_or(published, |first| Seqno(first.0.saturating_sub(1)).min(published))
    }

    /// Versions in index tables and runs, and range tombstones.
    pub fn front_entries(&self) -> u64 {
        let tables = std::iter::once(&self.active).chain(&self.sealed).map(|table| table.len() as u64);
        tables.chain(self.runs.iter().map(|run| run.entries())).sum()
    }

    /// Range tombstones in index tables and runs.
    pub fn front_ranges(&self) -> u64 {
        let tables = std::iter::once(&self.active).chain(&self.sealed).map(|table| table.range_count() as u64);
        tables.chain(self.runs.iter().map(|run| run.range_count())).sum()
    }

    /// Memory of index tables and runs, in bytes.
    pub fn front_bytes(&self) -> usize {
        self.active.bytes() + self.waiting_bytes()
    }

    /// Bytes of records of the front that stay in their logs when a flush writes their keys to tables.
    pub fn kept_bytes(&self) -> u64 {
        let tables = std::iter::once(&self.active).chain(&self.sealed).map(|table| table.kept_bytes());
        tables.chain(self.runs.iter().map(|run| run.kept_bytes())).sum()
    }

    /// Memory of sealed index tables and runs, without the active index table.
    pub fn waiting_bytes(&self) -> usize {
        let sealed: usize = self.sealed.iter().map(|table| table.bytes()).sum();
        let runs: usize = self.runs.iter().map(|run| run.bytes()).sum();
        sealed + runs
    }
}

/// The records of a log that matter: those that tables reference, and those that were not flushed, by the span of their sequence
/// numbers: each version of a key is one. 0 of a log that only hash indexes reference, which do not count them. O(logs).
pub(crate) fn records_of(view: &View, flushed: Seqno, file: FileId) -> u64 {
    let unflushed = view.logs.get(&file).map_or(0, |log| {
        let before = view.logs.range(..file).next_back().map(|(_, before)| before.last_seqno());
        log.last_seqno().0.saturating_sub(before.unwrap_or_default().max(flushed).0)
    });
    unflushed + view.values.state.referenced.of(file).records
}
