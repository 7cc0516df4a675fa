//! A file that holds values and never changes any more: a log that has left the front, or a segment. Its records are read
//! by address, and each is checked against the key and sequence number that were asked for.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Address, Buffer, Error, FileId, Gauge, Result, Seqno, Slice};
use crate::format::record::check_record;
use crate::io::handles::Handle;
use crate::io::trash::FileGuard;
use crate::io::{File, read_exact_at};

/// What the bytes of a file of values look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Frames of records.
    Log,
    /// Records, one behind the other.
    Segment,
}

/// A file of values.
pub struct ValueFile {
    id: FileId,
    layout: Layout,
    end: u64,
    guard: FileGuard,
    handle: Handle,
}

impl ValueFile {
    /// The file under `guard`, of which `end` bytes count.
    pub fn new(id: FileId, layout: Layout, end: u64, guard: FileGuard, handle: Handle) -> ValueFile {
        ValueFile { id, layout, end, guard, handle }
    }

    /// Its number.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// What its bytes look like.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// How many bytes count.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Its path.
    pub fn path(&self) -> &Arc<Path> {
        self.guard.path()
    }

    /// The open file.
    pub fn file(&self) -> Result<Arc<dyn File>> {
        self.handle.file()
    }

    /// The manifest no longer names the file: it goes with its last holder.
    pub fn doom(&self) {
        self.guard.doom();
    }

    /// The value of the record at `address`, which must be version `seqno` of `full_key`. One read.
    ///
    /// # Errors
    /// [`Error::Corruption`] if another record, or none, lies there.
    pub fn read_value(&self, address: Address, full_key: &[u8], seqno: Seqno, gauge: &Arc<Gauge>) -> Result<Slice> {
        let damaged = |reason: &str| Error::corruption(self.path(), address.offset, reason);
        if address.offset.checked_add(address.len.into()).is_none_or(|end| end > self.end) {
            return Err(damaged("an address lies outside the file"));
        }
        let mut bytes = vec![0; address.len as usize];
        read_exact_at(&*self.file()?, &mut bytes, address.offset)?;
        check_record(&bytes, address, full_key, seqno).map_err(damaged)?;
        let (start, len) = (bytes.len() - address.value_len as usize, address.value_len as usize);
        Ok(Slice::shared(Arc::new(Buffer::counted(bytes, gauge.clone())), start, len))
    }
}
