//! One edit of the manifest: the changes of one finished job, in one self-contained record (rule 5). Fields are
//! tagged, so a later version can add some; an unknown tag is rejected, because ignoring it could lose data. Diagram:
//! `docs/formats/manifest.md`.
//!
//! Written by every job that adds or removes files; read when the manifest is opened.

use super::buckets::{Extent, SEGMENT_LEVEL, encode_extents, take_extents};
use super::keyspace_record::{DeltaPlacement, KeyspaceRecord, Separation, take_keyspace, take_text};
use super::meta::TableMeta;
use super::references::References;
use super::reorder_credit::ReorderCredit;
use super::values::ValuePlace;
use super::watermarks::{Consumer, Watermarks};
use crate::base::limits::FILE_ID_MAX;
use crate::base::varint::{put, put_bytes, take, take_bytes};
use crate::base::{DirId, FileId, FileKey, FileKind, KeyspaceId, Seqno};

/// One opening for writing: a number that grows, and a random one that tells copies of a database apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opening {
    /// One more at each opening, and at each close that renews it.
    pub epoch: u64,
    /// Drawn with it.
    pub nonce: u64,
}

/// The opening that an edit begins, and the one that `OWNER` referenced until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Openings {
    /// `OWNER` names it as soon as the edit is durable and `OWNER` was replaced.
    pub present: Opening,
    /// `OWNER` still names it if a crash came in between.
    pub previous: Opening,
}

/// A directory beside that of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Where it was at the last opening for writing, as an absolute path.
    pub path: String,
    /// The first opening with it.
    pub since: u64,
}

/// A set of changes that are applied atomically.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// New keyspaces.
    pub keyspaces_added: Vec<KeyspaceRecord>,
    /// Keyspaces whose separation threshold changes.
    pub keyspaces_separated: Vec<(KeyspaceId, Separation)>,
    /// Keyspaces whose merge operands go elsewhere from now on.
    pub keyspaces_placed: Vec<(KeyspaceId, DeltaPlacement)>,
    /// Dropped keyspaces, and the highest sequence number that their versions can have.
    pub keyspaces_dropped: Vec<(KeyspaceId, Seqno)>,
    /// Dropped keyspaces of which no file contains a version any more.
    pub keyspaces_forgotten: Vec<KeyspaceId>,
    /// Directories that have files, or may get some, and where they are.
    pub dirs_added: Vec<(DirId, Directory)>,
    /// Directories that have no files any more.
    pub dirs_removed: Vec<DirId>,
    /// KV devices that were given up without a look at what lies on them: their paths, and the openings that their `OWNER` may have.
    pub devices_left: Vec<(String, Openings)>,
    /// The directory of the slow tier from now on.
    pub slow_dir: Option<DirId>,
    /// Files that are on storage from now on, each in its directory.
    pub files_added: Vec<FileKey>,
    /// Files that are in another directory from now on.
    pub files_moved: Vec<FileKey>,
    /// New logs.
    pub logs_added: Vec<FileId>,
    /// Logs that are no longer referenced.
    pub logs_removed: Vec<FileId>,
    /// Logs that end at this offset: everything before it is durable and must be intact, everything behind it is
    /// ignored.
    pub logs_ended: Vec<(FileId, u64)>,
    /// Logs of which everything before this offset is durable, and stays needed after its consumers have got past it: hash
    /// keyspaces may have records there.
    pub logs_whole: Vec<(FileId, u64)>,
    /// New tables, with their levels.
    pub tables_added: Vec<(u8, TableMeta)>,
    /// Tables that are no longer part of any level.
    pub tables_removed: Vec<FileId>,
    /// Buckets of the delta store that are no longer there, by their lower bounds; removed before others are set.
    pub buckets_removed: Vec<Vec<u8>>,
    /// Buckets by their lower bounds, with all their extents from now on, newest first.
    pub buckets_set: Vec<(Vec<u8>, Vec<Extent>)>,
    /// Value files, and where their records are from now on; a log in this list has left the front.
    pub values_placed: Vec<(FileId, ValuePlace)>,
    /// Value files that are no longer reachable.
    pub values_removed: Vec<FileId>,
    /// Logs that left the front and that hash indexes reference.
    pub indexed: Vec<FileId>,
    /// Logs that hash indexes reference no longer.
    pub unindexed: Vec<FileId>,
    /// The indexes of hash keyspaces are saved in this file; logs from the second number on have newer records.
    pub indexes_saved: Option<(FileId, FileId)>,
    /// The reorder credit as of this edit, in a full state.
    pub reorder_credit: Option<ReorderCredit>,
    /// Bytes that a reordering job wrote, which are charged to the credit.
    pub reordered: Option<u64>,
    /// References of the added tables.
    pub referenced: References,
    /// References of the removed tables.
    pub released: References,
    /// How far consumers of the log's records have got, as far as it has changed.
    pub watermarks: Watermarks,
    /// The highest sequence number that was given out.
    pub last_seqno: Option<Seqno>,
    /// New files get this number or a higher one.
    pub next_file: Option<FileId>,
    /// New keyspaces get this number or a higher one.
    pub next_keyspace: Option<KeyspaceId>,
    /// The number that identifies this database.
    pub database: Option<u64>,
    /// From now on files of ours may have these numbers: ranges, without their ends.
    pub files_reserved: Vec<(FileId, FileId)>,
    /// The database was opened for writing, with a directory of its own for tables.
    pub openings: Option<Openings>,
}

