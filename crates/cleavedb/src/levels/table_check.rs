//! Checks a table file by itself: every block has the right checksum, versions are in order and lie between their
//! separators, filters contain their keys, the blocks fill the file without gaps, and the properties have the right
//! counts.
//!
//! Called by the check of a database, which compares the rest with the manifest.

use std::ops::ControlFlow;
use std::path::Path;

use super::table_file::{TableElement, TableFile};
use crate::base::cursor::compare;
use crate::base::tombstones::Fragment;
use crate::base::{Address, Bytes, Error, KeyspaceId, Kind, Stamp, split_key};
use crate::format::filter::may_contain;
use crate::format::properties::CoveredRange;
use crate::format::properties::Properties;
use crate::format::references::References;
use crate::format::table::{BlockHandle, TRAILER_BYTES};

/// What the check of a table needs to know about the database.
pub struct CheckContext<'a> {
    /// Whether the keyspace exists, or did until recently.
    pub knows: &'a dyn Fn(KeyspaceId) -> bool,
    /// Returns what is wrong with the address of a version, given key and stamp.
    pub judge: &'a Judge<'a>,
    /// Receives the references of the table's addresses.
    pub references: &'a mut dyn FnMut(&References),
    /// Receives each problem: its offset, and a message.
    pub problem: &'a mut dyn FnMut(Option<u64>, String),
}

/// Maps a full key, the stamp of a version and its address to a description of what is wrong with the address.
pub type Judge<'a> = dyn Fn(&[u8], Stamp, Address) -> Option<String> + 'a;

/// Checks a whole table and returns the number of its versions.
pub fn check_table(table: &TableFile, path: &Path, context: &mut CheckContext<'_>) -> u64 {
    let mut check = TableCheck {
        context,
        path,
        damaged: false,
        extents: vec![table.footer.properties],
        filter: None,
        block: 0,
        separator: None,
        bounds: None,
        last: None,
        ranges: Vec::new(),
        counted: Properties::new(table.properties.compression, table.properties.block_size as usize),
        has_base: false,
    };
    // The visitor never stops the walk.
    let _ = table.walk(&mut |part| {
        check.see(part);
        ControlFlow::Continue(())
    });
    check.finish(table)
}

/// A separator: every key of its block is at or before it, every later key after it.
type IndexMark = (Vec<u8>, Stamp);

struct TableCheck<'c, 'a> {
    context: &'c mut CheckContext<'a>,
    path: &'c Path,
    /// Some block could not be read, so the totals are incomplete.
    damaged: bool,
    extents: Vec<BlockHandle>,
    filter: Option<(BlockHandle, Bytes)>,
    /// Offset of the block of the present versions.
    block: u64,
    /// The separator of the previous block.
    separator: Option<IndexMark>,
    /// The separator of the present block.
    bounds: Option<IndexMark>,
    last: Option<IndexMark>,
    ranges: Vec<Fragment>,
    counted: Properties,
    /// A base of the last key has been counted.
    has_base: bool,
}

impl TableCheck<'_, '_> {
    fn report(&mut self, offset: u64, message: impl Into<String>) {
        (self.context.problem)(Some(offset), message.into());
    }

    fn see(&mut self, part: crate::base::Result<TableElement<'_>>) {
        match part {
            Err(error) => {
                self.damaged = true;
                match error {
                    Error::Corruption { path, offset, message } if &*path == self.path => {
                        self.report(offset, message);
                    }
                    other => (self.context.problem)(None, other.to_string()),
                }
            }
            Ok(TableElement::Ranges(handle, fragments)) => {
                self.extents.push(handle);
                self.counted.range_block = Some(handle);
                fragments.iter().for_each(|fragment| self.counted.count_range(fragment));
                self.counted.covered_ranges = CoveredRange::of(&fragments);
                let disjoint = fragments.windows(2).all(|pair| pair[0].end <= pair[1].start);
                if !disjoint || fragments.iter().any(|fragment| fragment.start >= fragment.end) {
                    self.report(handle.offset, "range tombstones are not in order");
                }
                self.ranges = fragments;
            }
            Ok(TableElement::TopIndex(handle)) => self.extents.push(handle),
            Ok(TableElement::Partition(filter)) => {
                self.extents.extend(filter.as_ref().map(|(handle, _)| *handle));
                self.filter = filter;
            }
            Ok(TableElement::Index(handle, ..)) => self.extents.push(handle),
            Ok(TableElement::Data { handle, separator: (key, stamp), .. }) => {
                self.extents.push(handle);
                self.block = handle.offset;
                self.separator = self.bounds.replace((key.to_vec(), stamp));
            }
            Ok(TableElement::Version { key, stamp, value }) => self.version(key, stamp, value),
        }
    }

