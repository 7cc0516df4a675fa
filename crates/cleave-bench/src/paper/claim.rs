//! A claim with its measurement: a row of the table and an object of the JSON.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::experiment::{Experiment, How, Metric, Over, Spec};
use crate::engine::OURS;
use crate::engines;
use crate::result::Outcome;

/// The value of `over` if the claim is about the figure itself.
const NOTHING: &str = "nothing";

/// One claim. The names of the fields are a stable public format.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    /// The paper's name.
    pub paper: String,
    /// The name of the experiment.
    pub experiment: String,
    /// The claim in words.
    pub claim: String,
    /// What CleaveDB's figure is divided by: that of `rocksdb` or `blobdb`, its own with the options of that name, or `nothing`.
    #[serde(default = "rival")]
    pub over: String,
    /// The claimed ratio (or figure), lowest and highest; none if the paper gives no number.
    pub claimed: Option<(f64, f64)>,
    /// The measured ratio (or figure); none if it was not measured.
    pub measured: Option<f64>,
    /// `measured` divided by the nearest claimed value: 1 within the claimed range.
    pub ratio: Option<f64>,
    /// Whether a lower figure is better.
    pub less_is_better: bool,
    /// Why it was not measured.
    pub waits_for: Option<String>,
    /// Whether the store was at rest before the measurement; otherwise it had the background work of its load.
    #[serde(default)]
    pub at_rest: bool,
    /// The workload of the run; none if there is no run.
    pub workload: Option<String>,
    /// The unit of `figures`.
    pub unit: Option<String>,
    /// The figure of each engine.
    pub figures: Vec<Figure>,
}

/// The figure of one engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The engine's name, followed by the name of its options in parentheses if those are compared.
    pub engine: String,
    /// Its figure.
    pub value: f64,
}

impl Claim {
    /// The claim of `experiment` of `paper`, with the results of its runs so far.
    pub fn of(paper: &str, experiment: &Experiment, measured: &[(Spec, Vec<Outcome>)]) -> Claim {
        let mut claim = Claim {
            paper: paper.to_owned(),
            experiment: experiment.name.to_owned(),
            claim: experiment.claim.to_owned(),
            over: rival(),
            claimed: experiment.claimed,
            measured: None,
            ratio: None,
            less_is_better: false,
            waits_for: None,
            at_rest: false,
            workload: None,
            unit: None,
            figures: Vec::new(),
        };
        match experiment.how {
            How::Waits(what) => claim.waits_for = Some(format!("waits for {what}")),
            How::Measured(spec, metric, over) => claim.measure(&spec, metric, over, measured),
        }
        claim
    }

    fn measure(&mut self, spec: &Spec, metric: Metric, over: Over, measured: &[(Spec, Vec<Outcome>)]) {
        self.less_is_better = metric.less_is_better();
        self.workload = Some(spec.workload.to_owned());
        self.unit = Some(metric.unit().to_owned());
        self.at_rest = spec.at_rest;
        let of_run = |spec: &Spec| measured.iter().find(|(done, _)| done == spec).map(|(_, outcomes)| &outcomes[..]);
        let (ours, other) = (of_run(spec), spec.other(over));
        self.over = match (over, other) {
            (Over::Nothing, _) => NOTHING.to_owned(),
            (Over::Ours(_) | Over::OursAlike(_) | Over::OursIn(_), Some(other)) => name_of(&other, over),
            _ => over.rival().map_or_else(rival, str::to_owned),
        };
        let theirs = other.map_or(ours, |other| of_run(&other));
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            self.waits_for = Some("the run was not done".to_owned());
            return;
        };
        self.figures = figures(spec, over, ours, metric);
        if let Some(other) = other {
            // Other claims report the rivals of the same run.
            self.figures.extend(figures(&other, over, theirs, metric));
            let ours = [name_of(spec, over), self.over.clone()];
            self.figures.retain(|figure| ours.contains(&figure.engine));
        }
        if self.over == NOTHING {
            self.figures.retain(|figure| figure.engine == name_of(spec, over));
        }
        let other_figure = if self.over == NOTHING { Some(1.0) } else { self.of_engine(&self.over) };
        self.measured = self
            .of_engine(&name_of(spec, over))
            .zip(other_figure.filter(|value| *value > 0.0))
            .map(|(one, other)| one / other);
        self.ratio = self.measured.zip(self.claimed).map(|(measured, claimed)| over_claimed(measured, claimed));
        let has = |outcomes: &[Outcome], name: &str| outcomes.iter().any(|outcome| outcome.engine == name);
        let needed = std::iter::once((OURS, ours)).chain(over.rival().map(|rival| (rival, theirs)));
        let missing = needed.filter(|(name, run)| !has(run, name)).map(|(name, _)| name).next();
        let of_device = ours.iter().chain(theirs).find_map(|outcome| metric.missing_in(outcome));
        self.waits_for = match (self.measured, missing) {
            (Some(_), _) => None,
            (None, Some(name)) if engines::find(name).is_err() => {
                Some(format!("needs --features {}", engines::feature(name).unwrap_or(name)))
            }
            (None, Some(name)) => Some(format!("needs a run of {name}: --engine, or the notes have its failure")),
            (None, None) if of_device.is_some() => of_device.map(str::to_owned),
            (None, None) => Some("needs a longer run: a larger --scale".to_owned()),
        };
    }

    fn of_engine(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.engine == name).map(|figure| figure.value)
    }

    /// The measurement, or the reason why there is none.
    pub fn measured_words(&self) -> String {
        match (self.measured, &self.waits_for) {
            (Some(measured), _) if self.over == NOTHING => {
                format!("{} {}", number(measured), self.unit.as_deref().unwrap_or_default())
            }
            (Some(measured), _) => format!("{measured:.2}x"),
            (None, Some(reason)) => reason.clone(),
            (None, None) => "-".to_owned(),
        }
    }

    /// The name of the experiment, with its start if that is not sustained work.
    pub fn name_words(&self) -> String {
        let rest = if self.at_rest { ", from rest" } else { "" };
        format!("{}{rest}", self.experiment)
    }

    /// Measured divided by claimed.
    pub fn ratio_words(&self) -> String {
        self.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
    }

    /// The figures of all engines, with their unit.
    pub fn figures_words(&self) -> String {
        let figures = self.figures.iter().map(|figure| format!("{} {}", figure.engine, number(figure.value)));
        match (self.figures.is_empty(), &self.unit) {
            (false, Some(unit)) => format!("{} {unit}", figures.collect::<Vec<_>>().join(", ")),
            _ => String::new(),
        }
    }
}

