//! What an emulated device is like.

use std::time::Duration;

use crate::base::{Error, Result};

/// Size and speed of an [`EmulatedSsd`](super::EmulatedSsd). Speeds of zero bytes a second mean that nothing is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SsdParameters {
    /// Bytes of the whole device.
    pub capacity_bytes: u64,
    /// The part of them that belongs to the key-value side (address split), in percent.
    pub kv_percent: u32,
    /// Bytes that the medium reads or writes in a second, for both sides together.
    pub media_bytes_per_second: u64,
    /// Reads and writes that the medium does in a second, for both sides together; 0 for any number of them. Each read or write of a
    /// file is one, however long, and so is each pair, each part of a run and each answer to a scan that the key-value side reads or writes.
    pub media_iops: u64,
    /// The time that a read of the medium takes in addition.
    pub media_latency: Duration,
    /// The time that a write takes in addition: zero if the device acknowledges it from memory that outlives loss of power.
    pub media_write_latency: Duration,
    /// The time for which a command keeps the processor of the key-value side busy. It does one at a time.
    pub command_time: Duration,
    /// Bytes that this processor handles in a second.
    pub processor_bytes_per_second: u64,
    /// The most bytes of one answer to a scan: what the device sends by one DMA.
    pub dma_bytes: usize,
    /// Bytes of pairs that the device collects in memory before it sorts them.
    pub memtable_bytes: usize,
}

impl SsdParameters {
    /// The Cosmos+ OpenSSD board of the KVAccel paper: 1 TB, 4 channels of 8 ways, a 1 GHz ARM core, PCIe 2.0 x8, scans of 512 KiB.
    /// The paper gives no speeds; those here are chosen for such a board.
    pub fn cosmos_plus() -> SsdParameters {
        SsdParameters {
            capacity_bytes: 1 << 40,
            kv_percent: 50,
            media_bytes_per_second: 630_000_000,
            media_iops: 0,
            media_latency: Duration::from_micros(100),
            media_write_latency: Duration::ZERO,
            command_time: Duration::from_micros(25),
            processor_bytes_per_second: 500_000_000,
            dma_bytes: 512 << 10,
            memtable_bytes: 4 << 20,
        }
    }

    /// A present-day device: PCIe 4.0, a faster processor. Chosen, not measured.
    pub fn modern() -> SsdParameters {
        SsdParameters {
            capacity_bytes: 1 << 40,
            kv_percent: 50,
            media_bytes_per_second: 3_000_000_000,
            media_iops: 0,
            media_latency: Duration::from_micros(20),
            media_write_latency: Duration::ZERO,
            command_time: Duration::from_micros(4),
            processor_bytes_per_second: 4_000_000_000,
            dma_bytes: 1 << 20,
            memtable_bytes: 8 << 20,
        }
    }

    /// A device that waits for nothing but its files.
    pub fn unthrottled() -> SsdParameters {
        SsdParameters {
            media_bytes_per_second: 0,
            media_iops: 0,
            media_latency: Duration::ZERO,
            media_write_latency: Duration::ZERO,
            command_time: Duration::ZERO,
            processor_bytes_per_second: 0,
            ..SsdParameters::modern()
        }
    }

    /// The same with another capacity.
    pub fn with_capacity(self, capacity_bytes: u64) -> SsdParameters {
        SsdParameters { capacity_bytes, ..self }
    }

    /// Bytes of values that the key-value side can hold.
    pub(super) fn kv_bytes(&self) -> u64 {
        (u128::from(self.capacity_bytes) * u128::from(self.kv_percent) / 100) as u64
    }

    pub(super) fn check(&self) -> Result<()> {
        match (self.kv_percent, self.dma_bytes, self.memtable_bytes) {
            (0..=100, 1.., 1..) => Ok(()),
            (percent, ..) => Err(Error::input(format!(
                "an emulated device needs memory, and a key-value side of at most 100 percent, not {percent}"
            ))),
        }
    }
}
