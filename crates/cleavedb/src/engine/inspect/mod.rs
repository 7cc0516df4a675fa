//! Inspection of a database: checks, dumps, telemetry, statistics.

pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod stats;
pub(crate) mod scheduling_stats;
pub(crate) mod tier_stats;
pub(crate) mod delta_stats;
pub(crate) mod hash_stats;
pub(crate) mod bypass_stats;
pub(crate) mod stats_page;
pub(crate) mod telemetry;
