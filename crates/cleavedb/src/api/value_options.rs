//! Options of separated values: their placement when they are moved, and the garbage limit.

pub use crate::values::placement::VictimPolicy;

use crate::base::{Error, Result};
use crate::engine::tuning::settings::check_compression;
use crate::engine::tuning::settings::{ValuePlacement, ValueReordering};
use crate::engine::tuning::sizes::Tuning;
use crate::format::compression::Compression;

/// Options for storing separated values. The defaults suit most uses; change them only after measuring.
///
/// ```
/// # fn main() -> cleavedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// // Garbage of at most 50 % of the live bytes, plus 64 MiB.
/// let values = cleavedb::ValueOptions::new().garbage(50, 64 << 20);
/// let db = cleavedb::Options::new().values(values).open(dir.path().join("db"))?;
/// # db.close()
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueOptions {
    placement: ValuePlacement,
    reordering: ValueReordering,
    victims: VictimPolicy,
    hot_cold: bool,
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
            reordering: ValueReordering::default(),
            victims,
            hot_cold: true,
            compression: Compression::None,
            group_bytes: None,
            garbage: None,
        }
    }

    /// How values are grouped when value GC or reordering moves them.
    pub fn placement(mut self, placement: ValuePlacement) -> ValueOptions {
        self.placement = placement;
        self
    }

    /// When values are reordered, with [`ValuePlacement::Range`]. Default: where scans find them scattered.
    pub fn reordering(mut self, reordering: ValueReordering) -> ValueOptions {
        self.reordering = reordering;
        self
    }

    /// Which group value GC collects first, with [`ValuePlacement::Hash`] or [`ValuePlacement::Range`]. Default: the
    /// group with the largest share of garbage.
    pub fn victims(mut self, victims: VictimPolicy) -> ValueOptions {
        self.victims = victims;
        self
    }

    /// With [`ValuePlacement::Hash`], stores values that were not updated since they were last moved separately from
    /// the others (default), so that they are rarely moved again.
    pub fn hot_cold(mut self, apart: bool) -> ValueOptions {
        self.hot_cold = apart;
        self
    }

    /// Compression of values when value GC or reordering moves them; values in the log, where they are first written,
    /// are never compressed. Default: none. Values of at least 128 B are compressed, in records of up to 1 MiB, if that
    /// saves at least an eighth; values that rarely shrink are only sampled. May change at each open: values already
    /// moved keep their compression and stay readable.
    pub fn compression(mut self, compression: Compression) -> ValueOptions {
        self.compression = compression;
        self
    }

    /// With [`ValuePlacement::Hash`] or [`ValuePlacement::Range`], a group is split when it exceeds about this size; at
    /// least 64 KiB. Groups grow larger if there would be too many of them. Default: the size of a log, up to 64 MiB.
    pub fn group_bytes(mut self, bytes: u64) -> ValueOptions {
        self.group_bytes = Some(bytes);
        self
    }

    /// Limit of the space taken beyond live values: `percent` percent of their bytes (1 to 1000) plus `bytes`. Index tables,
    /// logs in advance, the reserve and unflushed logs count; garbage in value files has the rest, at least half of the limit. A
    /// lower limit costs more copying. Default: 32 % ([`GARBAGE_PERCENT_DEFAULT`](crate::limits::GARBAGE_PERCENT_DEFAULT)) plus 64
    /// MiB ([`GARBAGE_BYTES_DEFAULT`](crate::limits::GARBAGE_BYTES_DEFAULT)).
    /// An idle store is brought below the limit; a limit above the default percentage is cut to half of what the file system
    /// has room for (decision records 040, 043).
    pub fn garbage(mut self, percent: u32, bytes: u64) -> ValueOptions {
        self.garbage = Some((percent, bytes));
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_compression(self.compression)?;
        match self.garbage {
            Some((percent, _)) if !(1..=1000).contains(&percent) => {
                Err(Error::input(format!("the garbage limit is {percent} %, but must be from 1 to 1000")))
            }
            _ => match self.group_bytes {
                Some(bytes) if bytes < 64 << 10 => {
                    Err(Error::input(format!("group_bytes is {bytes}, but must be at least 65536")))
                }
                _ => Ok(()),
            },
        }
    }

    /// Applies these options to the engine's sizes.
    pub(crate) fn tune(&self, tuning: &mut Tuning) {
        (tuning.placement, tuning.victims, tuning.hot_cold) = (self.placement, self.victims, self.hot_cold);
        tuning.reordering = self.reordering;
        tuning.value_compression = self.compression;
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
    use crate::base::FileId;
    use crate::format::values::Temperature;
    use crate::values::candidate::Candidate;
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

    #[test]
    fn the_largest_sizes_are_allowed_and_mean_one_group_and_no_limit() {
        let options = ValueOptions::new().group_bytes(u64::MAX).garbage(1000, u64::MAX);
        assert!(options.check().is_ok());
        let keys: Vec<[u8; 1]> = (0..64).map(|number| [number]).collect();
        let records: Vec<Survivor<'_>> =
            (0..64).map(|number| Survivor { order: number << 58, key: &keys[number as usize], bytes: 100 }).collect();
        for placement in [ValuePlacement::Hash, ValuePlacement::Range] {
            let mut tuning = Tuning::for_budget(64 << 20);
            options.placement(placement).tune(&mut tuning);
            let placement = tuning.placement();
            let context = |groups| PlacementContext { groups, ..PlacementContext::default() };
            let group = placement.groups(&records, &context(Default::default()))[0].0.clone();
            // Beside an existing group of the same keys, too.
            let groups = placement.groups(&records, &context([(group.clone(), 1 << 30)].into()));
            assert_eq!(groups, [(group.clone(), 64)]);
            let part = Some((group, Temperature::Hot));
            let mut candidates = vec![Candidate { file: FileId(1), bytes: 10_000, live: 9_000, part }];
            assert_eq!(placement.victims(&candidates), [FileId(1)]);
            candidates[0].live = 10_000;
            assert!(placement.victims(&candidates).is_empty());
        }
    }
}
