//! Makes a survey: walks through the tables and notes each address that leads to one of some files. Those of the collection
//! are among them, and as many that will be collected next as there is memory for, so that the collections after this one need
//! no walk ([`values::survey`](crate::values::survey), decision 041).
//!
//! An address may lead through redirect tables. Such addresses are gathered by the file that they name, and looked up
//! together in the order of their offsets: the redirect tables are then read in sequence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::base::file_set::FileSet;
use crate::base::memory::Counted;
use crate::base::{Address, Cursor, Error, FileId, Result, Stamp};
use crate::engine::jobs::collection::state::Collection;
use crate::engine::referrers::Walk;
use crate::format::group::{HashGroup, group_hash};
use crate::format::interval::end_order;
use crate::format::references::FileReferences;
use crate::values::files::{Entry, Layout, ValueFile};
use crate::values::live_records::LiveRecords;
use crate::values::placement::choice::to_survey;
use crate::values::redirect::Redirect;
use crate::values::survey::{KnownLive, Surveyed};

/// References found between two checks whether to yield or to pause.
const FOUND_TOGETHER: u64 = 1 << 8;
/// References found between two counts of the memory in use.
const COUNTED_TOGETHER: u64 = 1 << 16;
/// At least this many addresses are looked up in redirect tables together.
const FOLLOWED_TOGETHER_MIN: u64 = 1 << 12;
/// Memory for an address while it is looked up in a redirect table.
const FOLLOWED_BYTES: usize = size_of::<Offset>() + size_of::<u64>() + size_of::<(FileId, u64)>();
/// A file that will be collected later is left out if it has more than this many times the live records that the ledger
/// estimates, and some.
const ESTIMATE_MAX: u64 = 2;
const ESTIMATE_SLACK: u64 = 1000;

/// An offset in a value file, big-endian; redirect tables have no larger ones either.
type Offset = [u8; 5];

/// A file that addresses name, or that they lead to.
struct Reached {
    file: FileId,
    /// The references of tables to it.
    seen: u64,
    /// The records found in it, in any order.
    offsets: Vec<Offset>,
    /// At most this many are noted.
    most: u64,
    /// Where its records moved.
    moved: Option<Arc<Redirect>>,
}

/// The files of a survey, and those that lead there.
struct Search {
    /// Ascending by file.
    reached: Vec<Reached>,
    index_of: HashMap<FileId, usize, FixedState>,
    destinations: Destinations,
    /// Addresses to be looked up in redirect tables.
    on_the_way: u64,
}

/// The keys that files of a survey may have received from other files. Records only move to extents, whose groups say which
/// keys they hold: so most addresses that lead through redirect tables elsewhere are dismissed by their keys.
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
        self.hash_groups.sort();
        self.hash_groups.dedup();
    }

    /// False if no file has received a record of this key.
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

impl Search {
    /// Notes a record found in a file, at most as many as the file may have.
    fn note(&mut self, index: usize, offset: u64) {
        let reached = &mut self.reached[index];
        if (reached.offsets.len() as u64) < reached.most {
            let bytes = offset.to_be_bytes();
            reached.offsets.push(*bytes.last_chunk().expect("a number has more than five bytes"));
            self.on_the_way += u64::from(reached.moved.is_some());
        } else {
            // More than the ledger says: the file is not surveyed.
            (reached.offsets, reached.most) = (Vec::new(), 0);
        }
    }

    /// Notes the address that a table has for a key.
    fn meet(&mut self, address: Address, key: &[u8]) {
        let Some(&index) = self.index_of.get(&address.file) else { return };
        let reached = &mut self.reached[index];
        reached.seen += 1;
        if reached.moved.is_none() || self.destinations.may_hold(key) {
            self.note(index, address.offset);
        }
    }

    /// Follows all addresses that name files whose records moved.
    fn follow(&mut self, pause: &mut dyn FnMut()) -> Result<()> {
        // Records only move into files with higher numbers.
        for index in 0..self.reached.len() {
            let reached = &mut self.reached[index];
            let Some(redirect) = reached.moved.clone().filter(|_| !reached.offsets.is_empty()) else { continue };
            pause();
            let offsets = sorted(std::mem::take(&mut reached.offsets));
            let mut arrived = Vec::with_capacity(offsets.len());
            redirect.follow_all(&offsets, &mut |file, offset| arrived.push((file, offset)))?;
            for (file, offset) in arrived {
                if let Some(&to) = self.index_of.get(&file) {
                    self.note(to, offset);
                }
            }
        }
        self.on_the_way = 0;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.reached.iter().map(|reached| reached.offsets.capacity() * size_of::<Offset>()).sum()
    }
}

