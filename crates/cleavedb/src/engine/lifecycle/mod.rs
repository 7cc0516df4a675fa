//! Opening and closing; checkpoints, and ingest of sorted data.

pub(crate) mod request;
pub(crate) mod open;
pub(crate) mod move_home;
pub(crate) mod close;
pub(crate) mod checkpoint;
pub(crate) mod ingest;
