//! Which tables are worth writing anew so that their addresses name the files where values are now. Compactions refresh what
//! they pass, but nothing passes a table that is written no more: each look-up of its values goes through redirect tables,
//! and these stay for its sake. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::FileId;
use crate::format::references::References;

/// At rest a table is written anew once one in so many of its addresses is out of date: each record that moved has so many
/// entries written for it at most.
const REST_ONE_IN: u64 = 10;
/// A look-up through more redirect tables than this is too long.
const HOPS_MAX: usize = 2;
/// Beside as many redirect tables as there are files of values, there may be so many.
const REDIRECTS_FREE: usize = 8;

/// The tables to write anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stale {
    /// As soon as nothing more urgent is to be done.
    pub due: BTreeSet<FileId>,
    /// At rest: all that are due, and those of which less is out of date.
    pub when_idle: BTreeSet<FileId>,
}

/// How many redirect tables lead from each file that was emptied to its records, and which file the first of them is in.
#[derive(Debug, Default)]
pub struct Hops(BTreeMap<FileId, (usize, FileId)>);

/// A table whose addresses may be out of date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReferences {
    /// The table.
    pub table: FileId,
    /// Its length, in bytes.
    pub size: u64,
    /// Records that it names.
    pub records: u64,
    /// Of these, those that lead through redirect tables.
    pub stale: u64,
    /// The longest way to one of them.
    pub hops: usize,
    /// The files of redirect tables that it needs.
    pub files: BTreeSet<FileId>,
}

impl Hops {
    /// Of the files that were emptied, each with the file that its redirect table is in, and those that it moved into, which
    /// have higher numbers than its own; in order.
    pub fn new<'a>(moved: impl DoubleEndedIterator<Item = (FileId, FileId, &'a [FileId])>) -> Hops {
        let mut hops: BTreeMap<FileId, (usize, FileId)> = BTreeMap::new();
        for (file, redirect, to) in moved.rev() {
            let further = to.iter().filter_map(|to| hops.get(to)).map(|(hops, _)| *hops).max().unwrap_or(0);
            hops.insert(file, (1 + further, redirect));
        }
        Hops(hops)
    }

    /// No file was emptied.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is out of date in a table of `size` bytes that names these.
    pub fn naming(&self, table: FileId, size: u64, names: &References) -> TableReferences {
        let records = names.0.values().map(|referenced| referenced.records).sum();
        let mut naming = TableReferences { table, size, records, stale: 0, hops: 0, files: BTreeSet::new() };
        for (file, referenced) in &names.0 {
            if let Some((hops, redirect)) = self.0.get(file) {
                naming.stale += referenced.records;
                naming.hops = naming.hops.max(*hops);
                naming.files.insert(*redirect);
            }
        }
        naming
    }

    /// The tables to write anew: those with more than `percent` in a hundred names that lead through redirect tables, or
    /// some that lead through too many in a row; and if there
    /// are more redirect tables than `files` of values and some, those with the most stale names for their size, until
    /// half of the redirect tables that are allowed would be left. At rest, fewer stale names will do.
    pub fn choose(&self, mut tables: Vec<TableReferences>, files: usize, percent: u64) -> Stale {
        tables.retain(|naming| naming.stale > 0);
        let partly = tables.iter().filter(|naming| naming.stale * REST_ONE_IN >= naming.records);
        let partly: BTreeSet<FileId> = partly.map(|naming| naming.table).collect();
        let allowed = REDIRECTS_FREE + files;
        let mut referenced: BTreeMap<FileId, usize> = BTreeMap::new();
        tables.iter().flat_map(|naming| &naming.files).for_each(|file| *referenced.entry(*file).or_default() += 1);
        let too_many = referenced.len() > allowed;
        let costly = |naming: &TableReferences| naming.stale * 100 > naming.records * percent || naming.hops > HOPS_MAX;
        let by_worth = |naming: &TableReferences| naming.stale as u128 * 1000 / naming.size.max(1) as u128;
        tables.sort_by_key(|naming| (!costly(naming), std::cmp::Reverse(by_worth(naming)), naming.table));
        let mut chosen = BTreeSet::new();
        for naming in &tables {
            let is_worth_it = costly(naming) || too_many && referenced.len() > allowed / 2;
            if !is_worth_it {
                break;
            }
            chosen.insert(naming.table);
            for file in &naming.files {
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

    fn names(of: &[(u64, u64)]) -> References {
        let referenced = |records| FileReferences { records, bytes: records * 100, end: 7000 };
        References(of.iter().map(|&(file, records)| (FileId(file), referenced(records))).collect())
    }

    /// Files of the first numbers moved into those of the second.
    fn hops(moved: &[(u64, u64)]) -> Hops {
        let moved: Vec<_> = moved.iter().map(|&(file, to)| (FileId(file), [FileId(to), FileId(1000)])).collect();
        // Each has a file of redirect tables for itself.
        Hops::new(moved.iter().map(|(file, to)| (*file, FileId(file.0 + 500), &to[..])))
    }

    /// Number and size of a table, and what it names.
    type Table<'a> = (u64, u64, &'a [(u64, u64)]);

    fn chosen(hops: &Hops, tables: &[Table<'_>], files: usize) -> Vec<u64> {
        both(hops, tables, files).0
    }

    /// The tables chosen at any time, and those at rest.
    fn both(hops: &Hops, tables: &[Table<'_>], files: usize) -> (Vec<u64>, Vec<u64>) {
        let tables = tables.iter().map(|(id, size, of)| hops.naming(FileId(*id), *size, &names(of)));
        let Stale { due, when_idle } = hops.choose(tables.collect(), files, 50);
        let ids = |tables: BTreeSet<FileId>| tables.into_iter().map(|id| id.0).collect();
        (ids(due), ids(when_idle))
    }

    #[test]
    fn tables_that_mostly_lead_through_redirects_are_chosen() {
        let hops = hops(&[(1, 3), (2, 9)]);
        assert_eq!(chosen(&hops, &[(70, 10, &[(1, 5), (8, 5)]), (71, 10, &[(1, 3), (2, 3), (8, 5)])], 2), [71]);
        assert_eq!(chosen(&hops, &[(70, 10, &[(8, 5)]), (71, 10, &[])], 2), [0u64; 0]);
    }

    #[test]
    fn at_rest_a_tenth_that_leads_through_redirects_is_enough() {
        let hops = hops(&[(1, 3), (2, 9)]);
        let tables: [Table<'_>; 3] =
            [(70, 10, &[(1, 6), (8, 4)]), (71, 10, &[(2, 1), (8, 9)]), (72, 10, &[(2, 1), (8, 10)])];
        assert_eq!(both(&hops, &tables, 2), (vec![70], vec![70, 71]));
    }

    #[test]
    fn a_long_way_is_healed_however_few_go_it() {
        let hops = hops(&[(1, 2), (2, 3), (3, 4)]);
        assert_eq!(hops.naming(FileId(70), 10, &names(&[(1, 1), (3, 1), (9, 9)])).hops, 3);
        assert_eq!(chosen(&hops, &[(70, 10, &[(1, 1), (9, 99)]), (71, 10, &[(2, 9), (9, 99)])], 2), [70]);
    }

    #[test]
    fn too_many_redirects_for_old_names_become_half_as_many_as_may_be() {
        let moved: Vec<(u64, u64)> = (1..=12).map(|file| (file, 99)).collect();
        let hops = hops(&moved);
        // Each names three files that were emptied, and mostly others.
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
