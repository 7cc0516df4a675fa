//! Commands of the NVMe key-value command set as 64-byte submission entries, and the list that a device returns.
//!
//! The key lies in dwords 2, 3, 14 and 15, in this order, lowest byte first; its length in the lowest byte of dword 11; the length of
//! the data in dword 10. (NVM Express Key Value Command Set Specification 1.0.)

use crate::io::nvme::Entry;

/// The longest key of a device.
pub const DEVICE_KEY_BYTES: usize = 16;
/// The dwords of an entry that have the key.
const KEY_DWORDS: [usize; 4] = [2, 3, 14, 15];

/// The bytes of the data of an identify command.
pub const IDENTIFY_BYTES: usize = 4096;
/// The identifier of the key-value command set.
pub const KEY_VALUE_SET: u8 = 1;
/// The admin command that describes a device or a namespace.
const IDENTIFY: u8 = 0x06;
/// Asks it for the descriptors of a namespace (CNS).
const NAMESPACE_DESCRIPTORS: u8 = 0x03;
/// The type of the descriptor that has the command set.
const COMMAND_SET: u8 = 4;

/// The admin command that asks for the descriptors of the namespace, without the namespace and data pointers, which are the transport's.
pub fn identify_namespace() -> Entry {
    let mut entry = [0; 64];
    (entry[0], entry[40]) = (IDENTIFY, NAMESPACE_DESCRIPTORS);
    entry
}

/// The command set in the descriptors of a namespace: each has its type (`u8`), its length (`u8`), two reserved bytes, and then as many
/// bytes as its length says; a length of 0 ends the list. `None` if there is none in it: such a namespace has the NVM command set.
pub fn command_set_of(mut descriptors: &[u8]) -> Option<u8> {
    while let Some(([of, len, ..], rest)) = descriptors.split_first_chunk::<4>() {
        match (*of, *len) {
            (_, 0) => return None,
            (COMMAND_SET, _) => return rest.first().copied(),
            (_, len) => descriptors = rest.get(usize::from(len)..)?,
        }
    }
    None
}

/// What a command does; do not renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    Flush = 0x00,
    Store = 0x01,
    Retrieve = 0x02,
    List = 0x06,
    Delete = 0x10,
    Exist = 0x14,
}

/// Status codes: generic ones, and those of the command set.
pub mod status {
    /// The bits of a status that have its type and its code.
    pub const CODE: u16 = 0x7ff;
    pub const SUCCESS: u16 = 0;
    pub const INVALID_FIELD: u16 = 0x02;
    pub const CAPACITY_EXCEEDED: u16 = 0x81;
    pub const NO_SUCH_KEY: u16 = 0x87;
}

/// A key of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceKey {
    bytes: [u8; DEVICE_KEY_BYTES],
    len: u8,
}

impl DeviceKey {
    /// A key of at most 16 bytes.
    pub fn new(key: &[u8]) -> DeviceKey {
        let mut bytes = [0; DEVICE_KEY_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        DeviceKey { bytes, len: key.len() as u8 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    pub fn len(&self) -> usize {
        usize::from(self.len)
    }
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub opcode: Opcode,
    pub key: DeviceKey,
    pub data_bytes: u32,
}

impl Command {
    /// The submission entry, without namespace and data pointers, which are the transport's.
    pub fn encode(&self) -> Entry {
        let mut entry = [0; 64];
        entry[0] = self.opcode as u8;
        for (dword, part) in KEY_DWORDS.into_iter().zip(self.key.bytes.chunks(4)) {
            entry[4 * dword..4 * dword + 4].copy_from_slice(part);
        }
        entry[40..44].copy_from_slice(&self.data_bytes.to_le_bytes());
        entry[44] = self.key.len;
        entry
    }
}

/// The keys of a list: their count (`u32`), then for each its length (`u16`) and its bytes, padded to four bytes.
pub fn decode_list(bytes: &[u8]) -> Option<Vec<DeviceKey>> {
    let (count, mut rest) = bytes.split_first_chunk::<4>()?;
    let mut keys = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (len, after) = rest.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_le_bytes(*len));
        keys.push(DeviceKey::new(after.get(..len).filter(|_| (1..=DEVICE_KEY_BYTES).contains(&len))?));
        rest = rest.get((2 + len).next_multiple_of(4)..).unwrap_or_default();
    }
    Some(keys)
}
