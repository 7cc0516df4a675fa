//! The program as a user runs it: real processes and real directories, one module per group of commands.
// Helpers of tests may unwrap, as tests may.
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
