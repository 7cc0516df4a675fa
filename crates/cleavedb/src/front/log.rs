//! One log file, and how records are read from it: from the file once their bytes are there, from the ring before
//! that. Every read checks that the record has the requested key and sequence number.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Address, Error, FileId, FileKey, Gauge, Result, Seqno, Slice};
use crate::format::record::value_of;
use crate::io::file_guard::FileGuard;
use crate::io::{File, Mapping};

/// A log: written by the commit path, read by everything that has an address into it.
pub struct LogFile {
    id: FileId,
    /// Closed before the guard lets it be removed.
    file: Arc<dyn File>,
    guard: FileGuard,
    ring: Option<Arc<dyn Mapping>>,
    capacity: u64,
    /// All bytes below this offset are in the file.
    written: AtomicU64,
    /// Where the next frame would start.
    end: AtomicU64,
    /// The newest record, or 0 if there is none.
    last_seqno: AtomicU64,
    /// Bytes of records that are in indexes, so that no flush carries them.
    indexed: AtomicU64,
}

impl LogFile {
    /// A log whose first `end` bytes are in the file. `ring` contains later bytes until they are in the file.
    pub fn new(
        id: FileId,
        guard: FileGuard,
        file: Arc<dyn File>,
        ring: Option<Arc<dyn Mapping>>,
        capacity: u64,
        end: u64,
        last_seqno: Seqno,
    ) -> LogFile {
        LogFile {
            id,
            guard,
            file,
            ring,
            capacity,
            written: AtomicU64::new(end),
            end: AtomicU64::new(end),
            last_seqno: AtomicU64::new(last_seqno.0),
            indexed: AtomicU64::new(0),
        }
    }

    /// The file number.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The file, for the manifest.
    pub fn key(&self) -> FileKey {
        self.guard.key()
    }

    /// The path.
    pub fn path(&self) -> &Path {
        self.guard.path()
    }

    /// The open file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The ring through which it is written, if it is.
    pub fn ring(&self) -> Option<&Arc<dyn Mapping>> {
        self.ring.as_ref()
    }

    /// Largest size of the log, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Where the next frame would start, in bytes.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The newest record, or [`Seqno::ZERO`] if there is none.
    pub fn last_seqno(&self) -> Seqno {
        Seqno(self.last_seqno.load(Ordering::Acquire))
    }

    /// Bytes of records of hash keyspaces, live or not. Of what was written before the open, only those that are live.
    pub fn indexed_bytes(&self) -> u64 {
        self.indexed.load(Ordering::Relaxed)
    }

    /// Counts bytes of records that were put into indexes.
    pub fn note_indexed(&self, bytes: u64) {
        self.indexed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Marks the file as obsolete, because the manifest no longer references it: it is deleted when its last user drops
    /// it.
    pub fn mark_obsolete(&self) {
        self.guard.mark_obsolete();
    }

    pub(super) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    pub(super) fn set_last_seqno(&self, seqno: Seqno) {
        self.last_seqno.store(seqno.0, Ordering::Release);
    }

    /// Sets the offset below which all bytes are in the file.
    pub fn set_written(&self, written: u64) {
        self.written.store(written, Ordering::Release);
    }

    /// True if the bytes up to `end` can be read from the file.
    pub fn is_written(&self, end: u64) -> bool {
        end <= self.written.load(Ordering::Acquire)
    }

    /// The value of the record at `address`, which must be version `seqno` of `full_key`, or any
    /// version of it without `seqno`. One read.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the address has another record or none.
    pub fn read_value(
        &self,
        address: Address,
        full_key: &[u8],
        seqno: impl Into<Option<Seqno>>,
        gauge: &Arc<Gauge>,
    ) -> Result<Slice> {
        let seqno = seqno.into();
        let damaged = |reason: &str| Error::corruption(self.path(), address.offset, reason);
        if self.file_at(address)?.is_none()
            && let Some(ring) = &self.ring
        {
            let mut bytes = vec![0; address.len as usize];
            read_ring(&**ring, address.offset, &mut bytes);
            if let Ok(value) = value_of(bytes, address, full_key, seqno, gauge) {
                return Ok(value);
            }
            // The ring was overwritten meanwhile, which only happens once the bytes are in the file.
        }
        let mut bytes = vec![0; address.len as usize];
        let read = self.file.read_polled(&mut bytes, address.offset)?;
        if read < bytes.len() {
            return Err(damaged("the record extends beyond the end of the file"));
        }
        value_of(bytes, address, full_key, seqno, gauge).map_err(|why| why.at(self.path(), address.offset))
    }

    /// The file, if the record at `address` is in it and not only in the ring.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the address lies outside the log.
    pub fn file_at(&self, address: Address) -> Result<Option<&Arc<dyn File>>> {
        let end = address.offset.checked_add(address.len.into()).filter(|&end| end <= self.capacity);
        let Some(end) = end else {
            return Err(Error::corruption(self.path(), address.offset, "the address lies outside the log"));
        };
        Ok(self.is_written(end).then_some(&self.file))
    }
}

/// Copies from the ring, where the byte at log offset `o` is at `o` modulo the size of the ring.
pub fn read_ring(ring: &dyn Mapping, offset: u64, buffer: &mut [u8]) {
    let len = ring.len();
    let mut done = 0;
    while done < buffer.len().min(len) {
        let at = ((offset + done as u64) % len as u64) as usize;
        let part = (len - at).min(buffer.len() - done);
        ring.read(at, &mut buffer[done..done + part]);
        done += part;
    }
}

/// Copies to the ring, at the same positions as [`read_ring`].
pub fn write_ring(ring: &dyn Mapping, offset: u64, bytes: &[u8]) {
    let len = ring.len();
    let mut done = 0;
    while done < bytes.len() {
        let at = ((offset + done as u64) % len as u64) as usize;
        let part = (len - at).min(bytes.len() - done);
        ring.write(at, &bytes[done..done + part]);
        done += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DirId, FileKind, KeyspaceId, full_key};
    use crate::io::{Access, SimDisk, Storage};

    #[test]
    fn an_address_outside_the_log_is_reported_with_its_file() {
        let (disk, path) = (SimDisk::new(), Path::new("/00000003.log"));
        let file = disk.create(path, Access::Buffered).unwrap();
        let guard = FileGuard::new(
            FileKey { kind: FileKind::Log, id: FileId(3), dir: DirId::HOME },
            path.to_owned(),
            Arc::default(),
        );
        let log = LogFile::new(FileId(3), guard, file, None, 8192, 4096, Seqno(1));
        for offset in [8192 - 99, u64::MAX - 99, u64::MAX] {
            let address = Address { file: FileId(3), offset, len: 100, value_len: 10 };
            let read = log.read_value(address, &full_key(KeyspaceId(1), b"k"), Seqno(1), &Arc::default());
            assert!(matches!(read, Err(Error::Corruption { path, .. }) if path.ends_with("00000003.log")));
        }
    }
}
