//! Opens the value files that the manifest references, and gives back the space between them that a crash left behind.

use std::collections::BTreeMap;

use crate::base::{Error, FileId, Result, SharedMap};
use crate::engine::manifest::ManifestState;
use crate::engine::value_home::ValueHome;
use crate::format::values::{EXTENT_ALIGN, ValuePlace};
use crate::io::Storage;
use crate::io::pending_deletions::{FileRange, Obsolete, PendingDeletions};
use crate::values::files::ValueFiles;

/// The files of values that the manifest names. Each must be there, and as long as it says.
pub(crate) fn open_values(around: &ValueHome<'_>, state: &ManifestState) -> Result<ValueFiles> {
    let mut values = ValueFiles::new(SharedMap::default(), SharedMap::default(), state.values.clone());
    for (id, place) in state.values.places.iter() {
        let key = state.value_file(*id, place);
        around.place(&mut values, *id, place, key);
        let path = values.stored[&key.id].path();
        let end = match place {
            ValuePlace::Log { end } | ValuePlace::Extent { end, .. } => *end,
            ValuePlace::Moved { start, len, .. } => start.saturating_add(*len),
        };
        match around.readers.storage.file_len(path)? {
            None => return Err(Error::corruption(path, 0, "the manifest names this file, but it is missing")),
            Some(found) if found < end => {
                let message = format!("the file is {found} B long, and the manifest says {end} B");
                return Err(Error::corruption(path, found, message));
            }
            Some(_) => {}
        }
    }
    Ok(values)
}

/// Gives back the space of extents that are gone, in segments of which others are left: a crash may have come before, or the
/// segment had another link. Whatever takes space between the extents that the manifest names, or behind them, is such a gap.
pub(crate) fn give_back_gaps(
    storage: &dyn Storage,
    values: &ValueFiles,
    pending_deletions: &PendingDeletions,
) -> Result<()> {
    let mut extents = BTreeMap::<FileId, Vec<(u64, u64)>>::new();
    for place in values.state.places.values() {
        if let ValuePlace::Extent { segment, start, end, .. } = place {
            extents.entry(*segment).or_default().push((*start, end.next_multiple_of(EXTENT_ALIGN)));
        }
    }
    for (segment, extents) in extents {
        let path = values.stored[&segment].path();
        let len = storage.file_len(path)?.unwrap_or_default();
        for (mut from, to) in gaps(extents, len) {
            // In doubt all of it takes space.
            while from < to
                && let Some((offset, end)) = storage.first_data(path, from, to).unwrap_or(Some((from, to)))
            {
                // The last block of a file may be cut short.
                from = end.next_multiple_of(EXTENT_ALIGN);
                pending_deletions.add(Obsolete::Range(FileRange { path: path.clone(), offset, len: from - offset }));
            }
        }
    }
    Ok(())
}

/// The gaps of a segment of `len` bytes, where no extent lies: start and end offsets, in order.
fn gaps(mut extents: Vec<(u64, u64)>, len: u64) -> Vec<(u64, u64)> {
    extents.sort_unstable();
    let behind = len.next_multiple_of(EXTENT_ALIGN);
    // The header of the segment is in the first block.
    let mut offset = EXTENT_ALIGN;
    let mut gaps = Vec::new();
    for (start, end) in extents.into_iter().chain([(behind, behind)]) {
        if start > offset {
            gaps.push((offset, start));
        }
        offset = end;
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_before_between_and_behind_extents() {
        const BLOCK: u64 = EXTENT_ALIGN;
        let of = |extents: &[(u64, u64)], len| {
            gaps(extents.iter().map(|(from, to)| (from * BLOCK, to * BLOCK)).collect(), len)
        };
        assert_eq!(of(&[(1, 3)], 2 * BLOCK + 9), []);
        assert_eq!(of(&[(4, 5), (2, 3)], 5 * BLOCK), [(BLOCK, 2 * BLOCK), (3 * BLOCK, 4 * BLOCK)]);
        assert_eq!(of(&[(1, 3)], 6 * BLOCK + 1), [(3 * BLOCK, 7 * BLOCK)]);
    }
}
