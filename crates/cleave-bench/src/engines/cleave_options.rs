//! CleaveDB's own options on the command line, `--cleave KEY=VALUE,..`: one table behind parsing, errors and settings.

use std::fmt;
use std::str::FromStr;

use cleavedb::limits::{GARBAGE_BYTES_DEFAULT, GARBAGE_PERCENT_DEFAULT};
use cleavedb::{Compression, LogBackend, Options, ValueOptions, ValuePlacement, VictimPolicy};
use serde::{Deserialize, Serialize};

use crate::size;
use crate::storage::Incomplete;

/// One option: its key, the values it takes in words, and how it is set.
struct Known {
    key: &'static str,
    values: &'static str,
    set: fn(Chosen, &str) -> Option<Chosen>,
}

/// What has been chosen so far.
struct Chosen {
    options: Options,
    values: ValueOptions,
    /// Garbage that may lie among values, in hundredths of what is live.
    spare_percent: Option<u32>,
    /// The same in bytes.
    spare_bytes: Option<u64>,
    /// What it lies on is synced.
    syncs: bool,
}

impl Chosen {
    fn of(options: Options) -> Chosen {
        Chosen { options, values: ValueOptions::new(), spare_percent: None, spare_bytes: None, syncs: true }
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

/// All of them. A new option of the engine is a new row.
const KNOWN: [Known; 18] = [
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
        values: "those of compression with + between, level 0 first",
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
        values: "hash, range, log, or log-look-ups (each record looked up by itself)",
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
            let apart = on_or_off(value)?;
            chosen.values(|values| values.hot_cold(apart))
        },
    },
    Known {
        key: "find-in-tables",
        values: "on (where that is cheaper than to read files) or off",
        set: |chosen, value| {
            let where_cheaper = on_or_off(value)?;
            chosen.values(|values| values.find_in_tables(where_cheaper))
        },
    },
    Known {
        key: "value-compression",
        values: "as for compression: of values that are moved",
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
        values: "hundredths of what is live, 1 to 1000",
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
        key: "wait-awake",
        values: "on, or off: a thread that waits for a short read sleeps",
        set: |chosen, value| {
            let awake = on_or_off(value)?;
            chosen.options(|options| options.busy_poll(awake))
        },
    },
    Known {
        key: "syncs",
        values: "on, or off: nothing then survives loss of power, to measure what that costs",
        set: |chosen, value| Some(Chosen { syncs: on_or_off(value)?, ..chosen }),
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

/// Options as the user wrote them; all are known, and have values of the right kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CleaveOptions(String);

impl CleaveOptions {
    /// Sets them; and the storage to open on, if it is not the usual one.
    pub fn apply(&self, options: Options) -> (Options, Option<Incomplete>) {
        set_all(&self.0, options).expect("the options were checked when they were parsed")
    }
}

fn set_all(text: &str, options: Options) -> Result<(Options, Option<Incomplete>), String> {
    let chosen = text.split(',').try_fold(Chosen::of(options), |chosen, part| {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        let known = KNOWN.iter().find(|known| known.key == key).ok_or_else(|| {
            let keys = KNOWN.map(|known| known.key).join(", ");
            format!("CleaveDB has no option {key:?}; it has {keys}")
        })?;
        (known.set)(chosen, value).ok_or_else(|| format!("{key} is {}, and not {value:?}", known.values))
    })?;
    Ok(chosen.done())
}

impl CleaveOptions {
    /// Whether they switch syncs off.
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
                   separation=192,placement=log-look-ups,victims=random:3,hot-cold=off,group-size=1M,find-in-tables=off,\
                   value-compression=lz4,spare=20,spare-bytes=0,open-files=64,background-threads=1,wait-awake=off,syncs=off";
        assert_eq!(all.parse::<CleaveOptions>().unwrap().to_string(), all);
        assert_eq!(all.split(',').count(), KNOWN.len());
        assert!(
            ["hash", "range", "log"].iter().all(|name| format!("placement={name}").parse::<CleaveOptions>().is_ok())
        );
        assert!(
            ["spare=0", "hot-cold=yes", "victims=random", "value-compression=on"]
                .iter()
                .all(|text| text.parse::<CleaveOptions>().is_err())
        );
        let error = |text: &str| text.parse::<CleaveOptions>().unwrap_err();
        let names_all = error("speed=high");
        assert!(KNOWN.iter().all(|known| names_all.contains(known.key)), "{names_all}");
        assert_eq!(error("log-backend=fast"), "log-backend is auto, ring or plain, and not \"fast\"");
        assert!(error("compression-by-level=none+fast").starts_with("compression-by-level is those of compression"));
        assert_eq!(error("filter-bits"), "\"filter-bits\" is not KEY=VALUE");
    }
}
