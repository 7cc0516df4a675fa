//! Recovery: which directories there are and who owns them, which tables and value files the manifest references, and which records of the
//! logs are in no table. The check of a closed database reads the same way.

pub(crate) mod ownership;
pub(crate) mod owner;
pub(crate) mod directories;
pub(crate) mod tables;
pub(crate) mod values;
pub(crate) mod replay;
mod device_frames;
pub(crate) mod indexes;
pub(crate) mod found_records;
