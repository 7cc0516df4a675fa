//! A rate relative to the peak of an engine: how many operations it completes in a closed loop, which `suite.rs` measures in
//! the same run before the open loop.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::engine::OURS;

/// The engine whose peak is the usual one.
pub const ROCKSDB: &str = "rocksdb";
/// The field in the settings of an outcome that has the peak of its rate.
pub const PEAK: &str = "peak";

/// A share of an engine's peak, on the command line `PERCENT%:ENGINE`.
#[derive(Debug, Clone, PartialEq)]
pub struct PeakShare {
    /// The percentage.
    pub percent: f64,
    /// The engine's name.
    pub engine: String,
}

/// The measured peak that a rate is a share of. The names of the fields are a stable public format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// The engine.
    pub engine: String,
    /// Its operations per second in a closed loop.
    pub ops_per_s: f64,
    /// The rate in percent of them.
    pub percent: f64,
}

impl PeakShare {
    /// `percent` of the peak of RocksDB, or of CleaveDB in runs without RocksDB.
    pub fn of_rocksdb(percent: f64, engines: &[String]) -> PeakShare {
        let has_it = engines.iter().any(|engine| engine == ROCKSDB);
        PeakShare { percent, engine: if has_it { ROCKSDB } else { OURS }.to_owned() }
    }

    /// This share of `ops_per_s`.
    pub fn of(&self, ops_per_s: f64) -> Peak {
        Peak { engine: self.engine.clone(), ops_per_s, percent: self.percent }
    }
}

impl Peak {
    /// Operations per second, a whole number.
    pub fn rate(&self) -> f64 {
        (self.ops_per_s * self.percent / 100.0).round().max(1.0)
    }

    /// The rate in words.
    pub fn words(&self) -> String {
        let Peak { engine, ops_per_s, percent } = self;
        format!("{} operations/s, {percent}% of the peak of {engine} ({ops_per_s:.0} in a closed loop)", self.rate())
    }
}

impl FromStr for PeakShare {
    type Err = String;

    fn from_str(text: &str) -> Result<PeakShare, String> {
        let parse = || {
            let (percent, engine) = text.split_once("%:")?;
            let percent = percent.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent > 0.0)?;
            (!engine.is_empty()).then(|| PeakShare { percent, engine: engine.to_owned() })
        };
        parse().ok_or_else(|| format!("{text:?} is not PERCENT%:ENGINE, for example 70%:rocksdb"))
    }
}

impl fmt::Display for PeakShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%:{}", self.percent, self.engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_of_the_peak_of_an_engine() {
        let share: PeakShare = "70%:rocksdb".parse().unwrap();
        assert_eq!((share.percent, &*share.engine, share.to_string()), (70.0, "rocksdb", "70%:rocksdb".to_owned()));
        let peak = share.of(75_001.0);
        assert_eq!(peak.rate(), 52_501.0);
        assert_eq!(peak.words(), "52501 operations/s, 70% of the peak of rocksdb (75001 in a closed loop)");
        assert_eq!(share.of(0.1).rate(), 1.0);
        for text in ["70", "70%", "70%:", "%:rocksdb", "-1%:rocksdb", "0%:rocksdb", "rocksdb:70%", "inf%:rocksdb"] {
            assert!(text.parse::<PeakShare>().is_err(), "{text}");
        }
    }
}
