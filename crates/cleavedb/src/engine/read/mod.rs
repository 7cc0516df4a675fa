//! The read path: point reads, multi-gets, scans and size estimates. Each takes one immutable view and searches its
//! layers from the newest to the oldest. Called by the handles in `api/`.

pub(crate) mod get;
pub(crate) mod hashed;
pub(crate) mod together;
pub(crate) mod multi_get;
pub(crate) mod scan;
pub(crate) mod covers;
pub(crate) mod fetch;
pub(crate) mod sizes;
pub(crate) mod bounds;
