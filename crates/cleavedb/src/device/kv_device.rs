//! [`KvDevice`]: storage that is addressed by key. Its values are what the engine gives it, pieces of logs; it knows nothing of
//! records. Implemented by the emulated device and by NVMe devices with the key-value command set.

use std::io;

use super::block_side::BlockSide;

/// A key and its value.
pub type KvPair = (Vec<u8>, Vec<u8>);

/// The room of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvUsage {
    /// Bytes of values that it can hold.
    pub capacity_bytes: u64,
    /// Bytes of the values that it holds.
    pub used_bytes: u64,
}

/// What a device has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvTraffic {
    /// Commands of the key-value side that were carried out.
    pub commands: u64,
    /// Bytes that the host has sent over the link: keys and values, and what it wrote to files of the block side.
    pub host_bytes_sent: u64,
    /// Bytes that the host has received: keys and values, and what it read from files of the block side.
    pub host_bytes_received: u64,
    /// Of the bytes sent, those to the block side; 0 if the device has none as a directory.
    pub block_bytes_sent: u64,
    /// Of the bytes received, those from the block side.
    pub block_bytes_received: u64,
    /// Bytes written to the medium, rewriting by the device included; 0 if the device does not say.
    pub media_bytes_written: u64,
    /// Bytes read from the medium; 0 if the device does not say.
    pub media_bytes_read: u64,
}

/// A device with a key-value interface (KV-SSD). All calls may block, and several may be in flight at once.
///
/// A store replaces an older value as a whole: after a failure, or loss of power, a key has its old value or the new one. What was
/// stored or deleted before [`sync`](KvDevice::sync) began survives loss of power once it has returned; of what came later, any part
/// may. Everything survives the end of the process that did it.
///
/// Errors: [`StorageFull`](io::ErrorKind::StorageFull) means that there is no room, and that nothing was done. After any other error
/// of a store or a sync, writes of the database stop.
pub trait KvDevice: Send + Sync {
    /// A number, not zero, that tells the device from all others, and that stays the same.
    fn identity(&self) -> u64;
    /// The longest value, in bytes: at least 4 KiB.
    fn value_bytes_max(&self) -> usize;
    /// Stores a pair. Keys of 1 to 16 bytes are always accepted.
    fn store(&self, key: &[u8], value: &[u8]) -> io::Result<()>;
    /// The value of a key.
    fn retrieve(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>>;
    /// Removes a pair; false if there is none.
    fn delete(&self, key: &[u8]) -> io::Result<bool>;
    /// True if there is a pair with this key.
    fn exist(&self, key: &[u8]) -> io::Result<bool>;
    /// Visits all keys, in any order.
    fn list(&self, see: &mut dyn FnMut(&[u8])) -> io::Result<()>;
    /// The pairs from `from` on, up to but not including `to`, in the order of their keys: as many as make about `chunk_bytes` of
    /// values, and at least one if there is one. `None` if the device has no such command.
    fn scan(&self, _from: &[u8], _to: &[u8], _chunk_bytes: usize) -> io::Result<Option<Vec<KvPair>>> {
        Ok(None)
    }
    /// Makes durable what was stored and deleted before.
    fn sync(&self) -> io::Result<()>;
    /// Removes all pairs, durably. The engine never calls this.
    fn reset(&self) -> io::Result<()>;
    /// How full it is. Waits for no command.
    fn usage(&self) -> KvUsage;
    /// Its block side, if it has one as a directory.
    fn block_side(&self) -> Option<BlockSide> {
        None
    }
    /// What it has done.
    fn traffic(&self) -> KvTraffic;
}
