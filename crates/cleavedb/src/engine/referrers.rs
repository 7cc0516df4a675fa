//! Referrers: the stores that reference records in value files. Through this interface the ledger of the manifest
//! counts references, and value GC finds live records. Tables are the only implementer; a store with an index in
//! memory, or with references to records of other kinds than puts, would be another.
//!
//! Used by the edits of flushes and compactions, and by value GC.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::file_set::FileSet;
use crate::base::{Address, Cursor, FileId, Kind, Result, Seqno, Stamp};
use crate::engine::view::View;
use crate::format::references::References;
use crate::levels::point_reads::newest_in;
use crate::levels::reference_cursor::ReferenceCursor;
use crate::levels::table::Table;
use crate::levels::version::Version;

/// A store that references records in value files.
pub(crate) trait Referrer {
    /// True if it references records of this kind. Records of other kinds may make older ones dead, and are not moved.
    fn refers_to(&self, kind: Kind) -> bool;

    /// The referenced records, by file.
    fn references(&self) -> Result<References>;

    /// Cursors over every reference to records of `files`, and over nothing else.
    fn walk(&self, files: &Arc<FileSet>) -> Result<Walk>;

    /// True if it has an address for version `seqno` of the key that `leads` to its record. With the same index look-ups as
    /// a read.
    fn look_up(&self, key: &[u8], seqno: Seqno, leads: &dyn Fn(Address) -> bool) -> Result<bool>;
}

/// Cursors that together pass every reference to some files.
pub(crate) struct Walk {
    /// Each in key order; their key ranges may overlap.
    pub cursors: Vec<Box<dyn Cursor>>,
    /// Decodes the address in a version's payload, if it has one.
    pub address: fn(Stamp, &[u8]) -> Option<Address>,
    /// Versions that the cursors pass, most of them without decoding their addresses.
    pub entries: u64,
    /// Bytes that the cursors read.
    pub bytes: u64,
    /// Number of references that the cursors pass, by file.
    pub references: BTreeMap<FileId, u64>,
}

/// All referrers of a view.
pub(crate) fn referrers_of(view: &View) -> Vec<Box<dyn Referrer>> {
    vec![Box::new(Tables::of(&view.version))]
}

/// Tables as referrers. They reference records by the addresses of puts: deletes have none, and operands are stored
/// inline.
pub(crate) struct Tables {
    /// Each row has tables in key order that do not overlap.
    rows: Vec<Arc<[Arc<Table>]>>,
}

impl Tables {
    /// All tables of a version: each table of HL0 is a row of its own, and so is each lower level.
    pub fn of(version: &Version) -> Tables {
        let (hl0, below) = version.levels().split_first().expect("a version has levels");
        let mut tables = Tables::each(hl0.tables());
        tables.rows.extend(below.iter().map(|level| level.tables().clone()));
        tables
    }

    /// Some tables, in any order.
    pub fn each(tables: &[Arc<Table>]) -> Tables {
        Tables { rows: tables.iter().map(|table| Arc::from([table.clone()])).collect() }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.rows.iter().flat_map(|row| row.iter())
    }
}

impl Referrer for Tables {
    fn refers_to(&self, kind: Kind) -> bool {
        kind == Kind::Put
    }

    fn references(&self) -> Result<References> {
        let mut all = References::default();
        for table in self.iter() {
            all.add_all(&table.references()?);
        }
        Ok(all)
    }

    fn walk(&self, files: &Arc<FileSet>) -> Result<Walk> {
        let (cursors, references) = (Vec::new(), BTreeMap::new());
        let mut walk = Walk { cursors, address: ReferenceCursor::address_in, entries: 0, bytes: 0, references };
        for row in &self.rows {
            let mut referring = Vec::new();
            for table in row.iter() {
                let references = table.references()?;
                let mut refers = false;
                for (file, referenced) in references.0.iter().filter(|(file, _)| files.contains(**file)) {
                    *walk.references.entry(*file).or_default() += referenced.records;
                    refers |= referenced.records > 0;
                }
                if !refers {
                    continue;
                }
                walk.entries += table.meta().entries;
                walk.bytes += table.meta().size;
                referring.push(table.clone());
            }
            if !referring.is_empty() {
                walk.cursors.push(Box::new(ReferenceCursor::new(referring.into(), files.clone())));
            }
        }
        Ok(walk)
    }

    fn look_up(&self, key: &[u8], seqno: Seqno, leads: &dyn Fn(Address) -> bool) -> Result<bool> {
        for row in &self.rows {
            let index = row.partition_point(|table| &table.meta().end[..] <= key);
            let Some(table) = row.get(index).filter(|table| table.meta().spans(key)) else { continue };
            let meta = table.meta();
            if meta.addresses > 0
                && (meta.seqno_min..=meta.seqno_max).contains(&seqno)
                && let Some((stamp, payload)) = newest_in(table, key, seqno)?
                && stamp.seqno() == seqno
                && let Some(address) = ReferenceCursor::address_in(stamp, &payload)
                && leads(address)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
