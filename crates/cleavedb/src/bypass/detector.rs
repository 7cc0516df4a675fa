//! The detector: predicts when writers would be slowed, and when they would be stopped, and decides when they go around the work
//! that is behind. A pure function from the samples of all stages to a state, with hysteresis.
//!
//! Each stage is given as its *fill* without a bypass: from [`SLOWED_FROM`] on it slows writers, at 1 it stops them. KVAccel's
//! detector looks whether writers are stopped, ten times a second; ours acts before they are slowed.

use std::time::Duration;

/// A stage slows writers from this fill on.
pub const SLOWED_FROM: f64 = 0.5;
/// The time between two samples (KVAccel: 100 ms).
pub const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Writers go around once they would be slowed within this time.
const LEAD: Duration = Duration::from_millis(500);
/// They come back once no stage has been fuller than this...
const CALM_FILL: f64 = 0.3;
/// ...for this time.
const CALM: Duration = Duration::from_secs(1);
/// The weight of a new sample in the mean rate at which a stage fills.
const RATE_WEIGHT: f64 = 0.5;
/// Stages.
const STAGES: usize = 4;

/// How full each stage is, of 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Fills {
    /// Runs, and logs that are not flushed, against their budgets.
    pub front: f64,
    /// Tables of HL0.
    pub hl0: f64,
    /// What the levels below HL0 hold beyond their targets.
    pub debt: f64,
    /// The fast tier.
    pub fast: f64,
}

impl Fills {
    fn all(&self) -> [f64; STAGES] {
        [self.front, self.hl0, self.debt, self.fast]
    }
}

/// When writers will be slowed and stopped, if all goes on like this; `None` if they will not be.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Forecast {
    pub to_slowdown: Option<Duration>,
    pub to_stop: Option<Duration>,
}

/// What the detector knows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Detector {
    /// Writers go around.
    pub redirects: bool,
    pub forecast: Forecast,
    before: Option<(Duration, Fills)>,
    /// How fast each stage fills, a second.
    rates: [f64; STAGES],
    calm_since: Option<Duration>,
}

impl Detector {
    /// True if a sample at this moment counts.
    pub fn is_due(&self, at: Duration) -> bool {
        self.before.is_none_or(|(before, _)| at >= before + SAMPLE_EVERY)
    }

    /// The state after a sample.
    pub fn after(&self, at: Duration, fills: Fills) -> Detector {
        let mut next = *self;
        if let Some((before, then)) = self.before.filter(|(before, _)| at > *before) {
            let seconds = (at - before).as_secs_f64();
            for (rate, (now, then)) in next.rates.iter_mut().zip(fills.all().into_iter().zip(then.all())) {
                *rate += RATE_WEIGHT * ((now - then) / seconds - *rate);
            }
        }
        next.before = Some((at, fills));
        next.forecast = Forecast { to_slowdown: next.time_to(&fills, SLOWED_FROM), to_stop: next.time_to(&fills, 1.0) };
        let is_calm = fills.all().into_iter().all(|fill| fill <= CALM_FILL);
        next.calm_since = is_calm.then(|| self.calm_since.unwrap_or(at));
        next.redirects = match self.redirects {
            true => next.calm_since.is_none_or(|since| at < since + CALM),
            false => next.forecast.to_slowdown.is_some_and(|time| time <= LEAD),
        };
        next
    }

    /// The time until the first stage is as full as `limit`.
    fn time_to(&self, fills: &Fills, limit: f64) -> Option<Duration> {
        let stages = fills.all().into_iter().zip(self.rates);
        let times = stages.filter_map(|(fill, rate)| match limit - fill {
            room if room <= 0.0 => Some(0.0),
            room if rate > 0.0 => Some(room / rate),
            _ => None,
        });
        // A century is as good as never.
        times.min_by(f64::total_cmp).filter(|seconds| *seconds < 3e9).map(Duration::from_secs_f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The states after samples of the front, a tenth of a second apart.
    fn states(fronts: &[f64]) -> Vec<Detector> {
        let mut detector = Detector::default();
        let samples = fronts.iter().enumerate();
        let next = |(tenth, front): (usize, &f64)| {
            detector = detector.after(ms(100 * tenth as u64), Fills { front: *front, ..Fills::default() });
            detector
        };
        samples.map(next).collect()
    }

    #[test]
    fn the_forecast_follows_the_fullest_and_the_fastest_stage() {
        let cases = [
            // Two samples a second apart; seconds until writers are slowed, and stopped.
            (Fills::default(), Fills::default(), None, None),
            (Fills::default(), Fills { front: 0.2, ..Fills::default() }, Some(3.0), Some(8.0)),
            (Fills::default(), Fills { front: 0.2, hl0: 0.3, ..Fills::default() }, Some(4.0 / 3.0), Some(14.0 / 3.0)),
            (Fills { fast: 0.6, ..Fills::default() }, Fills { fast: 0.5, ..Fills::default() }, Some(0.0), None),
            (Fills { debt: 0.9, ..Fills::default() }, Fills { debt: 1.2, ..Fills::default() }, Some(0.0), Some(0.0)),
            (Fills { hl0: 0.4, ..Fills::default() }, Fills { hl0: 0.2, ..Fills::default() }, None, None),
        ];
        for (first, second, slowed, stopped) in cases {
            let after = Detector::default().after(ms(0), first).after(ms(1000), second);
            let seconds = |time: Option<Duration>| time.map(|time| (time.as_secs_f64() * 1e6).round() / 1e6);
            let rounded = |time: Option<f64>| time.map(|time| (time * 1e6).round() / 1e6);
            let Forecast { to_slowdown, to_stop } = after.forecast;
            assert_eq!((seconds(to_slowdown), seconds(to_stop)), (rounded(slowed), rounded(stopped)), "{second:?}");
        }
    }

    #[test]
    fn writers_go_around_before_they_are_slowed() {
        // 0.1 in each tenth of a second; the mean rate begins at half of it.
        let states = states(&[0.0, 0.1, 0.2, 0.3]);
        let redirects: Vec<bool> = states.iter().map(|state| state.redirects).collect();
        assert_eq!(redirects, [false, false, true, true]);
        assert!(states[2].forecast.to_slowdown.unwrap() > Duration::ZERO, "not slowed yet");
    }

    #[test]
    fn a_slow_growth_far_below_the_limit_changes_nothing() {
        assert!(states(&[0.1, 0.101, 0.102, 0.103, 0.104]).iter().all(|state| !state.redirects));
    }

    #[test]
    fn writers_come_back_only_after_a_calm() {
        // Full at once, then below the calm fill but for one sample.
        let mut fronts = vec![0.6, 0.4, 0.2, 0.31];
        fronts.extend([0.1; 13]);
        let states = states(&fronts);
        let back = states.iter().position(|state| !state.redirects);
        assert_eq!(back, Some(4 + 10), "a second after the last sample above");
        assert!(states[back.unwrap()..].iter().all(|state| !state.redirects), "and not again");
    }

    #[test]
    fn samples_count_ten_times_a_second() {
        let detector = Detector::default();
        assert!(detector.is_due(ms(0)));
        let detector = detector.after(ms(50), Fills::default());
        assert!(!detector.is_due(ms(149)) && detector.is_due(ms(150)));
    }
}
