//! Values that lie apart, fetched for many keys at once: those that lie side by side in one read, and all reads in flight
//! together. Scans come here with the keys that they have run ahead to, and `multi_get` with what it has looked up.
//! Decision record 024 has the figures.
//!
//! What could not be fetched stays an address: whoever resolves the key fetches it by itself, and meets the error.

use std::sync::Arc;

use crate::base::{Address, Slice, Stamp};
use crate::engine::core::Core;
use crate::engine::read::get::{Known, bring_in};
use crate::engine::view::View;
use crate::format::record::value_of;
use crate::io::File;
use crate::io::coalesced::{ReadRange, ReadRequest, read_coalesced};
use crate::values::files::Located;

/// Records with less than this between them are fetched in one read.
const GAP_BYTES: u64 = 16 << 10;

impl Core {
    /// Brings in the payloads of versions that are apart, each given with its full key. With `fill_cache` the value cache
    /// keeps what was read.
    pub fn fetch_together<'a>(
        &self,
        view: &View,
        apart: impl Iterator<Item = (&'a [u8], &'a mut (Stamp, Slice))>,
        fill_cache: bool,
    ) {
        let mut wanted = Vec::new();
        for (full, version) in apart {
            if let Some((file, now)) = self.locate_separated(view, full, version, fill_cache) {
                let range = ReadRange { file: now.file, start: now.offset, end: now.offset + u64::from(now.len) };
                wanted.push(ReadRequest { file, range, context: (full, version, now) });
            }
        }
        read_coalesced(wanted, GAP_BYTES, |(full, version, now), bytes| {
            if let Ok(value) = value_of(bytes, *now, full, version.0.seqno(), &self.memory.values) {
                if fill_cache {
                    self.memory.value_cache.insert(full, version.0, None, &value);
                }
                bring_in(version, value);
            }
        });
    }

    /// The file that has the payload of a version, and where it is. `None` if it is brought in already, from memory, or
    /// cannot be had in this way.
    fn locate_separated(
        &self,
        view: &View,
        full: &[u8],
        version: &mut (Stamp, Slice),
        fill_cache: bool,
    ) -> Option<(Arc<dyn File>, Address)> {
        let address = Address::decode(&version.1)?;
        let log = view.logs.get(&address.file);
        let at_hand = match log {
            Some(log) if log.file_at(address).ok()?.is_none() => {
                Some(log.read_value(address, full, version.0.seqno(), &self.memory.values).ok()?)
            }
            _ => self.cached_value(full, version.0, fill_cache.then_some(&Known::default())),
        };
        if let Some(value) = at_hand {
            bring_in(version, value);
            return None;
        }
        if let Some(log) = log {
            return log.file_at(address).ok()?.map(|file| (file.clone(), address));
        }
        match view.values.locate(address).ok()? {
            Located::At(file, now) => {
                let open = file.file_at(now).ok()?;
                // Extents of one segment are neighbours, too.
                Some((open, Address { file: file.stored().id(), ..now }))
            }
            Located::Dead | Located::Unknown => None,
        }
    }
}
