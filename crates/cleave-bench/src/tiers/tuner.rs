//! The set `settings`: CleaveDB's tuner against static settings, by the throughput of a load and of as many updates.

use std::io::Write;

use super::figures::middle;
use super::places::Tiers;
use super::{Results, Sizes, of};
use crate::args::Run;
use crate::engine::{INLINE, OURS};
use crate::failure::{Failure, Result};
use crate::label::VARIANT;
use crate::phase::SUSTAINED;
use crate::plan::{Places, Shape};
use crate::result::Outcome;
use crate::size::{self, Lengths};
use crate::{suite, table};

/// Runs of a merge (IMTN).
const MERGE_RUNS: [u64; 4] = [2, 4, 8, 16];
/// Bytes of a flush (DFTS) in 32nds of the memory budget; the default is 4, and CleaveDB takes no more than 6.
const FLUSH_PARTS: [u64; 4] = [1, 2, 4, 6];
/// Bytes of small values, of which there are this many times as many.
const SMALL: (usize, u64) = (100, 4);

/// Where the settings are compared.
struct Case {
    name: &'static str,
    run: Run,
}

/// One choice of the settings, and its operations per second: of the load, of the updates, of both.
struct Row {
    name: String,
    ops_per_s: [f64; 3],
}

/// Runs the cases with each choice and prints their throughput. Returns the median runs.
pub fn sweep(sizes: &Sizes, places: &Places, results: &Results<'_>, out: &mut dyn Write) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for Case { name, run } in cases(sizes, places) {
        let choices = choices(sizes.memory);
        // For each choice the phases of each repeat.
        let mut runs: Vec<Vec<Vec<Outcome>>> = vec![Vec::new(); choices.len()];
        for _ in 0..sizes.repeat {
            // The choices alternate within each repeat, so that changes of the machine affect all of them.
            for ((choice, options), repeats) in choices.iter().zip(&mut runs) {
                let cleave = Some(options.parse().map_err(Failure::new)?);
                let shape = Shape { cleave, ..run.shape.clone() };
                let mut phases = suite::measure(&Run { shape, ..run.clone() })?;
                phases.retain(|outcome| !table::is_settle(outcome));
                phases.iter_mut().for_each(|outcome| outcome.settings[VARIANT] = format!("{name}, {choice}").into());
                repeats.push(phases);
            }
            let so_far: Vec<Outcome> = runs.iter().flat_map(|repeats| medians(repeats)).collect();
            results.write(&[&outcomes[..], &so_far].concat())?;
        }
        let rows = choices.iter().zip(&runs).filter_map(|((choice, _), repeats)| {
            let of_repeats: Vec<[f64; 3]> = repeats.iter().map(|phases| throughput(phases)).collect();
            let median = |figure: usize| middle(of_repeats.iter().map(|of_repeat| of_repeat[figure]));
            Some(Row { name: choice.clone(), ops_per_s: [median(0)?, median(1)?, median(2)?] })
        });
        print(name, rows.collect(), out).map_err(Failure::because("cannot write the table"))?;
        outcomes.extend(runs.iter().flat_map(|repeats| medians(repeats)));
    }
    table::footer(&outcomes, out).map_err(Failure::because("cannot write the table"))?;
    Ok(outcomes)
}

fn cases(sizes: &Sizes, places: &Places) -> [Case; 3] {
    let one = Tiers::slow_only(places);
    let case = |name, engine: &str, records, value_size, places: &Places| {
        let shape = Shape {
            phases: Some("load,update".to_owned()),
            rounds: Some(1),
            value_size: Lengths::Fixed(value_size),
            ..sizes.shape(records)
        };
        Case { name, run: of(vec![engine.to_owned()], &[SUSTAINED], shape, places) }
    };
    let records = sizes.records[1];
    [
        case("two tiers", OURS, records, 1000, places),
        case("one tier, values in tables", INLINE, records, 1000, &one),
        case("one tier, values of 100 B", OURS, records * SMALL.1, SMALL.0, &one),
    ]
}

