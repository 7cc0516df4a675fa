//! Chooses the tables to rewrite because of stale addresses: those that name collected value files. Compactions refresh
//! the addresses they copy, but a table that is not compacted keeps its stale ones: each lookup of its values goes
//! through redirect tables, and these must be kept for it. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::FileId;
use crate::format::references::References;

/// While idle, a table is rewritten once 1 in this many of its addresses is stale: at most this many entries are
/// written for each moved record.
const IDLE_ONE_IN: u64 = 10;
/// A look-up through more redirect tables than this takes too long, where 1 in [`IDLE_ONE_IN`] addresses of a table is stale...
const HOPS_MAX: usize = 2;
/// ...and through more than this in any case. The number is that of the file whose records went furthest: few may have.
const HOPS_LIMIT: usize = 8;
/// Redirect tables allowed in addition to as many as there are value files.
const REDIRECTS_FREE: usize = 8;

/// The tables to rewrite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stale {
    /// Once nothing more urgent is due.
    pub due: BTreeSet<FileId>,
    /// While idle: all that are due, and tables with fewer stale addresses.
    pub when_idle: BTreeSet<FileId>,
}

/// For each collected file: the number of redirect tables between it and its records, and the file of the first of
/// them.
#[derive(Debug, Default)]
pub struct Hops(BTreeMap<FileId, (usize, FileId)>);

/// The stale addresses of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReferences {
    /// The table.
    pub table: FileId,
    /// Its length, in bytes.
    pub size: u64,
    /// Number of referenced records.
    pub records: u64,
    /// Of these, the number reached through redirect tables.
    pub stale: u64,
    /// The most redirect tables on the way to one of them.
    pub hops: usize,
    /// The redirect files that it needs.
    pub files: BTreeSet<FileId>,
}

