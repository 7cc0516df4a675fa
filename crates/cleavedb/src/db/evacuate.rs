//! Evacuation: a file of values that is mostly garbage gives its space back. What is live in it is copied into one segment,
//! in the order in which it lies, with a redirect table from the old places to the new; tables go on naming the old ones
//! until compactions pass by (DESIGN sections 1 and 2).
//!
//! A record is live as long as a table names it, whoever may see it: retention has decided that already. So each record
//! is looked up in the tables, by key and sequence number.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::core::Core;
use super::files::{redirect_name, segment_name};
use super::view::View;
use crate::base::memory::Counted;
use crate::base::{Cursor, Error, FileId, Kind, Result, Seqno, full_key};
use crate::format::edit::Edit;
use crate::format::frame::{FrameKind, HEADER_BYTES};
use crate::format::record::Record;
use crate::format::values::ValuePlace;
use crate::front::log_reader::{LogReader, Opened};
use crate::io::File;
use crate::levels::version::Version;
use crate::values::files::Entry;
use crate::values::redirect::RedirectBuilder;
use crate::values::segment::{SegmentBuilder, for_each_record};
use crate::values::value_file::{Layout, ValueFile};

/// Records are looked up, in the order of their keys, once so many bytes of them have been read.
const WINDOW_BYTES: usize = 1 << 20;
/// About what a segment that is being written takes.
const SEGMENT_BUFFER_BYTES: usize = 2 << 20;

/// A record that waits to be looked up.
struct Waiting {
    full: Vec<u8>,
    seqno: Seqno,
    offset: u64,
    /// Where its bytes are in the window.
    bytes: std::ops::Range<usize>,
    live: bool,
}

/// Copies live records out of files into a segment.
struct Evacuation<'a> {
    core: &'a Core,
    view: &'a View,
    segment: SegmentBuilder,
    /// Of the file that is being read.
    redirect: RedirectBuilder,
    window: Vec<u8>,
    waiting: Vec<Waiting>,
    /// Memory of all this.
    counted: Counted,
}

impl Core {
    /// Moves what is live in files of values into one segment.
    pub fn evacuate(&self, victims: &[FileId]) -> Result<()> {
        let view = self.published.view();
        let mut paths = Vec::new();
        let moved = self.move_live(&view, victims, &mut paths);
        let places = moved.inspect_err(|_| self.remove_unnamed(&paths))?;
        let edit = Edit { values_placed: places, ..Edit::default() };
        // What is moved was durable already, so nothing has to be synced for the edit.
        self.install(Seqno::ZERO, edit, View::clone).inspect_err(|error| {
            if matches!(error, Error::NoSpace { .. }) {
                self.remove_unnamed(&paths);
            }
        })?;
        self.counters.evacuations.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// No edit names them. If they cannot be removed, the next open does it.
    fn remove_unnamed(&self, paths: &[PathBuf]) {
        for path in paths {
            let _ = self.storage.remove(path);
        }
    }

    /// Writes a segment, and a redirect table for each victim, durably; notes their paths as they are made. Returns where
    /// everything is then.
    fn move_live(
        &self,
        view: &View,
        victims: &[FileId],
        paths: &mut Vec<PathBuf>,
    ) -> Result<Vec<(FileId, ValuePlace)>> {
        let to = self.new_file_id()?;
        let path = self.slow.join(segment_name(to));
        paths.push(path.clone());
        let mut evacuation = Evacuation {
            core: self,
            view,
            segment: SegmentBuilder::create(&*self.storage, &path, to)?,
            redirect: RedirectBuilder::default(),
            window: Vec::new(),
            waiting: Vec::new(),
            counted: self.memory.jobs.hold(0),
        };
        let mut places = Vec::new();
        for victim in victims {
            // A file that nothing led to any more has gone meanwhile.
            let Some(Entry::Here(file)) = view.values.files.get(victim) else { continue };
            evacuation.copy_live(file)?;
            let redirect = self.new_file_id()?;
            let path = self.slow.join(redirect_name(redirect));
            paths.push(path.clone());
            let len = std::mem::take(&mut evacuation.redirect).write(&*self.storage, &path, redirect)?;
            self.counters.evacuated_bytes.fetch_add(len, Ordering::Relaxed);
            places.push((*victim, ValuePlace::Moved { redirect, len, to }));
        }
        let end = self.guarded(evacuation.segment.finish())?;
        self.counters.evacuated_bytes.fetch_add(end, Ordering::Relaxed);
        self.guarded(self.storage.sync_dir(&self.slow))?;
        places.insert(0, (to, ValuePlace::Segment { end }));
        Ok(places)
    }
}

impl Evacuation<'_> {
    /// Copies what is live in a file.
    fn copy_live(&mut self, file: &ValueFile) -> Result<()> {
        let source = file.file()?;
        match file.layout() {
            Layout::Segment => {
                for_each_record(&*source, file.id(), file.end(), &mut |offset, record, bytes| {
                    self.see(offset, record, bytes)
                })?;
            }
            Layout::Log => self.copy_from_log(file, &*source)?,
        }
        self.core.counters.bytes_read.fetch_add(file.end(), Ordering::Relaxed);
        self.settle()
    }

