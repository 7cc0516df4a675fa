//! Submission entries by the passthrough of the Linux kernel (`NVME_IOCTL_IO64_CMD`, `NVME_IOCTL_ADMIN64_CMD`), which takes `unsafe`:
//! the kernel is given the address of a buffer.

use std::ffi::c_void;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

use super::nvme::{Completion, Data, Entry, Queue, Transport, dword};
use crate::base::{Error, Result};

/// A command may take this long.
const TIMEOUT_MS: u32 = 30_000;

/// `struct nvme_passthru_cmd64` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Default)]
struct PassthroughCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10_to_15: [u32; 6],
    timeout_ms: u32,
    reserved2: u32,
    result: u64,
}

const _: () = assert!(size_of::<PassthroughCommand>() == 80, "the structure is that of the kernel");

const ADMIN64_CMD: Opcode = opcode::read_write::<PassthroughCommand>(b'N', 0x47);
const IO64_CMD: Opcode = opcode::read_write::<PassthroughCommand>(b'N', 0x48);
/// Returns the number of the namespace.
const GET_NAMESPACE: Opcode = opcode::none(b'N', 0x40);

/// A request, of which the kernel's return value is the result.
struct Request {
    opcode: Opcode,
    command: *mut PassthroughCommand,
}

// SAFETY: the opcode belongs to the structure that the pointer leads to, or takes none; the kernel writes nothing but its field
// `result` and the buffer that it names.
unsafe impl Ioctl for Request {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.command.cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

/// A namespace of a device.
pub struct NvmePassthrough {
    file: fs::File,
    namespace: u32,
}

impl NvmePassthrough {
    /// Opens the generic character device of a namespace, which no other process may have open so.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Locked`], [`Error::Unsupported`] if it is something else, [`Error::Io`].
    pub fn open(path: &Path) -> Result<NvmePassthrough> {
        NvmePassthrough::open_device(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Error::NotFound { what: format!("NVMe device {}", path.display()) },
            Some(Errno::WOULDBLOCK) => Error::Locked { path: path.to_owned() },
            Some(Errno::NOTTY | Errno::ISDIR) => {
                let message = "it is not the generic character device of an NVMe namespace, such as /dev/ng0n1";
                Error::Unsupported { path: path.to_owned(), message: message.to_owned() }
            }
            _ => Error::io(path, "open", error),
        })
    }

    fn open_device(path: &Path) -> io::Result<NvmePassthrough> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let request = Request { opcode: GET_NAMESPACE, command: std::ptr::null_mut() };
        // SAFETY: this request takes no pointer.
        let namespace = unsafe { rustix::ioctl::ioctl(&file, request) }?;
        Ok(NvmePassthrough { file, namespace: namespace as u32 })
    }
}

impl Transport for NvmePassthrough {
    fn submit(&self, to: Queue, entry: &Entry, data: Data<'_>) -> io::Result<Completion> {
        let (address, data_len) = match data {
            Data::None => (0, 0),
            Data::ToDevice(bytes) => (bytes.as_ptr().addr() as u64, bytes.len()),
            Data::FromDevice(buffer) => (buffer.as_mut_ptr().addr() as u64, buffer.len()),
        };
        let mut command = PassthroughCommand {
            opcode: entry[0],
            namespace: self.namespace,
            cdw2: dword(entry, 2),
            cdw3: dword(entry, 3),
            address,
            data_len: data_len as u32,
            cdw10_to_15: [10, 11, 12, 13, 14, 15].map(|number| dword(entry, number)),
            timeout_ms: TIMEOUT_MS,
            ..PassthroughCommand::default()
        };
        let opcode = match to {
            Queue::Admin => ADMIN64_CMD,
            Queue::Io => IO64_CMD,
        };
        let request = Request { opcode, command: &raw mut command };
        // SAFETY: the structure is valid for the call, and so is the buffer that it names, which is borrowed until its end; the
        // kernel reads or writes at most `data_len` bytes of it, depending on the opcode, which agrees with the direction of the data.
        let status = unsafe { rustix::ioctl::ioctl(&self.file, request) }?;
        Ok(Completion { status: status as u16, result: command.result as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_numbers_of_the_kernel() {
        assert_eq!((ADMIN64_CMD, IO64_CMD, GET_NAMESPACE), (0xc050_4e47, 0xc050_4e48, 0x4e40));
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let (file, dir) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempdir().unwrap());
        for path in [file.path(), dir.path(), Path::new("/dev/null")] {
            let wrong = NvmePassthrough::open(path).err();
            assert!(matches!(&wrong, Some(Error::Unsupported { path: of, .. }) if of == path), "{wrong:?}");
        }
        let missing = NvmePassthrough::open(Path::new("/nowhere/ng0n1")).err();
        let is_named = matches!(&missing, Some(Error::NotFound { what }) if what.ends_with("/nowhere/ng0n1"));
        assert!(is_named, "{missing:?}");
        let held = std::fs::File::open(file.path()).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        assert!(matches!(NvmePassthrough::open(file.path()), Err(Error::Locked { .. })), "another process has it");
    }
}
