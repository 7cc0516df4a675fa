//! The write path: batches are committed atomically to logs and index tables, at a rate that background work can
//! sustain. Called by the handles in `api/`.

pub(crate) mod commit;
pub(crate) mod durability;
pub(crate) mod logs;
pub(crate) mod pacing;
mod redirect;
pub(crate) mod bucket_pacing;
pub(crate) mod queues;
pub(crate) mod space;
pub(crate) mod separation;
pub(crate) mod fold;
pub(crate) mod hashed;
pub(crate) mod hashed_moves;
