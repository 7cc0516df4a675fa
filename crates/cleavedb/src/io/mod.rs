//! Layer 1: storage. The engine reaches files only through [`Storage`], so the same straight-line code runs on the
//! operating system ([`os`]), in plain memory ([`memory`]), and, in tests, on a simulated disk that loses power, tears
//! writes and fails on request (`sim`).

mod storage;
pub mod os;
mod os_file;
mod file_lock;
mod process_lock;
mod direct_reader;
mod system_calls;
#[cfg(not(feature = "portable"))]
mod mapped;
#[cfg(not(feature = "portable"))]
mod busy_poll;
#[cfg(not(feature = "portable"))]
mod machine_load;
#[cfg(not(feature = "portable"))]
mod available_memory;
#[cfg(not(feature = "portable"))]
mod usage;
mod image;
pub mod nvme;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod nvme_passthrough;
pub mod aligned;
pub mod pages;
pub mod cells;
pub mod append;
pub mod copy;
pub mod handles;
pub mod read_ahead;
pub mod ahead_threads;
pub mod ordered_file;
pub mod split_file;
pub mod coalesced_reads;
pub mod file_guard;
pub mod pending_deletions;
pub mod read_only;
pub mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod sim;

/// What guards of files are made of; a model checker has its own.
mod guarding {
    pub use std::sync::atomic::AtomicBool;

    pub use super::pending_deletions::{FileRange, Obsolete, PendingDeletions};
    pub use crate::base::FileKey;
}

pub use aligned::AlignedBuffer;
pub use cells::Cells;
pub use image::MappingImage;
pub use memory::MemoryStorage;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub use nvme_passthrough::NvmePassthrough;
pub use os::OsStorage;
pub use pages::Pages;
pub use process_lock::ProcessLock;
#[cfg(any(test, feature = "testing"))]
pub use sim::{Faults, SimDisk};
pub use storage::{
    Access, DeviceUsage, DirEntry, File, FileSpace, Lock, Mapping, ProcessorTime, Punched, Storage, read_exact_at,
    read_exact_polled, read_whole,
};
pub use system_calls::random_bytes;
