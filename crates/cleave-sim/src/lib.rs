//! Deterministic simulation of CleaveDB: the real engine on a simulated disk, with simulated threads and clock, compared
//! with a model. A seed determines the run completely, so the same seed reproduces the same bug.
//!
//! Reading order: `operation` (what a client can do), `workload` (how operations are drawn), `model`, `ledger` (which
//! batches were acknowledged), `client`, `recovery` (which states a crash may leave), `simulation` (a whole run). The
//! engine's own tests use the same modules.
pub mod rng;
pub mod material;
pub mod operation;
pub mod operator;
pub mod workload;
pub mod model;
pub mod ledger;
pub mod failure;
pub mod pulls;
pub mod state;
pub mod world;
pub mod checkpoints;
pub mod order;
pub mod client;
pub mod recovery;
pub mod crasher;
pub mod plan;
pub mod slow_spell;
pub mod report;
pub mod simulation;
pub mod session;

pub use failure::Failure;
pub use plan::{Backend, Plan};
pub use report::Report;
pub use simulation::{SeedFailure, run};
