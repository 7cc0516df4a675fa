//! NVMe devices with the key-value command set (command set identifier 1), by passthrough of commands to `/dev/ngXnY`.
//!
//! **Untested on hardware.** The tests run against a model of a device that decodes the same 64-byte submission entries
//! (`model.rs`), which shows that commands say what they should, not that a device understands them.
//!
//! An open asks for the command set of the namespace first, and refuses another one: its commands mean something else.
//!
//! A key of up to 16 bytes is the key of the device; of a longer one, that is a hash of 15 bytes. Each value begins with the length of
//! the longer key (`u16`, 0 without one) and that key itself, which is compared when the value is read, and before it is replaced.
//! The keys of the engine have 16 bytes: no longer key can have the same one on the device, so that they need no such comparison.

mod command;
#[cfg(any(test, feature = "testing"))]
pub mod model;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_128;

use self::command::{Command, DEVICE_KEY_BYTES, DeviceKey, IDENTIFY_BYTES, KEY_VALUE_SET, Opcode, status};
use super::kv_device::{KvDevice, KvTraffic, KvUsage};
use crate::base::{Error, Result as EngineResult};
#[cfg(all(target_os = "linux", not(feature = "portable")))]
use crate::io::NvmePassthrough;
use crate::io::nvme::{Data, Queue, Transport};

/// Room for a value that is read before its length is known.
const RETRIEVE_BYTES: usize = 20 << 10;
/// Room for the keys that one list command returns.
const LIST_BYTES: usize = 64 << 10;
/// The longest key.
const KEY_BYTES_MAX: usize = 1 << 10;
/// The key of a device for a longer one has this length: that of no key of the engine.
const HASH_BYTES: usize = DEVICE_KEY_BYTES - 1;
/// The key of the pair that has the identity of the device; it is not listed.
const IDENTITY_KEY: &[u8] = b"cleavedb-ident";

/// What the options say of an NVMe device, since it does not say it in a way that is the same for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvmeParameters {
    /// Bytes of values that it may hold.
    pub capacity_bytes: u64,
    /// The longest value that the device takes, in bytes: at least 8 KiB.
    pub value_bytes_max: usize,
}

/// 64 GiB, and values of up to 32 KiB.
impl Default for NvmeParameters {
    fn default() -> NvmeParameters {
        NvmeParameters { capacity_bytes: 64 << 30, value_bytes_max: 32 << 10 }
    }
}