/// The engine that most claims compare with. Results of earlier versions lack the field.
fn rival() -> String {
    Over::RocksDb.rival().unwrap_or_default().to_owned()
}

/// The name of CleaveDB's figure in `spec`, which is compared with another one.
pub fn name_of(spec: &Spec, over: Over) -> String {
    let name = spec.variant.map_or(OURS.to_owned(), |variant| format!("{OURS} ({})", variant.name));
    match over {
        Over::OursIn(_) => format!("{name}, {}", spec.workload),
        _ => name,
    }
}

/// The figures of all engines in the run of `spec`, CleaveDB's with the name of its options.
fn figures(spec: &Spec, over: Over, outcomes: &[Outcome], metric: Metric) -> Vec<Figure> {
    let figure = |outcome: &Outcome| {
        let value = metric.of(outcome).filter(|value| value.is_finite())?;
        let engine = if outcome.engine == OURS { name_of(spec, over) } else { outcome.engine.clone() };
        Some(Figure { engine, value })
    };
    outcomes.iter().filter_map(figure).collect()
}

/// The factor between `measured` and the claimed range.
fn over_claimed(measured: f64, (low, high): (f64, f64)) -> f64 {
    measured / measured.clamp(low, high)
}

fn number(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Prints the table of claims, then their figures.
pub fn print(claims: &[Claim], out: &mut dyn Write) -> io::Result<()> {
    let titles = ["experiment", "claim", "measured", "ratio"].map(str::to_owned);
    let row = |claim: &Claim| [claim.name_words(), claim.claim.clone(), claim.measured_words(), claim.ratio_words()];
    let rows: Vec<[String; 4]> = std::iter::once(titles).chain(claims.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    for [experiment, claim, measured, ratio] in &rows {
        let [first, second, third] = widths;
        writeln!(out, "{experiment:<first$} | {claim:<second$} | {measured:<third$} | {ratio}")?;
    }
    writeln!(
        out,
        "\nmeasured: CleaveDB's figure divided by that of RocksDB or BlobDB, or by its own with other options, or the figure itself; \
         ratio: measured divided by claimed, 1 within a claimed range; from rest: the store was settled and opened again after its load, \
         other runs begin with the background work of the load"
    )?;
    for claim in claims.iter().filter(|claim| !claim.figures.is_empty()) {
        writeln!(out, "{}: {}", claim.name_words(), claim.figures_words())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_to_the_nearest_claimed_value() {
        assert_eq!(over_claimed(3.0, (2.0, 4.0)), 1.0);
        assert_eq!(over_claimed(1.0, (2.0, 4.0)), 0.5);
        assert_eq!(over_claimed(8.0, (2.0, 4.0)), 2.0);
        assert_eq!(over_claimed(2.15, (4.3, 4.3)), 0.5);
    }

    #[test]
    fn a_claim_without_its_feature_has_no_figure() {
        let how = How::Waits("the bypass");
        let experiment = Experiment { name: "a", claim: "b", claimed: Some((2.0, 2.0)), how };
        let claim = Claim::of("kvaccel", &experiment, &[]);
        assert_eq!((claim.measured, claim.ratio), (None, None));
        assert_eq!(claim.measured_words(), "waits for the bypass");
        assert!(claim.figures.is_empty());
    }
}
