//! What engines without tiers and without direct I/O have in common: their directory and their notes.

use std::path::Path;

use crate::engine::{Dirs, Settings};

/// The directory of such a store: the slow tier if there is one.
pub fn dir(dirs: &Dirs) -> &Path {
    dirs.slow.as_deref().unwrap_or(&dirs.main)
}

/// Notes for readers if tiers or direct I/O were requested.
pub fn notes_of(settings: &Settings) -> Vec<&'static str> {
    let notes = [
        (settings.dirs.slow.is_some(), "no tiers: the whole store is in the slow directory"),
        (settings.direct, "no direct I/O"),
    ];
    notes.into_iter().filter_map(|(asked, note)| asked.then_some(note)).collect()
}
