//! The write path: batches become durable records in logs, visible all at once, at a pace that background work can follow.

pub(crate) mod commit;
pub(crate) mod durability;
pub(crate) mod logs;
pub(crate) mod pacing;
pub(crate) mod space;
pub(crate) mod separation;
