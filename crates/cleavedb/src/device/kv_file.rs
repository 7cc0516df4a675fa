//! An open file of a [`KvDirectory`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{Inode, KvDirectory};
use super::pieces::{FILE_BYTES_MAX, KEY_BYTES, PIECE_BYTES_MAX, Piece};
use crate::base::{Error, Result};
use crate::io::File;

/// Bytes of one bulk scan (KVAccel: 512 KiB).
const SCAN_BYTES: usize = 512 << 10;
/// A read of at least this many pieces is a scan.
const SCAN_PIECES_MIN: usize = 4;

/// An open file.
pub(super) struct KvFile {
    directory: Arc<KvDirectory>,
    inode: Arc<Inode>,
    path: PathBuf,
}

impl KvFile {
    pub fn new(directory: Arc<KvDirectory>, inode: Arc<Inode>, path: &Path) -> KvFile {
        inode.state.lock().handles += 1;
        KvFile { directory, inode, path: path.to_owned() }
    }

    fn piece_bytes_max(&self) -> usize {
        self.directory.device.value_bytes_max().min(PIECE_BYTES_MAX)
    }

    /// Fails for a file that was removed.
    fn check_there(&self, operation: &'static str) -> Result<()> {
        match self.inode.state.lock().is_removed {
            true => Err(Error::io(&self.path, operation, std::io::ErrorKind::NotFound.into())),
            false => Ok(()),
        }
    }

    fn store(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let generation = self.directory.next_generation();
        let piece = Piece { file: self.inode.number, offset, generation, len: bytes.len() as u32 };
        let stored = self.directory.device.store(&piece.key(), bytes);
        stored.map_err(|error| Error::io(&self.path, "store", error))?;
        self.inode.state.lock().pieces.add(piece);
        Ok(())
    }

    /// Fills parts of a buffer that begins at `start` from a piece.
    fn fill(&self, piece: &Piece, value: &[u8], parts: &[Range<u64>], buffer: &mut [u8], start: u64) -> Result<()> {
        if value.len() != piece.len as usize {
            let message = format!("a piece has {} bytes in place of {}", value.len(), piece.len);
            return Err(Error::corruption(&self.path, piece.offset, message));
        }
        for part in parts {
            let [from, to] = [part.start, part.end].map(|at| (at - piece.offset) as usize);
            let at = (part.start - start) as usize;
            buffer[at..at + (to - from)].copy_from_slice(&value[from..to]);
        }
        Ok(())
    }

    /// Fills what pieces have of a buffer, by one command for each piece, or by scans of many.
    fn read_pieces(&self, mut wanted: Wanted, buffer: &mut [u8], start: u64) -> Result<()> {
        let device = &*self.directory.device;
        let failed = |operation| move |error| Error::io(&self.path, operation, error);
        while wanted.len() >= SCAN_PIECES_MIN {
            let (first, last) = match (wanted.first_key_value(), wanted.last_key_value()) {
                (Some((first, _)), Some((last, _))) => (first.key(), last.key()),
                _ => break,
            };
            let Some(pairs) = device.scan(&first, &after(last), SCAN_BYTES).map_err(failed("scan"))? else { break };
            let before = wanted.len();
            for (key, value) in pairs {
                let found = wanted.iter().find(|(piece, _)| piece.key()[..] == key[..]).map(|(piece, _)| *piece);
                if let Some(piece) = found {
                    let parts = wanted.remove(&piece).unwrap_or_default();
                    self.fill(&piece, &value, &parts, buffer, start)?;
                }
            }
            if wanted.len() == before {
                // The first one is not there.
                break;
            }
        }
        for (piece, parts) in wanted {
            let Some(value) = device.retrieve(&piece.key()).map_err(failed("retrieve"))? else {
                return Err(Error::corruption(
                    &self.path,
                    piece.offset,
                    "the device does not have a piece of this file",
                ));
            };
            self.fill(&piece, &value, &parts, buffer, start)?;
        }
        Ok(())
    }
}

/// The parts of a file that are to be read, by the pieces that have them.
type Wanted = BTreeMap<Piece, Vec<Range<u64>>>;

/// The key after this one.
fn after(mut key: [u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    for byte in key.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    key
}

impl File for KvFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let room = buffer.len() as u64;
        let find = || {
            let state = self.inode.state.lock();
            let count = state.len().saturating_sub(offset).min(room) as usize;
            let mut wanted = Wanted::new();
            for (part, piece) in state.pieces.within(offset..offset.saturating_add(count as u64)) {
                wanted.entry(piece).or_default().push(part);
            }
            (count, wanted)
        };
        let (mut count, mut wanted) = find();
        loop {
            buffer[..count].fill(0);
            let Err(error) = self.read_pieces(wanted.clone(), &mut buffer[..count], offset) else { return Ok(count) };
            // Meanwhile the end of the file may have been cut, which stores the piece at the border anew and removes the other.
            let now = find();
            if now.1 == wanted {
                return Err(error);
            }
            (count, wanted) = now;
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_there("write")?;
        if offset.saturating_add(bytes.len() as u64) > FILE_BYTES_MAX {
            return Err(Error::no_space(&self.path));
        }
        let pieces = bytes.chunks(self.piece_bytes_max()).zip((offset..).step_by(self.piece_bytes_max()));
        pieces.into_iter().try_for_each(|(piece, at)| self.store(piece, at))
    }

    fn sync(&self) -> Result<()> {
        self.directory.sync(&self.path)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.inode.state.lock().len())
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        self.check_there("allocate")?;
        self.directory.allocate(&self.inode, &self.path, len)?;
        Ok(true)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.check_there("truncate")?;
        if self.len()? <= len {
            return self.directory.allocate(&self.inode, &self.path, len);
        }
        let beyond: Vec<Piece> =
            self.inode.state.lock().pieces.all().filter(|piece| piece.end() > len).copied().collect();
        // What is left of pieces that span the border is stored anew before they go.
        let kept = beyond.iter().map(|piece| piece.offset).min().filter(|first| *first < len);
        if let Some(first) = kept {
            let mut bytes = vec![0; (len - first) as usize];
            self.read_at(&mut bytes, first)?;
            self.write_at(&bytes, first)?;
            self.sync()?;
        }
        self.directory.set_len(&self.inode, len)?;
        for piece in beyond.iter().rev() {
            let deleted = self.directory.device.delete(&piece.key());
            deleted.map_err(|error| Error::io(&self.path, "delete", error))?;
            self.inode.state.lock().pieces.remove(piece);
        }
        Ok(())
    }
}

impl Drop for KvFile {
    fn drop(&mut self) {
        let is_last = {
            let mut state = self.inode.state.lock();
            state.handles -= 1;
            state.handles == 0 && state.is_removed
        };
        if is_last {
            // What is left of it is removed when the device is locked the next time.
            let _ = self.directory.let_go(&self.inode, &self.path);
        }
    }
}

/// The file under the name of a lock, which is not on the device.
pub(super) struct LockFile(pub PathBuf);

impl File for LockFile {
    fn path(&self) -> &Path {
        &self.0
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> Result<usize> {
        Ok(0)
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(Error::io(&self.0, "write", std::io::ErrorKind::Unsupported.into()))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(0)
    }

    fn allocate(&self, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn truncate(&self, _: u64) -> Result<()> {
        Ok(())
    }
}
