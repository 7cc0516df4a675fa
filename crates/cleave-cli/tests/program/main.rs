//! The program as a user meets it: real processes, real directories.
// The helpers of tests may do what tests may do.
#![allow(clippy::unwrap_used)]

mod usage;
mod records;
mod transfer;
mod ingest;
mod figures;
mod files;
mod directories;
mod owners;
mod signals;
mod shell;
mod tour;
mod support;
