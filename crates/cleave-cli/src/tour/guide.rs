//! What the steps of the tour share: numbered output, checks and rates.

use std::io::Write;
use std::time::Duration;

use indicatif::HumanCount;

use crate::failure::{Failure, Result};

/// Numbers the steps and prints their lines.
pub struct Guide<'a> {
    /// The output.
    pub out: &'a mut dyn Write,
    steps: u32,
}

impl<'a> Guide<'a> {
    /// Before the first step.
    pub fn new(out: &'a mut dyn Write) -> Guide<'a> {
        Guide { out, steps: 0 }
    }

    /// Begins a step.
    pub fn step(&mut self, title: &str) -> Result<()> {
        let gap = if self.steps == 0 { "" } else { "\n" };
        self.steps += 1;
        writeln!(self.out, "{gap}{}. {title}", self.steps)?;
        // A step may take seconds, so its title must be visible while it runs.
        Ok(self.out.flush()?)
    }

    /// Prints a line of the current step.
    pub fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.out, "   {line}")?;
        Ok(self.out.flush()?)
    }
}

/// Fails with a sentence unless `held`.
pub fn check(held: bool, sentence: impl FnOnce() -> String) -> Result<()> {
    if held { Ok(()) } else { Err(Failure::new(format!("the tour found a fault: {}", sentence()))) }
}

/// "34,006 cities in 0.12 s (283,383 a second)".
pub fn rate(count: u64, noun: &str, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let per_second = HumanCount((count as f64 / seconds.max(1e-9)) as u64);
    format!("{} {noun} in {seconds:.2} s ({per_second} a second)", HumanCount(count))
}
