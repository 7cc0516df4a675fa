//! The file [`OWNER`]: each directory of a database but that of its manifest names the database in it, its own number, where
//! the manifest lies, and the last opening for writing, so that no copy of the database can use the directory of the original. Read and replaced at
//! open and close.

use std::path::Path;

use crate::base::{DirId, Error, Result};
use crate::engine::manifest::ManifestState;
use crate::engine::manifest::file_names::{OWNER, OWNER_NEW};
use crate::format::edit::{Opening, Openings};
use crate::io::{Access, Storage, read_whole};

/// The contents of [`OWNER`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerFile {
    pub database: u64,
    /// The number that the manifest of the database has for this directory.
    pub dir: DirId,
    pub opening: Opening,
    /// Where the manifest was then; for messages, and to find it if it is to move.
    pub home: String,
}

impl OwnerFile {
    /// The owner of a directory at the present opening of a database whose manifest is in `home`.
    pub fn of(state: &ManifestState, dir: DirId, home: &Path) -> OwnerFile {
        // A line break would end the line.
        let home = home.display().to_string().replace('\n', "?");
        OwnerFile { database: state.database, dir, opening: state.openings.present, home }
    }

    fn encode(&self) -> String {
        let Opening { epoch, nonce } = self.opening;
        let (database, dir, home) = (self.database, self.dir.0, &self.home);
        let text = format!(
            "cleavedb owner 3\ndatabase {database:016x}\ndirectory {dir}\nopened {epoch} {nonce:016x}\nmanifest {home}\n"
        );
        let crc = crc32c::crc32c(text.as_bytes());
        format!("{text}crc {crc:08x}\n")
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<OwnerFile> {
        let damaged = || Error::corruption(path, 0, "the file that names the owner of this directory is damaged");
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if let ["cleavedb", "owner", version, ..] = words[..]
            && version != "3"
            && version.parse::<u32>().is_ok()
        {
            let message = format!("OWNER format {version} is not the known 3");
            return Err(Error::Unsupported { path: path.to_owned(), message });
        }
        let [_, _, _, _, database, _, dir, _, epoch, nonce, ..] = words[..] else { return Err(damaged()) };
        let home = text.lines().find_map(|line| line.strip_prefix("manifest ")).ok_or_else(damaged)?.to_owned();
        let hexadecimal = |word| u64::from_str_radix(word, 16).map_err(|_| damaged());
        let decimal = |word: &str| word.parse().map_err(|_| damaged());
        let opening = Opening { epoch: decimal(epoch)?, nonce: hexadecimal(nonce)? };
        let owner = OwnerFile { database: hexadecimal(database)?, dir: DirId(decimal(dir)?), opening, home };
        if owner.encode() == text { Ok(owner) } else { Err(damaged()) }
    }

    /// The owner of a directory, if it has one.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<OwnerFile>> {
        let path = dir.join(OWNER);
        match storage.exists(&path)? {
            true => OwnerFile::decode(&path, &read_whole(storage, &path)?).map(Some),
            false => Ok(None),
        }
    }
}

/// The openings that the manifest must have before [`OWNER`] gets the new one.
pub(crate) fn next_openings(state: &ManifestState, owner: Option<Opening>, nonce: u64) -> Openings {
    let present = Opening { epoch: state.openings.present.epoch + 1, nonce };
    Openings { present, previous: owner.unwrap_or_default() }
}

impl OwnerFile {
    /// Writes it into a directory, atomically.
    pub fn replace(&self, storage: &dyn Storage, path: &Path) -> Result<()> {
        let temporary = path.join(OWNER_NEW);
        if storage.exists(&temporary)? {
            storage.remove(&temporary)?;
        }
        let file = storage.create(&temporary, Access::Buffered)?;
        file.write_at(self.encode().as_bytes(), 0)?;
        file.sync()?;
        drop(file);
        storage.rename(&temporary, &path.join(OWNER))?;
        storage.sync_dir(path)
    }
}

/// The error for a directory of another database.
pub(crate) fn another_owner(dir: &Path) -> Error {
    Error::input(format!("{} belongs to another database, as {} says", dir.display(), dir.join(OWNER).display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_back_and_damage_to_it_is_found() {
        let path = Path::new("/slow/OWNER");
        let opening = Opening { epoch: 12, nonce: u64::MAX };
        let owner = OwnerFile { database: 0xabc, dir: DirId(2), opening, home: "/a directory".into() };
        let text = owner.encode();
        assert_eq!(OwnerFile::decode(path, text.as_bytes()).unwrap(), owner);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let decoded = OwnerFile::decode(path, &bytes);
            assert!(matches!(decoded, Err(Error::Corruption { .. } | Error::Unsupported { .. })), "byte {at}");
            assert!(OwnerFile::decode(path, &text.as_bytes()[..at]).is_err(), "cut to {at}");
        }
    }
}
