//! Progress and notes on stderr. Progress bars are drawn only if stderr is a terminal.

use std::io::{self, Write};
use std::time::Instant;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// Prints a line on stderr. A closed stderr is not an error.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// "imported 5 records into keyspace \"default\" in 0.01 s"
pub fn moved(did: &str, count: u64, preposition: &str, keyspace: &str, start: Instant) -> String {
    let (count, seconds) = (HumanCount(count), start.elapsed().as_secs_f64());
    format!("{did} {count} records {preposition} keyspace {keyspace:?} in {seconds:.2} s")
}

/// A bar that counts records.
pub fn records(what: &'static str, count: u64) -> ProgressBar {
    let template = "   {msg} {wide_bar} {human_pos} of {human_len} records";
    styled(ProgressBar::new(count), template).with_message(what)
}

/// A spinner that counts records if their number is unknown.
pub fn records_unbounded(what: &'static str) -> ProgressBar {
    styled(ProgressBar::new_spinner(), "{spinner} {msg} {human_pos} records").with_message(what)
}

/// A bar that counts bytes; a spinner if their number is unknown.
pub fn bytes(what: &'static str, count: Option<u64>) -> ProgressBar {
    match count {
        Some(count) => styled(ProgressBar::new(count), "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}"),
        None => styled(ProgressBar::new_spinner(), "{spinner} {msg} {binary_bytes}"),
    }
    .with_message(what)
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the templates in this file are well formed");
    bar.with_style(style)
}
