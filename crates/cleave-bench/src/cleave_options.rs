//! CleaveDB's own options on the command line, `--cleave KEY=VALUE,..`: one table behind parsing, error messages and
//! settings. Part of a run's plan; `engines/cleave.rs` applies them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use cleavedb::limits::{GARBAGE_BYTES_DEFAULT, GARBAGE_PERCENT_DEFAULT};
use cleavedb::{
    BucketSplits, Bypass, Compression, DeltaPlacement, KeyspaceOptions, KvDevice, KvDeviceName, LogBackend, Options,
    Rollback, Scheduling, SsdParameters, ValueOptions, ValuePlacement, ValueReordering, VictimPolicy,
};
use serde::{Deserialize, Serialize};

use crate::size;
use crate::storage::Incomplete;

/// One option: its key, a description of its values, and how to set it.
struct Known {
    key: &'static str,
    values: &'static str,
    set: fn(Chosen, &str) -> Option<Chosen>,
}

/// The options chosen so far.
struct Chosen {
    options: Options,
    values: ValueOptions,
    /// The garbage limit in percent of live values.
    spare_percent: Option<u32>,
    /// The garbage limit in bytes.
    spare_bytes: Option<u64>,
    /// Whether files are synced.
    syncs: bool,
    deltas: DeltaPlacement,
    is_hash: bool,
    /// The KV device, and what it is like if it is emulated.
    device: Option<KvDeviceName>,
    parameters: SsdParameters,
}

impl Chosen {
    fn of(options: Options) -> Chosen {
        Chosen {
            options,
            values: ValueOptions::new(),
            spare_percent: None,
            spare_bytes: None,
            syncs: true,
            deltas: DeltaPlacement::Levels,
            is_hash: false,
            device: None,
            parameters: SsdParameters::modern(),
        }
    }

    fn options(self, set: impl FnOnce(Options) -> Options) -> Option<Chosen> {
        Some(Chosen { options: set(self.options), ..self })
    }

    fn values(self, set: impl FnOnce(ValueOptions) -> ValueOptions) -> Option<Chosen> {
        Some(Chosen { values: set(self.values), ..self })
    }

    fn done(self) -> (Options, Option<Incomplete>) {
        let (percent, bytes) = (self.spare_percent, self.spare_bytes);
        let values = match percent.is_some() || bytes.is_some() {
            true => {
                self.values.garbage(percent.unwrap_or(GARBAGE_PERCENT_DEFAULT), bytes.unwrap_or(GARBAGE_BYTES_DEFAULT))
            }
            false => self.values,
        };
        (self.options.values(values), (!self.syncs).then_some(Incomplete { syncs: false, sparse: false }))
    }
}

