//! What a read sees: one immutable view of everything that holds versions, as a list of layers.
//!
//! Jobs replace parts of the stores, which a view holds by kind ([`Sources`]); readers go through [`View::layers`] alone. A
//! view is only made from sources, here, so the two cannot differ.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::{FileId, verify};
use crate::engine::layer::{Layer, in_order};
use crate::format::edit::KeyspaceKind;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::front::run::Run;
use crate::levels::version::Version;
use crate::values::files::ValueFiles;

/// The parts of the stores at one moment, by kind: what jobs take and replace.
#[derive(Clone)]
pub(crate) struct Sources {
    /// Takes new versions.
    pub active: Arc<IndexTable>,
    /// Full, waiting to become runs; newest first.
    pub sealed: Vec<Arc<IndexTable>>,
    /// Newest first.
    pub runs: Vec<Arc<Run>>,
    /// The tables.
    pub version: Arc<Version>,
    /// The logs that addresses may name.
    pub logs: Arc<BTreeMap<FileId, Arc<LogFile>>>,
    /// The files of values that addresses in tables may name.
    pub values: Arc<ValueFiles>,
}

/// Everything that holds versions at one moment. Holding it keeps the files.
pub(crate) struct View {
    layers: Vec<Layer>,
    sources: Sources,
}

/// For jobs.
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
        let layers: Vec<Layer> = index_tables.chain(runs).chain(Layer::of_version(&sources.version)).collect();
        verify!(in_order(&layers), "the layers of a view are listed newest first");
        View { layers, sources }
    }

    /// The view after a change of the sources.
    pub fn with(&self, change: impl FnOnce(&mut Sources)) -> View {
        let mut sources = self.sources.clone();
        change(&mut sources);
        View::new(sources)
    }

    /// All that holds versions, newest first (rule 1).
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// All that holds versions of keyspaces of a kind, newest first.
    pub fn layers_of(&self, kind: KeyspaceKind) -> &[Layer] {
        match kind {
            KeyspaceKind::Ordered => self.layers(),
        }
    }

    /// Everything is in tables.
    pub fn front_is_empty(&self) -> bool {
        self.active.is_empty() && self.sealed.is_empty() && self.runs.is_empty()
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

    /// Bytes of records in logs of the front that stay there when their keys leave it.
    pub fn kept_bytes(&self) -> u64 {
        let tables = std::iter::once(&self.active).chain(&self.sealed).map(|table| table.kept_bytes());
        tables.chain(self.runs.iter().map(|run| run.kept_bytes())).sum()
    }

    /// The same without the active index table, which grows all the time.
    pub fn waiting_bytes(&self) -> usize {
        let sealed: usize = self.sealed.iter().map(|table| table.bytes()).sum();
        let runs: usize = self.runs.iter().map(|run| run.bytes()).sum();
        sealed + runs
    }
}