fn sorted(offsets: Vec<Offset>) -> Vec<u64> {
    let number = |offset: Offset| {
        let mut bytes = [0; 8];
        bytes[3..].copy_from_slice(&offset);
        u64::from_be_bytes(bytes)
    };
    let mut numbers: Vec<u64> = offsets.into_iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

impl Collection<'_> {
    /// The records of each file that may live: from the survey, unless it does not know all files; then, or with `walks`, from
    /// a walk. `None` if the job yields.
    pub(super) fn known_live(&mut self, walks: bool) -> Result<Option<Vec<KnownLive>>> {
        let files: Vec<(FileId, bool)> =
            self.victims.iter().map(|victim| (victim.file.id(), victim.is_extent())).collect();
        let survey = &self.core.current_survey;
        if !walks && let Some(known) = survey.known(self.of, &files).filter(|known| self.lists_all(known)) {
            return Ok(Some(known));
        }
        let walked = match self.survey(self.survey_records_max()) {
            // It may concern a file that was to be collected later.
            Err(error) if !error.is_transient() => self.survey(0),
            walked => walked,
        };
        let Some((surveyed, entries)) = walked? else { return Ok(None) };
        let listed = |(file, _): &(FileId, bool)| Some(KnownLive::Listed(surveyed.get(file)?.live.clone()));
        let known = files.iter().map(listed).collect::<Option<_>>();
        survey.note_walk(surveyed, entries);
        self.core.fit_cache();
        self.is_proven = true;
        known
            .map(Some)
            .ok_or_else(|| Error::corruption(self.core.dirs.slow(), 0, "a survey lacks a file that it was made for"))
    }

    /// False if a list has fewer records than tables reference in its file by its name: then there must be a walk, or
    /// records would be lost.
    fn lists_all(&self, known: &[KnownLive]) -> bool {
        // Later than the lists: records that died meanwhile are not counted.
        let view = self.core.published.view();
        self.victims.iter().zip(known).all(|(victim, known)| match known {
            KnownLive::Listed(live) => live.count() >= view.values.state.referenced.of(victim.file.id()).records,
            KnownLive::All => true,
        })
    }

    /// How many records may be listed beyond those of the collection: as many as the caches can give memory for.
    fn survey_records_max(&self) -> u64 {
        let tuning = &self.core.settings.tuning;
        let caches = self.core.readers.cache.capacity() + self.core.memory.value_cache.capacity();
        let spare = caches.saturating_sub(tuning.cache_bytes_min as u64);
        tuning.surveyed_records_max.min(spare / (size_of::<Offset>() + FOLLOWED_BYTES / 2) as u64)
    }

    /// Walks through the tables, unless the job yields: what lives in the files, and how many entries the walk passed.
    fn survey(&mut self, records_max: u64) -> Result<Option<(BTreeMap<FileId, Surveyed>, u64)>> {
        self.core.counters.value_surveys.fetch_add(1, Ordering::Relaxed);
        let view = self.horizon.view.clone();
        let reach = view.values.state.reachable();
        let victims: BTreeSet<FileId> = self.victims.iter().map(|victim| victim.file.id()).collect();
        let quarantined = self.core.work.lock().quarantined.clone();
        let mut candidates = view.values.figures().candidates.clone();
        candidates.retain(|candidate| !quarantined.contains(&candidate.file));
        let surveyed = to_survey(
            &*self.core.placement,
            &candidates,
            &victims.iter().copied().collect::<Vec<_>>(),
            !self.purpose.frees_space(),
            records_max,
            &|file| reach.of(file).records,
        );
        let surveyed: BTreeSet<FileId> = surveyed.into_iter().collect();
        // The files whose records lead there.
        let mut leading = surveyed.clone();
        for (id, entry) in view.values.files.iter().rev() {
            if let Entry::Moved(redirect) = entry
                && redirect.to().iter().any(|to| leading.contains(to))
            {
                leading.insert(*id);
            }
        }
        let (mut reached, mut here) = (Vec::new(), Vec::new());
        for file in &leading {
            let (most, moved) = match view.values.files.get(file) {
                Some(Entry::Moved(redirect)) => (u64::MAX, Some(redirect.clone())),
                Some(Entry::Here(value_file)) => {
                    here.push(value_file);
                    let estimate = reach.of(*file).records * ESTIMATE_MAX + ESTIMATE_SLACK;
                    (if victims.contains(file) { u64::MAX } else { estimate }, None)
                }
                None => continue,
            };
            reached.push(Reached { file: *file, seen: 0, offsets: Vec::new(), most, moved });
        }
        let index_of = reached.iter().enumerate().map(|(index, reached)| (reached.file, index)).collect();
        let destinations = Destinations::of(here.into_iter().map(|file| &**file));
        let mut search = Search { reached, index_of, destinations, on_the_way: 0 };
        let planned: u64 = surveyed.iter().map(|file| reach.of(*file).records).sum();
        let on_the_way_max = (records_max / 2).max(FOLLOWED_TOGETHER_MIN);
        let least = planned as usize * size_of::<Offset>() + on_the_way_max as usize * FOLLOWED_BYTES;
        let mut counted = self.core.memory.staging.hold(least);
        self.core.fit_cache();
        let leading = Arc::new(FileSet::from(leading));
        let walks: Vec<Walk> = self.referrers.iter().map(|referrer| referrer.walk(&leading)).collect::<Result<_>>()?;
        let (mut entries, mut expected) = (0, BTreeMap::<FileId, u64>::new());
        for Walk { cursors, address, entries: passed, bytes, references } in walks {
            for cursor in cursors {
                self.walk(cursor, address, on_the_way_max, &mut search, &mut counted)?;
                if self.has_yielded {
                    return Ok(None);
                }
            }
            references.iter().for_each(|(file, records)| *expected.entry(*file).or_default() += records);
            entries += passed;
            self.core.counters.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        }
        // A record missed here would be lost.
        let wrong = search.reached.iter().find(|it| expected.get(&it.file).copied().unwrap_or_default() != it.seen);
        if let Some(Reached { file, seen, .. }) = wrong {
            let expected = expected.get(file).copied().unwrap_or_default();
            let message =
                format!("tables say that they reference {expected} records of file {}, and {seen} were found", file.0);
            return Err(Error::corruption(self.core.dirs.slow(), 0, message));
        }
        search.follow(&mut || self.throttle.pause())?;
        let mut files = BTreeMap::new();
        for Reached { file, offsets, most, .. } in search.reached.into_iter().filter(|reached| reached.moved.is_none())
        {
            if most == 0 {
                continue;
            }
            let live = Arc::new(LiveRecords::of(sorted(offsets)));
            let FileReferences { records, bytes, .. } = reach.of(file);
            let bytes = (u128::from(bytes) * u128::from(live.count()) / u128::from(records.max(1))) as u64;
            files.insert(file, Surveyed { live, bytes, is_loose: true });
            self.throttle.pause();
        }
        Ok(Some((files, entries)))
    }

    /// Notes the addresses that a cursor passes, and counts the references to each file.
    fn walk(
        &mut self,
        mut cursor: Box<dyn Cursor>,
        address_in: fn(Stamp, &[u8]) -> Option<Address>,
        on_the_way_max: u64,
        search: &mut Search,
        counted: &mut Counted,
    ) -> Result<()> {
        let mut steps = 0;
        cursor.seek_first()?;
        while cursor.valid() {
            if let Some(address) = address_in(cursor.stamp(), cursor.value()) {
                search.meet(address, cursor.key());
            }
            cursor.next()?;
            steps += 1;
            if steps % FOUND_TOGETHER == 0 && self.yields_now() {
                break;
            }
            if steps % COUNTED_TOGETHER == 0 {
                counted.set(counted.bytes().max(search.bytes()));
            }
            if search.on_the_way > on_the_way_max {
                search.follow(&mut || self.throttle.pause())?;
            }
        }
        Ok(())
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
