//! Floor 1: devices with a key-value interface, on which logs are born while writers go around background work (KVAccel,
//! IPDPS 2025; decision record 057). [`KvDevice`] is what a device can do; `KvDirectory` shows one to the engine as a directory of
//! append-only files, and [`WithDevice`] puts that directory beside those of another storage.

mod block_side;
mod block_space;
mod block_storage;
mod kv_device;
mod pieces;
mod directory;
mod kv_file;
mod with_device;
pub mod emulated;
pub mod nvme;

pub use block_side::BlockSide;
pub use kv_device::{KvDevice, KvPair, KvTraffic, KvUsage};
pub use with_device::{WithDevice, device_path, is_device_path};
