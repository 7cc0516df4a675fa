//! Which records the addresses in tables reference, counted by file: how many, how many bytes, and the highest offset.
//!
//! Each table stores the references of its own addresses in its properties; the manifest adds those of all tables up,
//! so that a log or segment without references can be deleted. Built by the table builder, added and subtracted by
//! edits.

use crate::base::varint::{put, take};
use crate::base::{Address, FileId, SharedMap};

/// The referenced records of one file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileReferences {
    /// Number of records.
    pub records: u64,
    /// Their bytes, with headers and keys.
    pub bytes: u64,
    /// No referenced record ends after this offset. Removing references does not lower it.
    pub end: u64,
}

impl FileReferences {
    /// One reference.
    pub fn to(address: Address) -> FileReferences {
        let bytes = address.len.into();
        FileReferences { records: 1, bytes, end: address.offset.saturating_add(bytes) }
    }

    /// Adds `other`.
    pub fn add(&mut self, other: FileReferences) {
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.end = self.end.max(other.end);
    }

    /// Subtracts `other`; `None` if `other` is larger.
    pub fn checked_sub(self, other: FileReferences) -> Option<FileReferences> {
        let records = self.records.checked_sub(other.records)?;
        Some(FileReferences { records, bytes: self.bytes.checked_sub(other.bytes)?, end: self.end })
    }
}

/// References by file. A copy shares what it has in common with the original.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References(pub SharedMap<FileId, FileReferences>);

impl References {
    /// Adds references to one file.
    pub fn add(&mut self, file: FileId, references: FileReferences) {
        let mut all = self.of(file);
        all.add(references);
        self.0.insert(file, all);
    }

    /// Adds all references of `other`.
    pub fn add_all(&mut self, other: &References) {
        other.0.iter().for_each(|(file, references)| self.add(*file, *references));
    }

    /// Subtracts all references of `other`.
    ///
    /// # Errors
    /// A file that has fewer references than `other` subtracts.
    pub fn remove_all(&mut self, other: &References) -> Result<(), FileId> {
        for (file, references) in other.0.iter() {
            let left = self.0.get(file).copied().unwrap_or_default().checked_sub(*references).ok_or(*file)?;
            match (left.records, left.bytes) == (0, 0) {
                true => drop(self.0.remove(file)),
                false => drop(self.0.insert(*file, left)),
            }
        }
        Ok(())
    }

    /// The references to `file`.
    pub fn of(&self, file: FileId) -> FileReferences {
        self.0.get(&file).copied().unwrap_or_default()
    }

    /// Appends the encoding: the number of files, then id, records, bytes and end of each.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.0.len() as u64);
        for (file, references) in self.0.iter() {
            [file.0, references.records, references.bytes, references.end]
                .into_iter()
                .for_each(|number| put(out, number));
        }
    }

    /// Takes references off the front of `bytes`; `None` if they are malformed or list a file twice.
    pub fn take(bytes: &mut &[u8]) -> Option<References> {
        let count = take(bytes)?;
        let mut all = References::default();
        for _ in 0..count {
            let file = FileId(take(bytes)?);
            let references = FileReferences { records: take(bytes)?, bytes: take(bytes)?, end: take(bytes)? };
            if all.0.insert(file, references).is_some() {
                return None;
            }
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(of: &[(u64, u64)]) -> References {
        let file_references =
            |&(file, records)| (FileId(file), FileReferences { records, bytes: records * 100, end: 7000 });
        References(of.iter().map(file_references).collect())
    }

    #[test]
    fn references_round_trip_and_truncated_ones_are_rejected() {
        let all = references(&[(3, 7), (900, 1)]);
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        let rest = &mut &bytes[..];
        assert_eq!((References::take(rest), rest.len()), (Some(all), 0));
        for cut in 0..bytes.len() {
            assert_eq!(References::take(&mut &bytes[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn references_add_up_and_cannot_become_negative() {
        let mut all = references(&[(1, 2)]);
        all.add_all(&references(&[(1, 3), (2, 1)]));
        assert_eq!(all.remove_all(&references(&[(1, 5)])), Ok(()));
        assert_eq!(all, references(&[(2, 1)]));
        assert_eq!(all.remove_all(&references(&[(2, 2)])), Err(FileId(2)));
    }
}
