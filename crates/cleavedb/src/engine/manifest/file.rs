//! The manifest's files. Edits are appended to one file and synced; [`CURRENT`] names it and how much of it must be
//! whole. A session that commits nothing writes nothing; one that does starts a new file with the whole state, so a torn
//! tail is never appended to. Diagram: `docs/formats/manifest.md`.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::limits::FILE_ID_MAX;
use crate::base::{Error, FileId, FileKind, Result};
use crate::engine::manifest::file_names::{CURRENT, CURRENT_NEW, name};
use crate::engine::manifest::state::ManifestState;
use crate::format::checksum::agrees;
use crate::format::edit::Edit;
use crate::format::file_header::{FILE_HEADER_BYTES, FileFormat};
use crate::io::{Access, File, Storage, read_whole};

/// The first bytes of the file.
pub(crate) const MAGIC: [u8; 8] = *b"CleaveMf";
const HEADER: FileFormat = FileFormat { magic: MAGIC, version: 8, oldest: 8, name: "manifest" };
const RECORD_HEADER_BYTES: usize = 12;

/// The state and the file it is written to.
pub(crate) struct Manifest {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    state: ManifestState,
    open: Option<OpenFile>,
    /// The database is closed, and its directories may be someone else's by now.
    closed: bool,
    /// The first failure after which it is not known what storage holds: nothing is committed any more.
    failed: Option<String>,
    /// The file that [`CURRENT`] names.
    named: Option<FileId>,
    /// It has edits that [`CURRENT`] does not vouch for: a crash of the process may have left them unsynced.
    has_tail: bool,
    /// Was to be the number of a file that could not be made; the next one gets it.
    unused: Option<FileId>,
    /// Tables that some edit of the file that was read has named.
    named_tables: BTreeSet<FileId>,
    /// A new file is started beyond this size and four times the state's.
    bytes_max: u64,
    /// See [`limit_len`](Manifest::limit_len).
    len_max: u64,
    /// Length of the file that was read, in which nothing more is written.
    len_read: u64,
}

/// The path of a manifest, which always lies beside [`CURRENT`].
fn path_in(dir: &Path, id: FileId) -> PathBuf {
    dir.join(name(FileKind::Manifest, id))
}

/// Refuses a file number beyond the limit.
pub(crate) fn usable(id: FileId) -> Result<FileId> {
    if id.0 <= FILE_ID_MAX { Ok(id) } else { Err(Error::input("this database has no file numbers left")) }
}

/// However little room there is, so much of the state is written in edits before the state is written again.
const STATE_PART: u64 = 32;

struct OpenFile {
    id: FileId,
    file: Arc<dyn File>,
    len: u64,
    state_len: u64,
}

impl Manifest {
    /// A manifest of nothing, not on storage yet.
    pub fn new(storage: Arc<dyn Storage>, dir: &Path, bytes_max: u64) -> Manifest {
        let state = ManifestState::default();
        Manifest {
            storage,
            dir: dir.to_owned(),
            state,
            open: None,
            closed: false,
            failed: None,
            named: None,
            has_tail: false,
            unused: None,
            named_tables: BTreeSet::new(),
            bytes_max,
            len_max: u64::MAX,
            len_read: 0,
        }
    }

    /// Writes the manifest of a copy into `dir`, where there is none: every byte of it must be whole from then on.
    pub fn write_whole(storage: Arc<dyn Storage>, dir: &Path, state: ManifestState) -> Result<()> {
        let id = state.next_file;
        let mut manifest = Manifest { state, ..Manifest::new(storage, dir, u64::MAX) };
        manifest.commit(&Edit { next_file: Some(FileId(id.0 + 1)), ..Edit::default() }, &|| usable(id)).map(drop)
    }

    /// Reads the manifest that [`CURRENT`] names; `None` if there is no database in `dir`.
    pub fn read(storage: Arc<dyn Storage>, dir: &Path, bytes_max: u64) -> Result<Option<Manifest>> {
        let current = dir.join(CURRENT);
        if !storage.exists(&current)? {
            return Ok(None);
        }
        let text = read_whole(&*storage, &current)?;
        let (id, whole_len) = parse_current(&current, &text)?;
        let path = path_in(dir, id);
        if !storage.exists(&path)? {
            return Err(Error::corruption(&current, 0, format!("{} is missing", path.display())));
        }
        let bytes = read_whole(&*storage, &path)?;
        let (mut state, named_tables) = replay(&path, id, &bytes, whole_len)?;
        state.next_file = state.next_file.max(FileId(id.0 + 1));
        Ok(Some(Manifest {
            storage,
            dir: dir.to_owned(),
            state,
            open: None,
            closed: false,
            failed: None,
            named: Some(id),
            has_tail: bytes.len() as u64 > whole_len,
            unused: None,
            named_tables,
            bytes_max,
            len_max: u64::MAX,
            len_read: bytes.len() as u64,
        }))
    }

