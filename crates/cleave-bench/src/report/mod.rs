//! `cleave-bench report`: writes results as a self-contained HTML page, without network access or scripts, in light and dark
//! colours. It has a summary, the claims of papers, a section per workload, all figures, settings and commands.

mod summary;
mod claims;
mod workload;
mod settings;
mod bars;
mod lines;
mod runs;
mod html;
mod number;

use std::fs;
use std::path::Path;

use serde_json::Value;

use self::html::{COLORS, escape};
use self::runs::{engines, groups};
use crate::args::Report;
use crate::failure::{Failure, Result};
use crate::paper::Results;
use crate::result::Outcome;

/// The content of the result files.
#[derive(Default)]
struct Input {
    /// All runs.
    outcomes: Vec<Outcome>,
    /// The runs that belong to no paper.
    plain: Vec<Outcome>,
    papers: Vec<Results>,
}

/// Reads the results and writes the page.
///
/// # Errors
/// If a file cannot be read or has no results, or if the page cannot be written.
pub fn run(args: &Report) -> Result<()> {
    let mut input = Input::default();
    for path in &args.results {
        read(path, &mut input)?;
    }
    if input.outcomes.is_empty() && input.papers.is_empty() {
        return Err(Failure::new("these files contain no results"));
    }
    write(&args.out, &input)
}

/// Writes the page of `outcomes`.
///
/// # Errors
/// If it cannot be written.
pub fn of_outcomes(outcomes: &[Outcome], out: &Path) -> Result<()> {
    write(out, &Input { outcomes: outcomes.to_vec(), plain: outcomes.to_vec(), papers: Vec::new() })
}

fn write(out: &Path, input: &Input) -> Result<()> {
    fs::write(out, page(input)).map_err(Failure::because(format!("cannot write {}", out.display())))
}

/// Reads a file of `run`, `compare` or `paper`.
fn read(path: &Path, input: &mut Input) -> Result<()> {
    let text = fs::read(path).map_err(Failure::because(format!("cannot read {}", path.display())))?;
    let because = || Failure::because(format!("{} has no results of `run` or `paper`", path.display()));
    let value: Value = serde_json::from_slice(&text).map_err(because())?;
    match value.is_array() {
        true => {
            let runs: Vec<Outcome> = serde_json::from_value(value).map_err(because())?;
            input.outcomes.extend(runs.iter().cloned());
            input.plain.extend(runs);
        }
        false => {
            let paper: Results = serde_json::from_value(value).map_err(because())?;
            input.outcomes.extend(paper.runs.iter().cloned());
            input.papers.push(paper);
        }
    }
    Ok(())
}

fn page(input: &Input) -> String {
    let outcomes = &input.outcomes;
    let engines = engines(outcomes);
    let groups = groups(outcomes, &engines);
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    html += "<meta name=\"color-scheme\" content=\"light dark\">\n<title>cleave-bench: results</title>\n";
    html += &format!("<style>\n{}</style>\n</head>\n<body>\n", include_str!("page.css"));
    html += "<header><div><strong>cleave-bench</strong>";
    for (color, engine) in engines.iter().enumerate() {
        html += &format!("<span class=\"c{}\"><i></i>{}</span>", color % COLORS, escape(engine));
    }
    html += "</div></header>\n<main>\n";
    html += &settings::opening(outcomes, &groups, &engines);
    html += &summary::section(&groups, &engines);
    html += &claims::section(&input.papers);
    for (number, group) in groups.iter().enumerate() {
        html += &workload::section(number, group);
    }
    html += &settings::section(outcomes, &groups, &input.plain, &input.papers);
    html + "</main>\n</body>\n</html>\n"
}

#[cfg(test)]
mod tests {
    /// The luminance of `#rrggbb`, as WCAG defines it.
    fn luminance(color: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_and_lines_stand_out_in_light_and_in_dark() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 0.01);
        assert!(crate::engines::all().len() <= super::COLORS, "two engines have the same colour");
        let css = include_str!("page.css");
        let (light, dark) = css.split_once("prefers-color-scheme: dark").unwrap();
        for part in [light, dark] {
            let color = |name: &str| part.split_once(&format!("--{name}: ")).unwrap().1[..7].to_owned();
            for back in ["back", "card"] {
                let back = color(back);
                for text in ["text", "soft", "win", "lose"] {
                    assert!(contrast(&color(text), &back) >= 4.5, "{text} on {back}");
                }
                for line in 0..super::COLORS {
                    assert!(contrast(&color(&format!("c{line}")), &back) >= 3.0, "c{line} on {back}");
                }
            }
        }
    }
}