/// All options. A new option of the engine is a new row.
const KNOWN: [Known; 27] = [
    Known {
        key: "log-backend",
        values: "auto, ring or plain",
        set: |chosen, value| {
            let backend = match value {
                "auto" => LogBackend::Auto,
                "ring" => LogBackend::Ring,
                "plain" => LogBackend::Plain,
                _ => return None,
            };
            chosen.options(|options| options.log_backend(backend))
        },
    },
    Known {
        key: "compression",
        values: "none, lz4 or zstd (with the cargo feature zstd)",
        set: |chosen, value| {
            let compression = compression(value)?;
            chosen.options(|options| options.compression(compression))
        },
    },
    Known {
        key: "compression-by-level",
        values: "values of compression joined with +, level 0 first",
        set: |chosen, value| {
            let levels: Vec<Compression> = value.split('+').map(compression).collect::<Option<_>>()?;
            chosen.options(|options| options.compression_by_level(&levels))
        },
    },
    Known {
        key: "block-size",
        values: "bytes",
        set: |chosen, value| {
            let bytes = size::parse(value).ok()?.try_into().ok()?;
            chosen.options(|options| options.block_size(bytes))
        },
    },
    Known {
        key: "filter-bits",
        values: "a number",
        set: |chosen, value| {
            let bits = value.parse().ok()?;
            chosen.options(|options| options.filter_bits(bits))
        },
    },
    Known {
        key: "separation",
        values: "bytes or never",
        set: |chosen, value| {
            let bytes = match value {
                "never" => None,
                bytes => Some(size::parse(bytes).ok()?.try_into().ok()?),
            };
            chosen.options(|options| options.separation(bytes))
        },
    },
    Known {
        key: "placement",
        values: "hash, range, log, or log-look-ups (one look-up per record)",
        set: |chosen, value| {
            let placement = match value {
                "hash" => ValuePlacement::Hash,
                "range" => ValuePlacement::Range,
                "log" => ValuePlacement::Log { look_up_each: false },
                "log-look-ups" => ValuePlacement::Log { look_up_each: true },
                _ => return None,
            };
            chosen.values(|values| values.placement(placement))
        },
    },
    Known {
        key: "reordering",
        values: "scanned, idle or never",
        set: |chosen, value| {
            let reordering = match value {
                "scanned" => ValueReordering::WhenScanned,
                "idle" => ValueReordering::WhenIdle,
                "never" => ValueReordering::Never,
                _ => return None,
            };
            chosen.values(|values| values.reordering(reordering))
        },
    },
    Known {
        key: "victims",
        values: "greedy, cost-benefit or random:N",
        set: |chosen, value| {
            let policy = match value {
                "greedy" => VictimPolicy::Greedy,
                "cost-benefit" => VictimPolicy::CostBenefit,
                random => VictimPolicy::GreedyRandom(random.strip_prefix("random:")?.parse().ok()?),
            };
            chosen.values(|values| values.victims(policy))
        },
    },
    Known {
        key: "hot-cold",
        values: "on or off",
        set: |chosen, value| {
            let separated = on_or_off(value)?;
            chosen.values(|values| values.hot_cold(separated))
        },
    },
    Known {
        key: "value-compression",
        values: "values of compression, for moved values",
        set: |chosen, value| {
            let compression = compression(value)?;
            chosen.values(|values| values.compression(compression))
        },
    },
    Known {
        key: "group-size",
        values: "bytes",
        set: |chosen, value| {
            let bytes = size::parse(value).ok()?;
            chosen.values(|values| values.group_bytes(bytes))
        },
    },
    Known {
        key: "spare",
        values: "a percentage of live values, 1 to 1000",
        set: |chosen, value| {
            let percent = value.parse().ok().filter(|percent| (1..=1000).contains(percent))?;
            Some(Chosen { spare_percent: Some(percent), ..chosen })
        },
    },
    Known {
        key: "spare-bytes",
        values: "bytes",
        set: |chosen, value| Some(Chosen { spare_bytes: Some(size::parse(value).ok()?), ..chosen }),
    },
    Known {
        key: "open-files",
        values: "a number",
        set: |chosen, value| {
            let files = value.parse().ok()?;
            chosen.options(|options| options.open_files_max(files))
        },
    },
    Known {
        key: "background-threads",
        values: "a number",
        set: |chosen, value| {
            let threads = value.parse().ok()?;
            chosen.options(|options| options.background_threads(threads))
        },
    },
    Known {
        key: "busy-poll",
        values: "on (short reads are busy-polled) or off",
        set: |chosen, value| {
            let busy_poll = on_or_off(value)?;
            chosen.options(|options| options.busy_poll(busy_poll))
        },
    },
    Known {
        key: "syncs",
        values: "on, or off (no write survives power loss; for measuring the cost of syncs)",
        set: |chosen, value| Some(Chosen { syncs: on_or_off(value)?, ..chosen }),
    },
    Known {
        key: "scheduling",
        values: "auto, auto-fixed-levels, adoc, static, or static:RUNS:BYTES (runs of a merge, bytes of a flush)",
        set: |chosen, value| {
            let scheduling = match value {
                "auto" => Scheduling::Auto,
                "auto-fixed-levels" => Scheduling::AutoFixedLevels,
                "adoc" => Scheduling::Adoc,
                "static" => Scheduling::Static { merge_runs: None, flush_bytes: None },
                chosen => {
                    let (runs, bytes) = chosen.strip_prefix("static:")?.split_once(':')?;
                    let (merge_runs, flush_bytes) = (Some(runs.parse().ok()?), Some(size::parse(bytes).ok()?));
                    Scheduling::Static { merge_runs, flush_bytes }
                }
            };
            chosen.options(|options| options.scheduling(scheduling))
        },
    },
    Known {
        key: "bypass",
        values: "off, spill, device:DEVICE or device-lazy:DEVICE (a KV device: DIR in the directory of the database for an emulated one, or \
                 nvme:/dev/ngXnY[:BYTES], untested on hardware)",
        set: |chosen, value| {
            let on_device = |rollback, name: &str, chosen: Chosen| {
                let device = Some(name).filter(|name| !name.is_empty() && *name != "nvme:")?;
                let chosen = Chosen { device: Some(device.into()), ..chosen };
                chosen.options(|options| options.bypass(Bypass::Device(rollback)))
            };
            match value.split_once(':') {
                None if value == "off" => chosen.options(|options| options.bypass(Bypass::Off)),
                None if value == "spill" => chosen.options(|options| options.bypass(Bypass::Spill)),
                Some(("device", name)) => on_device(Rollback::Eager, name, chosen),
                Some(("device-lazy", name)) => on_device(Rollback::Lazy, name, chosen),
                _ => None,
            }
        },
    },
    Known {
        key: "kv-device",
        values: "modern, cosmos-plus or unthrottled",
        set: |chosen, value| {
            let parameters = match value {
                "modern" => SsdParameters::modern(),
                "cosmos-plus" => SsdParameters::cosmos_plus(),
                "unthrottled" => SsdParameters::unthrottled(),
                _ => return None,
            };
            Some(Chosen { parameters, ..chosen })
        },
    },
    Known {
        key: "background-io",
        values: "bytes per second",
        set: |chosen, value| {
            let limit = size::parse(value).ok()?;
            chosen.options(|options| options.background_io_limit(Some(limit)))
        },
    },
    Known {
        key: "deltas",
        values: "levels or buckets",
        set: |chosen, value| {
            let deltas = match value {
                "levels" => DeltaPlacement::Levels,
                "buckets" => DeltaPlacement::Buckets,
                _ => return None,
            };
            Some(Chosen { deltas, ..chosen })
        },
    },
    Known {
        key: "bucket-split",
        values: "a percentage of the size of a bucket, 10 to 100, or never",
        set: |chosen, value| {
            let splits = match value {
                "never" => BucketSplits::Never,
                percent => BucketSplits::Above(percent.parse().ok().filter(|percent| (10..=100).contains(percent))?),
            };
            chosen.options(|options| options.bucket_splits(splits))
        },
    },
    Known {
        key: "operand-cache",
        values: "a percentage of the memory, 0 to 50",
        set: |chosen, value| {
            let percent = value.parse().ok().filter(|percent| (0..=50).contains(percent))?;
            chosen.options(|options| options.operand_cache_percent(percent))
        },
    },
    Known {
        key: "memory",
        values: "bytes, for CleaveDB alone",
        set: |chosen, value| {
            let bytes = size::parse(value).ok()?.try_into().ok()?;
            chosen.options(|options| options.memory_budget(bytes))
        },
    },
    Known {
        key: "keyspace",
        values: "ordered or hash",
        set: |chosen, value| {
            let is_hash = match value {
                "ordered" => false,
                "hash" => true,
                _ => return None,
            };
            Some(Chosen { is_hash, ..chosen })
        },
    },
];

