//! Background work: what a job is, which one is next, and one file for each kind.

pub(crate) mod job;
pub(crate) mod scheduler;
pub(crate) mod subtasks;
pub(crate) mod retry;
pub(crate) mod runs;
pub(crate) mod flush;
pub(crate) mod compact;
pub(crate) mod collect_garbage;
pub(crate) mod pause;
