//! How values that lie apart are kept: where they go when they are moved, and how much garbage may lie among them.

pub use crate::values::placement::VictimPolicy;

use crate::base::{Error, Result};
use crate::engine::tuning::settings::ValuePlacement;
use crate::engine::tuning::settings::check_compression;
use crate::engine::tuning::sizes::Tuning;
use crate::format::compression::Compression;

/// How values that lie apart are kept. The defaults need no thought; the rest is there to be measured.
///
/// ```
/// # fn main() -> cleavedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// // Half as much garbage as live values at most.
/// let values = cleavedb::ValueOptions::new().garbage(50, 64 << 20);
/// let db = cleavedb::Options::new().values(values).open(dir.path().join("db"))?;
/// # db.close()
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueOptions {
    placement: ValuePlacement,
    victims: VictimPolicy,
    hot_cold: bool,
    find_in_tables: bool,
    compression: Compression,
    group_bytes: Option<u64>,
    garbage: Option<(u32, u64)>,
}

impl Default for ValueOptions {
    fn default() -> ValueOptions {
        ValueOptions::new()
    }
}

impl ValueOptions {
    /// The defaults.
    pub fn new() -> ValueOptions {
        let (placement, victims) = (ValuePlacement::default(), VictimPolicy::default());
        ValueOptions {
            placement,
            victims,
            hot_cold: true,
            find_in_tables: true,
            compression: Compression::None,
            group_bytes: None,
            garbage: None,
        }
    }

    /// Which values lie together once they have been moved.
    pub fn placement(mut self, placement: ValuePlacement) -> ValueOptions {
        self.placement = placement;
        self
    }

    /// What gives its space back first, with [`ValuePlacement::Hash`] or [`ValuePlacement::Range`]. Default: what has the most
    /// garbage for its size.
    pub fn victims(mut self, victims: VictimPolicy) -> ValueOptions {
        self.victims = victims;
        self
    }

    /// With [`ValuePlacement::Hash`], values that were not updated since they were last moved lie apart from the others
    /// (default), so that they are seldom moved again.
    pub fn hot_cold(mut self, apart: bool) -> ValueOptions {
        self.hot_cold = apart;
        self
    }

    /// What lives of the files that are emptied is found by going through the tables that name them, where that is cheaper
    /// than to read the files (default). Otherwise files are always read, and the newest version that a group has of a key
    /// lives, as in HashKV, or each is looked up.
    pub fn find_in_tables(mut self, where_cheaper: bool) -> ValueOptions {
        self.find_in_tables = where_cheaper;
        self
    }

    /// How values are compressed when they are moved, which is when their files are emptied or put in order; in the log, where
    /// each is written first, it never is. Default: not at all. Values of 128 B and more are compressed, in records of up to
    /// 1 MiB, where that saves at least an eighth; of those that seldom shrink few are tried. May be another at each open: what
    /// lies there stays as it is, and is read as ever.
    pub fn compression(mut self, compression: Compression) -> ValueOptions {
        self.compression = compression;
        self
    }

    /// With [`ValuePlacement::Hash`] or [`ValuePlacement::Range`], a group is divided beyond about so many bytes, at least
    /// 64 KiB; groups are larger where there would be very many. Default: the size of a log, up to 64 MiB.
    pub fn group_bytes(mut self, bytes: u64) -> ValueOptions {
        self.group_bytes = Some(bytes);
        self
    }

    /// How much garbage may lie in files of values: `percent` hundredths of what is live in them, from 1 to 1000, and `bytes`
    /// more. Less of it takes more moving. Default: 30 ([`GARBAGE_PERCENT_DEFAULT`](crate::limits::GARBAGE_PERCENT_DEFAULT)),
    /// and 256 MiB ([`GARBAGE_BYTES_DEFAULT`](crate::limits::GARBAGE_BYTES_DEFAULT)).
    pub fn garbage(mut self, percent: u32, bytes: u64) -> ValueOptions {
        self.garbage = Some((percent, bytes));
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_compression(self.compression)?;
        match self.garbage {
            Some((percent, _)) if !(1..=1000).contains(&percent) => {
                Err(Error::input(format!("garbage of {percent} % was allowed, but it must be from 1 to 1000")))
            }
            _ => match self.group_bytes {
                Some(bytes) if bytes < 64 << 10 => {
                    Err(Error::input(format!("groups of {bytes} B were asked for, and they have at least 64 KiB")))
                }
                _ => Ok(()),
            },
        }
    }

    /// What follows for the sizes inside the engine.
    pub(crate) fn tune(&self, tuning: &mut Tuning) {
        (tuning.placement, tuning.victims, tuning.hot_cold) = (self.placement, self.victims, self.hot_cold);
        (tuning.finds_in_tables, tuning.value_compression) = (self.find_in_tables, self.compression);
        if let Some(bytes) = self.group_bytes {
            tuning.group_bytes = bytes;
        }
        if let Some((percent, bytes)) = self.garbage {
            (tuning.garbage_percent, tuning.garbage_bytes) = (percent.into(), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::placement::{PlacementContext, Survivor};

    #[test]
    fn groups_are_as_large_as_asked() {
        let keys: Vec<[u8; 1]> = (0..64).map(|number| [number]).collect();
        let records: Vec<Survivor<'_>> = (0..64)
            .map(|number| Survivor { order: number << 58, key: &keys[number as usize], bytes: 64 << 10 })
            .collect();
        for placement in [ValuePlacement::Hash, ValuePlacement::Range] {
            let groups = |options: ValueOptions| {
                let mut tuning = Tuning::for_budget(64 << 20);
                options.placement(placement).tune(&mut tuning);
                let groups = tuning.placement().groups(&records, &PlacementContext::default());
                groups.len()
            };
            assert_eq!(groups(ValueOptions::new()), 1);
            assert_eq!(groups(ValueOptions::new().group_bytes(1 << 20)), 4);
        }
    }
}