fn on_or_off(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn compression(name: &str) -> Option<Compression> {
    match name {
        "none" => Some(Compression::None),
        "lz4" => Some(Compression::Lz4),
        "zstd" => Some(Compression::Zstd),
        _ => None,
    }
}

/// Options as the user wrote them; all keys are known and all values valid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CleaveOptions(String);

impl CleaveOptions {
    /// Sets them. Also returns the storage to open on, if it is not the usual one.
    pub fn apply(&self, options: Options) -> (Options, Option<Incomplete>) {
        set_all(&self.0, options).expect("the options were checked when they were parsed")
    }
}

fn set_all(text: &str, options: Options) -> Result<(Options, Option<Incomplete>), String> {
    chosen_of(text, options).map(Chosen::done)
}

fn chosen_of(text: &str, options: Options) -> Result<Chosen, String> {
    text.split(',').try_fold(Chosen::of(options), |chosen, part| {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        let known = KNOWN.iter().find(|known| known.key == key).ok_or_else(|| {
            let keys = KNOWN.map(|known| known.key).join(", ");
            format!("CleaveDB has no option {key:?}; it has {keys}")
        })?;
        (known.set)(chosen, value).ok_or_else(|| format!("{key} is {}, not {value:?}", known.values))
    })
}

impl CleaveOptions {
    /// The keyspace of the benchmark.
    pub fn keyspace(&self) -> KeyspaceOptions {
        let chosen = chosen_of(&self.0, Options::new()).expect("the options were checked when they were parsed");
        match chosen.is_hash {
            true => KeyspaceOptions::hash(),
            false => KeyspaceOptions::new().deltas(chosen.deltas),
        }
    }

    /// The KV device, for a database in a directory.
    pub fn device(&self, of: &Path) -> cleavedb::Result<Option<Arc<dyn KvDevice>>> {
        let chosen = chosen_of(&self.0, Options::new()).expect("the options were checked when they were parsed");
        let name = match chosen.device {
            Some(KvDeviceName::Emulated(dir)) => KvDeviceName::Emulated(of.join(dir)),
            Some(other) => other,
            None => return Ok(None),
        };
        name.open(chosen.parameters).map(Some)
    }

    /// Whether they disable syncs.
    pub fn without_syncs(&self) -> bool {
        self.apply(Options::new()).1.is_some()
    }
}

impl FromStr for CleaveOptions {
    type Err = String;

    fn from_str(text: &str) -> Result<CleaveOptions, String> {
        set_all(text, Options::new()).map(|_| CleaveOptions(text.to_owned()))
    }
}

impl TryFrom<String> for CleaveOptions {
    type Error = String;

    fn try_from(text: String) -> Result<CleaveOptions, String> {
        text.parse()
    }
}

impl From<CleaveOptions> for String {
    fn from(options: CleaveOptions) -> String {
        options.0
    }
}

impl fmt::Display for CleaveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_known_and_others_are_refused_by_name() {
        let all = "log-backend=plain,compression=none,compression-by-level=none+lz4+zstd,block-size=16K,filter-bits=0,\
                   separation=192,placement=log-look-ups,reordering=never,victims=random:3,hot-cold=off,group-size=1M,\
                   value-compression=lz4,spare=20,spare-bytes=0,open-files=64,background-threads=1,busy-poll=off,syncs=off,\
                    scheduling=static:4:16M,bypass=spill,kv-device=cosmos-plus,background-io=100M,deltas=buckets,bucket-split=60,\
                    operand-cache=12,memory=64M,keyspace=hash";
        assert_eq!(all.parse::<CleaveOptions>().unwrap().to_string(), all);
        assert_eq!(all.split(',').count(), KNOWN.len());
        let policies = ["auto", "auto-fixed-levels", "adoc", "static"];
        assert!(policies.iter().all(|name| format!("scheduling={name}").parse::<CleaveOptions>().is_ok()));
        assert!(
            ["hash", "range", "log"].iter().all(|name| format!("placement={name}").parse::<CleaveOptions>().is_ok())
        );
        let bypasses =
            ["off", "device:kv", "device-lazy:/kv", "device:nvme:/dev/ng0n1", "device-lazy:nvme:/dev/ng0n1:1"];
        assert!(bypasses.iter().all(|name| format!("bypass={name}").parse::<CleaveOptions>().is_ok()));
        assert!("bucket-split=never".parse::<CleaveOptions>().is_ok());
        assert!(["scanned", "idle"].iter().all(|when| format!("reordering={when}").parse::<CleaveOptions>().is_ok()));
        assert!(
            [
                "scheduling=static:4",
                "bypass=device",
                "bypass=device:",
                "bypass=device:nvme:",
                "spare=0",
                "bucket-split=9",
                "operand-cache=51",
                "hot-cold=yes",
                "victims=random",
                "value-compression=on"
            ]
            .iter()
            .all(|text| text.parse::<CleaveOptions>().is_err())
        );
        let error = |text: &str| text.parse::<CleaveOptions>().unwrap_err();
        let names_all = error("speed=high");
        assert!(KNOWN.iter().all(|known| names_all.contains(known.key)), "{names_all}");
        assert_eq!(error("log-backend=fast"), "log-backend is auto, ring or plain, not \"fast\"");
        assert!(error("compression-by-level=none+fast").starts_with("compression-by-level is values of compression"));
        assert_eq!(error("filter-bits"), "\"filter-bits\" is not KEY=VALUE");
    }
}
