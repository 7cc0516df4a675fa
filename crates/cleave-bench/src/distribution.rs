//! Distributions of the records that operations access. Draws depend only on the random stream and the number of records, so
//! a seed gives the same operations on every engine.

use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::rng::Rng;

/// The skew of YCSB's zipfian distribution.
pub const ZIPFIAN_EXPONENT: f64 = 0.99;
/// With larger exponents nearly all operations access one record.
const EXPONENT_MAX: f64 = 5.0;

/// The popularity of records; on the command line `uniform`, `zipfian`, `zipfian:EXPONENT` or `latest`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Distribution {
    /// All records are equally popular.
    Uniform,
    /// Zipfian with this exponent, with the popular records spread over the key space ("scrambled" in YCSB).
    Zipfian(f64),
    /// Zipfian with exponent 0.99, with newer records more popular than older ones.
    Latest,
}

impl Distribution {
    /// YCSB's zipfian distribution.
    pub const YCSB: Distribution = Distribution::Zipfian(ZIPFIAN_EXPONENT);
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let exponent = |text: &str| text.parse().ok().filter(|exponent| *exponent > 0.0 && *exponent <= EXPONENT_MAX);
        match (text, text.strip_prefix("zipfian:").map(exponent)) {
            ("uniform", _) => Ok(Distribution::Uniform),
            ("zipfian", _) => Ok(Distribution::YCSB),
            ("latest", _) => Ok(Distribution::Latest),
            (_, Some(Some(exponent))) => Ok(Distribution::Zipfian(exponent)),
            (_, Some(None)) => Err(format!("{text:?}: the exponent must be more than 0 and at most {EXPONENT_MAX}")),
            (_, None) => Err(format!("{text:?} is neither uniform nor zipfian nor zipfian:EXPONENT nor latest")),
        }
    }
}

impl TryFrom<String> for Distribution {
    type Error = String;

    fn try_from(text: String) -> Result<Distribution, String> {
        text.parse()
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> String {
        distribution.to_string()
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::YCSB => f.write_str("zipfian"),
            Distribution::Zipfian(exponent) => write!(f, "zipfian:{exponent}"),
            Distribution::Latest => f.write_str("latest"),
        }
    }
}

/// Draws records.
#[derive(Debug, Clone)]
pub struct Chooser {
    distribution: Distribution,
    zipf: Zipf,
}

impl Chooser {
    /// Draws from `0..records`, which must not be empty.
    pub fn new(distribution: Distribution, records: u64) -> Chooser {
        assert!(records > 0, "there is at least one record to draw from");
        let exponent = match distribution {
            Distribution::Zipfian(exponent) => exponent,
            Distribution::Uniform | Distribution::Latest => ZIPFIAN_EXPONENT,
        };
        Chooser { distribution, zipf: Zipf::new(records, exponent) }
    }

    /// The record of the next operation, of the current `records`.
    pub fn choose(&mut self, records: u64, rng: &mut Rng) -> u64 {
        // Only `latest` follows the growth; the other distributions keep the popularity of the start.
        if self.distribution == Distribution::Latest && records != self.zipf.count {
            self.zipf = Zipf::new(records, ZIPFIAN_EXPONENT);
        }
        match self.distribution {
            Distribution::Uniform => rng.random_range(0..records),
            Distribution::Zipfian(_) => xxh3_64(&self.zipf.rank(rng).to_le_bytes()) % self.zipf.count,
            Distribution::Latest => records - 1 - self.zipf.rank(rng),
        }
    }
}

/// Ranks `0..count` with probability in proportion to `1 / (rank + 1)^exponent`, by rejection-inversion (Hörmann and
/// Derflinger, 1996), which is exact and needs no precomputation that grows with `count`. Decision 035 says why this is our
/// own code.
#[derive(Debug, Clone)]
pub struct Zipf {
    count: u64,
    exponent: f64,
    area_first: f64,
    area_all: f64,
    shortcut: f64,
}

