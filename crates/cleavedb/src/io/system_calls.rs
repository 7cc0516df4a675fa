//! System calls with their retries and their portable substitutes: complete reads, preallocation, write-back, random
//! bytes. One of them is declared here, which takes `unsafe`: rustix has no `sync_file_range`.
//!
//! Called by the files of the operating system beside it (`os`, `os_file`, `direct_reader`, `mapped`, `busy_poll`).

use std::fs;
use std::io;
#[cfg(not(feature = "portable"))]
use std::io::IoSlice;
use std::os::unix::fs::FileExt;

#[cfg(not(feature = "portable"))]
use rustix::fs::FallocateFlags;
#[cfg(not(feature = "portable"))]
use rustix::io::{Errno, retry_on_intr};

/// Reads until the buffer is full or the file ends; returns the number of bytes read.
pub(super) fn read_fully(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Writes parts one behind the other from `offset` on: as few calls as the system needs for that.
#[cfg(not(feature = "portable"))]
pub(super) fn write_parts(file: &fs::File, parts: &[&[u8]], offset: u64) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let (mut rest, mut at) = (&mut slices[..], offset);
    // Empty ones at the start would end in a write of nothing.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match retry_on_intr(|| rustix::io::pwritev(file, rest, at))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => {
                at += count as u64;
                IoSlice::advance_slices(&mut rest, count);
            }
        }
    }
    Ok(())
}

/// Preallocates space for `len` bytes and makes the file at least that long. Returns false, after setting only the length,
/// where the file system cannot preallocate.
#[cfg(not(feature = "portable"))]
pub(super) fn preallocate(file: &fs::File, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => extend_to(file, len),
        other => other.map(|()| true).map_err(io::Error::from),
    }
}

/// Makes the file at least `len` bytes long. Returns false: the portable build cannot preallocate.
#[cfg(feature = "portable")]
pub(super) fn preallocate(file: &fs::File, len: u64) -> io::Result<bool> {
    extend_to(file, len)
}

/// Starts to write dirty pages of a range to storage, and leaves them in the page cache; only a hint. An advice that the
/// pages are not needed would start it too, but then drops the pages that are already written.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri), not(feature = "portable")))]
pub(super) fn start_write_back(file: &fs::File, offset: u64, len: u64) {
    use std::ffi::{c_int, c_uint};
    use std::os::fd::AsRawFd;
    /// `SYNC_FILE_RANGE_WRITE` of the kernel's interface.
    const WRITE: c_uint = 2;
    // SAFETY: the function is glibc's, with this signature (`off64_t` is `i64`); it takes no pointers, so any arguments are
    // safe.
    unsafe extern "C" {
        safe fn sync_file_range(fd: c_int, offset: i64, bytes: i64, flags: c_uint) -> c_int;
    }
    sync_file_range(file.as_raw_fd(), offset as i64, len as i64, WRITE);
}

/// Does nothing: the kernel writes dirty pages in its own time.
#[cfg(all(not(all(target_os = "linux", target_env = "gnu", not(miri))), not(feature = "portable")))]
pub(super) fn start_write_back(_: &fs::File, _: u64, _: u64) {}

/// Makes the file at least `len` bytes long without allocating space, hence false.
fn extend_to(file: &fs::File, len: u64) -> io::Result<bool> {
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    Ok(false)
}

/// Fills `bytes` with random bytes. The kernel returns as few as eight bytes completely or not at all.
#[cfg(not(feature = "portable"))]
pub fn random_bytes(bytes: &mut [u8; 8]) -> io::Result<()> {
    retry_on_intr(|| rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()))?;
    Ok(())
}

/// Fills `bytes` with random bytes.
#[cfg(feature = "portable")]
pub fn random_bytes(bytes: &mut [u8; 8]) -> io::Result<()> {
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, bytes)
}
