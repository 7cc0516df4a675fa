//! CleaveDB's own options on the command line, `--cleave KEY=VALUE,..`: one table behind parsing, errors and settings.

use std::fmt;
use std::str::FromStr;

use cleavedb::{Compression, LogBackend, Options};
use serde::{Deserialize, Serialize};

use crate::size;

/// One option: its key, the values it takes in words, and how it is set.
struct Known {
    key: &'static str,
    values: &'static str,
    set: fn(Options, &str) -> Option<Options>,
}

/// All of them. A new option of the engine is a new row.
const KNOWN: [Known; 7] = [
    Known {
        key: "log-backend",
        values: "auto, ring or plain",
        set: |options, value| {
            let backend = match value {
                "auto" => LogBackend::Auto,
                "ring" => LogBackend::Ring,
                "plain" => LogBackend::Plain,
                _ => return None,
            };
            Some(options.log_backend(backend))
        },
    },
    Known {
        key: "compression",
        values: "none, lz4 or zstd (with the cargo feature zstd)",
        set: |options, value| Some(options.compression(compression(value)?)),
    },
    Known {
        key: "compression-by-level",
        values: "those of compression with + between, level 0 first",
        set: |options, value| {
            let levels: Option<Vec<Compression>> = value.split('+').map(compression).collect();
            Some(options.compression_by_level(&levels?))
        },
    },
    Known {
        key: "block-size",
        values: "bytes",
        set: |options, value| Some(options.block_size(size::parse(value).ok()?.try_into().ok()?)),
    },
    Known {
        key: "filter-bits",
        values: "a number",
        set: |options, value| Some(options.filter_bits(value.parse().ok()?)),
    },
    Known {
        key: "separation",
        values: "bytes or never",
        set: |options, value| match value {
            "never" => Some(options.separation(None)),
            bytes => Some(options.separation(Some(size::parse(bytes).ok()?.try_into().ok()?))),
        },
    },
    Known {
        key: "open-files",
        values: "a number",
        set: |options, value| Some(options.open_files_max(value.parse().ok()?)),
    },
];

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
    /// Sets them.
    pub fn apply(&self, options: Options) -> Options {
        set_all(&self.0, options).expect("the options were checked when they were parsed")
    }
}

fn set_all(text: &str, options: Options) -> Result<Options, String> {
    text.split(',').try_fold(options, |options, part| {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        let known = KNOWN.iter().find(|known| known.key == key).ok_or_else(|| {
            let keys = KNOWN.map(|known| known.key).join(", ");
            format!("CleaveDB has no option {key:?}; it has {keys}")
        })?;
        (known.set)(options, value).ok_or_else(|| format!("{key} is {}, and not {value:?}", known.values))
    })
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
                   separation=192,open-files=64";
        assert_eq!(all.parse::<CleaveOptions>().unwrap().to_string(), all);
        assert_eq!(all.split(',').count(), KNOWN.len());
        let error = |text: &str| text.parse::<CleaveOptions>().unwrap_err();
        let names_all = error("speed=high");
        assert!(KNOWN.iter().all(|known| names_all.contains(known.key)), "{names_all}");
        assert_eq!(error("log-backend=fast"), "log-backend is auto, ring or plain, and not \"fast\"");
        assert!(error("compression-by-level=none+fast").starts_with("compression-by-level is those of compression"));
        assert_eq!(error("filter-bits"), "\"filter-bits\" is not KEY=VALUE");
    }
}