    fn copy_from_log(&mut self, log: &ValueFile, source: &dyn File) -> Result<()> {
        let Opened::Log(mut reader) = LogReader::open(source, log.id(), None)? else {
            return Err(Error::corruption(log.path(), 0, "the log has no header"));
        };
        while reader.offset() < log.end() {
            let Some(frame) = reader.next_frame()? else {
                let (offset, why) = reader.explain()?;
                return Err(Error::corruption(log.path(), offset, why));
            };
            let mut offset = frame.offset + HEADER_BYTES as u64;
            let mut rest = if frame.header.kind == FrameKind::Records { frame.body } else { &[] };
            while !rest.is_empty() {
                let before = rest;
                let taken = Record::take(&mut rest);
                let record = taken.map_err(|reason| Error::corruption(log.path(), offset, reason))?;
                let bytes = &before[..before.len() - rest.len()];
                self.see(offset, &record, bytes)?;
                offset += bytes.len() as u64;
            }
        }
        Ok(())
    }

    fn see(&mut self, offset: u64, record: &Record<'_>, bytes: &[u8]) -> Result<()> {
        // Nothing else is ever named by its address in a table.
        if record.operation.kind != Kind::Put {
            return Ok(());
        }
        let start = self.window.len();
        self.window.extend_from_slice(bytes);
        self.waiting.push(Waiting {
            full: full_key(record.operation.keyspace, record.operation.key),
            seqno: record.seqno,
            offset,
            bytes: start..self.window.len(),
            live: false,
        });
        if self.window.len() >= WINDOW_BYTES { self.settle() } else { Ok(()) }
    }

    /// Looks up what waits, and copies what is live.
    fn settle(&mut self) -> Result<()> {
        // In the order of keys, neighbours share blocks.
        self.waiting.sort_unstable_by(|one, other| one.full.cmp(&other.full));
        for waiting in &mut self.waiting {
            waiting.live = is_named(&self.view.version, &waiting.full, waiting.seqno)?;
        }
        self.waiting.sort_unstable_by_key(|waiting| waiting.offset);
        for waiting in self.waiting.drain(..).filter(|waiting| waiting.live) {
            let to = self.segment.add(&self.window[waiting.bytes])?;
            self.redirect.add(waiting.offset, to);
        }
        self.window.clear();
        self.counted.set(self.window.capacity() + self.redirect.bytes() + SEGMENT_BUFFER_BYTES);
        Ok(())
    }
}

/// Some table holds the address of version `seqno` of a key. A version is in one place only, so its address leads to the
/// record that was asked about, straight or through redirect tables.
fn is_named(version: &Version, full: &[u8], seqno: Seqno) -> Result<bool> {
    for table in version.tables_for_key(full) {
        let meta = table.meta();
        if meta.addresses == 0 || !(meta.seqno_min..=meta.seqno_max).contains(&seqno) {
            continue;
        }
        if let Some(cursor) = table.find(full, seqno)?
            && cursor.stamp().seqno() == seqno
        {
            return Ok(cursor.stamp().kind() == Some(Kind::PutAt));
        }
    }
    Ok(false)
}