    /// What all edits so far add up to.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Numbers below `next` are taken by files that the manifest may not know.
    pub fn reserve_files(&mut self, next: FileId) {
        self.state.next_file = self.state.next_file.max(next);
    }

    /// What was read may not be durable yet. The next commit starts a new file and settles that.
    pub fn has_tail(&self) -> bool {
        self.has_tail && self.open.is_none()
    }

    /// Makes durable what was read, as far as it is whole: a process that died may have written it, or replaced
    /// [`CURRENT`], without syncing it.
    pub fn sync_as_read(&self) -> Result<()> {
        self.storage.open(&self.path())?.sync()?;
        self.storage.sync_dir(&self.dir)
    }

    /// Some edit that is on storage, or is thought to be, names the table or has named it. All that an earlier state can
    /// name counts: a file begins with the whole state of the one before it.
    pub fn ever_named(&self, table: FileId) -> bool {
        self.named_tables.contains(&table) || self.state.tables.contains_key(&table)
    }

    /// The file that must be kept.
    pub fn named(&self) -> Option<FileId> {
        self.named
    }

    /// Where the manifest in force lies; its directory if there is none.
    pub fn path(&self) -> PathBuf {
        self.named.map_or_else(|| self.dir.clone(), |id| path_in(&self.dir, id))
    }

    /// Length of the file in use. The one that replaces it has about the same length at most, with one edit more.
    pub fn len(&self) -> u64 {
        self.open.as_ref().map_or(self.len_read, |open| open.len)
    }

    /// Bytes of it that are the state when it was begun, and not edits since.
    pub fn state_len(&self) -> u64 {
        self.open.as_ref().map_or(self.len_read, |open| open.state_len)
    }

    /// From now on a new file is begun before one has more than `bytes`, but not before it has
    /// [`len_min`](Manifest::len_min).
    pub fn limit_len(&mut self, bytes: u64) {
        self.len_max = bytes;
    }

    /// The size in bytes below which no new file is begun: a little more than the state, or each edit would write all of that.
    pub fn len_min(&self) -> u64 {
        let state = self.state_len();
        state + state / STATE_PART
    }

    /// The size in bytes that a file does not exceed: a new one is begun before.
    fn begins_anew_at(&self, open: &OpenFile) -> u64 {
        self.bytes_max.max(4 * open.state_len).min(self.len_max.max(self.len_min()))
    }

    /// Makes an edit durable, then true. Returns the bytes written. Without space or file descriptors all is as it was. After
    /// any other error of storage nothing has changed here, but what a later open finds may be either, so nothing more is
    /// committed.
    pub fn commit(&mut self, edit: &Edit, new_file_id: &dyn Fn() -> Result<FileId>) -> Result<u64> {
        if self.closed {
            return Err(Error::Closed);
        }
        self.check_failed()?;
        let misfit = |why| Error::Poisoned { cause: format!("an edit does not fit the manifest: {why}") };
        let values = self.state.check(edit).map_err(misfit)?;
        let encoded = edit.encode();
        let len_after = |open: &OpenFile| open.len + (RECORD_HEADER_BYTES + encoded.len()) as u64;
        let roll = self.open.as_ref().is_none_or(|open| len_after(open) > self.begins_anew_at(open));
        let written = match roll {
            true => {
                let id = self.unused.take().map_or_else(new_file_id, Ok)?;
                let started = self.start_file(id, &encoded);
                let is_free = matches!(&started, Err(error) if error.is_transient());
                self.unused = if is_free && !self.storage.exists(&path_in(&self.dir, id))? { Some(id) } else { None };
                started
            }
            false => self.append(&encoded),
        };
        let written = self.note_failure(written)?;
        self.state.apply_checked(edit, values);
        if let Some(named) = self.named {
            self.reserve_files(FileId(named.0 + 1));
        }
        Ok(written)
    }

    /// The database is closed: from now on every byte of the manifest must be whole.
    pub fn seal(&mut self) -> Result<()> {
        self.check_failed()?;
        let sealed = match &self.open {
            Some(open) => self.write_current(open.id, open.len),
            None => Ok(()),
        };
        self.note_failure(sealed)
    }

