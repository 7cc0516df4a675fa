//! The figures of runs on two tiers: medians of repeats, and a table of all engines side by side, in which the runs that
//! CleaveDB loses come first.

use std::io::{self, Write};

use serde_json::json;

use crate::engine::OURS;
use crate::result::Outcome;
use crate::{suite, table};

/// A figure: its title, its number of decimals, and whether more of it is better.
pub struct Figure {
    title: &'static str,
    digits: usize,
    is_gain: bool,
    of: fn(&Outcome) -> Option<f64>,
}

/// The position of operations per second.
pub const THROUGHPUT: usize = 0;
/// The position of the 99th percentile of latencies.
pub const LATENCY_P99: usize = 2;

const MIB: f64 = 1024.0 * 1024.0;

#[rustfmt::skip]
const FIGURES: [Figure; 11] = [
    Figure { title: "ops/s", digits: 0, is_gain: true, of: |run| Some(run.ops_per_s) },
    Figure { title: "cpu us/op", digits: 2, is_gain: false, of: |run| Some(run.cpu_us_per_operation()) },
    Figure { title: "p99 us", digits: 1, is_gain: false, of: |run| run.latency_us.as_ref().map(|latency| latency.p99) },
    Figure { title: "longest ms", digits: 1, is_gain: false, of: |run| Some(run.longest_wait_s() * 1e3) },
    Figure { title: "lowest s", digits: 2, is_gain: true, of: Outcome::lowest_over_mean },
    Figure { title: "stall s", digits: 0, is_gain: false, of: |run| Some(run.stall_seconds as f64) },
    Figure { title: "busier %", digits: 0, is_gain: true, of: |run| run.busier.map(|band| band.mean * 100.0) },
    Figure { title: "band %", digits: 0, is_gain: false, of: |run| run.busier.map(|band| band.width() * 100.0) },
    Figure { title: "slow B/B", digits: 2, is_gain: false, of: Outcome::slow_bytes_per_user_byte },
    Figure { title: "write amp", digits: 2, is_gain: false, of: |run| run.write_amplification },
    Figure { title: "fast MiB", digits: 0, is_gain: false, of: |run| run.fast_peak_bytes.map(|bytes| bytes as f64 / MIB) },
];

/// The field in the settings of an outcome that has the figures of all repeats.
const REPEATS: &str = "figures_of_repeats";

/// All repeats of one set of runs: for each phase and engine, in the order of the suite, one outcome of each repeat.
#[derive(Default)]
pub struct Repeats(Vec<Vec<Outcome>>);

impl Repeats {
    /// Adds the outcomes of one more repeat.
    pub fn add(&mut self, outcomes: Vec<Outcome>) {
        self.0.resize_with(outcomes.len(), Vec::new);
        self.0.iter_mut().zip(outcomes).for_each(|(repeats, outcome)| repeats.push(outcome));
    }

    /// The run with the median throughput of each phase and engine, with the figures of all repeats.
    pub fn medians(&self) -> Vec<Outcome> {
        let median = |repeats: &Vec<Outcome>| {
            let mut outcome = suite::median(repeats.clone())?;
            let values =
                |figure: &Figure| (figure.title.to_owned(), json!(repeats.iter().map(figure.of).collect::<Vec<_>>()));
            outcome.settings[REPEATS] = FIGURES.iter().map(values).collect::<serde_json::Map<_, _>>().into();
            Some(outcome)
        };
        self.0.iter().filter_map(median).collect()
    }

    /// Prints the medians of each figure, the phases with the lowest gain over `rival` in figure `by` first.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn print(&self, by: usize, rival: &str, out: &mut dyn Write) -> io::Result<()> {
        let medians = self.medians();
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (outcome, repeats) in medians.iter().zip(&self.0) {
            if table::is_settle(outcome) {
                continue;
            }
            let row = (&*outcome.engine, FIGURES.each_ref().map(|figure| middle(repeats.iter().filter_map(figure.of))));
            match groups.iter_mut().find(|group| group.workload == outcome.workload) {
                Some(group) => group.rows.push(row),
                None => groups.push(Group { workload: &outcome.workload, rows: vec![row] }),
            }
        }
        groups.sort_by(|one, other| one.gain(by, rival).total_cmp(&other.gain(by, rival)));
        let compared = FIGURES[by].title;
        writeln!(
            out,
            "\nMedians of {}; ratio: {compared} divided by that of {rival}, lost ones first; longest: the slowest operation; lowest s: the \
             slowest second divided by the mean; busier, band: the busier of processors and devices, and its 5th to 95th \
             percentile; slow B/B: bytes that the slow device wrote for each byte of the user",
            self.0.first().map_or(0, Vec::len)
        )?;
        let titles = ["phase", "engine"].into_iter().chain(FIGURES.iter().map(|figure| figure.title)).chain(["ratio"]);
        let mut cells = vec![titles.map(str::to_owned).collect()];
        cells.extend(groups.iter().flat_map(|group| group.cells(by, rival)));
        table::grid(&cells, 2, out)?;
        writeln!(out)?;
        table::settles(&medians, out)?;
        table::footer(&medians, out)?;
        writeln!(out)?;
        out.flush()
    }
}

