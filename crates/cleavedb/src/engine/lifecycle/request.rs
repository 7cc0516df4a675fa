//! What an open needs to know: the choices of the options, checked, with the sizes that follow from them. Made by
//! `Options` in `api/`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::MergeOperator;
use crate::engine::events::Listener;
use crate::engine::manifest::files::Dirs;
use crate::engine::tuning::settings::{LogBackend, Settings};

/// A request to open a database.
pub(crate) struct OpenRequest {
    /// As the caller gave it; for messages.
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
