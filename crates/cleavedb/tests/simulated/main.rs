//! The engine through its public API, on the simulated disk and in simulated threads, so that every run is repeatable:
//! promises about crashes, limits, handles, and random operations compared with a model.
// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

mod durability;
mod images;
mod damage;
mod faults;
mod reserve;
mod growth;
mod pacing;
mod bypass;
mod device;
mod device_crashes;
mod keyspaces;
mod operators;
mod deltas;
mod buckets;
mod bucket_folds;
mod operand_cache;
mod limits;
mod released_space;
mod handles;
mod snapshots;
mod hashed;
mod hashed_space;
mod hashed_damage;
mod hashed_index;
mod range_deletes;
mod iterators;
mod multi_get;
mod sizes;
mod space;
mod ingest;
mod tiers;
mod moved_files;
mod fast_budget;
mod tier_failures;
mod tier_tables;
mod tier_crashes;
mod tier_checkpoints;
mod kept;
mod values;
mod surveys;
mod ranges;
mod scanned;
mod scheduling;
mod compressed;
mod fetches;
mod folds;
mod checkpoints;
mod ownership;
mod read_only;
mod pauses;
mod model;
mod support;