/// The engines in one phase or workload, with the medians of their figures.
struct Group<'a> {
    workload: &'a str,
    rows: Vec<(&'a str, [Option<f64>; FIGURES.len()])>,
}

impl Group<'_> {
    fn figure(&self, engine: &str, figure: usize) -> Option<f64> {
        self.rows.iter().find(|(name, _)| *name == engine)?.1[figure]
    }

    /// The figure of `engine` divided by that of `rival`.
    fn ratio(&self, engine: &str, rival: &str, by: usize) -> Option<f64> {
        let theirs = self.figure(rival, by).filter(|value| *value > 0.0)?;
        Some(self.figure(engine, by)? / theirs)
    }

    /// By how much CleaveDB is better than `rival`; phases without a ratio come last.
    fn gain(&self, by: usize, rival: &str) -> f64 {
        let ratio = self.ratio(OURS, rival, by);
        ratio.map_or(f64::INFINITY, |ratio| if FIGURES[by].is_gain { ratio } else { 1.0 / ratio })
    }

    fn cells(&self, by: usize, rival: &str) -> Vec<Vec<String>> {
        let row = |(engine, figures): &(&str, [Option<f64>; FIGURES.len()])| {
            let text =
                |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
            let figures = figures.iter().zip(&FIGURES).map(|(value, figure)| text(*value, figure.digits));
            let ratio = self.ratio(engine, rival, by).filter(|_| *engine != rival);
            let ends = [self.workload.to_owned(), (*engine).to_owned()];
            ends.into_iter().chain(figures).chain([text(ratio, 2)]).collect()
        };
        self.rows.iter().map(row).collect()
    }
}

/// The median, the lower of two middle values; none of nothing.
pub fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::outcome;

    fn repeats(of: &[[(&str, &str, u64); 3]]) -> Repeats {
        let mut repeats = Repeats::default();
        for repeat in 0..3 {
            repeats.add(
                of.iter()
                    .map(|runs| runs[repeat])
                    .map(|(engine, name, rate)| outcome(engine, name, &[rate, 0]))
                    .collect(),
            );
        }
        repeats
    }

    #[test]
    fn medians_are_compared_and_lost_phases_come_first() {
        let of = |engine, name, rates: [u64; 3]| rates.map(|rate| (engine, name, rate));
        let repeats = repeats(&[
            of(OURS, "sustained/load", [900, 100, 300]),
            of("rocksdb", "sustained/load", [100, 100, 100]),
            of(OURS, "sustained/ycsb-e", [10, 30, 20]),
            of("rocksdb", "sustained/ycsb-e", [40, 40, 50]),
        ]);
        let mut out = Vec::new();
        repeats.print(THROUGHPUT, "rocksdb", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        let of_row = |row: usize| [rows[row][0], rows[row][1], rows[row][2], *rows[row].last().unwrap()];
        assert_eq!(of_row(0), ["sustained/ycsb-e", OURS, "20", "0.50"], "{text}");
        assert_eq!(of_row(1), ["sustained/ycsb-e", "rocksdb", "40", "-"], "{text}");
        assert_eq!(of_row(2), ["sustained/load", OURS, "300", "3.00"], "{text}");
        let medians = repeats.medians();
        assert_eq!(medians[0].settings[REPEATS]["ops/s"], json!([900.0, 100.0, 300.0]));
        assert_eq!(medians[0].ops_per_s, 300.0);
    }

    #[test]
    fn a_median_is_one_of_the_values() {
        assert_eq!(middle([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(middle([4.0, 1.0].into_iter()), Some(1.0));
        assert_eq!(middle(std::iter::empty()), None);
    }
}
