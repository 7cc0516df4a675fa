//! What is said on stderr while a command works. Bars are drawn only if that is a terminal.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// A line on stderr about what was done. A reader who has gone is no reason to fail.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A bar that counts records.
pub fn records(what: &'static str, count: u64) -> ProgressBar {
    let template = "   {msg} {wide_bar} {human_pos} of {human_len} records";
    styled(ProgressBar::new(count), template).with_message(what)
}

/// A spinner that counts records whose number is not known.
pub fn records_unbounded(what: &'static str) -> ProgressBar {
    styled(ProgressBar::new_spinner(), "{spinner} {msg} {human_pos} records").with_message(what)
}

/// A bar that counts bytes; a spinner if their number is not known.
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
