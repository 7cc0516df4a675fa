//! The directories of runs on two tiers: those of the command line, or new ones below `--dir`, the slow one on a throttled
//! device if this machine can have one. Whatever is created here is removed with the handle, or by an interruption.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cleavedb::limits::FAST_BYTES_MIN;

use crate::args::DeviceUp;
use crate::disk::Disks;
use crate::failure::{Failure, Result};
use crate::plan::Places;
use crate::scratch::{self, Home};
use crate::{device, size};

/// The limits of a device created here, in each direction.
#[derive(Debug, Clone, Copy)]
pub struct Throttle {
    /// Bytes per second.
    pub bandwidth: u64,
    /// Operations per second.
    pub iops: u64,
}

impl Throttle {
    /// A SATA SSD, as in the papers.
    pub const SATA: Throttle = Throttle { bandwidth: 400 << 20, iops: 20_000 };
}

/// Two directories with their limits.
pub struct Tiers {
    /// The options for runs.
    pub places: Places,
    /// How they differ from the paper's, in sentences for readers.
    pub notes: Vec<String>,
    /// The home of created directories.
    _home: Option<Home>,
}

impl Tiers {
    /// The tiers for `data` bytes, of which the fast one may hold `fast_percent` percent, unless `asked` says otherwise; a device
    /// for the slow one has the limits `throttle`.
    ///
    /// # Errors
    /// If a directory cannot be created.
    pub fn new(asked: &Places, data: u64, fast_percent: u64, throttle: Throttle) -> Result<Tiers> {
        scratch::prepare(asked)?;
        let mut notes = Vec::new();
        let (home, fast, slow) = match &asked.slow {
            Some(slow) => (None, asked.fast.clone().unwrap_or_else(|| scratch::main(asked)), slow.clone()),
            None => {
                let home = Home::new(&scratch::main(asked))?;
                let [fast, slow] = ["fast", "slow"].map(|name| home.path().join(name));
                fs::create_dir(&fast).map_err(Failure::because(format!("cannot create {}", fast.display())))?;
                notes.extend(create_slow(&slow, data, throttle)?);
                (Some(home), fast, slow)
            }
        };
        let is_throttled = device::cgroup_of(&slow)?.is_some();
        notes.push(match is_throttled {
            true => "slow tier: a throttled device, all engines with direct I/O".to_owned(),
            false => "slow tier: a plain directory, not throttled".to_owned(),
        });
        notes.extend(shared_note(&fast, &slow));
        let fast_bytes = asked.fast_bytes.unwrap_or_else(|| self::fast_bytes(data, fast_percent));
        let is_raised = asked.fast_bytes.is_none() && data / 100 * fast_percent < FAST_BYTES_MIN;
        notes.push(fast_note(fast_bytes, data, is_raised));
        let places = Places {
            fast: Some(fast),
            fast_bytes: Some(fast_bytes),
            slow: Some(slow),
            direct: asked.direct || is_throttled,
            ..asked.clone()
        };
        Ok(Tiers { places, notes, _home: home })
    }

    /// The options for runs entirely in the slow directory.
    pub fn slow_only(places: &Places) -> Places {
        Places { dir: places.slow.clone(), fast: None, fast_bytes: None, slow: None, ..places.clone() }
    }
}

/// Bytes of a fast tier of `percent` percent of the data: at least what CleaveDB needs.
pub fn fast_bytes(data: u64, percent: u64) -> u64 {
    (data / 100 * percent).max(FAST_BYTES_MIN)
}

/// Creates the slow directory, on a throttled device if possible. Returns why it is not on one.
fn create_slow(slow: &Path, data: u64, throttle: Throttle) -> Result<Option<String>> {
    let limits = DeviceUp {
        dir: slow.to_owned(),
        image: None,
        // Room for garbage and for compactions; the image takes space only as it is written.
        bytes: data.saturating_mul(8).saturating_add(1 << 30),
        read_bandwidth: Some(throttle.bandwidth),
        write_bandwidth: Some(throttle.bandwidth),
        read_iops: Some(throttle.iops),
        write_iops: Some(throttle.iops),
    };
    match device::create(&limits) {
        Ok(sentence) => Ok(Some(sentence.replace(&slow.display().to_string(), "the slow tier"))),
        Err(failure) => {
            fs::create_dir_all(slow).map_err(Failure::because(format!("cannot create {}", slow.display())))?;
            Ok(Some(format!("no throttled device: {failure}")))
        }
    }
}

/// The note if both tiers are on one device, or the image of one's loop device is on the device of the other.
fn shared_note(fast: &Path, slow: &Path) -> Option<String> {
    let number = |dir: &Path| fs::metadata(dir).map(|metadata| metadata.dev()).ok();
    if number(fast) == number(slow) {
        return Some("both tiers are on one device, so their utilisation is measured together".to_owned());
    }
    let disks = Disks::of([("fast", fast), ("slow", slow)].into_iter());
    let carrier = disks.iter().find(|disk| !disk.carries.is_empty())?;
    let (name, below, image) = (&carrier.name, carrier.directories.join("+"), carrier.carries.join("+"));
    Some(format!(
        "both tiers are on one device: {name} has the {below} tier and the image of the {image} tier, so the utilisation \
         of the {below} tier is not measured"
    ))
}

fn fast_note(fast_bytes: u64, data: u64, is_raised: bool) -> String {
    let percent = fast_bytes as f64 * 100.0 / data.max(1) as f64;
    let limit = size::human(fast_bytes);
    let reason = if is_raised { ", the least that CleaveDB accepts; of more data it is less" } else { "" };
    format!("fast tier: at most {limit}, {percent:.0}% of the data{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_directories_are_used_and_the_fast_one_holds_its_share() {
        let dir = tempfile::tempdir().unwrap();
        let [fast, slow] = ["fast", "slow"].map(|name| Some(dir.path().join(name)));
        let asked = Places { fast: fast.clone(), slow: slow.clone(), ..Places::default() };
        let tiers = Tiers::new(&asked, 10 << 30, 10, Throttle::SATA).unwrap();
        assert_eq!((&tiers.places.fast, &tiers.places.slow), (&fast, &slow));
        assert_eq!(tiers.places.fast_bytes, Some((10 << 30) / 100 * 10));
        assert!(tiers.notes.iter().any(|note| note.contains("not throttled")), "{:?}", tiers.notes);
        assert!(tiers.notes.iter().any(|note| note.contains("one device")), "{:?}", tiers.notes);
        assert_eq!(Tiers::slow_only(&tiers.places).dir, slow);
        let small = Tiers::new(&asked, 10 << 20, 10, Throttle::SATA).unwrap();
        assert_eq!(small.places.fast_bytes, Some(FAST_BYTES_MIN));
        assert!(small.notes.iter().any(|note| note.contains("the least that CleaveDB accepts")), "{:?}", small.notes);
        let own = Tiers::new(&Places { fast_bytes: Some(1 << 30), ..asked }, 10 << 20, 10, Throttle::SATA).unwrap();
        assert_eq!(own.places.fast_bytes, Some(1 << 30));
    }
}
