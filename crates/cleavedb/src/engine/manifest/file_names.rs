//! The names of our files. Everything else in the directories belongs to someone else and is never touched.

use crate::base::FileId;
use crate::base::limits::FILE_ID_MAX;

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

/// A kind of numbered file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Log,
    Table,
    Manifest,
    Segment,
    Redirect,
}

pub(crate) fn log_name(id: FileId) -> String {
    format!("{:08}.log", id.0)
}

pub(crate) fn table_name(id: FileId) -> String {
    format!("{:08}.table", id.0)
}

pub(crate) fn segment_name(id: FileId) -> String {
    format!("{:08}.segment", id.0)
}

pub(crate) fn redirect_name(id: FileId) -> String {
    format!("{:08}.redirect", id.0)
}

pub(crate) fn manifest_name(id: FileId) -> String {
    format!("{:08}.manifest", id.0)
}

/// What a name means; `None` if it is not one of ours.
pub(crate) fn parse(name: &str) -> Option<(FileKind, FileId)> {
    let (number, extension) = name.split_once('.')?;
    let kind = match extension {
        "log" => FileKind::Log,
        "table" => FileKind::Table,
        "manifest" => FileKind::Manifest,
        "segment" => FileKind::Segment,
        "redirect" => FileKind::Redirect,
        _ => return None,
    };
    let plain = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
    let id = FileId(number.parse().ok()?);
    let name_again = match kind {
        FileKind::Log => log_name(id),
        FileKind::Table => table_name(id),
        FileKind::Manifest => manifest_name(id),
        FileKind::Segment => segment_name(id),
        FileKind::Redirect => redirect_name(id),
    };
    (plain && id.0 <= FILE_ID_MAX && name_again == name).then_some((kind, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_parse() {
        assert_eq!(parse(&log_name(FileId(7))), Some((FileKind::Log, FileId(7))));
        assert_eq!(parse(&table_name(FileId(123_456_789))), Some((FileKind::Table, FileId(123_456_789))));
        assert_eq!(parse(&log_name(FileId(FILE_ID_MAX))), Some((FileKind::Log, FileId(FILE_ID_MAX))));
        for foreign in [
            &log_name(FileId(FILE_ID_MAX + 1)),
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