/// Stored tags: do not renumber.
mod tag {
    pub const KEYSPACE_ADDED: u64 = 1;
    pub const KEYSPACE_DROPPED: u64 = 2;
    pub const KEYSPACE_FORGOTTEN: u64 = 3;
    pub const LOG_ADDED: u64 = 4;
    pub const LOG_REMOVED: u64 = 5;
    pub const LOG_ENDED: u64 = 6;
    pub const TABLE_ADDED: u64 = 7;
    pub const TABLE_REMOVED: u64 = 8;
    pub const WATERMARK: u64 = 9;
    pub const LAST_SEQNO: u64 = 10;
    pub const NEXT_FILE: u64 = 11;
    pub const NEXT_KEYSPACE: u64 = 12;
    pub const DATABASE: u64 = 13;
    pub const SLOW_DIR: u64 = 14;
    pub const KEYSPACE_SEPARATED: u64 = 15;
    pub const VALUES_PLACED: u64 = 16;
    pub const VALUES_REMOVED: u64 = 17;
    pub const REFERENCED: u64 = 18;
    pub const RELEASED: u64 = 19;
    pub const REORDER_CREDIT: u64 = 20;
    pub const REORDERED: u64 = 21;
    pub const FILES_RESERVED: u64 = 22;
    pub const OPENED: u64 = 23;
    pub const FILE_ADDED: u64 = 24;
    pub const FILE_MOVED: u64 = 25;
    pub const DIR_ADDED: u64 = 26;
    pub const DIR_REMOVED: u64 = 27;
    pub const BUCKET_SET: u64 = 28;
    pub const BUCKET_REMOVED: u64 = 29;
    pub const KEYSPACE_PLACED: u64 = 30;
    pub const INDEXED: u64 = 31;
    pub const UNINDEXED: u64 = 32;
    pub const INDEXES_SAVED: u64 = 33;
    pub const LOG_WHOLE: u64 = 34;
    pub const DEVICE_LEFT: u64 = 35;
}

impl Edit {
    /// The edit adds or moves value files, or changes references.
    pub fn concerns_values(&self) -> bool {
        let names = !(self.referenced.0.is_empty() && self.released.0.is_empty());
        let names = names || !(self.indexed.is_empty() && self.unindexed.is_empty());
        names || !self.values_placed.is_empty() || self.reorder_credit.is_some() || self.reordered.is_some()
    }

    /// The edit changes buckets, or adds delta segments. (One that removes segments changes buckets too.)
    pub fn concerns_buckets(&self) -> bool {
        let adds = self.tables_added.iter().any(|(level, _)| *level == SEGMENT_LEVEL);
        adds || !(self.buckets_set.is_empty() && self.buckets_removed.is_empty())
    }