impl Zipf {
    /// Ranks up to `count`, which is 1 or more.
    pub fn new(count: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { count, exponent, area_first: 0.0, area_all: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_all = zipf.area(count as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The area under the density from 1 to `x`.
    fn area(&self, x: f64) -> f64 {
        match 1.0 - self.exponent {
            0.0 => x.ln(),
            power => (power * x.ln()).exp_m1() / power,
        }
    }

    fn area_inverse(&self, area: f64) -> f64 {
        match 1.0 - self.exponent {
            0.0 => area.exp(),
            power => ((power * area).max(-1.0).ln_1p() / power).exp(),
        }
    }

    /// The mean rank.
    pub fn mean(&self) -> f64 {
        let weights = (1..=self.count).map(|rank| self.density(rank as f64));
        let (sum, ranks) = weights
            .zip(0u64..)
            .fold((0.0, 0.0), |(sum, ranks), (weight, rank)| (sum + weight, ranks + weight * rank as f64));
        ranks / sum
    }

    /// The next rank.
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let fraction: f64 = rng.random();
            let area = self.area_all + fraction * (self.area_first - self.area_all);
            let x = self.area_inverse(area);
            let nearest = x.round().clamp(1.0, self.count as f64);
            if nearest - x <= self.shortcut || area >= self.area(nearest + 0.5) - self.density(nearest) {
                return nearest as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const DRAWS: usize = 200_000;

    fn counts(distribution: Distribution, records: u64) -> Vec<f64> {
        let (mut chooser, mut rng) = (Chooser::new(distribution, records), Rng::seed_from_u64(1));
        let mut counts = vec![0.0; records as usize];
        for _ in 0..DRAWS {
            counts[chooser.choose(records, &mut rng) as usize] += 1.0;
        }
        counts
    }

    /// The expected counts of zipfian ranks over all draws.
    fn expected(records: u64) -> Vec<f64> {
        expected_with(records, ZIPFIAN_EXPONENT)
    }

    fn expected_with(records: u64, exponent: f64) -> Vec<f64> {
        let weights: Vec<f64> = (1..=records).map(|rank| (rank as f64).powf(-exponent)).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum * DRAWS as f64).collect()
    }

    fn chi_square(counts: &[f64], expected: &[f64]) -> f64 {
        counts.iter().zip(expected).map(|(count, mean)| (count - mean).powi(2) / mean).sum()
    }

    /// Five standard deviations above the mean of a chi-square with `cells - 1` degrees of freedom.
    fn chi_square_limit(cells: usize) -> f64 {
        let freedom = (cells - 1) as f64;
        freedom + 5.0 * (2.0 * freedom).sqrt()
    }

    #[test]
    fn uniform_draws_are_uniform() {
        let expected = vec![DRAWS as f64 / 500.0; 500];
        assert!(chi_square(&counts(Distribution::Uniform, 500), &expected) < chi_square_limit(500));
    }

    #[test]
    fn ranks_are_zipfian_in_small_and_large_sets() {
        for (records, exponent) in
            [(1, 0.99), (2, 0.99), (10, 0.99), (1000, 0.99), (1000, 0.5), (1000, 0.9), (1000, 1.0), (200, 1.2)]
        {
            let (zipf, mut rng) = (Zipf::new(records, exponent), Rng::seed_from_u64(2));
            let mut counts = vec![0.0; records as usize];
            (0..DRAWS).for_each(|_| counts[zipf.rank(&mut rng) as usize] += 1.0);
            let expected = expected_with(records, exponent);
            let chi_square = chi_square(&counts, &expected);
            assert!(chi_square <= chi_square_limit(records as usize), "{records} {exponent}: chi-square {chi_square}");
            let mean = expected.iter().zip(0u64..).map(|(count, rank)| count * rank as f64).sum::<f64>() / DRAWS as f64;
            assert!((zipf.mean() - mean).abs() < 1e-6 * records as f64, "{records} {exponent}: mean {}", zipf.mean());
        }
    }

    #[test]
    fn distributions_are_printed_as_they_are_parsed() {
        for text in ["uniform", "zipfian", "zipfian:0.8", "zipfian:1", "zipfian:1.2", "latest"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        assert_eq!("zipfian:0.99".parse(), Ok(Distribution::YCSB));
        for wrong in ["", "zipf", "zipfian:", "zipfian:0", "zipfian:-1", "zipfian:9", "zipfian:nan", "latest:1"] {
            assert!(wrong.parse::<Distribution>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn latest_prefers_the_newest_and_follows_growth() {
        let mut newest_first = counts(Distribution::Latest, 1000);
        newest_first.reverse();
        assert!(chi_square(&newest_first, &expected(1000)) < chi_square_limit(1000));
        let (mut chooser, mut rng) = (Chooser::new(Distribution::Latest, 10), Rng::seed_from_u64(3));
        assert!((0..1000).any(|_| chooser.choose(1000, &mut rng) == 999));
    }

    #[test]
    fn zipfian_spreads_the_popular_records() {
        let counts = counts(Distribution::YCSB, 1000);
        let mut order: Vec<usize> = (0..1000).collect();
        order.sort_by(|&a, &b| counts[b].total_cmp(&counts[a]));
        let share = counts[order[0]] / DRAWS as f64;
        let top = expected(1000)[0] / DRAWS as f64;
        assert!(share >= top * 0.95, "the most popular has {share}, expected at least {top}");
        assert!(order[..10].iter().any(|&record| record < 500) && order[..10].iter().any(|&record| record >= 500));
    }

    #[test]
    fn a_seed_gives_the_same_draws() {
        let draw = |seed| {
            let (mut chooser, mut rng) = (Chooser::new(Distribution::YCSB, 1 << 40), Rng::seed_from_u64(seed));
            (0..100).map(|_| chooser.choose(1 << 40, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }
}
