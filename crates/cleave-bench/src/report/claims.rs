//! The section with the claims of papers beside the measurements.

use super::html::escape;
use crate::paper::Results;
use crate::paper::claim::Claim;

/// A table for each paper.
pub fn section(papers: &[Results]) -> String {
    let mut html = String::new();
    for paper in papers {
        html += &format!("<h2>Claims: {}</h2>\n", escape(&paper.title));
        if !paper.notes.is_empty() {
            html += &format!("<p>{}.</p>\n", escape(&paper.notes.join("; ")));
        }
        let (measured, missing): (Vec<&Claim>, Vec<&Claim>) =
            paper.claims.iter().partition(|claim| claim.measured.is_some());
        html += &match measured.is_empty() {
            true => "<p class=\"lead\">Nothing was measured.</p>\n".to_owned(),
            false => table(&measured),
        };
        if !missing.is_empty() {
            html += &format!("<details><summary>Not measured: {}</summary>\n", missing.len());
            html += "<div class=\"wide\"><table class=\"words\">\n<tr><th>experiment</th><th>claim</th><th>why</th><th>figures</th></tr>\n";
            for claim in missing {
                let cells = [&claim.name_words(), &claim.claim, &claim.measured_words(), &claim.figures_words()];
                html += &row(&cells.map(|cell| escape(cell)), "");
            }
            html += "</table></div></details>\n";
        }
    }
    html
}

fn table(claims: &[&Claim]) -> String {
    let mut html = String::from(
        "<p>Measured: CleaveDB's figure divided by RocksDB's, or by its own with other options, or the figure itself, on this machine at \
         this scale. Ratio: measured divided by claimed, 1 within a claimed range. Green: the claim was reached.</p>\n<div class=\"wide\"><table class=\"words\">\n<tr><th>experiment</th><th>claim</th>\
         <th>measured</th><th>ratio</th><th>figures</th></tr>\n",
    );
    for claim in claims {
        let cells = [
            escape(&claim.name_words()),
            escape(&claim.claim),
            escape(&claim.measured_words()),
            escape(&claim.ratio_words()),
            escape(&claim.figures_words()),
        ];
        html += &row(&cells, verdict(claim));
    }
    html + "</table></div>\n"
}

fn row(cells: &[String], class: &str) -> String {
    let cells = cells.iter().enumerate().map(|(column, cell)| match column {
        2 | 3 if !class.is_empty() => format!("<td class=\"{class}\">{cell}</td>"),
        _ => format!("<td>{cell}</td>"),
    });
    format!("<tr>{}</tr>\n", cells.collect::<String>())
}

/// Whether the claim was reached.
fn verdict(claim: &Claim) -> &'static str {
    match (claim.ratio, claim.less_is_better) {
        (None, _) => "",
        (Some(ratio), false) if ratio >= 1.0 => "win",
        (Some(ratio), true) if ratio <= 1.0 => "win",
        (Some(_), _) => "lose",
    }
}