    /// The encoding: for each field its tag, a varint, then its content.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_keyspaces(&mut out);
        self.encode_files(&mut out);
        self.encode_numbers(&mut out);
        out
    }

    fn encode_keyspaces(&self, out: &mut Vec<u8>) {
        for keyspace in &self.keyspaces_added {
            put(out, tag::KEYSPACE_ADDED);
            keyspace.encode(out);
        }
        for (keyspace, separation) in &self.keyspaces_separated {
            put_all(out, [tag::KEYSPACE_SEPARATED, keyspace.0 as u64]);
            separation.encode(out);
        }
        for (keyspace, deltas) in &self.keyspaces_placed {
            put_all(out, [tag::KEYSPACE_PLACED, keyspace.0 as u64, deltas.to_stored()]);
        }
        for (keyspace, seqno) in &self.keyspaces_dropped {
            put_all(out, [tag::KEYSPACE_DROPPED, keyspace.0 as u64, seqno.0]);
        }
        for keyspace in &self.keyspaces_forgotten {
            put_all(out, [tag::KEYSPACE_FORGOTTEN, keyspace.0 as u64]);
        }
    }

    fn encode_files(&self, out: &mut Vec<u8>) {
        for (dir, Directory { path, since }) in &self.dirs_added {
            put_all(out, [tag::DIR_ADDED, dir.0, *since]);
            put_bytes(out, path.as_bytes());
        }
        for dir in &self.dirs_removed {
            put_all(out, [tag::DIR_REMOVED, dir.0]);
        }
        for (path, Openings { present, previous }) in &self.devices_left {
            put_all(out, [tag::DEVICE_LEFT, present.epoch, present.nonce, previous.epoch, previous.nonce]);
            put_bytes(out, path.as_bytes());
        }
        for (tag, files) in [(tag::FILE_ADDED, &self.files_added), (tag::FILE_MOVED, &self.files_moved)] {
            for FileKey { kind, id, dir } in files {
                put_all(out, [tag, kind.to_stored(), id.0, dir.0]);
            }
        }
        for log in &self.logs_added {
            put_all(out, [tag::LOG_ADDED, log.0]);
        }
        for log in &self.logs_removed {
            put_all(out, [tag::LOG_REMOVED, log.0]);
        }
        for (tag, logs) in [(tag::LOG_ENDED, &self.logs_ended), (tag::LOG_WHOLE, &self.logs_whole)] {
            for (log, end) in logs {
                put_all(out, [tag, log.0, *end]);
            }
        }
        for (level, meta) in &self.tables_added {
            put_all(out, [tag::TABLE_ADDED, *level as u64]);
            meta.encode(out);
        }
        for table in &self.tables_removed {
            put_all(out, [tag::TABLE_REMOVED, table.0]);
        }
        for lower in &self.buckets_removed {
            put(out, tag::BUCKET_REMOVED);
            put_bytes(out, lower);
        }
        for (lower, extents) in &self.buckets_set {
            put(out, tag::BUCKET_SET);
            put_bytes(out, lower);
            encode_extents(extents, out);
        }
        for (file, place) in &self.values_placed {
            put_all(out, [tag::VALUES_PLACED, file.0]);
            place.encode(out);
        }
        for file in &self.values_removed {
            put_all(out, [tag::VALUES_REMOVED, file.0]);
        }
        for (tag, files) in [(tag::INDEXED, &self.indexed), (tag::UNINDEXED, &self.unindexed)] {
            for file in files {
                put_all(out, [tag, file.0]);
            }
        }
        if let Some((file, from_log)) = self.indexes_saved {
            put_all(out, [tag::INDEXES_SAVED, file.0, from_log.0]);
        }
        for (tag, references) in [(tag::REFERENCED, &self.referenced), (tag::RELEASED, &self.released)] {
            if !references.0.is_empty() {
                put(out, tag);
                references.encode(out);
            }
        }
    }

    fn encode_numbers(&self, out: &mut Vec<u8>) {
        for (consumer, seqno) in self.watermarks.iter() {
            put_all(out, [tag::WATERMARK, consumer.to_stored(), seqno.0]);
        }
        if let Some(credit) = self.reorder_credit {
            put(out, tag::REORDER_CREDIT);
            credit.encode(out);
        }
        let singles = [
            (tag::REORDERED, self.reordered),
            (tag::LAST_SEQNO, self.last_seqno.map(|seqno| seqno.0)),
            (tag::NEXT_FILE, self.next_file.map(|file| file.0)),
            (tag::NEXT_KEYSPACE, self.next_keyspace.map(|keyspace| keyspace.0 as u64)),
            (tag::DATABASE, self.database),
            (tag::SLOW_DIR, self.slow_dir.map(|dir| dir.0)),
        ];
        for (tag, value) in singles {
            if let Some(value) = value {
                put_all(out, [tag, value]);
            }
        }
        for (from, end) in &self.files_reserved {
            put_all(out, [tag::FILES_RESERVED, from.0, end.0]);
        }
        if let Some(Openings { present, previous }) = self.openings {
            put_all(out, [tag::OPENED, present.epoch, present.nonce, previous.epoch, previous.nonce]);
        }
    }

    /// Decodes an edit that fills `bytes` exactly; the error describes the damage.
    pub fn decode(mut bytes: &[u8]) -> Result<Edit, String> {
        let mut edit = Edit::default();
        let bytes = &mut bytes;
        while !bytes.is_empty() {
            let tag = take(bytes).ok_or("edit tag is cut short")?;
            edit.decode_field(tag, bytes).ok_or_else(|| format!("edit field {tag} is unknown or damaged"))?;
        }
        Ok(edit)
    }

    fn decode_field(&mut self, tag: u64, bytes: &mut &[u8]) -> Option<()> {
        match tag {
            tag::KEYSPACE_ADDED => self.keyspaces_added.push(KeyspaceRecord::take(bytes)?),
            tag::KEYSPACE_DROPPED => self.keyspaces_dropped.push((take_keyspace(bytes)?, Seqno(take(bytes)?))),
            tag::KEYSPACE_FORGOTTEN => self.keyspaces_forgotten.push(take_keyspace(bytes)?),
            tag::DIR_ADDED => {
                let (dir, since) = (take_dir(bytes)?, take(bytes)?);
                self.dirs_added.push((dir, Directory { path: take_text(bytes)?, since }));
            }
            tag::DIR_REMOVED => self.dirs_removed.push(take_dir(bytes)?),
            tag::FILE_ADDED => self.files_added.push(take_key(bytes)?),
            tag::FILE_MOVED => self.files_moved.push(take_key(bytes)?),
            tag::LOG_ADDED => self.logs_added.push(take_file(bytes, FILE_ID_MAX)?),
            tag::LOG_REMOVED => self.logs_removed.push(take_file(bytes, FILE_ID_MAX)?),
            tag::LOG_ENDED => self.logs_ended.push((take_file(bytes, FILE_ID_MAX)?, take(bytes)?)),
            tag::LOG_WHOLE => self.logs_whole.push((take_file(bytes, FILE_ID_MAX)?, take(bytes)?)),
            tag::TABLE_ADDED => {
                let level = u8::try_from(take(bytes)?).ok()?;
                let meta = TableMeta::decode(bytes).filter(|meta| meta.id.0 <= FILE_ID_MAX)?;
                self.tables_added.push((level, meta));
            }
            tag::TABLE_REMOVED => self.tables_removed.push(take_file(bytes, FILE_ID_MAX)?),
            tag::KEYSPACE_SEPARATED => {
                self.keyspaces_separated.push((take_keyspace(bytes)?, Separation::take(bytes)?));
            }
            tag::KEYSPACE_PLACED => {
                let placed = (take_keyspace(bytes)?, DeltaPlacement::from_stored(take(bytes)?)?);
                self.keyspaces_placed.push(placed);
            }
            tag::BUCKET_REMOVED => self.buckets_removed.push(take_bytes(bytes)?.to_vec()),
            tag::BUCKET_SET => {
                let lower = take_bytes(bytes)?.to_vec();
                self.buckets_set.push((lower, take_extents(bytes)?));
            }
            tag::VALUES_PLACED => {
                self.values_placed.push((take_file(bytes, FILE_ID_MAX)?, ValuePlace::take(bytes)?));
            }
            tag::VALUES_REMOVED => self.values_removed.push(take_file(bytes, FILE_ID_MAX)?),
            tag::INDEXED => self.indexed.push(take_file(bytes, FILE_ID_MAX)?),
            tag::UNINDEXED => self.unindexed.push(take_file(bytes, FILE_ID_MAX)?),
            tag::INDEXES_SAVED => {
                self.indexes_saved = Some((take_file(bytes, FILE_ID_MAX)?, take_file(bytes, FILE_ID_MAX + 1)?));
            }
            tag::REFERENCED => self.referenced.add_all(&References::take(bytes)?),
            tag::RELEASED => self.released.add_all(&References::take(bytes)?),
            tag::REORDER_CREDIT => self.reorder_credit = Some(ReorderCredit::take(bytes)?),
            tag::REORDERED => self.reordered = Some(take(bytes)?),
            tag::WATERMARK => self.watermarks.raise(Consumer::from_stored(take(bytes)?)?, take_seqno(bytes)?),
            tag::LAST_SEQNO => self.last_seqno = Some(take_seqno(bytes)?),
            tag::NEXT_FILE => self.next_file = Some(take_file(bytes, FILE_ID_MAX + 1)?),
            tag::NEXT_KEYSPACE => self.next_keyspace = Some(take_keyspace(bytes)?),
            tag::DATABASE => self.database = Some(take(bytes)?),
            tag::SLOW_DIR => self.slow_dir = Some(take_dir(bytes)?),
            tag::FILES_RESERVED => {
                let (from, end) = (take_file(bytes, FILE_ID_MAX)?, take_file(bytes, FILE_ID_MAX + 1)?);
                self.files_reserved.push(Some((from, end)).filter(|_| from < end)?);
            }
            tag::OPENED => self.openings = Some(take_openings(bytes)?),
            tag::DEVICE_LEFT => {
                let openings = take_openings(bytes)?;
                self.devices_left.push((take_text(bytes)?, openings));
            }
            _ => return None,
        }
        Some(())
    }
}

