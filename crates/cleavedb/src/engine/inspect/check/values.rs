//! The check of separated values: extents, redirect tables, and the targets of addresses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::key_versions::KeyVersions;
use crate::base::limits::{MEMORY_BUDGET_MIN, VALUE_BYTES_LIMIT};
use crate::base::{Address, Error, FileId, Result, Seqno, Stamp, full_key, split_key};
use crate::cache::block_cache::BlockCache;
use crate::engine::inspect::check::{Checker, OPEN_FILES, knows};
use crate::engine::layer::{Layer, collect_versions};
use crate::engine::manifest::ManifestState;
use crate::engine::recovery::tables::open_tables;
use crate::engine::recovery::values::open_values;
use crate::engine::value_home::ValueHome;
use crate::format::group::Group;
use crate::format::values::{Moved, ValuePlace};
use crate::front::log_check::LogPlace;
use crate::io::ahead_threads::AheadThreads;
use crate::io::handles::Handles;
use crate::io::pending_deletions::PendingDeletions;
use crate::io::read_ahead::ReadAhead;
use crate::io::{Access, File};
use crate::levels::point_reads::OneKey;
use crate::levels::readers::Readers;
use crate::values::files::{Located, ValueFiles};
use crate::values::redirect::{RedirectEntry, RedirectTable, Shape, read_all};
use crate::values::segment::{Extent, check_header, check_padding, extents};

/// A version whose value was dead when its file was collected.
pub(crate) struct DeadVersion {
    /// The table that references it.
    pub path: PathBuf,
    /// Its key, with the keyspace.
    pub key: Vec<u8>,
    pub seqno: Seqno,
}

/// The verdict on an address.
pub(crate) enum Judged {
    Right,
    Dead,
    Wrong(String),
}

/// A version's address must lead to its record: in an existing log, or through value files, where the record is read.
pub(crate) fn judge(state: &ManifestState, values: &ValueFiles, key: &[u8], stamp: Stamp, address: Address) -> Judged {
    match state.logs.get(&address.file) {
        Some(Some(end)) if address.offset.saturating_add(address.len.into()) > *end => {
            return Judged::Wrong(format!("past the end of log {}", address.file.0));
        }
        Some(_) => return Judged::Right,
        None => {}
    }
    let read = values.locate(address).and_then(|place| match place {
        Located::Unknown => {
            Ok(Judged::Wrong(format!("in file {}, which the manifest does not reference", address.file.0)))
        }
        Located::Dead => Ok(Judged::Dead),
        Located::At(file, now) => file.read_value(now, key, stamp.seqno(), &Arc::default()).map(|_| Judged::Right),
    });
    read.unwrap_or_else(|error| Judged::Wrong(format!("that leads nowhere: {error}")))
}

impl Checker {
    pub(super) fn readers(&self) -> Arc<Readers> {
        let ahead = Arc::new(ReadAhead::new(0, Arc::default()));
        Arc::new(Readers {
            fast_access: Access::Buffered,
            slow_access: Access::Buffered,
            handles: Arc::new(Handles::new(self.storage.clone(), OPEN_FILES)),
            storage: self.storage.clone(),
            cache: Arc::new(BlockCache::new(MEMORY_BUDGET_MIN / 4)),
            ahead_threads: AheadThreads::new(ahead.clone()),
            ahead,
            scan_ahead: ReadAhead::new(0, Arc::default()),
            jobs: Arc::default(),
            resident: Arc::default(),
        })
    }

