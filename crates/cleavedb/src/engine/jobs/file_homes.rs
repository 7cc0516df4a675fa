//! Which files lie where they do not belong: logs on the fast tier that have been flushed or not, tables of addresses and redirect
//! tables while they have room there, everything else on the slow one. `move_files.rs` moves them, and decision records 046, 048
//! and 056 say why.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{DirId, FileId, FileKey, FileKind};
use crate::engine::core::Core;
use crate::engine::fast_tier::Occupant;
use crate::engine::tuning::tiers::{home_of, kept_on_fast};
use crate::engine::view::View;
use crate::format::meta::TableMeta;
use crate::format::values::{Temperature, ValuePlace};

impl Core {
    /// Files that lie where they do not belong, oldest first, each with the directory where it does. O(files).
    pub fn misplaced_files(&self, view: &View) -> Vec<(FileKey, DirId)> {
        let (slow, fill) = (self.dirs.slow_id(), self.fast_fill());
        let (all_tables, _) = view.version.tables_of_addresses();
        // Those of HL0, and those with addresses, stay on the fast tier as long as it has room, and more of the latter come.
        let stays = |level, meta: &TableMeta| match level {
            _ if !self.dirs.are_apart() => false,
            0 => !fill.wants_room(),
            _ => meta.holds_addresses() && fill.keeps_tables(all_tables),
        };
        let comes = |meta: &TableMeta| {
            self.dirs.are_apart() && meta.holds_addresses() && fill.has_room_for_table(all_tables, meta.size)
        };
        let levels = view.version.levels().iter().enumerate();
        let tables = levels.flat_map(|(level, tables)| tables.tables().iter().map(move |table| (level, table)));
        let tables = tables.map(|(level, table)| {
            let belongs_on_fast = match table.key().dir {
                DirId::HOME => stays(level, table.meta()),
                _ => comes(table.meta()),
            };
            (table.key(), if belongs_on_fast { DirId::HOME } else { slow })
        });
        let kept = self.files_kept_on_fast(view);
        let room = match self.dirs.are_apart() {
            true => fill.room_to_raise(self.fast_redirect_bytes(view)),
            false => 0,
        };
        let redirects = redirect_bytes(view);
        // All of a file is moved, with what is referenced no more. Most are left out without a look at their length.
        let fits = |file: &FileKey| self.bytes_to_move(view, *file).is_some_and(|bytes| bytes <= room);
        let is_raised = |file: &FileKey| {
            file.kind == FileKind::Redirect
                && file.dir != DirId::HOME
                && redirects.get(&file.id).is_some_and(|bytes| *bytes <= room)
                && fits(file)
        };
        let values = view.values.stored.values().map(|stored| stored.key()).filter(|file| !kept.contains(&file.id));
        let (raised, values): (Vec<_>, Vec<_>) = values.partition(is_raised);
        let segments = view.version.segments().iter().map(|segment| segment.key());
        let others = view.logs.values().map(|log| log.key()).chain(segments).chain(values).chain(self.saved_indexes());
        let files = tables.chain(others.map(|file| (file, home_of(file, slow))));
        let files = files.chain(raised.into_iter().map(|file| (file, DirId::HOME)));
        // Logs leave the device by rollback.
        let device = self.dirs.device();
        let mut files: Vec<_> = files.filter(|(file, home)| file.dir != *home && Some(file.dir) != device).collect();
        files.sort_by_key(|(file, _)| file.id);
        files
    }

    /// Bytes that files of a kind may take that are moved to a directory, where flushes need some of what is there.
    pub(super) fn room_in(&self, view: &View, kind: FileKind, dir: DirId) -> u64 {
        let (free, fill) = (self.storage.free_bytes(self.dirs.of(dir)) / 2, self.fast_fill());
        match kind {
            _ if dir != DirId::HOME || !self.dirs.are_apart() => free,
            FileKind::Redirect => free.min(fill.room_to_raise(self.fast_redirect_bytes(view))),
            _ => free.min(fill.room_for_tables(view.version.tables_of_addresses().0)),
        }
    }

    /// Bytes of the redirect tables on the fast tier. O(value files).
    fn fast_redirect_bytes(&self, view: &View) -> u64 {
        let kept = self.fast_kept(view).into_iter();
        kept.filter(|(file, _)| file.kind == FileKind::Redirect).map(|(_, bytes)| bytes).sum()
    }

    /// The files of redirect tables on the fast tier, newest first, and then those of values that are read, with the bytes of
    /// each. O(value files).
    pub fn fast_kept(&self, view: &View) -> Vec<(FileKey, u64)> {
        if !self.dirs.are_apart() {
            return Vec::new();
        }
        let files = view.values.stored.values().map(|stored| stored.key()).filter(|file| file.dir == DirId::HOME);
        let files: Vec<FileKey> = files.filter(|file| file.kind != FileKind::Log).collect();
        let mut others = BTreeSet::new();
        for place in view.values.state.places.values() {
            if let ValuePlace::Extent { segment, temperature, .. } = place
                && *temperature != Temperature::Read
            {
                others.insert(*segment);
            }
        }
        let kept = files.iter().rev().filter(|file| !others.contains(&file.id));
        let mut kept: Vec<_> = kept.map(|file| (*file, self.fast.bytes_of(Occupant::File(file.id)))).collect();
        kept.sort_by_key(|(file, _)| file.kind != FileKind::Redirect);
        kept
    }

    /// Those that stay there.
    fn files_kept_on_fast(&self, view: &View) -> BTreeSet<FileId> {
        let kept = self.fast_kept(view);
        let sizes: Vec<u64> = kept.iter().map(|(_, bytes)| *bytes).collect();
        let count = kept_on_fast(self.fast_fill(), &sizes);
        kept.into_iter().take(count).map(|(file, _)| file.id).collect()
    }

    /// Bytes of redirect tables, or of values that are read (a segment), that may be made on the fast tier, when `leaving` bytes
    /// of those there go and `coming` bytes are not there yet. O(value files).
    pub fn room_for_kept(&self, kind: FileKind, coming: u64, leaving: u64) -> u64 {
        if !self.dirs.are_apart() {
            return 0;
        }
        let kept = self.fast_kept(&self.published.view()).into_iter();
        let kept = kept.filter(|(file, _)| kind != FileKind::Redirect || file.kind == kind);
        let kept: u64 = kept.map(|(_, bytes)| bytes).sum();
        self.fast_fill().room_for_kept(kept.saturating_sub(leaving) + coming)
    }
}

/// The files of redirect tables, and the bytes of each. O(value files).
fn redirect_bytes(view: &View) -> BTreeMap<FileId, u64> {
    let mut files = BTreeMap::new();
    for place in view.values.state.places.values() {
        if let ValuePlace::Moved { redirect, len, .. } = place {
            *files.entry(*redirect).or_default() += len;
        }
    }
    files
}
