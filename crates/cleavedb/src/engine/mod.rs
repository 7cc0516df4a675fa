//! Floor 3: the engine behind the handles. It opens and closes databases, commits writes, serves reads, and runs
//! background jobs. Only the engine commits edits to the manifest.
//!
//! The files here are the state of an open database; the folders have the operations on it.

pub(crate) mod core;
pub(crate) mod view;
pub(crate) mod layer;
pub(crate) mod binds;
pub(crate) mod buckets;
pub(crate) mod bucket_window;
pub(crate) mod crowded_front;
pub(crate) mod published;
pub(crate) mod scan_demand;
pub(crate) mod scheduling;
pub(crate) mod scan_lengths;
pub(crate) mod current_survey;
pub(crate) mod snapshots;
pub(crate) mod referrers;
pub(crate) mod held_snapshot;
pub(crate) mod keyspaces;
pub(crate) mod hashed;
pub(crate) mod indexed_files;
pub(crate) mod background_io;
pub(crate) mod batch;
pub(crate) mod commit_queue;
pub(crate) mod durable_horizon;
pub(crate) mod file_numbers;
pub(crate) mod log_supply;
pub(crate) mod fast_tier;
pub(crate) mod reserve;
pub(crate) mod pacer;
pub(crate) mod bypass;
pub(crate) mod poison;
pub(crate) mod memory;
pub(crate) mod fit_caches;
pub(crate) mod gc_pace;
pub(crate) mod throttle;
pub(crate) mod space;
pub(crate) mod activity;
pub(crate) mod claims;
pub(crate) mod shortages;
pub(crate) mod work;
pub(crate) mod counters;
pub(crate) mod job_usage;
pub(crate) mod page_state;
pub(crate) mod events;
pub(crate) mod value_home;
pub(crate) mod install;
pub(crate) mod write;
pub(crate) mod read;
pub(crate) mod jobs;
pub(crate) mod tuning;
pub(crate) mod recovery;
pub(crate) mod lifecycle;
pub(crate) mod manifest;
pub(crate) mod inspect;

/// The primitives that `published.rs` uses, so that a test can substitute those of a model checker.
pub(crate) mod handover {
    pub(crate) use crate::base::Seqno;
    pub(crate) use crate::sched::sync::RwLock;
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::AtomicU64;
}
