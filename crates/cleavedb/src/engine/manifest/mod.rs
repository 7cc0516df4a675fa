//! The manifest: the only truth about files (rule 5). One writer; one edit per finished job, synced before
//! anything relies on it.

pub(crate) mod file_names;
pub(crate) mod files;
pub(crate) mod numbered_files;
mod state;
mod file;

#[cfg(feature = "testing")]
pub(crate) use file::decoders;
pub(crate) use file::{MAGIC, Manifest, parse_current, show_edits, usable};
pub(crate) use state::ManifestState;
