//! Fetches the separated values of many keys at once: adjacent records are coalesced into one read, and all reads are
//! in flight together. Called by scans with the keys that they have read ahead, and by `multi_get` with the keys that
//! it has looked up. Decision record 024 has the figures.
//!
//! A payload that could not be fetched remains an address: the read of its key fetches it alone, and reports the error.

use std::sync::Arc;

use crate::base::Address;
use crate::base::key_versions::{KeyVersion, set_payload};
use crate::engine::core::Core;
use crate::engine::read::get::CachedValue;
use crate::engine::scan_demand::ScanPlaces;
use crate::engine::tuning::settings::ValueReordering;
use crate::engine::view::View;
use crate::format::record::value_of;
use crate::io::File;
use crate::io::coalesced_reads::{Coalescing, ReadRange, ReadRequest, read_coalesced};
use crate::values::files::Located;

/// Which records are coalesced into one read.
pub(super) const COALESCING: Coalescing = Coalescing { gap_bytes: 16 << 10, read_bytes_max: 256 << 10 };

impl Core {
    /// Fetches the payloads of separated versions, each given with its full key. With `fill_cache` the values read are
    /// inserted into the value cache. A scan passes its places.
    pub fn fetch_together<'a>(
        &self,
        view: &View,
        separated: impl Iterator<Item = (&'a [u8], &'a mut KeyVersion)>,
        fill_cache: bool,
        mut places: Option<&mut ScanPlaces>,
    ) {
        let near_bytes = self.settings.tuning.near_bytes();
        let mut wanted = Vec::new();
        for (full, version) in separated {
            if let Some((file, now)) = self.locate_separated(view, full, version, fill_cache) {
                if let Some(places) = &mut places {
                    places.visit(now.file, now.offset, now.len.into(), near_bytes);
                }
                let range = ReadRange { file: now.file, start: now.offset, end: now.offset + u64::from(now.len) };
                wanted.push(ReadRequest { range, context: (file, full, version, now) });
            }
        }
        let open = |(file, ..): &(Arc<dyn File>, _, _, _)| Some(file.clone());
        read_coalesced(wanted, COALESCING, open, |(_, full, version, now), bytes| {
            if let Ok(value) = value_of(bytes, *now, full, Some(version.0.seqno()), &self.memory.values) {
                if fill_cache {
                    self.memory.value_cache.insert(full, version.0, None, &value);
                }
                set_payload(version, value);
            }
        });
    }

    /// Notes that a scan read `scattered` bytes of values from many places, from `key` on. A view that is no longer
    /// current says nothing about the present order.
    pub(crate) fn note_scan(&self, view: &View, key: &[u8], scattered: u64) {
        let tuning = &self.settings.tuning;
        if scattered > 0
            && tuning.reordering == ValueReordering::WhenScanned
            && self.placement.keeps_key_order()
            && Arc::ptr_eq(&view.values, &self.published.view().values)
            && self.scan_demand.note(key, scattered, tuning.flush_bytes)
        {
            self.work.wake();
        }
    }

    /// The file that holds the payload of a version, and the address in it. `None` if the payload was in memory and is
    /// now set in `version`, or if it must be fetched alone.
    pub(super) fn locate_separated(
        &self,
        view: &View,
        full: &[u8],
        version: &mut KeyVersion,
        fill_cache: bool,
    ) -> Option<(Arc<dyn File>, Address)> {
        let address = Address::decode(&version.1)?;
        let log = view.logs.get(&address.file);
        let at_hand = match log {
            Some(log) if log.file_at(address).ok()?.is_none() => {
                Some(log.read_value(address, full, version.0.seqno(), &self.memory.values).ok()?)
            }
            _ => self.cached_value(full, version.0, fill_cache.then_some(&CachedValue::default())),
        };
        if let Some(value) = at_hand {
            set_payload(version, value);
            return None;
        }
        if let Some(log) = log {
            return log.file_at(address).ok()?.map(|file| (file.clone(), address));
        }
        match view.values.locate(address).ok()? {
            Located::At(file, now) => {
                let open = file.file_at(now).ok()?;
                // Extents of one segment share a file, so their records can be coalesced too.
                Some((open, Address { file: file.stored().id(), ..now }))
            }
            Located::Dead | Located::Unknown => None,
        }
    }
}
