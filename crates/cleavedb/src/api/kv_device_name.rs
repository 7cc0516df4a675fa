//! [`KvDeviceName`]: how users of programs name a KV device. The one place that parses it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::Result;
use crate::device::KvDevice;
use crate::device::emulated::{EmulatedSsd, SsdParameters};
use crate::device::nvme::{NvmeKv, NvmeParameters};

/// What the name of an NVMe device begins with.
const NVME: &str = "nvme:";

/// A KV device as users of programs name it: `DIR` is an emulated device whose files lie in that directory, `nvme:PATH` an NVMe device
/// behind a generic character device, such as `nvme:/dev/ng0n1`. `nvme:PATH:BYTES` also says how many bytes of values it may hold, in
/// place of [`NvmeParameters::default`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvDeviceName {
    /// An emulated device, and its directory.
    Emulated(PathBuf),
    /// An NVMe device with the key-value command set. Untested on hardware.
    Nvme {
        /// Its generic character device.
        path: PathBuf,
        /// What it can hold.
        parameters: NvmeParameters,
    },
}

impl KvDeviceName {
    /// Opens the device; an emulated one with these parameters.
    ///
    /// # Errors
    /// Those of [`EmulatedSsd::open`] and [`NvmeKv::open`].
    pub fn open(&self, emulated: SsdParameters) -> Result<Arc<dyn KvDevice>> {
        match self {
            KvDeviceName::Emulated(dir) => Ok(EmulatedSsd::open(dir, emulated)?),
            KvDeviceName::Nvme { path, parameters } => Ok(NvmeKv::open(path, *parameters)?),
        }
    }
}

impl From<OsString> for KvDeviceName {
    fn from(name: OsString) -> KvDeviceName {
        // Names of character devices are text.
        let Some(path) = name.to_str().and_then(|name| name.strip_prefix(NVME)) else {
            return KvDeviceName::Emulated(name.into());
        };
        let of = |path: &str, parameters| KvDeviceName::Nvme { path: path.into(), parameters };
        let with_capacity = path.rsplit_once(':').and_then(|(path, bytes)| Some((path, bytes.parse().ok()?)));
        match with_capacity {
            Some((path, capacity_bytes)) => of(path, NvmeParameters { capacity_bytes, ..NvmeParameters::default() }),
            None => of(path, NvmeParameters::default()),
        }
    }
}

impl From<&OsStr> for KvDeviceName {
    fn from(name: &OsStr) -> KvDeviceName {
        name.to_owned().into()
    }
}

impl From<&str> for KvDeviceName {
    fn from(name: &str) -> KvDeviceName {
        OsString::from(name).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_chooses_an_nvme_device_and_anything_else_is_a_directory() {
        let nvme = |path: &str, parameters| KvDeviceName::Nvme { path: path.into(), parameters };
        let of = |capacity_bytes| NvmeParameters { capacity_bytes, ..NvmeParameters::default() };
        assert_eq!(KvDeviceName::from("nvme:/dev/ng0n1"), nvme("/dev/ng0n1", NvmeParameters::default()));
        assert_eq!(KvDeviceName::from("nvme:/dev/ng0n1:1048576"), nvme("/dev/ng0n1", of(1 << 20)));
        assert_eq!(KvDeviceName::from("nvme:/dev/a:b"), nvme("/dev/a:b", NvmeParameters::default()));
        for dir in ["kv", "/dev/ng0n1", "./nvme:x", "a:1"] {
            assert_eq!(KvDeviceName::from(dir), KvDeviceName::Emulated(dir.into()));
        }
    }
}