/// An NVMe device with the key-value command set. Untested on hardware.
pub struct NvmeKv {
    transport: Arc<dyn Transport>,
    parameters: NvmeParameters,
    identity: u64,
    used: AtomicU64,
    commands: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl NvmeKv {
    /// Opens the namespace behind a generic character device, such as `/dev/ng0n1`, which only one process at a time can have open so.
    /// Reads the lengths of all values that it holds.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none at this path, [`Error::Locked`] if it is open elsewhere, [`Error::Unsupported`] if it is no
    /// NVMe device, has another command set or refuses a command, [`Error::UnsupportedOperation`] if this build has no passthrough,
    /// [`Error::Io`].
    pub fn open(path: impl AsRef<Path>, parameters: NvmeParameters) -> EngineResult<Arc<NvmeKv>> {
        let path = path.as_ref();
        NvmeKv::on(passthrough(path)?, parameters).map_err(|error| match error.raw_os_error() {
            Some(_) => Error::io(path, "use", error),
            None => Error::Unsupported { path: path.to_owned(), message: error.to_string() },
        })
    }

    /// A device behind any transport.
    pub(crate) fn on(transport: Arc<dyn Transport>, parameters: NvmeParameters) -> io::Result<Arc<NvmeKv>> {
        if parameters.value_bytes_max < 8 << 10 {
            return Err(invalid(format!("values of at most {} bytes are too short", parameters.value_bytes_max)));
        }
        let [used, commands, sent, received] = [0; 4].map(AtomicU64::new);
        let mut device = NvmeKv { transport, parameters, identity: 0, used, commands, sent, received };
        device.check_command_set()?;
        device.identity = device.find_identity()?;
        let mut keys = Vec::new();
        device.list_device_keys(&mut |key| keys.push(key))?;
        for key in keys {
            let bytes = device.find(&key)?.map_or(0, |found| found.value_bytes());
            device.used.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(Arc::new(device))
    }

    /// Refuses a namespace of another command set. Devices that do not know the question have the NVM command set alone.
    fn check_command_set(&self) -> io::Result<()> {
        let mut descriptors = [0; IDENTIFY_BYTES];
        let entry = command::identify_namespace();
        let completion = self.transport.submit(Queue::Admin, &entry, Data::FromDevice(&mut descriptors))?;
        let set = match completion.status & status::CODE {
            status::SUCCESS => command::command_set_of(&descriptors).unwrap_or_default(),
            status::INVALID_FIELD => 0,
            code => return Err(io::Error::other(format!("the NVMe command Identify ended with status {code:#05x}"))),
        };
        match set {
            KEY_VALUE_SET => Ok(()),
            other => Err(invalid(format!("the namespace has the command set {other}, and not the key-value one (1)"))),
        }
    }

    /// The number stored on the device; one is made if it has none.
    fn find_identity(&self) -> io::Result<u64> {
        if let Some(found) = self.retrieve(IDENTITY_KEY)? {
            let bytes = <[u8; 8]>::try_from(&found[..]);
            return bytes
                .map(u64::from_le_bytes)
                .map_err(|_| invalid("the identity of the device is damaged".to_owned()));
        }
        let mut bytes = [0; 8];
        crate::io::random_bytes(&mut bytes)?;
        let identity = u64::from_le_bytes(bytes).max(1);
        self.store(IDENTITY_KEY, &identity.to_le_bytes())?;
        self.sync()?;
        self.used.store(0, Ordering::Relaxed);
        Ok(identity)
    }

    /// Carries out a command; the value of its result, or the error for its status.
    fn run(&self, opcode: Opcode, key: &DeviceKey, data: Data<'_>) -> io::Result<Result<u32, u16>> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let (sent, room) = match &data {
            Data::None => (0, None),
            Data::ToDevice(bytes) => (bytes.len(), None),
            Data::FromDevice(buffer) => (0, Some(buffer.len())),
        };
        self.sent.fetch_add((key.len() + sent) as u64, Ordering::Relaxed);
        let command = Command { opcode, key: key.clone(), data_bytes: data.bytes() as u32 };
        let completion = self.transport.submit(Queue::Io, &command.encode(), data)?;
        match completion.status & status::CODE {
            status::SUCCESS => {
                let received = room.map_or(0, |room| room.min(completion.result as usize));
                self.received.fetch_add(received as u64, Ordering::Relaxed);
                Ok(Ok(completion.result))
            }
            status::CAPACITY_EXCEEDED => Err(io::ErrorKind::StorageFull.into()),
            code @ status::NO_SUCH_KEY => Ok(Err(code)),
            code => Err(io::Error::other(format!("the NVMe command {opcode:?} ended with status {code:#05x}"))),
        }
    }

    /// The stored bytes of a device key, as many as `room`, and how many there are.
    fn read_stored(&self, key: &DeviceKey, room: usize) -> io::Result<Option<(Vec<u8>, usize)>> {
        let mut buffer = vec![0; room];
        let result = self.run(Opcode::Retrieve, key, Data::FromDevice(&mut buffer))?;
        Ok(result.ok().map(|len| {
            buffer.truncate(len as usize);
            (buffer, len as usize)
        }))
    }

    /// What is stored under a device key, without the value.
    fn find(&self, key: &DeviceKey) -> io::Result<Option<Stored>> {
        match self.read_stored(key, 2 + KEY_BYTES_MAX)? {
            Some((bytes, len)) => Stored::decode(&bytes, len).map(Some),
            None => Ok(None),
        }
    }

    fn list_device_keys(&self, see: &mut dyn FnMut(DeviceKey)) -> io::Result<()> {
        let mut from = DeviceKey::default();
        loop {
            let mut buffer = vec![0; LIST_BYTES];
            if self.run(Opcode::List, &from, Data::FromDevice(&mut buffer))?.is_err() {
                return Ok(());
            }
            let keys =
                command::decode_list(&buffer).ok_or_else(|| invalid("the device lists damaged keys".to_owned()))?;
            // The first one is the last one of the list before.
            let new: Vec<DeviceKey> = keys.into_iter().filter(|key| *key != from).collect();
            let Some(last) = new.last().cloned() else { return Ok(()) };
            new.into_iter().filter(|key| key.bytes() != IDENTITY_KEY).for_each(&mut *see);
            from = last;
        }
    }
}

/// The way to the device behind a generic character device.
#[cfg(all(target_os = "linux", not(feature = "portable")))]
fn passthrough(path: &Path) -> EngineResult<Arc<dyn Transport>> {
    Ok(Arc::new(NvmePassthrough::open(path)?))
}

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
fn passthrough(path: &Path) -> EngineResult<Arc<dyn Transport>> {
    let message =
        format!("NVMe device {}: NVMe devices need Linux, and a build without the feature portable", path.display());
    Err(Error::UnsupportedOperation { message })
}

/// The beginning of a stored value.
struct Stored {
    /// A key that is longer than those of devices.
    long_key: Option<Vec<u8>>,
    /// Bytes of everything together.
    len: usize,
}

impl Stored {
    fn decode(bytes: &[u8], len: usize) -> io::Result<Stored> {
        let damaged = || invalid("a value on the device has no length of its key".to_owned());
        let (key_len, rest) = bytes.split_first_chunk::<2>().ok_or_else(damaged)?;
        let key_len = usize::from(u16::from_le_bytes(*key_len));
        let key = rest.get(..key_len).ok_or_else(damaged)?;
        Ok(Stored { long_key: (key_len > 0).then(|| key.to_vec()), len })
    }

    /// Where the value begins.
    fn start(&self) -> usize {
        2 + self.long_key.as_ref().map_or(0, Vec::len)
    }

    fn value_bytes(&self) -> u64 {
        self.len.saturating_sub(self.start()) as u64
    }

