//! The input of an open: the validated options, with the sizes derived from them. Created by `Options` in `api/`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::MergeOperator;
use crate::device::KvDevice;
use crate::engine::events::Listener;
use crate::engine::manifest::files::DeclaredDirs;
use crate::engine::tuning::settings::{LogBackend, Settings};

/// A request to open a database.
#[derive(Clone)]
pub(crate) struct OpenRequest {
    /// As given by the caller; for messages.
    pub path: PathBuf,
    /// Absolute.
    pub dirs: DeclaredDirs,
    pub create_if_missing: bool,
    /// The budget of the fast tier, in bytes; `None`: what its file system has.
    pub fast_bytes: Option<u64>,
    pub settings: Settings,
    pub open_files_max: usize,
    /// `None`: by the directories.
    pub direct_io: Option<bool>,
    pub log_backend: LogBackend,
    /// It is in the storage too, at the path in `dirs`.
    pub kv_device: Option<Arc<dyn KvDevice>>,
    pub operators: Vec<Arc<dyn MergeOperator>>,
    pub listeners: Vec<Arc<dyn Listener>>,
}