/// Each choice of the settings: its name, and the options of `--cleave`.
fn choices(memory: u64) -> Vec<(String, String)> {
    let both = ["auto", "static"].map(|name| (name.to_owned(), format!("scheduling={name}")));
    let all = MERGE_RUNS.into_iter().flat_map(|runs| FLUSH_PARTS.map(|part| (runs, memory / 32 * part)));
    let fixed = all.map(|(runs, bytes)| {
        (format!("IMTN {runs}, DFTS {}", size::human(bytes)), format!("scheduling=static:{runs}:{bytes}"))
    });
    both.into_iter().chain(fixed).collect()
}

/// Operations per second of the load, of the updates, and of both together.
fn throughput(phases: &[Outcome]) -> [f64; 3] {
    let of = |phases: &[Outcome]| {
        let operations: u64 = phases.iter().map(|phase| phase.operations).sum();
        operations as f64 / phases.iter().map(|phase| phase.elapsed_s).sum::<f64>()
    };
    let (load, updates) = phases.split_at(1);
    [of(load), of(updates), of(phases)]
}

/// The median run of each phase.
fn medians(repeats: &[Vec<Outcome>]) -> Vec<Outcome> {
    let phases = repeats.first().map_or(0, Vec::len);
    (0..phases).filter_map(|phase| suite::median(repeats.iter().map(|run| run[phase].clone()).collect())).collect()
}

/// Prints the choices, the fastest first, and the tuner's throughput relative to the best static one and to the default.
fn print(case: &str, rows: Vec<Row>, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "\n{case}: operations per second; both: the operations of both phases in their time together")?;
    let is_auto = |row: &&Row| row.name == "auto";
    let auto = rows.iter().find(is_auto).map_or(f64::NAN, |row| row.ops_per_s[2]);
    let default = rows.iter().find(|row| row.name == "static").map_or(f64::NAN, |row| row.ops_per_s[2]);
    let others = rows.iter().filter(|row| !is_auto(row)).map(|row| row.ops_per_s[2]);
    let best = others.fold(f64::NAN, f64::max);
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by(|one, other| other.ops_per_s[2].total_cmp(&one.ops_per_s[2]));
    let mut cells = vec![["setting", "load", "update", "both", "of auto"].map(str::to_owned).to_vec()];
    for row in sorted {
        let [load, update, both] = row.ops_per_s.map(|rate| format!("{rate:.0}"));
        cells.push(vec![row.name.clone(), load, update, both, format!("{:.3}", row.ops_per_s[2] / auto)]);
    }
    table::grid(&cells, 1, out)?;
    writeln!(out, "best static / auto {:.3}; auto / default static {:.3}", best / auto, auto / default)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cleave_options::CleaveOptions;
    use crate::result::tests::outcome;

    #[test]
    fn the_choices_are_the_tuner_the_default_and_four_by_four_settings() {
        let choices = choices(256 << 20);
        assert_eq!(choices.len(), 2 + 16);
        assert!(choices.iter().all(|(_, options)| options.parse::<CleaveOptions>().is_ok()));
        let named = ("IMTN 16, DFTS 48.00 MiB".to_owned(), format!("scheduling=static:16:{}", 48 << 20));
        assert_eq!(choices.last(), Some(&named));
    }

    #[test]
    fn throughput_of_both_phases_is_that_of_their_time_together() {
        let phases = [outcome(OURS, "sustained/load", &[100, 0]), outcome(OURS, "sustained/update", &[50, 50, 0])];
        assert_eq!(throughput(&phases), [100.0, 50.0, 200.0 / 3.0]);
    }

    #[test]
    fn the_best_static_setting_and_the_default_are_compared_with_the_tuner() {
        let row = |name: &str, both| Row { name: name.to_owned(), ops_per_s: [both; 3] };
        let mut out = Vec::new();
        print("two tiers", vec![row("auto", 100.0), row("static", 80.0), row("IMTN 4", 105.0)], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("best static / auto 1.050; auto / default static 1.250\n"), "{text}");
        let first = text.lines().nth(3).unwrap();
        assert!(first.starts_with("IMTN 4") && first.ends_with("1.050"), "{text}");
    }
}
