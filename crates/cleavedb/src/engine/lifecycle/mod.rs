//! Opening, recovery and closing; copies of a database, and sorted data taken in whole.

pub(crate) mod open;
pub(crate) mod ownership;
pub(crate) mod recovery;
pub(crate) mod checkpoint;
pub(crate) mod ingest;
