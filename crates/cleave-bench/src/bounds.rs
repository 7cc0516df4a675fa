//! What holds all engines of a run to the same device and the same memory. The throttle of a device limits direct I/O only, so
//! engines with files on one use it, and engines without it are refused. The page cache counts in a memory cgroup, which runs
//! on two tiers or on a throttled device get by default. `suite.rs` applies this to each run.

use crate::cgroup::MemoryCgroup;
use crate::failure::{Failure, Result};
use crate::plan::Places;
use crate::{device, engines, scratch};

/// The default cgroup has this many times the memory budget of the engine,
const CGROUP_PER_MEMORY: u64 = 4;
/// but at least this.
const CGROUP_MIN: u64 = 256 << 20;

/// `asked` for `engines` with a budget of `memory`: with direct I/O and a memory cgroup where they are needed.
///
/// # Errors
/// If an engine has no direct I/O and its files would be on a throttled device.
pub fn bounded(asked: &Places, memory: u64, engines: &[String]) -> Result<Places> {
    let is_throttled = is_throttled(asked)?;
    if let Some(engine) = engines.iter().find(|engine| is_throttled && !has_direct_io(engine)) {
        return Err(Failure::new(format!(
            "engine {engine} has no direct I/O, so the limits of a throttled device would not apply to it; leave it out with \
             --engine, or use plain directories"
        )));
    }
    let needs_cgroup = is_throttled || asked.slow.is_some();
    let default = || (needs_cgroup && MemoryCgroup::is_possible()).then(|| default_cgroup(memory));
    let cgroup_memory = asked.cgroup_memory.or_else(default);
    Ok(Places { direct: asked.direct || is_throttled, cgroup_memory, ..asked.clone() })
}

/// Whether a directory of `places` is on a throttled device.
///
/// # Errors
/// If the state file of a device cannot be read.
pub fn is_throttled(places: &Places) -> Result<bool> {
    let dirs = [Some(scratch::main(places)), places.fast.clone(), places.slow.clone()];
    dirs.into_iter().flatten().try_fold(false, |is, dir| Ok(is || device::cgroup_of(&dir)?.is_some()))
}

/// Whether the engine called `name` supports direct I/O; an unknown one is not refused here.
pub fn has_direct_io(name: &str) -> bool {
    engines::find(name).map_or(true, |kind| kind.direct_io)
}

fn default_cgroup(memory: u64) -> u64 {
    memory.saturating_mul(CGROUP_PER_MEMORY).max(CGROUP_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::OURS;

    #[test]
    fn two_tiers_have_a_memory_cgroup_and_one_directory_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let one = Places { dir: Some(dir.path().to_owned()), ..Places::default() };
        let engines = [OURS.to_owned()];
        let places = bounded(&one, 256 << 20, &engines).unwrap();
        assert_eq!((places.direct, places.cgroup_memory), (false, None));
        let two = Places { slow: Some(dir.path().join("slow")), ..one };
        let possible = MemoryCgroup::is_possible();
        assert_eq!(bounded(&two, 256 << 20, &engines).unwrap().cgroup_memory, possible.then_some(1 << 30));
        assert_eq!(bounded(&two, 16 << 20, &engines).unwrap().cgroup_memory, possible.then_some(CGROUP_MIN));
        let own = Places { cgroup_memory: Some(1 << 29), ..two };
        assert_eq!(bounded(&own, 256 << 20, &engines).unwrap().cgroup_memory, Some(1 << 29));
    }

    #[test]
    fn engines_on_a_throttled_device_use_direct_io_or_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        device::pretend(&dir.path().join("slow")).unwrap();
        let slow = Places {
            dir: Some(dir.path().to_owned()),
            slow: Some(dir.path().join("slow/stores")),
            ..Places::default()
        };
        for kind in engines::all() {
            match bounded(&slow, 16 << 20, &[kind.name.to_owned()]) {
                Ok(places) => assert!(kind.direct_io && places.direct),
                Err(failure) => assert!(!kind.direct_io && failure.to_string().contains("has no direct I/O")),
            }
        }
    }
}