    /// Checks each value file by itself, and that redirect tables lead to records.
    pub(crate) fn values(&mut self, state: &ManifestState) {
        let (pending_deletions, readers) = (Arc::new(PendingDeletions::default()), self.readers());
        let home = ValueHome { dirs: &self.dirs, pending_deletions: &pending_deletions, readers: &readers };
        match open_values(&home, state) {
            Ok(values) => self.values = Some(Arc::new(values)),
            Err(error) => self.note(&error),
        }
        let mut segments = BTreeMap::<FileId, Vec<(Extent, &Group)>>::new();
        let mut redirects = BTreeMap::<FileId, Vec<FileId>>::new();
        for (&id, place) in state.values.places.iter() {
            match place {
                &ValuePlace::Log { end } => {
                    let path = self.dirs.path(state.file(id));
                    let place = LogPlace { id, settled_end: Some(end), ring: None };
                    self.log(&path, &place, &|keyspace| knows(state, keyspace));
                }
                ValuePlace::Extent { segment, start, end, group, .. } => {
                    let extent = Extent { id, start: *start, end: *end };
                    segments.entry(*segment).or_default().push((extent, group));
                }
                ValuePlace::Moved { redirect, .. } => redirects.entry(*redirect).or_default().push(id),
            }
        }
        let mut records = BTreeMap::new();
        for (id, extents) in segments {
            self.segment(&self.dirs.path(state.file(id)), id, &extents, &mut records);
        }
        for (id, files) in redirects {
            self.redirects_of(state, id, &files, &records);
        }
    }

    /// Checks the extents of a segment that the manifest references; notes the places of their records.
    fn segment(
        &mut self,
        path: &Path,
        id: FileId,
        extents: &[(Extent, &Group)],
        records: &mut BTreeMap<FileId, RecordPlaces>,
    ) {
        let opened = self.storage.open_read(path, Access::Buffered);
        let opened = opened.and_then(|file| check_header(&*file, id).and_then(|()| Ok((file.len()?, file))));
        let (len, file) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.note(&error),
        };
        self.report.value_files += 1;
        for (extent, group) in extents {
            let found = Extent::read(&*file, extent.start, len);
            let read = found.and_then(|found| match found == Some(*extent) {
                true => check_padding(&*file, extent.end).and_then(|()| places(&*file, extent, group)),
                false => {
                    let message = format!("extent {} differs from the manifest", extent.id.0);
                    Err(Error::corruption(path, extent.start, message))
                }
            });
            match read {
                Ok(places) => {
                    self.report.records += places.len() as u64;
                    self.report.bytes += extent.end - extent.start;
                    records.insert(extent.id, places);
                }
                Err(error) => self.note(&error),
            }
        }
    }

    /// Checks all extents of a segment, referenced or not.
    pub(crate) fn whole_segment(&mut self, path: &Path, id: FileId) {
        let (mut records, mut bytes) = (0, 0);
        let read = self.storage.open_read(path, Access::Buffered).and_then(|file| {
            extents(&*file, id, &mut |extent| {
                bytes += extent.end - extent.start;
                records += places(&*file, &extent, &Group::ALL)?.len() as u64;
                Ok(())
            })
        });
        self.report.value_files += 1;
        self.report.records += records;
        self.report.bytes += bytes;
        if let Err(error) = read {
            self.note(&error);
        }
    }

    /// Checks everything in a file of redirect tables.
    pub(crate) fn redirects(
        &mut self,
        path: &Path,
        id: FileId,
        see: &mut dyn FnMut(&RedirectTable, RedirectEntry),
    ) -> Vec<RedirectTable> {
        let read = self.storage.open_read(path, Access::Buffered).and_then(|file| {
            let tables = read_all(&*file, id, see)?;
            Ok((file.len()?, tables))
        });
        match read {
            Ok((bytes, tables)) => {
                self.report.value_files += 1;
                self.report.bytes += bytes;
                tables
            }
            Err(error) => {
                self.note(&error);
                Vec::new()
            }
        }
    }

    /// Checks the redirect tables in one file: they must match the manifest and lead to records.
    fn redirects_of(
        &mut self,
        state: &ManifestState,
        id: FileId,
        files: &[FileId],
        records: &BTreeMap<FileId, RecordPlaces>,
    ) {
        let path = self.dirs.path(state.file(id));
        let mut wrong = Vec::new();
        let mut moved = BTreeMap::<(FileId, usize), u64>::new();
        let tables = self.redirects(&path, id, &mut |table, RedirectEntry { from, to: (index, offset), len }| {
            let Some(ValuePlace::Moved { to, .. }) = state.values.places.get(&table.of) else { return };
            *moved.entry((table.of, index)).or_default() += 1;
            let known = to.get(index).map(|(extent, _)| records.get(extent));
            // The records of an extent that was itself collected are no longer known.
            let is_right =
                |known: &RecordPlaces| known.get(&offset).is_some_and(|found| len.is_none_or(|len| len == *found));
            if wrong.is_empty() && known.is_none_or(|known| known.is_some_and(|known| !is_right(known))) {
                let message = format!("offset {from} of {} leads to {offset}, where no such record is", table.of.0);
                wrong.push(message);
            }
        });
        for file in files {
            let Some(ValuePlace::Moved { start, len, saved, to, .. }) = state.values.places.get(file) else { continue };
            if !tables.contains(&RedirectTable { of: *file, start: *start, len: *len, shape: Shape::of(*saved) }) {
                wrong.push(format!("the table of file {} is not where the manifest says", file.0));
            }
            let said = to.iter().enumerate();
            let found = |index| moved.get(&(*file, index)).copied().unwrap_or_default();
            for (index, (extent, Moved { records, .. })) in said.filter(|(index, said)| found(*index) != said.1.records)
            {
                let found = found(index);
                wrong.push(format!(
                    "{found} records went from {} to {}, and the manifest says {records}",
                    file.0, extent.0
                ));
            }
        }
        wrong.into_iter().for_each(|message| self.problem(&path, None, message));
    }

    /// Values that were dead when their files were collected must have a newer base, so that no read can reach them.
    pub(crate) fn dead(&mut self, state: &ManifestState) {
        let dead = std::mem::take(&mut self.dead);
        if dead.is_empty() {
            return;
        }
        let version = match open_tables(&self.dirs, state, &Arc::new(PendingDeletions::default()), &self.readers()) {
            Ok(version) => version,
            Err(error) => return self.note(&error),
        };
        let tables: Vec<Layer> = Layer::of_version(&version).collect();
        for DeadVersion { path, key, seqno } in dead {
            let dropped = split_key(&key).is_some_and(|(keyspace, _)| state.dropped.contains_key(&keyspace));
            match has_newer_base(&tables, &key, seqno) {
                Ok(newer) if newer || dropped => {}
                Ok(_) => {
                    let key = key.escape_ascii();
                    let message = format!("the value of key \"{key}\" at {} was taken for dead, and is not", seqno.0);
                    self.problem(&path, None, message);
                }
                Err(error) => self.note(&error),
            }
        }
    }
}

