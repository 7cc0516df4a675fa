//! Formats numbers for readers: few digits, with a unit.

/// A number of three or four digits.
pub fn short(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{:.1}M", value / 1e6),
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e4 => format!("{:.1}k", value / 1e3),
        value if value >= 100.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// A round number for an axis, without superfluous digits.
pub fn round(value: f64) -> String {
    let (value, suffix) = match value {
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e3 => (value / 1e3, "k"),
        value => (value, ""),
    };
    format!("{}{suffix}", (value * 1e3).round() / 1e3)
}

/// A time given in microseconds.
pub fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "µs"),
    };
    format!("{} {unit}", (value * 1e2).round() / 1e2)
}

/// A factor.
pub fn times(factor: f64) -> String {
    match factor {
        factor if factor >= 100.0 => format!("{factor:.0}×"),
        factor if factor >= 10.0 => format!("{factor:.1}×"),
        factor => format!("{factor:.2}×"),
    }
}

/// Round numbers from 0 to a little over `max`, about four.
pub fn ticks(max: f64) -> Vec<f64> {
    let rough = max / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0) * power;
    let count = (max / step - 1e-9).ceil().max(1.0) as usize;
    (0..=count).map(|number| number as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        let cases =
            [(0.0, "0"), (0.254, "0.25"), (12.34, "12.3"), (450.4, "450"), (123_456.0, "123.5k"), (2.5e6, "2.50M")];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!([round(0.0), round(0.5), round(2500.0), round(1e6)], ["0", "0.5", "2.5k", "1M"]);
        assert_eq!([time(0.1), time(12.0), time(1500.0), time(2e6)], ["0.1 µs", "12 µs", "1.5 ms", "2 s"]);
        assert_eq!([times(0.954), times(12.34), times(250.4)], ["0.95×", "12.3×", "250×"]);
    }

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        assert_eq!(ticks(4.0), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(ticks(97.0), [0.0, 25.0, 50.0, 75.0, 100.0]);
        for max in [0.003, 0.7, 1.0, 5.5, 333.0, 123_456.0, 9.9e9] {
            let ticks = ticks(max);
            assert!((3..=7).contains(&ticks.len()) && *ticks.last().unwrap() >= max * 0.999, "{max}: {ticks:?}");
        }
    }
}
