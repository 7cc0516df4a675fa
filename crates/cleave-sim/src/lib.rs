//! Deterministic simulation of CleaveDB: the real engine over a simulated disk in a simulated world of threads, compared
//! with a model. One seed, one run; the same seed shows the same bug again.
//!
//! Read in this order: what an operation is, how they are drawn, the model, what was promised (ledger), one client, what
//! a crash may leave (recovery), and how it all becomes a run (simulation). The engine's own tests use the same parts.
pub mod rng;
pub mod material;
pub mod operation;
pub mod operator;
pub mod workload;
pub mod model;
pub mod ledger;
pub mod pulls;
pub mod state;
pub mod world;
pub mod copies;
pub mod order;
pub mod client;
pub mod recovery;
pub mod crasher;
pub mod plan;
pub mod simulation;
pub mod session;

pub use plan::{Backend, Plan};
pub use simulation::{Report, SeedFailure, run};
pub use world::Failure;