impl Hops {
    /// Takes each collected file, the file of its redirect table, and the files that its records moved into, which have
    /// higher numbers than its own; in order.
    pub fn new<'a>(moved: impl DoubleEndedIterator<Item = (FileId, FileId, &'a [FileId])>) -> Hops {
        let mut hops: BTreeMap<FileId, (usize, FileId)> = BTreeMap::new();
        for (file, redirect, to) in moved.rev() {
            let further = to.iter().filter_map(|to| hops.get(to)).map(|(hops, _)| *hops).max().unwrap_or(0);
            hops.insert(file, (1 + further, redirect));
        }
        Hops(hops)
    }

    /// Whether no file was collected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The stale addresses of a table of `size` bytes with these references.
    pub fn stale_references(&self, table: FileId, size: u64, references: &References) -> TableReferences {
        let records = references.0.values().map(|referenced| referenced.records).sum();
        let mut found = TableReferences { table, size, records, stale: 0, hops: 0, files: BTreeSet::new() };
        for (file, referenced) in references.0.iter() {
            if let Some((hops, redirect)) = self.0.get(file) {
                found.stale += referenced.records;
                found.hops = found.hops.max(*hops);
                found.files.insert(*redirect);
            }
        }
        found
    }

    /// Chooses the tables to rewrite: those in which more than `percent` of the references lead through redirect
    /// tables, or the way of some is too long. If there are more redirect tables than `files` value files plus
    /// an allowance, also the tables with the most stale references per byte, until only half of the allowed redirect
    /// tables would be left. While idle, fewer stale references suffice.
    pub fn choose(&self, mut tables: Vec<TableReferences>, files: usize, percent: u64) -> Stale {
        tables.retain(|table| table.stale > 0);
        let is_partly_stale = |table: &TableReferences| table.stale * IDLE_ONE_IN >= table.records;
        let partly = tables.iter().filter(|table| is_partly_stale(table)).map(|table| table.table).collect();
        let allowed = REDIRECTS_FREE + files;
        let mut referenced: BTreeMap<FileId, usize> = BTreeMap::new();
        tables.iter().flat_map(|table| &table.files).for_each(|file| *referenced.entry(*file).or_default() += 1);
        let too_many = referenced.len() > allowed;
        let is_far =
            |table: &TableReferences| table.hops > HOPS_LIMIT || table.hops > HOPS_MAX && is_partly_stale(table);
        let costly = |table: &TableReferences| table.stale * 100 > table.records * percent || is_far(table);
        let by_worth = |table: &TableReferences| table.stale as u128 * 1000 / table.size.max(1) as u128;
        tables.sort_by_key(|table| (!costly(table), std::cmp::Reverse(by_worth(table)), table.table));
        let mut chosen = BTreeSet::new();
        for table in &tables {
            let is_worth_it = costly(table) || too_many && referenced.len() > allowed / 2;
            if !is_worth_it {
                break;
            }
            chosen.insert(table.table);
            for file in &table.files {
                if let Some(tables) = referenced.get_mut(file) {
                    *tables -= 1;
                    if *tables == 0 {
                        referenced.remove(file);
                    }
                }
            }
        }
        Stale { when_idle: &chosen | &partly, due: chosen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::references::FileReferences;

    fn references(of: &[(u64, u64)]) -> References {
        let referenced = |records| FileReferences { records, bytes: records * 100, end: 7000 };
        References(of.iter().map(|&(file, records)| (FileId(file), referenced(records))).collect())
    }

    /// The first file of each pair was collected and moved into the second.
    fn hops(moved: &[(u64, u64)]) -> Hops {
        let moved: Vec<_> = moved.iter().map(|&(file, to)| (FileId(file), [FileId(to), FileId(1000)])).collect();
        // Each has a redirect file of its own.
        Hops::new(moved.iter().map(|(file, to)| (*file, FileId(file.0 + 500), &to[..])))
    }

    /// Number and size of a table, and its references.
    type TableCase<'a> = (u64, u64, &'a [(u64, u64)]);

    fn chosen(hops: &Hops, tables: &[TableCase<'_>], files: usize) -> Vec<u64> {
        both(hops, tables, files).0
    }

    /// The tables that are due, and those chosen while idle.
    fn both(hops: &Hops, tables: &[TableCase<'_>], files: usize) -> (Vec<u64>, Vec<u64>) {
        let tables = tables.iter().map(|(id, size, of)| hops.stale_references(FileId(*id), *size, &references(of)));
        let Stale { due, when_idle } = hops.choose(tables.collect(), files, 50);
        let ids = |tables: BTreeSet<FileId>| tables.into_iter().map(|id| id.0).collect();
        (ids(due), ids(when_idle))
    }

    #[test]
    fn tables_with_mostly_stale_addresses_are_chosen() {
        let hops = hops(&[(1, 3), (2, 9)]);
        assert_eq!(chosen(&hops, &[(70, 10, &[(1, 5), (8, 5)]), (71, 10, &[(1, 3), (2, 3), (8, 5)])], 2), [71]);
        assert_eq!(chosen(&hops, &[(70, 10, &[(8, 5)]), (71, 10, &[])], 2), [0u64; 0]);
    }

    #[test]
    fn while_idle_a_tenth_of_stale_addresses_suffices() {
        let hops = hops(&[(1, 3), (2, 9)]);
        let tables: [TableCase<'_>; 3] =
            [(70, 10, &[(1, 6), (8, 4)]), (71, 10, &[(2, 1), (8, 9)]), (72, 10, &[(2, 1), (8, 10)])];
        assert_eq!(both(&hops, &tables, 2), (vec![70], vec![70, 71]));
    }

    #[test]
    fn a_long_redirect_chain_is_refreshed_if_many_records_use_it_and_a_very_long_one_in_any_case() {
        let chain: Vec<(u64, u64)> = (1..=9).map(|file| (file, file + 1)).collect();
        let hops = hops(&chain);
        assert_eq!(hops.stale_references(FileId(70), 10, &references(&[(7, 1), (9, 1), (99, 9)])).hops, 3);
        let tables: [TableCase<'_>; 4] = [
            (70, 10, &[(7, 11), (99, 99)]),
            (71, 10, &[(7, 10), (99, 99)]),
            (72, 10, &[(8, 11), (99, 99)]),
            (73, 10, &[(2, 1), (99, 99)]),
        ];
        assert_eq!(chosen(&hops, &tables, 9), [70]);
        assert_eq!(chosen(&hops, &[(74, 10, &[(1, 1), (99, 99)])], 9), [74]);
    }

    #[test]
    fn too_many_redirect_files_are_reduced_to_half_of_the_allowed_number() {
        let moved: Vec<(u64, u64)> = (1..=12).map(|file| (file, 99)).collect();
        let hops = hops(&moved);
        // Each references three collected files, and mostly others.
        let lists: Vec<Vec<(u64, u64)>> =
            (0..4).map(|table| (1..=3).map(|file| (table * 3 + file, 1)).chain([(99, 50)]).collect()).collect();
        let sizes = [40, 30, 20, 10];
        let tables: Vec<_> = (0..4).map(|table| (70 + table as u64, sizes[table], &lists[table][..])).collect();
        assert_eq!(chosen(&hops, &tables, 4), [0u64; 0]);
        // Of 12, 5 may be left.
        assert_eq!(chosen(&hops, &tables, 3), [71, 72, 73]);
        assert_eq!(chosen(&hops, &tables[..3], 0), [71, 72]);
    }
}