    fn check_failed(&self) -> Result<()> {
        match &self.failed {
            Some(cause) => Err(Error::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn note_failure<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && !error.is_transient()
        {
            self.failed = Some(error.to_string());
        }
        result
    }

    /// Nothing is committed from here on.
    pub fn close(&mut self) {
        self.closed = true;
    }

    fn append(&mut self, edit: &[u8]) -> Result<u64> {
        let open = self.open.as_mut().expect("appending needs an open file");
        let record = encode_record(open.id, open.len, edit);
        if let Err(error) = open.file.write_at(&record, open.len) {
            return Err(match open.file.truncate(open.len) {
                Ok(()) => error,
                Err(second) => {
                    Error::io(open.file.path(), "write", io::Error::other(format!("{error}; then {second}")))
                }
            });
        }
        open.file.sync()?;
        open.len += record.len() as u64;
        Ok(record.len() as u64)
    }

    /// Starts a file with the whole state and the edit.
    fn start_file(&mut self, id: FileId, edit: &[u8]) -> Result<u64> {
        let path = path_in(&self.dir, id);
        let mut bytes = HEADER.encode(id).to_vec();
        bytes.extend_from_slice(&encode_record(id, bytes.len() as u64, &self.state.to_edit().encode()));
        bytes.extend_from_slice(&encode_record(id, bytes.len() as u64, edit));
        let file = self.storage.create(&path, Access::Buffered)?;
        self.write_file(&*file, &bytes).inspect_err(|_| {
            // Nothing names it yet; if this fails too, the next open removes it.
            let _ = self.storage.remove(&path);
        })?;
        let len = bytes.len() as u64;
        self.write_current(id, len).inspect_err(|error| {
            // Then CURRENT was not replaced; after any other error it may have been.
            if error.is_transient() {
                let _ = self.storage.remove(&path);
            }
        })?;
        let previous = self.named.replace(id);
        self.open = Some(OpenFile { id, file, len, state_len: len });
        if let Some(previous) = previous {
            // If this fails the next open tries again.
            let _ = self.storage.remove(&path_in(&self.dir, previous));
        }
        Ok(len)
    }

    fn write_file(&self, file: &dyn File, bytes: &[u8]) -> Result<()> {
        file.write_at(bytes, 0)?;
        file.sync()?;
        self.storage.sync_dir(&self.dir)
    }

    /// Replaces [`CURRENT`] in one step.
    fn write_current(&self, id: FileId, whole_len: u64) -> Result<()> {
        let temporary = self.dir.join(CURRENT_NEW);
        if self.storage.exists(&temporary)? {
            self.storage.remove(&temporary)?;
        }
        let file = self.storage.create(&temporary, Access::Buffered)?;
        file.write_at(encode_current(id, whole_len).as_bytes(), 0)?;
        file.sync()?;
        // The directory needs a descriptor, and from here on there is no way back.
        drop(file);
        self.storage.rename(&temporary, &self.dir.join(CURRENT))?;
        self.storage.sync_dir(&self.dir).map_err(|error| error.lasting(&self.dir, "sync"))
    }
}

fn encode_current(id: FileId, whole_len: u64) -> String {
    let text = format!("cleavedb 1\nmanifest {}\nlength {whole_len}\n", id.0);
    let crc = crc32c::crc32c(text.as_bytes());
    format!("{text}crc {crc:08x}\n")
}

/// What CURRENT says: the manifest, and how much of it must be whole.
pub(crate) fn parse_current(path: &Path, bytes: &[u8]) -> Result<(FileId, u64)> {
    let damaged = |message: &str| Error::corruption(path, 0, message);
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("not text"))?;
    let mut words = text.split_ascii_whitespace();
    if words.next() != Some("cleavedb") {
        return Err(damaged("not written by this program"));
    }
    match words.next() {
        Some("1") => {}
        Some(version) if version.parse::<u32>().is_ok() => {
            let message = format!("CURRENT format {version} is not the known 1");
            return Err(Error::Unsupported { path: path.to_owned(), message });
        }
        _ => return Err(damaged("the version is missing")),
    }
    let mut number = |name| {
        let found = words.next() == Some(name);
        words.next().filter(|_| found).and_then(|word| word.parse().ok()).ok_or_else(|| damaged("a number is missing"))
    };
    let (id, len) = (FileId(number("manifest")?), number("length")?);
    if id.0 > FILE_ID_MAX {
        return Err(damaged("the number of the manifest is too large"));
    }
    match encode_current(id, len) == text {
        true => Ok((id, len)),
        false => Err(damaged("checksum does not match")),
    }
}

/// `header crc u32 | len u32 | payload crc u32 | payload`; the header's checksum is salted with file and offset.
fn encode_record(id: FileId, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut record = vec![0; RECORD_HEADER_BYTES];
    record[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    record[8..12].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let crc = record_crc(&record, id, offset);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    record.extend_from_slice(payload);
    record
}

fn record_crc(header: &[u8], id: FileId, offset: u64) -> u32 {
    let crc = crc32c::crc32c(&header[4..RECORD_HEADER_BYTES]);
    let crc = crc32c::crc32c_append(crc, &id.0.to_le_bytes());
    crc32c::crc32c_append(crc, &offset.to_le_bytes())
}

/// The payload of the record at `offset`, if there is a whole one.
fn record_at(bytes: &[u8], id: FileId, offset: usize) -> Option<&[u8]> {
    let header = bytes.get(offset..offset + RECORD_HEADER_BYTES)?;
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if !agrees(word(0), record_crc(header, id, offset as u64)) {
        return None;
    }
    let start = offset + RECORD_HEADER_BYTES;
    let payload = bytes.get(start..start + word(4) as usize)?;
    agrees(word(8), crc32c::crc32c(payload)).then_some(payload)
}

/// Adds up all edits. A torn last edit is left out, unless it lies in the part that must be whole or another follows.
/// Also returns all tables that were ever added.
fn replay(path: &Path, id: FileId, bytes: &[u8], whole_len: u64) -> Result<(ManifestState, BTreeSet<FileId>)> {
    HEADER.check(path, id, bytes)?;
    let (mut state, mut named_tables) = (ManifestState::default(), BTreeSet::new());
    let mut offset = FILE_HEADER_BYTES;
    while offset < bytes.len() {
        let Some(payload) = record_at(bytes, id, offset) else {
            break;
        };
        Edit::decode(payload)
            .and_then(|edit| {
                named_tables.extend(edit.tables_added.iter().map(|(_, meta)| meta.id));
                state.apply(&edit)
            })
            .map_err(|message| Error::corruption(path, offset as u64, message))?;
        offset += RECORD_HEADER_BYTES + payload.len();
    }
    let follows = || (offset + 1..bytes.len()).any(|later| record_at(bytes, id, later).is_some());
    if (offset as u64) < whole_len || (offset < bytes.len() && follows()) {
        return Err(Error::corruption(path, offset as u64, "an edit is damaged"));
    }
    Ok((state, named_tables))
}

/// Shows the edits of a manifest one by one, with their offsets and lengths, as far as they are whole; `see` says whether
/// to go on. Without an `id` the file's own is believed.
pub(crate) fn show_edits(
    path: &Path,
    id: Option<FileId>,
    bytes: &[u8],
    see: &mut dyn FnMut(FileId, u64, usize, &Edit) -> bool,
) -> Result<()> {
    let own = bytes.get(12..20).and_then(<[u8]>::first_chunk).map(|own| FileId(u64::from_le_bytes(*own)));
    let id = id.or(own).unwrap_or_default();
    HEADER.check(path, id, bytes)?;
    let mut offset = FILE_HEADER_BYTES;
    while offset < bytes.len() {
        let payload = record_at(bytes, id, offset);
        let payload = payload.ok_or_else(|| Error::corruption(path, offset as u64, "there is no whole edit here"))?;
        let edit = Edit::decode(payload).map_err(|why| Error::corruption(path, offset as u64, why))?;
        if !see(id, offset as u64, payload.len(), &edit) {
            return Ok(());
        }
        offset += RECORD_HEADER_BYTES + payload.len();
    }
    Ok(())
}

/// The decoders behind the manifest, for fuzzing.
#[cfg(feature = "testing")]
pub(crate) mod decoders {
    use super::*;

    /// A manifest file.
    pub fn file(id: FileId, bytes: &[u8]) {
        let path = Path::new("fuzzed");
        let _ = replay(path, id, bytes, 0);
        let _ = show_edits(path, None, bytes, &mut |_, _, _, _| true);
    }

    /// `CURRENT`.
    pub fn current(bytes: &[u8]) {
        let _ = parse_current(Path::new("fuzzed"), bytes);
    }
}

#[cfg(test)]
#[path = "file_test.rs"]
mod tests;
