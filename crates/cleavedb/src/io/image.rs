//! A read-only copy of a mapped file, for a database that is opened for reading only: it reads what a writer left in the
//! ring, and must not map the file.

use super::storage::Mapping;

/// The bytes of a mapped file at one moment.
pub struct MappingImage(Vec<u8>);

impl MappingImage {
    /// A copy with this content.
    pub fn new(content: Vec<u8>) -> MappingImage {
        MappingImage(content)
    }
}

impl Mapping for MappingImage {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&self, _offset: usize, _bytes: &[u8]) {
        unreachable!("a database that is opened for reading only never writes to a log");
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.0[offset..offset + buffer.len()]);
    }
}
