//! The read path: one immutable view, its layers from the newest to the oldest.

pub(crate) mod get;
pub(crate) mod multi_get;
pub(crate) mod scan;
pub(crate) mod covers;
pub(crate) mod fetch;
pub(crate) mod sizes;
pub(crate) mod bounds;
