//! What an open finds: whose directories they are, which tables and value files the manifest references, and what the logs hold
//! that is in no table. The check of a closed database reads the same way.

pub(crate) mod ownership;
pub(crate) mod tables;
pub(crate) mod values;
pub(crate) mod replay;
