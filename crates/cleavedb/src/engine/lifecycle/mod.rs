//! Opening, recovery and closing; copies of a database, and sorted data taken in whole.

pub(crate) mod request;
pub(crate) mod open;
pub(crate) mod close;
pub(crate) mod checkpoint;
pub(crate) mod ingest;