/// True if the newest base of `key`, or a range tombstone that covers it, is newer than `seqno`.
fn has_newer_base(tables: &[Layer], key: &[u8], seqno: Seqno) -> Result<bool> {
    let mut versions = KeyVersions::default();
    collect_versions(tables, key, Seqno::MAX, &mut OneKey::default(), &mut versions)?;
    Ok(versions.base_seqno() > seqno)
}

/// The places of records, and the length of each.
type RecordPlaces = BTreeMap<u64, u32>;

/// The places of the records of an extent. Compressed records must have a value. Records of a range extent must be in
/// its range and in key order, newer versions first.
fn places(file: &dyn File, extent: &Extent, group: &Group) -> Result<RecordPlaces> {
    let mut places = RecordPlaces::new();
    let mut last = None::<(Vec<u8>, Seqno)>;
    extent.for_each_record(file, &mut |offset, record, bytes| {
        places.insert(offset, bytes.len() as u32);
        record.value(VALUE_BYTES_LIMIT - 1).map_err(|why| why.at(file.path(), offset))?;
        if let Some(interval) = group.as_range() {
            let key = full_key(record.operation.keyspace, record.operation.key).to_vec();
            let follows = last.as_ref().is_none_or(|(last, seqno)| (last, record.seqno) <= (&key, *seqno));
            if !follows || interval.place_of(&key).is_ne() {
                return Err(Error::corruption(file.path(), offset, "a record is not where its key belongs"));
            }
            last = Some((key, record.seqno));
        }
        Ok(())
    })?;
    Ok(places)
}