fn put_all<const N: usize>(out: &mut Vec<u8>, values: [u64; N]) {
    for value in values {
        put(out, value);
    }
}

fn take_seqno(bytes: &mut &[u8]) -> Option<Seqno> {
    take(bytes).map(Seqno).filter(|seqno| *seqno <= Seqno::MAX)
}

fn take_file(bytes: &mut &[u8], max: u64) -> Option<FileId> {
    take(bytes).filter(|id| *id <= max).map(FileId)
}

fn take_key(bytes: &mut &[u8]) -> Option<FileKey> {
    let kind = FileKind::from_stored(take(bytes)?)?;
    let id = take_file(bytes, FILE_ID_MAX)?;
    Some(FileKey { kind, id, dir: take_dir(bytes)? })
}

fn take_openings(bytes: &mut &[u8]) -> Option<Openings> {
    let mut opening = || Some(Opening { epoch: take(bytes)?, nonce: take(bytes)? });
    Some(Openings { present: opening()?, previous: opening()? })
}

fn take_dir(bytes: &mut &[u8]) -> Option<DirId> {
    take(bytes).map(DirId).filter(|dir| *dir >= DirId::HOME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::keyspace_record::KeyspaceKind;
    use crate::format::references::FileReferences;

    fn edit() -> Edit {
        let keyspace = KeyspaceRecord {
            id: KeyspaceId(7),
            kind: KeyspaceKind::Ordered,
            name: "users".into(),
            operator: Some("u64-add".into()),
            compression: Some(0),
            separation: Separation::From(0),
            deltas: DeltaPlacement::Levels,
        };
        let mut references = References::default();
        references.add(FileId(12), FileReferences { records: 2, bytes: 2000, end: 9000 });
        let mut credit = ReorderCredit::default();
        credit.grant(77);
        Edit {
            keyspaces_added: vec![keyspace],
            keyspaces_separated: vec![(KeyspaceId(3), Separation::Never), (KeyspaceId(4), Separation::From(u32::MAX))],
            keyspaces_placed: vec![(KeyspaceId(7), DeltaPlacement::Buckets)],
            buckets_removed: vec![b"\0\0\0\x07k".to_vec()],
            buckets_set: vec![(
                b"\0\0\0\x07".to_vec(),
                vec![Extent { segment: FileId(12), entries: 3, bytes: 60, seqno_min: Seqno(7), seqno_max: Seqno(9) }],
            )],
            values_placed: vec![(FileId(9), ValuePlace::Log { end: 5 })],
            values_removed: vec![FileId(10)],
            indexed: vec![FileId(9)],
            unindexed: vec![FileId(7)],
            indexes_saved: Some((FileId(12), FileId(6))),
            reorder_credit: Some(credit),
            reordered: Some(4096),
            released: references.clone(),
            referenced: references,
            keyspaces_dropped: vec![(KeyspaceId(3), Seqno(900))],
            keyspaces_forgotten: vec![KeyspaceId(2)],
            dirs_added: vec![(DirId(2), Directory { path: "/slow".into(), since: 3 })],
            dirs_removed: vec![DirId(3)],
            devices_left: vec![(
                "kv-device:0a".into(),
                Openings { present: Opening { epoch: 2, nonce: 7 }, previous: Opening { epoch: 1, nonce: u64::MAX } },
            )],
            slow_dir: Some(DirId(2)),
            files_added: vec![FileKey { kind: FileKind::Segment, id: FileId(12), dir: DirId(2) }],
            files_moved: vec![FileKey { kind: FileKind::Log, id: FileId(11), dir: DirId::HOME }],
            logs_added: vec![FileId(12)],
            logs_removed: vec![FileId(4), FileId(5)],
            logs_ended: vec![(FileId(6), 123_456)],
            logs_whole: vec![(FileId(12), 8192)],
            tables_added: Vec::new(),
            tables_removed: vec![FileId(8)],
            watermarks: Watermarks::only(Consumer::Levels, Seqno(1000)),
            last_seqno: Some(Seqno(1001)),
            next_file: Some(FileId(13)),
            next_keyspace: Some(KeyspaceId(8)),
            database: Some(u64::MAX),
            files_reserved: vec![(FileId(1), FileId(9)), (FileId(FILE_ID_MAX), FileId(FILE_ID_MAX + 1))],
            openings: Some(Openings {
                present: Opening { epoch: 3, nonce: u64::MAX },
                previous: Opening { epoch: 1, nonce: 5 },
            }),
        }
    }

    #[test]
    fn edits_round_trip() {
        assert_eq!(Edit::decode(&edit().encode()), Ok(edit()));
        assert_eq!(Edit::decode(&[]), Ok(Edit::default()));
    }

    #[test]
    fn file_numbers_above_the_limit_are_rejected() {
        let log = |id| Edit { logs_added: vec![FileId(id)], ..Edit::default() };
        let next = |id| Edit { next_file: Some(FileId(id)), ..Edit::default() };
        let reserved = |from, end| Edit { files_reserved: vec![(FileId(from), FileId(end))], ..Edit::default() };
        assert!(Edit::decode(&reserved(7, 7).encode()).is_err(), "a range of nothing");
        assert!(Edit::decode(&reserved(7, FILE_ID_MAX + 2).encode()).is_err());
        for (largest, over) in [(log(FILE_ID_MAX), log(FILE_ID_MAX + 1)), (next(FILE_ID_MAX + 1), next(u64::MAX))] {
            assert_eq!(Edit::decode(&largest.encode()), Ok(largest));
            assert!(Edit::decode(&over.encode()).is_err());
        }
    }

    #[test]
    fn unknown_tags_and_truncated_edits_are_rejected() {
        assert!(Edit::decode(&[99, 1]).is_err());
        let bytes = edit().encode();
        let whole_prefixes = (0..bytes.len()).filter(|&cut| Edit::decode(&bytes[..cut]).is_ok()).count();
        assert!(whole_prefixes < bytes.len() / 2, "only truncation between fields may decode");
    }
}
