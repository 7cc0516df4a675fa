//! `import`, `ingest` and `export`: whole keyspaces from and to files, in the forms of docs/formats/export.md.

pub mod import;
pub mod ingest;
pub mod export;
pub mod batches;
mod input;
pub mod jsonl;
mod binary;
pub mod record;