    /// False if it belongs to another key, which has the same key on the device.
    fn is_of(&self, key: &[u8]) -> bool {
        match &self.long_key {
            None => key.len() <= DEVICE_KEY_BYTES,
            Some(stored) => stored == key,
        }
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// The key of a device for a key.
fn device_key(key: &[u8]) -> io::Result<DeviceKey> {
    match key.len() {
        1..=DEVICE_KEY_BYTES => Ok(DeviceKey::new(key)),
        17..=KEY_BYTES_MAX => Ok(DeviceKey::new(&xxh3_128(key).to_be_bytes()[..HASH_BYTES])),
        len => Err(invalid(format!("a key of {len} bytes"))),
    }
}

impl KvDevice for NvmeKv {
    fn identity(&self) -> u64 {
        self.identity
    }

    fn value_bytes_max(&self) -> usize {
        self.parameters.value_bytes_max - 2 - KEY_BYTES_MAX
    }

    fn store(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let device_key = device_key(key)?;
        if value.len() > self.value_bytes_max() {
            return Err(invalid(format!("a value of {} bytes", value.len())));
        }
        let long_key = if key.len() > DEVICE_KEY_BYTES { key } else { &[] };
        // Keys of 16 bytes are the engine's, which are nearly always new and never those of others: not worth a command. If one is
        // not new, the count of bytes in use is too high until the next open.
        let replaced = match key.len() == DEVICE_KEY_BYTES {
            true => None,
            false => self.find(&device_key)?,
        };
        if let Some(before) = &replaced
            && !before.is_of(key)
        {
            return Err(invalid("two keys have the same hash".to_owned()));
        }
        let before = replaced.map_or(0, |before| before.value_bytes());
        let used = self.used.load(Ordering::Relaxed).saturating_sub(before) + value.len() as u64;
        if used > self.parameters.capacity_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let stored = [&(long_key.len() as u16).to_le_bytes()[..], long_key, value].concat();
        match self.run(Opcode::Store, &device_key, Data::ToDevice(&stored))? {
            Ok(_) => {
                self.used.fetch_add(value.len() as u64, Ordering::Relaxed);
                self.used.fetch_sub(before, Ordering::Relaxed);
                Ok(())
            }
            Err(code) => Err(io::Error::other(format!("the NVMe command Store ended with status {code:#05x}"))),
        }
    }

    fn retrieve(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let device_key = device_key(key)?;
        let mut found = self.read_stored(&device_key, RETRIEVE_BYTES)?;
        if let Some((bytes, len)) = &found
            && bytes.len() < *len
        {
            found = self.read_stored(&device_key, *len)?;
        }
        let Some((mut bytes, len)) = found else { return Ok(None) };
        let stored = Stored::decode(&bytes, len)?;
        if bytes.len() != len {
            return Err(invalid("a value changed while it was read".to_owned()));
        }
        Ok(stored.is_of(key).then(|| bytes.split_off(stored.start())))
    }

    fn delete(&self, key: &[u8]) -> io::Result<bool> {
        let device_key = device_key(key)?;
        let Some(stored) = self.find(&device_key)? else { return Ok(false) };
        if !stored.is_of(key) {
            return Ok(false);
        }
        let deleted = self.run(Opcode::Delete, &device_key, Data::None)?.is_ok();
        if deleted {
            self.used.fetch_sub(stored.value_bytes(), Ordering::Relaxed);
        }
        Ok(deleted)
    }

    fn exist(&self, key: &[u8]) -> io::Result<bool> {
        let device_key = device_key(key)?;
        let is_there = self.run(Opcode::Exist, &device_key, Data::None)?.is_ok();
        match is_there && device_key.len() == HASH_BYTES {
            true => Ok(self.find(&device_key)?.is_some_and(|stored| stored.is_of(key))),
            false => Ok(is_there),
        }
    }

    fn list(&self, see: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut keys = Vec::new();
        self.list_device_keys(&mut |key| keys.push(key))?;
        for key in keys {
            // Only a hash has this length, or another key of the same.
            match if key.len() == HASH_BYTES { self.find(&key)?.and_then(|stored| stored.long_key) } else { None } {
                Some(long_key) => see(&long_key),
                None => see(key.bytes()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.run(Opcode::Flush, &DeviceKey::default(), Data::None).map(drop)
    }

    fn reset(&self) -> io::Result<()> {
        let mut keys = Vec::new();
        self.list_device_keys(&mut |key| keys.push(key))?;
        for key in keys {
            self.run(Opcode::Delete, &key, Data::None)?.ok();
        }
        self.used.store(0, Ordering::Relaxed);
        self.sync()
    }

    fn usage(&self) -> KvUsage {
        KvUsage { capacity_bytes: self.parameters.capacity_bytes, used_bytes: self.used.load(Ordering::Relaxed) }
    }

    fn traffic(&self) -> KvTraffic {
        KvTraffic {
            commands: self.commands.load(Ordering::Relaxed),
            host_bytes_sent: self.sent.load(Ordering::Relaxed),
            host_bytes_received: self.received.load(Ordering::Relaxed),
            ..KvTraffic::default()
        }
    }
}

#[cfg(test)]
#[path = "nvme_test.rs"]
mod tests;
