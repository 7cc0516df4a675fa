//! The summary: sentences, charts and a table of CleaveDB's figures divided by those of each other engine.

use super::bars::factors;
use super::html::escape;
use super::number::times;
use super::runs::Group;
use crate::engine::OURS;
use crate::result::{EVEN, Outcome};

/// A figure, and whether a higher value is better.
struct Kind {
    title: &'static str,
    higher_is_better: bool,
    value: fn(&Outcome) -> Option<f64>,
}

const KINDS: [Kind; 6] = [
    Kind { title: "throughput", higher_is_better: true, value: |outcome| Some(outcome.ops_per_s) },
    Kind { title: "P50", higher_is_better: false, value: |outcome| Some(outcome.latency_us.as_ref()?.p50) },
    Kind { title: "P99", higher_is_better: false, value: |outcome| Some(outcome.latency_us.as_ref()?.p99) },
    Kind { title: "CPU", higher_is_better: false, value: |outcome| Some(outcome.cpu_s_per_million) },
    Kind { title: "write amplification", higher_is_better: false, value: |outcome| outcome.write_amplification },
    Kind { title: "space", higher_is_better: false, value: |outcome| Some(outcome.space_bytes as f64) },
];

/// Number of wins that are listed. Losses are all listed.
const LISTED: usize = 6;

/// A workload that both CleaveDB and the rival ran.
struct Pair<'a> {
    label: &'a str,
    /// CleaveDB's figures divided by the rival's, in the order of `KINDS`.
    factors: Vec<Option<f64>>,
}

/// The section, with a sentence if there is only one engine.
pub fn section(groups: &[Group<'_>], engines: &[&str]) -> String {
    let rivals: Vec<&str> = engines.iter().copied().filter(|engine| *engine != OURS).collect();
    let compared: Vec<(&str, Vec<Pair<'_>>)> =
        rivals.iter().map(|rival| (*rival, pairs(groups, rival))).filter(|(_, pairs)| !pairs.is_empty()).collect();
    if compared.is_empty() {
        return "<h2>Summary</h2>\n<p>These results have only one engine, so there is nothing to compare.</p>\n"
            .to_owned();
    }
    let mut html = String::from("<h2>Summary</h2>\n");
    for (rival, pairs) in &compared {
        html += &sentences(rival, pairs);
        let throughput: Vec<(&str, f64)> =
            pairs.iter().filter_map(|pair| Some((pair.label, pair.factors[0]?))).collect();
        let note = "right of 1×: CleaveDB does more operations per second";
        let chart = factors(&format!("Throughput, CleaveDB over {rival}"), note, &throughput);
        html += &format!("<div class=\"pair\">\n{chart}{}</div>\n", table(rival, pairs));
    }
    html
}

fn pairs<'a>(groups: &'a [Group<'_>], rival: &str) -> Vec<Pair<'a>> {
    let first = |group: &'a Group<'_>, name: &str| group.entries.iter().find(|entry| entry.outcome.engine == name);
    let pair = |group: &'a Group<'_>| {
        let (ours, theirs) = (first(group, OURS)?.outcome, first(group, rival)?.outcome);
        let factor = |kind: &Kind| {
            let (ours, theirs) = ((kind.value)(ours)?, (kind.value)(theirs)?);
            (ours > 0.0 && theirs > 0.0).then(|| ours / theirs)
        };
        Some(Pair { label: &group.label, factors: KINDS.iter().map(factor).collect() })
    };
    groups.iter().filter_map(pair).collect()
}

/// The numbers of wins and losses, with their workloads.
fn sentences(rival: &str, pairs: &[Pair<'_>]) -> String {
    let mut throughput: Vec<(&str, f64)> =
        pairs.iter().filter_map(|pair| Some((pair.label, pair.factors[0]?))).collect();
    throughput.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let named = |list: &[(&str, f64)]| {
        let names = list.iter().map(|(label, factor)| format!("{} {}", escape(label), times(*factor)));
        names.collect::<Vec<_>>().join(", ")
    };
    let some = |list: &[(&str, f64)]| match list.len() {
        count if count > LISTED => format!("{} and {} more", named(&list[..LISTED]), count - LISTED),
        _ => named(list),
    };
    let wins: Vec<_> = throughput.iter().copied().filter(|(_, factor)| *factor > EVEN).collect();
    let losses: Vec<_> = throughput.iter().rev().copied().filter(|(_, factor)| *factor < 1.0 / EVEN).collect();
    let even = throughput.len() - wins.len() - losses.len();
    let mut html = format!(
        "<p class=\"lead\"><b>Against {}</b>: <b class=\"win\">faster in {}</b>, <b class=\"lose\">slower in {}</b>{} of \
         {} workloads.",
        escape(rival),
        wins.len(),
        losses.len(),
        if even > 0 { format!(", even (within 5%) in {even}") } else { String::new() },
        throughput.len(),
    );
    if !wins.is_empty() {
        html += &format!(" Wins: {}.", some(&wins));
    }
    if !losses.is_empty() {
        html += &format!(" Losses: {}.", named(&losses));
    }
    for (number, kind) in KINDS.iter().enumerate().skip(2) {
        let factors: Vec<f64> = pairs.iter().filter_map(|pair| pair.factors[number]).collect();
        let better = factors.iter().filter(|factor| **factor < 1.0 / EVEN).count();
        let worse = factors.iter().filter(|factor| **factor > EVEN).count();
        if !factors.is_empty() {
            html += &format!(" {}: lower in {better}, higher in {worse} of {}.", capital(kind.title), factors.len());
        }
    }
    html + "</p>\n"
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

fn table(rival: &str, pairs: &[Pair<'_>]) -> String {
    let mut html = format!("<div class=\"wide\"><table>\n<tr><th>CleaveDB over {}</th>", escape(rival));
    for kind in &KINDS {
        let direction = if kind.higher_is_better { "higher is better" } else { "lower is better" };
        html += &format!("<th>{}<small>{direction}</small></th>", kind.title);
    }
    html += "</tr>\n";
    for pair in pairs {
        html += &format!("<tr><td>{}</td>", escape(pair.label));
        for (kind, factor) in KINDS.iter().zip(&pair.factors) {
            html += &match factor {
                Some(factor) => format!("<td{}>{}</td>", verdict(kind, *factor), times(*factor)),
                None => "<td>-</td>".to_owned(),
            };
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n"
}

fn verdict(kind: &Kind, factor: f64) -> &'static str {
    let better = if kind.higher_is_better { factor } else { 1.0 / factor };
    match better {
        better if better > EVEN => " class=\"win\"",
        better if better < 1.0 / EVEN => " class=\"lose\"",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wins_and_losses_are_distinguished_from_noise() {
        let pair =
            |label, throughput| Pair { label, factors: vec![Some(throughput), None, Some(0.5), None, None, None] };
        let html = sentences("rocksdb", &[pair("a", 2.0), pair("b", 0.5), pair("c", 1.01)]);
        assert!(
            html.contains("faster in 1<") && html.contains("slower in 1<") && html.contains("even (within 5%) in 1")
        );
        assert!(html.contains("Wins: a 2.00×.") && html.contains("Losses: b 0.50×."), "{html}");
        assert!(html.contains("P99: lower in 3, higher in 0 of 3."), "{html}");
        assert_eq!(verdict(&KINDS[0], 2.0), verdict(&KINDS[1], 0.5));
        assert_ne!(verdict(&KINDS[0], 2.0), verdict(&KINDS[1], 2.0));
        assert_eq!(verdict(&KINDS[0], 1.02), "");
    }
}
