//! Sizes in bytes, as users write them, and distributions of the lengths of keys and values, as workloads draw them.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use rand_distr::{Distribution as _, StandardNormal};
use serde::{Deserialize, Serialize};

use crate::distribution::{ZIPFIAN_EXPONENT, Zipf};
use crate::rng::stream;

/// The shortest key of distributions that do not give one: its eight bytes make the keys of any records distinct.
pub const KEY_BYTES_MIN: usize = 8;
/// The shortest key that can be requested; the number of records is then limited.
pub const KEY_BYTES_SHORTEST: usize = 4;

/// Parses a number of bytes: digits, optionally followed by K, M, G or T (powers of 1024).
///
/// # Errors
/// A sentence for the user.
pub fn parse(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim_end_matches(['B', 'b']).trim_end_matches('i') {
        text if text.ends_with(['k', 'K']) => (&text[..text.len() - 1], 10),
        text if text.ends_with(['m', 'M']) => (&text[..text.len() - 1], 20),
        text if text.ends_with(['g', 'G']) => (&text[..text.len() - 1], 30),
        text if text.ends_with(['t', 'T']) => (&text[..text.len() - 1], 40),
        text => (text, 0),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("{text:?} is not a size; write for example 4096, 64K or 1G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

/// Formats `bytes` for users.
pub fn human(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// A distribution of lengths; on the command line `N`, `LOW-HIGH`, `normal:MEAN:DEVIATION[:MIN]`, `zipfian:LOW-HIGH`,
/// `log-uniform:LOW-HIGH` or `N*WEIGHT+N*WEIGHT`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Lengths {
    /// One length.
    Fixed(usize),
    /// From `low` to `high`, all equally likely.
    Uniform {
        /// The shortest.
        low: usize,
        /// The longest.
        high: usize,
    },
    /// Normally distributed, truncated at `min` and symmetrically above the mean.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
        /// The shortest.
        min: usize,
    },
    /// From `low` to `high`, shorter ones more likely: zipfian with exponent 0.99.
    Zipfian {
        /// The shortest.
        low: usize,
        /// The longest.
        high: usize,
    },
    /// From `low` to `high`, with logarithms that are all equally likely: as many from 8 to 16 as from 16 to 32.
    LogUniform {
        /// The shortest, 1 or more.
        low: usize,
        /// The longest.
        high: usize,
    },
    /// One of two lengths, each with its weight.
    Two([(usize, u32); 2]),
}

impl Lengths {
    /// The length for `identity`, which is always the same.
    pub fn of(&self, identity: u64) -> usize {
        let mut rng = stream(identity, 0x1E);
        match *self {
            Lengths::Fixed(length) => length,
            Lengths::Uniform { low, high } => rng.random_range(low as u64..=high as u64) as usize,
            Lengths::Normal { mean, deviation, min } => {
                let normal: f64 = StandardNormal.sample(&mut rng);
                let length = (mean + deviation * normal).round();
                (length.max(min as f64) as usize).min(self.longest())
            }
            Lengths::Zipfian { low, high } => low + zipf(low, high).rank(&mut rng) as usize,
            Lengths::LogUniform { low, high } => {
                let fraction: f64 = rng.random();
                let ratio = (high + 1) as f64 / low as f64;
                ((low as f64 * ratio.powf(fraction)) as usize).clamp(low, high)
            }
            Lengths::Two(lengths) => {
                let [first, second] = lengths.map(|(_, weight)| u64::from(weight));
                lengths[usize::from(rng.random_range(0..first + second) >= first)].0
            }
        }
    }

    /// The mean, rounded.
    pub fn mean(&self) -> usize {
        match *self {
            Lengths::Fixed(length) => length,
            Lengths::Uniform { low, high } => (low + high).div_ceil(2),
            Lengths::Normal { mean, .. } => mean.round() as usize,
            Lengths::Zipfian { low, high } => low + zipf(low, high).mean().round() as usize,
            Lengths::LogUniform { low, high } => {
                let weighted = |length: usize| length as f64 * (1.0 / length as f64).ln_1p();
                let weights = ((high + 1) as f64 / low as f64).ln();
                ((low..=high).map(weighted).sum::<f64>() / weights).round() as usize
            }
            Lengths::Two(lengths) => {
                let weighted = |(length, weight): (usize, u32)| length as f64 * f64::from(weight);
                let weights: f64 = lengths.iter().map(|(_, weight)| f64::from(*weight)).sum();
                (lengths.into_iter().map(weighted).sum::<f64>() / weights).round() as usize
            }
        }
    }

    /// The shortest possible length.
    pub fn shortest(&self) -> usize {
        match *self {
            Lengths::Fixed(length) => length,
            Lengths::Uniform { low, .. } | Lengths::Zipfian { low, .. } | Lengths::LogUniform { low, .. } => low,
            Lengths::Normal { min, .. } => min,
            Lengths::Two([(one, _), (other, _)]) => one.min(other),
        }
    }

    /// The longest possible length.
    pub fn longest(&self) -> usize {
        match *self {
            Lengths::Fixed(length) => length,
            Lengths::Uniform { high, .. } | Lengths::Zipfian { high, .. } | Lengths::LogUniform { high, .. } => high,
            Lengths::Normal { mean, min, .. } => (2.0 * mean) as usize - min,
            Lengths::Two([(one, _), (other, _)]) => one.max(other),
        }
    }
}

fn zipf(low: usize, high: usize) -> Zipf {
    Zipf::new((high - low + 1) as u64, ZIPFIAN_EXPONENT)
}

/// Parses lengths of keys: unless `text` gives a minimum, a normal distribution is truncated at the shortest key.
///
/// # Errors
/// A sentence for the user.
pub fn parse_key_lengths(text: &str) -> Result<Lengths, String> {
    parse_lengths(text, KEY_BYTES_MIN)
}

fn parse_lengths(text: &str, min: usize) -> Result<Lengths, String> {
    let wrong = || {
        let forms = "nor LOW-HIGH nor normal:MEAN:DEVIATION[:MIN] nor zipfian:LOW-HIGH nor log-uniform:LOW-HIGH nor \
                     N*WEIGHT+N*WEIGHT";
        format!("{text:?} is neither N {forms}")
    };
    let size = |text: &str| usize::try_from(parse(text).map_err(|_| wrong())?).map_err(|_| wrong());
    let range = |(low, high)| match (size(low)?, size(high)?) {
        (low, high) if low <= high => Ok((low, high)),
        _ => Err(format!("{text:?}: the second length is less than the first")),
    };
    if let Some(zipfian) = text.strip_prefix("zipfian:") {
        let (low, high) = range(zipfian.split_once('-').ok_or_else(wrong)?)?;
        return Ok(Lengths::Zipfian { low, high });
    }
    if let Some(log_uniform) = text.strip_prefix("log-uniform:") {
        let (low, high) = range(log_uniform.split_once('-').ok_or_else(wrong)?)?;
        return if low > 0 { Ok(Lengths::LogUniform { low, high }) } else { Err(wrong()) };
    }
    if let Some((one, other)) = text.split_once('+') {
        let weighted = |part: &str| {
            let (length, weight) = part.split_once('*').ok_or_else(wrong)?;
            let weight = weight.parse().ok().filter(|weight| (1..=1000).contains(weight)).ok_or_else(wrong)?;
            Ok::<_, String>((size(length)?, weight))
        };
        return Ok(Lengths::Two([weighted(one)?, weighted(other)?]));
    }
    let Some(normal) = text.strip_prefix("normal:") else {
        return match text.split_once('-') {
            None => Ok(Lengths::Fixed(size(text)?)),
            Some(ends) => range(ends).map(|(low, high)| Lengths::Uniform { low, high }),
        };
    };
    let mut parts = normal.split(':');
    let mut number = || parts.next()?.parse().ok().filter(|number: &f64| (0.0..1e10).contains(number));
    let (mean, deviation) = (number().ok_or_else(wrong)?, number().ok_or_else(wrong)?);
    let min = parts.next().map_or(Ok(min), size)?;
    match parts.next() {
        Some(_) => Err(wrong()),
        None if min as f64 > mean => Err(format!("{text:?}: the shortest, {min}, is more than the mean")),
        None => Ok(Lengths::Normal { mean, deviation, min }),
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Lengths, String> {
        parse_lengths(text, 1)
    }
}

impl TryFrom<String> for Lengths {
    type Error = String;

    fn try_from(text: String) -> Result<Lengths, String> {
        text.parse()
    }
}

impl From<Lengths> for String {
    fn from(lengths: Lengths) -> String {
        lengths.to_string()
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lengths::Fixed(length) => write!(f, "{length}"),
            Lengths::Uniform { low, high } => write!(f, "{low}-{high}"),
            Lengths::Normal { mean, deviation, min } => write!(f, "normal:{mean}:{deviation}:{min}"),
            Lengths::Zipfian { low, high } => write!(f, "zipfian:{low}-{high}"),
            Lengths::LogUniform { low, high } => write!(f, "log-uniform:{low}-{high}"),
            Lengths::Two([(one, weight), (other, other_weight)]) => {
                write!(f, "{one}*{weight}+{other}*{other_weight}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64K"), Ok(64 << 10));
        assert_eq!(parse("1GiB"), Ok(1 << 30));
        assert_eq!(parse("2mb"), Ok(2 << 20));
        assert!(parse("many").is_err() && parse("").is_err() && parse("99999999999999T").is_err());
    }

    #[test]
    fn normal_lengths_have_their_mean_and_deviation() {
        let lengths = Lengths::Normal { mean: 46.8, deviation: 11.6, min: 1 };
        let draws: Vec<f64> = (0..20_000).map(|identity| lengths.of(identity) as f64).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 46.8).abs() < 0.5, "mean {mean}");
        assert!((variance.sqrt() - 11.6).abs() < 0.5, "deviation {}", variance.sqrt());
        assert_eq!(lengths.of(7), lengths.of(7));
    }

    #[test]
    fn uniform_lengths_reach_both_ends_and_all_between() {
        let lengths: Lengths = "16-20".parse().unwrap();
        let mut counts = [0; 5];
        (0..5000).for_each(|identity| counts[lengths.of(identity) - 16] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!((lengths.mean(), lengths.shortest(), lengths.longest()), (18, 16, 20));
    }

    #[test]
    fn zipfian_lengths_are_mostly_short_and_have_their_mean() {
        let lengths: Lengths = "zipfian:16-1015".parse().unwrap();
        let draws: Vec<usize> = (0..50_000).map(|identity| lengths.of(identity)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&16), Some(&1015)));
        let shortest = draws.iter().filter(|length| **length == 16).count() as f64 / draws.len() as f64;
        // One over the sum of rank^-0.99 for a thousand ranks.
        assert!((shortest - 0.1294).abs() < 0.01, "{shortest}");
        let mean = draws.iter().sum::<usize>() as f64 / draws.len() as f64;
        assert!((mean - lengths.mean() as f64).abs() < 5.0, "{mean}, expected {}", lengths.mean());
    }

    #[test]
    fn log_uniform_lengths_are_as_often_short_as_long_and_have_their_mean() {
        let lengths: Lengths = "log-uniform:8-64K".parse().unwrap();
        let mut doublings = [0; 14];
        (0..130_000).for_each(|identity| doublings[lengths.of(identity).ilog2() as usize - 3] += 1);
        assert!(doublings[..13].iter().all(|count| (9_500..10_500).contains(count)), "{doublings:?}");
        let lengths = Lengths::LogUniform { low: 1, high: 1000 };
        let draws: Vec<usize> = (0..50_000).map(|identity| lengths.of(identity)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&1), Some(&1000)));
        let mean = draws.iter().sum::<usize>() as f64 / draws.len() as f64;
        assert!((mean - lengths.mean() as f64).abs() < 5.0, "{mean}, expected {}", lengths.mean());
    }

    #[test]
    fn two_lengths_are_drawn_by_their_weights() {
        let lengths: Lengths = "16*1+1000*2".parse().unwrap();
        let short = (0..30_000).filter(|identity| lengths.of(*identity) == 16).count();
        let long = (0..30_000).filter(|identity| lengths.of(*identity) == 1000).count();
        assert!((9_600..10_400).contains(&short) && short + long == 30_000, "{short}");
        assert_eq!((lengths.mean(), lengths.shortest(), lengths.longest()), (672, 16, 1000));
    }

    #[test]
    fn lengths_are_printed_as_they_are_parsed() {
        for text in ["24", "16-32", "normal:46.8:11.6:1", "zipfian:16-8168", "log-uniform:8-65536", "16*1+1000*2"] {
            assert_eq!(text.parse::<Lengths>().unwrap().to_string(), text);
        }
        assert_eq!("normal:100:10".parse(), Ok(Lengths::Normal { mean: 100.0, deviation: 10.0, min: 1 }));
        assert_eq!(parse_key_lengths("normal:20:2").map(|lengths| lengths.shortest()), Ok(KEY_BYTES_MIN));
        assert_eq!("1K-4K".parse(), Ok(Lengths::Uniform { low: 1024, high: 4096 }));
        for wrong in [
            "",
            "x",
            "9-8",
            "1-2-3",
            "normal:5",
            "normal:5:x",
            "normal:5:1:6",
            "normal:5:1:2:3",
            "-5",
            "normal:-5:1",
            "zipfian:5",
            "zipfian:9-8",
            "log-uniform:0-8",
            "log-uniform:9-8",
            "5*1",
            "5*1+6",
            "5*0+6*1",
            "5*1+6*1+7*1",
        ] {
            assert!(wrong.parse::<Lengths>().is_err(), "{wrong:?}");
        }
    }
}
