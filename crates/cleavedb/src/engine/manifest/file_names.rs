//! The names of our files. Everything else in the directories belongs to someone else and is never touched.

use crate::base::limits::FILE_ID_MAX;
use crate::base::{FileId, FileKind};

/// References the manifest in force.
pub(crate) const CURRENT: &str = "CURRENT";
/// Becomes [`CURRENT`] by renaming.
pub(crate) const CURRENT_NEW: &str = "CURRENT.new";
/// Locked while the database is open.
pub(crate) const LOCK: &str = "LOCK";
/// References, in a slow directory of its own, the database that it belongs to.
pub(crate) const OWNER: &str = "OWNER";
/// Becomes [`OWNER`] by renaming.
pub(crate) const OWNER_NEW: &str = "OWNER.new";
/// The mapped ring.
pub(crate) const RING: &str = "ring";
/// A larger ring, which becomes [`RING`] by renaming.
pub(crate) const RING_NEW: &str = "ring.new";

/// Space set apart for work that must go on when the disk is full.
pub(crate) const RESERVE: &str = "RESERVE";

/// Figures for others to look at while the database is open.
pub(crate) const STATS: &str = "STATS";

/// What the files of each kind are called, behind the number.
fn extension(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Log => "log",
        FileKind::Table => "table",
        FileKind::Manifest => "manifest",
        FileKind::Segment => "segment",
        FileKind::Redirect => "redirect",
        FileKind::Index => "index",
    }
}

/// The name of a numbered file.
pub(crate) fn name(kind: FileKind, id: FileId) -> String {
    format!("{:08}.{}", id.0, extension(kind))
}

/// What a name means; `None` if it is not one of ours.
pub(crate) fn parse(name: &str) -> Option<(FileKind, FileId)> {
    let (number, extension) = name.split_once('.')?;
    let kind = FileKind::ALL.into_iter().find(|kind| self::extension(*kind) == extension)?;
    let plain = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
    let id = FileId(number.parse().ok()?);
    (plain && id.0 <= FILE_ID_MAX && self::name(kind, id) == name).then_some((kind, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_parse() {
        assert_eq!(parse(&name(FileKind::Log, FileId(7))), Some((FileKind::Log, FileId(7))));
        assert_eq!(parse(&name(FileKind::Table, FileId(123_456_789))), Some((FileKind::Table, FileId(123_456_789))));
        assert_eq!(parse(&name(FileKind::Log, FileId(FILE_ID_MAX))), Some((FileKind::Log, FileId(FILE_ID_MAX))));
        for foreign in [
            &name(FileKind::Log, FileId(FILE_ID_MAX + 1)),
            "18446744073709551615.table",
            "lost+found",
            "7.log",
            "00000007.log.bak",
            "0000000007.log",
            "+0000007.log",
            "CURRENT",
            "x.table",
        ] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }
}
