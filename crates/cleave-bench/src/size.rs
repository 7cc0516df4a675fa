//! Sizes in bytes: as people write them, and as workloads draw them.

use cleave_sim::rng::Rng;

/// `text` as a number of bytes: digits, then perhaps K, M, G or T (powers of 1024).
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
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size; write 4096, 64K or 1G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

/// `bytes` for people to read.
pub fn human(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// How long keys or values are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lengths {
    /// All the same.
    Fixed(usize),
    /// Normally distributed, cut off at `min` below and as far above the mean.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        deviation: f64,
        /// The shortest.
        min: usize,
    },
}

impl Lengths {
    /// The length that belongs to `identity`: always the same one.
    pub fn of(&self, identity: u64) -> usize {
        match *self {
            Lengths::Fixed(length) => length,
            Lengths::Normal { mean, deviation, min } => {
                // Twelve uniform draws, added: close to normal, deviation 1, and never beyond six.
                let mut rng = Rng::of(identity, 0x1E);
                let unit = |rng: &mut Rng| (rng.next() >> 11) as f64 / (1u64 << 53) as f64;
                let normal = (0..12).map(|_| unit(&mut rng)).sum::<f64>() - 6.0;
                let length = (mean + deviation * normal).round();
                (length.max(min as f64) as usize).min((2.0 * mean) as usize - min)
            }
        }
    }

    /// The mean, rounded.
    pub fn mean(&self) -> usize {
        match *self {
            Lengths::Fixed(length) => length,
            Lengths::Normal { mean, .. } => mean.round() as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
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
}
