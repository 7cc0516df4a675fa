//! A copy of a mapped file, for who must not map it: a database that is opened for reading only finds in it what a writer
//! left in the ring. Nothing can be written.

use super::Mapping;

/// The bytes of a mapped file as they once were.
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
        unreachable!("who has a copy of a mapping has no log to write");
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.0[offset..offset + buffer.len()]);
    }
}
