//! A model of an NVMe device with the key-value command set: decodes submission entries and does what they say, in memory. It says which
//! command set its namespace has, as devices do. For tests.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use super::command::{IDENTIFY_BYTES, KEY_VALUE_SET, status};
use super::{NvmeKv, NvmeParameters};
use crate::io::nvme::{Completion, Data, Entry, Queue, Transport, dword};
use crate::sched::sync::Mutex;

/// The model. Its keys have an order of their own, as those of a device may.
pub struct NvmeModel {
    pairs: Mutex<BTreeMap<Place, Vec<u8>>>,
    capacity_bytes: Option<usize>,
    /// What it says of its namespace; `None` if it does not know the question.
    descriptors: Option<Vec<u8>>,
    /// Commands for the namespace.
    commands: AtomicU64,
}

impl Default for NvmeModel {
    fn default() -> NvmeModel {
        // A unique identifier of 8 bytes, and the command set.
        let descriptors = [&[1, 8, 0, 0][..], &[0xc1; 8], &[4, 1, 0, 0, KEY_VALUE_SET]].concat();
        NvmeModel {
            pairs: Mutex::default(),
            capacity_bytes: None,
            descriptors: Some(descriptors),
            commands: AtomicU64::new(0),
        }
    }
}

/// A key, and before it what its order depends on.
type Place = (u64, Vec<u8>);

/// A device behind a new model.
pub fn nvme_model(parameters: NvmeParameters) -> io::Result<Arc<NvmeKv>> {
    NvmeKv::on(Arc::new(NvmeModel::default()), parameters)
}

const INVALID_OPCODE: u16 = 0x01;

impl NvmeModel {
    /// A model that holds up to this many bytes of values.
    #[cfg(test)]
    pub fn with_capacity(bytes: usize) -> NvmeModel {
        NvmeModel { capacity_bytes: Some(bytes), ..NvmeModel::default() }
    }

    /// A model that says this of its namespace.
    #[cfg(test)]
    pub fn with_descriptors(descriptors: Option<&[u8]>) -> NvmeModel {
        NvmeModel { descriptors: descriptors.map(<[u8]>::to_vec), ..NvmeModel::default() }
    }

    /// How many commands the namespace got.
    #[cfg(test)]
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Carries out a command of the controller.
    fn administer(&self, entry: &Entry, data: Data<'_>) -> io::Result<Completion> {
        let asks_for_descriptors = dword(entry, 10) == 0x03;
        match (entry[0], data, &self.descriptors) {
            (0x06, Data::FromDevice(buffer), Some(descriptors))
                if asks_for_descriptors && buffer.len() == IDENTIFY_BYTES =>
            {
                buffer[..descriptors.len()].copy_from_slice(descriptors);
                ended(status::SUCCESS)
            }
            (0x06, Data::FromDevice(_), _) => ended(status::INVALID_FIELD),
            _ => ended(INVALID_OPCODE),
        }
    }

    fn place(key: &[u8]) -> Place {
        (xxh3_64(key), key.to_vec())
    }
}

fn ended(status: u16) -> io::Result<Completion> {
    Ok(Completion { status, result: 0 })
}

impl Transport for NvmeModel {
    fn submit(&self, to: Queue, entry: &Entry, data: Data<'_>) -> io::Result<Completion> {
        if to == Queue::Admin {
            return self.administer(entry, data);
        }
        self.commands.fetch_add(1, Ordering::Relaxed);
        let key_len = (dword(entry, 11) & 0xff) as usize;
        let key: Vec<u8> =
            [2, 3, 14, 15].into_iter().flat_map(|number| dword(entry, number).to_le_bytes()).take(key_len).collect();
        let needs_key = !matches!(entry[0], 0x00 | 0x06);
        if key_len > 16 || needs_key && key_len == 0 || dword(entry, 10) as usize != data.bytes() {
            return ended(status::INVALID_FIELD);
        }
        let mut pairs = self.pairs.lock();
        let place = NvmeModel::place(&key);
        match (entry[0], data) {
            (0x00, Data::None) => ended(status::SUCCESS),
            (0x01, Data::ToDevice(value)) => {
                let others: usize = pairs.iter().filter(|(at, _)| **at != place).map(|(_, value)| value.len()).sum();
                if self.capacity_bytes.is_some_and(|capacity| others + value.len() > capacity) {
                    return ended(status::CAPACITY_EXCEEDED);
                }
                pairs.insert(place, value.to_vec());
                ended(status::SUCCESS)
            }
            (0x02, Data::FromDevice(buffer)) => match pairs.get(&place) {
                Some(value) => {
                    let part = value.len().min(buffer.len());
                    buffer[..part].copy_from_slice(&value[..part]);
                    Ok(Completion { status: status::SUCCESS, result: value.len() as u32 })
                }
                None => ended(status::NO_SUCH_KEY),
            },
            (0x10, Data::None) => {
                ended(if pairs.remove(&place).is_some() { status::SUCCESS } else { status::NO_SUCH_KEY })
            }
            (0x14, Data::None) => ended(if pairs.contains_key(&place) { status::SUCCESS } else { status::NO_SUCH_KEY }),
            (0x06, Data::FromDevice(buffer)) => {
                let from = if key_len == 0 { (0, Vec::new()) } else { place };
                let (mut count, mut end) = (0u32, 4);
                for (_, key) in pairs.range(from..).map(|(place, _)| place) {
                    let next = end + (2 + key.len()).next_multiple_of(4);
                    if next > buffer.len() {
                        break;
                    }
                    buffer[end..end + 2].copy_from_slice(&(key.len() as u16).to_le_bytes());
                    buffer[end + 2..end + 2 + key.len()].copy_from_slice(key);
                    (count, end) = (count + 1, next);
                }
                buffer[..4].copy_from_slice(&count.to_le_bytes());
                Ok(Completion { status: status::SUCCESS, result: end as u32 })
            }
            _ => ended(INVALID_OPCODE),
        }
    }
}
