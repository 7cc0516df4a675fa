//! What a read sees: one immutable view of all sources of versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::FileId;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::front::run::Run;
use crate::levels::version::Version;
use crate::values::files::ValueFiles;

/// All sources of versions at one moment. Holding it keeps their files.
#[derive(Clone)]
pub(crate) struct View {
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

impl View {
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
