//! How commands get to an NVMe device: 64-byte submission entries, with their data. `device/nvme/` makes the entries.

use std::io;

/// A submission entry.
pub type Entry = [u8; 64];

/// A dword of an entry.
pub fn dword(entry: &Entry, number: usize) -> u32 {
    let bytes = &entry[4 * number..4 * number + 4];
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// The data of a command.
pub enum Data<'a> {
    /// None.
    None,
    /// The device reads it.
    ToDevice(&'a [u8]),
    /// The device fills it, perhaps in part.
    FromDevice(&'a mut [u8]),
}

impl Data<'_> {
    /// Its bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Data::None => 0,
            Data::ToDevice(bytes) => bytes.len(),
            Data::FromDevice(buffer) => buffer.len(),
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Type and code, without the phase bit.
    pub status: u16,
    /// Dword 0 of the completion entry: of a retrieve, the length of the value, even if only a part of it had room.
    pub result: u32,
}

/// Who carries out a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// The controller: commands about the device.
    Admin,
    /// The namespace, by the rules of its command set.
    Io,
}

/// The way to a namespace of a device.
pub trait Transport: Send + Sync {
    /// Submits an entry with its data, and waits for its completion.
    fn submit(&self, to: Queue, entry: &Entry, data: Data<'_>) -> io::Result<Completion>;
}