    fn version(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) {
        let block = self.block;
        let description = || format!("key {:?} at {}", key.escape_ascii().to_string(), stamp.seqno().0);
        let is_after = |mark: &Option<IndexMark>| {
            mark.as_ref().is_none_or(|(last, last_stamp)| compare(last, *last_stamp, key, stamp).is_lt())
        };
        if !is_after(&self.last) {
            self.report(block, format!("{} is not after the previous version", description()));
        }
        if !is_after(&self.separator) {
            self.report(block, format!("{} belongs in an earlier block according to the index", description()));
        }
        if self.bounds.as_ref().is_some_and(|(end, end_stamp)| compare(key, stamp, end, *end_stamp).is_gt()) {
            self.report(block, format!("{} belongs in a later block according to the index", description()));
        }
        match stamp.kind() {
            None => self.report(block, format!("{} has an unknown kind", description())),
            Some(Kind::Delete) if !value.is_empty() => {
                self.report(block, format!("{} is a delete with a value", description()))
            }
            Some(Kind::DeleteRange) => {
                self.report(block, format!("{} is a range tombstone among versions of single keys", description()))
            }
            Some(kind) if kind.is_address() => self.address(description(), key, stamp, value),
            Some(_) => {}
        }
        match split_key(key) {
            Some((keyspace, _)) if (self.context.knows)(keyspace) => {}
            _ => self.report(block, format!("{} is in a keyspace that does not exist", description())),
        }
        let new_key = self.last.as_ref().is_none_or(|(last, _)| last != key);
        if let Some((handle, filter)) = &self.filter
            && new_key
            && may_contain(filter, key) != Some(true)
        {
            let at = handle.offset;
            self.report(at, format!("the filter does not contain {}", description()));
        }
        if self.counted.entries == 0 {
            self.counted.smallest = key.to_vec();
        }
        let is_hidden = self.has_base && !new_key;
        self.has_base = is_hidden || stamp.kind().is_some_and(Kind::is_base);
        self.counted.count(key, stamp, value, is_hidden);
        self.last = Some((key.to_vec(), stamp));
    }

    fn address(&mut self, description: String, key: &[u8], stamp: Stamp, payload: &[u8]) {
        let wrong = match Address::decode(payload) {
            Some(address) => (self.context.judge)(key, stamp, address),
            None => Some("which is none".to_owned()),
        };
        if let Some(wrong) = wrong {
            let block = self.block;
            self.report(block, format!("{description} has an address {wrong}"));
        }
    }

    fn finish(mut self, table: &TableFile) -> u64 {
        let last_key = self.last.take().map(|(key, _)| key).unwrap_or_default();
        self.counted.end_count(last_key, &self.ranges);
        (self.context.references)(&self.counted.references);
        if self.damaged {
            return self.counted.entries;
        }
        if self.counted != table.properties {
            let (offset, found) = (table.footer.properties.offset, &self.counted);
            let recorded = &table.properties;
            let message = format!(
                "the properties do not match the versions found ({} versions from {} to {}, not {} from {} to {})",
                found.entries,
                found.seqno_min.0,
                found.seqno_max.0,
                recorded.entries,
                recorded.seqno_min.0,
                recorded.seqno_max.0
            );
            self.report(offset, message);
        }
        // Blocks are adjacent, so a checksum covers every byte.
        self.extents.sort_by_key(|extent| extent.offset);
        let mut end = 0;
        for extent in std::mem::take(&mut self.extents) {
            if extent.offset != end {
                self.report(end.min(extent.offset), format!("blocks overlap or leave a gap, up to {}", extent.offset));
            }
            end = extent.offset.saturating_add(extent.len + TRAILER_BYTES as u64);
        }
        if end != table.blocks_end() {
            self.report(end, "these bytes belong to no block and not to the footer".to_owned());
        }
        self.counted.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Seqno, full_key};
    use crate::format::compression::Compression;

    #[test]
    fn a_range_tombstone_among_versions_is_reported() {
        let mut problems = Vec::new();
        let mut check = TableCheck {
            context: &mut CheckContext {
                knows: &|_| true,
                judge: &|_, _, _| None,
                references: &mut |_| (),
                problem: &mut |_, message| problems.push(message),
            },
            path: Path::new("table"),
            damaged: false,
            extents: Vec::new(),
            filter: None,
            block: 0,
            separator: None,
            bounds: None,
            last: None,
            ranges: Vec::new(),
            counted: Properties::new(Compression::None, 4096),
            has_base: false,
        };
        check.version(&full_key(KeyspaceId(1), b"a"), Stamp::new(Seqno(2), Kind::Put), b"v");
        check.version(&full_key(KeyspaceId(1), b"b"), Stamp::new(Seqno(3), Kind::DeleteRange), b"c");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("range tombstone"), "{problems:?}");
    }
}
