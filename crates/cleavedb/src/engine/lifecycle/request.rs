//! The input of an open: the validated options, with the sizes derived from them. Created by `Options` in `api/`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::MergeOperator;
use crate::engine::events::Listener;
use crate::engine::manifest::files::Dirs;
use crate::engine::tuning::settings::{LogBackend, Settings};

/// A request to open a database.
pub(crate) struct OpenRequest {
    /// As given by the caller; for messages.
    pub path: PathBuf,
    /// Absolute.
    pub dirs: Dirs,
    pub create_if_missing: bool,
    pub settings: Settings,
    pub open_files_max: usize,
    pub direct_io: bool,
    pub log_backend: LogBackend,
    pub operators: Vec<Arc<dyn MergeOperator>>,
    pub listeners: Vec<Arc<dyn Listener>>,
}
