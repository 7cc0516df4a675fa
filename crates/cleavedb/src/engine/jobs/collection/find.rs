//! Finds live records through the tables that reference them: one scan of the tables notes each address that leads to a
//! collected file. Of the files themselves only the live records are read, and each record found is certainly live. The
//! cost is one step per entry of the referencing tables, so this is used while those are small compared with the reads
//! and look-ups it replaces (decision 025).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::file_set::FileSet;
use crate::base::{Address, Cursor, Error, FileId, Kind, Merging, Result, Stamp};
use crate::engine::jobs::collection::state::Collection;
use crate::engine::referrers::Walk;
use crate::format::group::{HashGroup, group_hash};
use crate::format::interval::end_order;
use crate::format::references::References;
use crate::values::files::{Entry, Layout, Located, ValueFile};
use crate::values::newest::{Fate, SeenRecord};

/// Reading this many bytes of a file, and noting the keys in them, costs as much as passing one entry of a table.
const BYTES_PER_STEP: u64 = 16;
/// Judging a record with a look-up costs as much as passing this many entries.
const STEPS_PER_RECORD: u64 = 100;
/// References found between two checks whether to yield.
const FOUND_TOGETHER: u64 = 1 << 8;

/// The plan to find every reference to the collected files.
pub(crate) struct Ways {
    walks: Vec<Walk>,
}

/// The keys that collected files may have received from other files. Records only move to extents, whose groups say which
/// keys they hold: so most addresses that lead through redirect tables are dismissed by their keys.
#[derive(Default)]
struct Destinations {
    hash_groups: Vec<HashGroup>,
    /// Sorted and disjoint, each with its end; the last one may have none.
    ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Destinations {
    fn of<'a>(files: impl Iterator<Item = &'a ValueFile>) -> Destinations {
        let mut all = Destinations::default();
        let mut ranges = Vec::new();
        for file in files {
            let Layout::Extent { group, .. } = file.layout() else { continue };
            all.hash_groups.extend(group.as_hash());
            ranges.extend(group.as_range().map(|range| (range.from().to_vec(), range.to().map(<[u8]>::to_vec))));
        }
        all.extend_ranges(ranges);
        all
    }

    fn extend_ranges(&mut self, mut ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        ranges.sort();
        for (from, to) in ranges {
            match self.ranges.last_mut() {
                Some((_, end)) if end.as_ref().is_none_or(|end| from <= *end) => {
                    if end_order(end.as_deref(), to.as_deref()).is_lt() {
                        *end = to;
                    }
                }
                _ => self.ranges.push((from, to)),
            }
        }
    }

    /// False if no collected file has received a record of this key.
    fn may_hold(&self, full_key: &[u8]) -> bool {
        let above = self.ranges.partition_point(|(from, _)| **from <= *full_key);
        let range = above.checked_sub(1).and_then(|index| self.ranges.get(index));
        range.is_some_and(|(_, to)| to.as_ref().is_none_or(|to| *full_key < **to))
            || !self.hash_groups.is_empty() && {
                let hash = group_hash(full_key);
                self.hash_groups.iter().any(|group| group.holds(hash))
            }
    }
}

