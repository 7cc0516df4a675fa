//! Frames of a log on a KV device that only the ring has (decision record 057): recovery stores them on the device. The device may
//! have parts of them already, which keep their room until the log goes, so it may have too little left. The log then moves to a tier,
//! as a rollback would move it: the copy is durable before the edit that makes it the file.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, FileKey, Result};
use crate::engine::manifest::files::Dirs;
use crate::engine::recovery::replay::{REWRITE_BYTES, Rewrite, open_log};
use crate::io::file_guard::FileGuard;
use crate::io::pending_deletions::PendingDeletions;
use crate::io::{Access, File, Storage};
use crate::levels::readers::Readers;

/// Frames with their offsets, in order.
#[derive(Default)]
pub(super) struct FoundFrames(Vec<(u64, Vec<u8>)>);

/// What it takes to make a log elsewhere.
pub(super) struct Tier<'a> {
    pub storage: &'a dyn Storage,
    pub dirs: &'a Dirs,
    pub readers: &'a Readers,
    pub pending_deletions: &'a Arc<PendingDeletions>,
}

impl FoundFrames {
    pub fn add(&mut self, offset: u64, frame: Vec<u8>) {
        self.0.push((offset, frame));
    }

    /// Stores them in `log`, whose history ends at `end`, or all of it on the slow tier if the device has too little room: then returns
    /// the new file. Without room on either, the device may still have it below the length that the log has claimed.
    ///
    /// # Errors
    /// As writing; [`Error::NoSpace`] if neither has room.
    pub fn store(
        &self,
        tier: &Tier<'_>,
        log: &Arc<dyn File>,
        key: FileKey,
        end: u64,
    ) -> Result<Option<(FileKey, Arc<dyn File>)>> {
        let bytes: u64 = self.0.iter().map(|(_, frame)| frame.len() as u64).sum();
        // Less would be left for `OWNER`.
        if bytes > 0 && tier.storage.free_bytes(tier.dirs.of(key.dir)) < bytes {
            match self.store_on_tier(tier, &**log, key, end) {
                Err(Error::NoSpace { .. }) => {}
                moved => return moved.map(Some),
            }
        }
        self.write(&**log)?;
        Ok(None)
    }

    fn write(&self, file: &dyn File) -> Result<()> {
        let mut rewrite = Rewrite::default();
        self.0.iter().try_for_each(|(offset, frame)| rewrite.add(file, *offset, frame))?;
        rewrite.flush(file)
    }

    /// Copies the log up to `end` to the slow tier, with the frames. What a crash leaves of it is removed: the number is ours, and the
    /// manifest has the file elsewhere.
    fn store_on_tier(
        &self,
        tier: &Tier<'_>,
        log: &dyn File,
        key: FileKey,
        end: u64,
    ) -> Result<(FileKey, Arc<dyn File>)> {
        let key = FileKey { dir: tier.dirs.slow_id(), ..key };
        let path = tier.dirs.path(key);
        if tier.storage.exists(&path)? {
            tier.storage.remove(&path)?;
        }
        let made = self.copy(tier, log, &path, end).inspect_err(|_| drop(tier.storage.remove(&path)));
        made?;
        tier.storage.sync_dir(tier.dirs.of(key.dir))?;
        Ok((key, open_log(tier.storage, tier.readers, &path, key.dir, true)?))
    }

    fn copy(&self, tier: &Tier<'_>, log: &dyn File, path: &Path, end: u64) -> Result<()> {
        let copy = tier.storage.create(path, Access::Buffered)?;
        let mut buffer = vec![0; REWRITE_BYTES];
        let mut at = 0;
        while at < end {
            let part = (end - at).min(buffer.len() as u64) as usize;
            let count = log.read_at(&mut buffer[..part], at)?;
            if count == 0 {
                break;
            }
            copy.write_at(&buffer[..count], at)?;
            at += count as u64;
        }
        self.write(&*copy)?;
        copy.sync()
    }
}

impl Tier<'_> {
    /// The guard of a file that has moved.
    pub fn guard(&self, key: FileKey) -> FileGuard {
        FileGuard::new(key, self.dirs.path(key), self.pending_deletions.clone())
    }
}
