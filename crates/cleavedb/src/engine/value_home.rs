//! Where the value files of a database lie, and how one that the manifest references becomes one that is read. Called where
//! value files are opened, checked, and changed by an edit.

use std::sync::Arc;

use crate::base::{FileId, FileKey};
use crate::engine::manifest::files::Dirs;
use crate::format::values::ValuePlace;
use crate::io::file_guard::FileGuard;
use crate::io::pending_deletions::PendingDeletions;
use crate::levels::readers::Readers;
use crate::values::files::{Entry, Layout, StoredFile, ValueFile, ValueFiles};
use crate::values::redirect::{Redirect, RedirectTable, Shape};

/// Where the files of values of a database lie, and what its readers share.
pub(crate) struct ValueHome<'a> {
    pub dirs: &'a Dirs,
    pub pending_deletions: &'a Arc<PendingDeletions>,
    pub readers: &'a Arc<Readers>,
}

impl ValueHome<'_> {
    /// A file on storage in which files of values have their places.
    fn stored(&self, key: FileKey) -> StoredFile {
        let guard = FileGuard::new(key, self.dirs.path(key), self.pending_deletions.clone());
        let handle = self.readers.handle(&guard);
        let ahead = self.readers.ahead_threads_for(key.dir);
        StoredFile::new(guard, handle, ahead)
    }

    /// Adds a file, which lies in the file `key`, or says that its records are elsewhere now; returns what was known of it
    /// before.
    pub fn place(&self, values: &mut ValueFiles, id: FileId, place: &ValuePlace, key: FileKey) -> Option<Entry> {
        let stored = values.stored.get(&key.id).cloned().unwrap_or_else(|| {
            let stored = Arc::new(self.stored(key));
            values.stored.insert(key.id, stored.clone());
            stored
        });
        let here = |layout, end| Entry::Here(Arc::new(ValueFile::new(id, layout, end, stored.clone())));
        let entry = match place {
            ValuePlace::Log { end } => here(Layout::Log, *end),
            ValuePlace::Extent { start, end, group, temperature, .. } => {
                here(Layout::Extent { start: *start, group: group.clone(), temperature: *temperature }, *end)
            }
            ValuePlace::Moved { start, len, saved, to, .. } => {
                let to = to.iter().map(|(file, _)| *file).collect();
                let table = RedirectTable { of: id, start: *start, len: *len, shape: Shape::of(*saved) };
                Entry::Moved(Arc::new(Redirect::new(stored, table, to, self.readers.cache.clone())))
            }
        };
        values.files.insert(id, entry)
    }
}