impl Collection<'_> {
    /// The plan to find all references to the files, if that is cheaper than reading the files.
    pub(crate) fn ways(&self, reach: &References) -> Result<Option<Ways>> {
        let view = &self.horizon.view;
        let victims = || self.victims.iter().map(|victim| &victim.file);
        let mut leading: BTreeSet<FileId> = victims().map(|file| file.id()).collect();
        // Records only move into files with higher ids.
        for (id, entry) in view.values.files.iter().rev() {
            if let Entry::Moved(redirect) = entry
                && redirect.to().iter().any(|to| leading.contains(to))
            {
                leading.insert(*id);
            }
        }
        let leading = Arc::new(FileSet::from(leading));
        let walks: Vec<Walk> = self.referrers.iter().map(|referrer| referrer.walk(&leading)).collect::<Result<_>>()?;
        let entries: u64 = walks.iter().map(|walk| walk.entries).sum();
        let (mut bytes, mut records) = (0, 0);
        for file in victims() {
            let (size, live) = (file.end() - file.start(), reach.of(file.id()));
            bytes += size;
            // Assumes that dead records are as large as live ones.
            records += (u128::from(size) * u128::from(live.records) / u128::from(live.bytes.max(1))) as u64;
        }
        Ok((entries <= bytes / BYTES_PER_STEP + records * STEPS_PER_RECORD).then_some(Ways { walks }))
    }

    /// Moves every referenced record. If the placement sorts, this proceeds in key order, so that records judged
    /// together include all versions of their keys.
    pub(crate) fn move_referenced(&mut self, ways: Ways) -> Result<()> {
        let (mut expected, mut seen, mut read) = (BTreeMap::<FileId, u64>::new(), BTreeMap::new(), 0);
        for Walk { mut cursors, address, bytes, references, .. } in ways.walks {
            if self.core.placement.keeps_key_order() {
                self.go_through(Merging::new(cursors), address, &mut seen)?;
            } else {
                cursors.drain(..).try_for_each(|cursor| self.go_through(cursor, address, &mut seen))?;
            }
            references.iter().for_each(|(file, records)| *expected.entry(*file).or_default() += records);
            read += bytes;
        }
        if self.has_yielded {
            return Ok(());
        }
        self.core.counters.bytes_read.fetch_add(read, Ordering::Relaxed);
        // A record missed here would be lost.
        if let Some((file, expected)) =
            expected.iter().find(|(file, expected)| seen.get(file).unwrap_or(&0) != *expected)
        {
            let found = seen.get(file).copied().unwrap_or_default();
            let message =
                format!("tables say that they reference {expected} records of file {}, and {found} were found", file.0);
            return Err(Error::corruption(&self.core.dirs.slow, 0, message));
        }
        self.settle_found()
    }

    /// Notes the records of the collected files that the addresses lead to, and counts the references to each file.
    fn go_through(
        &mut self,
        mut cursor: impl Cursor,
        address_in: fn(Stamp, &[u8]) -> Option<Address>,
        seen: &mut BTreeMap<FileId, u64>,
    ) -> Result<()> {
        let index_of: BTreeMap<FileId, u32> =
            (0..).zip(&self.victims).map(|(index, it)| (it.file.id(), index)).collect();
        let view = self.horizon.view.clone();
        let destinations = Destinations::of(self.victims.iter().map(|victim| &*victim.file));
        let mut steps = 0;
        cursor.seek_first()?;
        while cursor.valid() {
            if let Some(address) = address_in(cursor.stamp(), cursor.value())
                && let Some(kind) = cursor.stamp().kind().map(Kind::inline)
            {
                *seen.entry(address.file).or_default() += 1;
                let found = match index_of.get(&address.file) {
                    Some(index) => Some((*index, address)),
                    None if !destinations.may_hold(cursor.key()) => None,
                    None => match view.values.locate(address)? {
                        Located::At(file, now) => index_of.get(&file.id()).map(|index| (*index, now)),
                        Located::Dead | Located::Unknown => None,
                    },
                };
                if let Some((file, Address { offset, len, .. })) = found {
                    let key = cursor.key();
                    if self.batch.bytes() >= self.batch_bytes_max && self.batch.last_key() != Some(key) {
                        self.settle_found()?;
                    }
                    let (order, seqno) = (self.core.placement.order(key), cursor.stamp().seqno());
                    let fate = Fate::Kept;
                    self.batch.add(key, SeenRecord { order, seqno, kind, key: 0..0, file, offset, len, fate });
                }
            }
            cursor.next()?;
            steps += 1;
            if steps % FOUND_TOGETHER == 0 && self.yields_now() {
                break;
            }
        }
        Ok(())
    }

    fn settle_found(&mut self) -> Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.count_memory(batch.bytes());
        self.core.counters.judged_by_look_up.fetch_add(batch.seen.len() as u64, Ordering::Relaxed);
        batch.judge(&self.horizon.snapshots);
        batch.seen.retain(|seen| seen.fate.is_live());
        if self.core.placement.keeps_key_order() {
            let of_log = |seen: &&SeenRecord| matches!(self.victims[seen.file as usize].file.layout(), Layout::Log);
            let mut arrived: Vec<&SeenRecord> = batch.seen.iter().filter(of_log).collect();
            arrived.sort_unstable_by_key(|seen| (seen.file, seen.offset));
            let ups = arrived.windows(2).filter(|pair| batch.key(pair[0]) < batch.key(pair[1])).count();
            self.steps += arrived.len().saturating_sub(1) as u64;
            self.steps_up += ups as u64;
        }
        self.move_out(&batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(ranges: &[(&str, Option<&str>)]) -> Destinations {
        let mut all = Destinations::default();
        all.extend_ranges(ranges.iter().map(|(from, to)| (from.as_bytes().to_vec(), to.map(|to| to.into()))).collect());
        all
    }

    #[test]
    fn a_key_may_be_in_any_of_the_ranges_whether_they_overlap_or_not() {
        let all = destinations(&[("m", Some("p")), ("b", Some("d")), ("c", Some("f")), ("c", Some("d")), ("x", None)]);
        let held = ["a", "b", "c", "d", "e", "f", "l", "m", "ozz", "p", "w", "x", "zzz"];
        let found: Vec<&str> = held.into_iter().filter(|key| all.may_hold(key.as_bytes())).collect();
        assert_eq!(found, ["b", "c", "d", "e", "m", "ozz", "x", "zzz"]);
        assert!(!destinations(&[]).may_hold(b"a"));
        let open = destinations(&[("b", None), ("c", Some("d"))]);
        assert!(open.may_hold(b"z") && !open.may_hold(b"a"));
    }

    #[test]
    fn a_key_may_be_in_a_group_that_holds_its_hash() {
        let groups = HashGroup::ALL.halves().unwrap();
        for key in ["one", "two", "three", "four", "five"] {
            let held = groups.map(|group| {
                let all = Destinations { hash_groups: vec![group], ranges: Vec::new() };
                all.may_hold(key.as_bytes())
            });
            assert_eq!(held, groups.map(|group| group.holds(group_hash(key.as_bytes()))));
            assert!(held[0] != held[1]);
        }
    }
}
