//! Stores that lie in one place: they have no tiers and no direct I/O.

use std::path::Path;

use crate::engine::{Dirs, Settings};

/// Where such a store lies: with the bulk of the data of the others.
pub fn dir(dirs: &Dirs) -> &Path {
    dirs.slow.as_deref().unwrap_or(&dirs.main)
}

/// What a reader must know of it, if tiers or direct I/O were asked for.
pub fn notes_of(settings: &Settings) -> Vec<&'static str> {
    let notes = [
        (settings.dirs.slow.is_some(), "no tiers: the whole store is in the slow directory"),
        (settings.direct, "no direct I/O"),
    ];
    notes.into_iter().filter_map(|(asked, note)| asked.then_some(note)).collect()
}
