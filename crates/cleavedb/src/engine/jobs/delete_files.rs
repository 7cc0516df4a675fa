//! Pending deletions: obsolete files, and parts of files, that neither the manifest references nor a reader holds.

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::base::{Result, Tier};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::fast_tier::Occupant;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::manifest::file_names::parse;
use crate::engine::shortages::Need;
use crate::engine::work::{Class, MemoryShare, Profile};
use crate::io::Punched;
use crate::io::pending_deletions::Obsolete;
use crate::sched::clock::now;

/// Due while there are any. Each is its own job, because a writer that needs a log does not wait for all of them.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Room,
    duties: &[Duty::Logs],
    next: |core, _, look| {
        if core.pending_deletions.has_work(look.now) { JobKind::begin(DeleteFile) } else { None }
    },
};

/// Performs one pending deletion.
struct DeleteFile;

impl Job for DeleteFile {
    fn profile(&self, core: &Core) -> Profile {
        Profile {
            name: "delete file",
            claims: Claims::sole(Sole::PendingDeletions),
            binds: Binds::write(Tier::Fast) | Binds::write(core.dirs.slow_tier()),
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Flush,
            meets_need: false,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| {
            core.delete_one_pending();
            Ok(Outcome::nothing())
        })))
    }
}

impl Core {
    /// Removes a numbered file that nothing references, if it can be removed. The next open removes it otherwise.
    pub fn remove_file(&self, path: &Path) {
        // Its space is then that of a checkpoint.
        if self.storage.links(path).is_ok_and(|links| links > 1) {
            let bytes = self.storage.file_len(path).ok().flatten().unwrap_or_default();
            self.counters.bytes_left_to_checkpoints.fetch_add(bytes, Ordering::Relaxed);
        }
        let is_gone = self.storage.remove(path).is_ok() || matches!(self.storage.exists(path), Ok(false));
        let name = path.file_name().and_then(|name| name.to_str()).and_then(parse);
        if let (true, Some((_, id))) = (is_gone, name)
            && path.parent() == Some(self.dirs.fast())
        {
            self.fast.release(Occupant::File(id));
        }
        // Last: the file may return from here on, with a claim of its own.
        if is_gone && self.former_places.lock().remove(path) {
            self.has_misplaced.store(true, Ordering::Release);
        }
    }

    /// Notes that a file has given back `bytes` of its space.
    fn note_shrunk(&self, path: &Path, bytes: u64) {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(parse);
        if let Some((_, id)) = name.filter(|_| path.parent() == Some(self.dirs.fast())) {
            let file = Occupant::File(id);
            let before = self.fast.bytes_of(file);
            if before > 0 {
                self.fast.note(file, before.saturating_sub(bytes));
            }
        }
    }

    /// Performs one pending deletion; returns false if there is none.
    pub fn delete_one_pending(&self) -> bool {
        let Some(obsolete) = self.pending_deletions.take(now()) else { return false };
        match obsolete {
            // Nothing depends on this: the next open removes files that the manifest does not reference.
            Obsolete::File(path) => self.remove_file(&path),
            Obsolete::Range(range) => {
                let punched = self.storage.punch(&range.path, range.offset, range.len);
                if matches!(punched, Ok(Punched::Done)) {
                    self.note_shrunk(&range.path, range.len);
                }
                match &punched {
                    Err(_) if matches!(self.storage.exists(&range.path), Ok(false)) => {
                        self.pending_deletions.record_file_gone(&range)
                    }
                    _ => self.pending_deletions.record_punch(range, &punched, now()),
                }
            }
        }
        true
    }
}
