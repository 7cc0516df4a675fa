//! Bar charts as inline SVG. The style sheet of the page defines colours and fonts.

use super::html::{COLORS, WIDTH, escape, figure};
use super::number::times;
use crate::result::EVEN;

/// One bar.
pub struct Bar<'a> {
    /// Its colour.
    pub color: usize,
    /// The text to the left of it.
    pub label: &'a str,
    /// Its length, and the number beside it.
    pub value: f64,
    /// A marked value, such as a limit or a target.
    pub mark: Option<f64>,
}

/// The least room for the labels on the left, and what a character of them takes at most on average.
const LEFT_MIN: f64 = 84.0;
const CHARACTER: f64 = 7.0;
/// Room for the number on the right.
const RIGHT: f64 = 62.0;
const ROW: f64 = 26.0;

/// Horizontal bars; nothing if there are none.
pub fn bars(title: &str, note: &str, bars: &[Bar<'_>], number: fn(f64) -> String) -> String {
    let max = bars.iter().map(|bar| bar.value.max(bar.mark.unwrap_or(0.0))).fold(0.0, f64::max);
    if bars.iter().all(|bar| bar.value <= 0.0) {
        return String::new();
    }
    let longest = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * CHARACTER + 7.0).clamp(LEFT_MIN, WIDTH / 2.0);
    let length = |value: f64| (value / max * (WIDTH - left - RIGHT)).max(1.0);
    let mut shapes = String::new();
    for (position, bar) in bars.iter().enumerate() {
        let y = position as f64 * ROW + 4.0;
        let end = left + length(bar.value).max(bar.mark.map_or(0.0, length));
        let (label, value, color, middle) = (escape(bar.label), number(bar.value), bar.color % COLORS, y + 13.0);
        shapes += &format!(
            "<g class=\"c{color}\"><text class=\"name\" x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{label}</text>\
             <rect x=\"{left}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"18\" rx=\"2\"/>\
             <text class=\"value\" x=\"{:.1}\" y=\"{middle:.1}\">{value}</text>",
            left - 7.0,
            length(bar.value),
            end + 6.0,
        );
        if let Some(mark) = bar.mark {
            let x = left + length(mark);
            shapes +=
                &format!("<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>", y - 3.0, y + 21.0);
        }
        shapes += "</g>\n";
    }
    figure(title, note, bars.len() as f64 * ROW + 4.0, &shapes)
}

/// `label`, truncated if necessary to fit above a bar.
fn cut(label: &str) -> String {
    const MOST: usize = 48;
    match label.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.to_owned(),
    }
}

/// Factors as bars to the right of 1 (more) or to the left (less), on a logarithmic scale; nothing if there are none.
pub fn factors(title: &str, note: &str, factors: &[(&str, f64)]) -> String {
    let factors: Vec<_> = factors.iter().filter(|(_, factor)| factor.is_finite() && *factor > 0.0).collect();
    let Some(most) = factors.iter().map(|(_, factor)| factor.log2().abs()).max_by(f64::total_cmp) else {
        return String::new();
    };
    let (row, middle, side) = (38.0, WIDTH / 2.0, WIDTH / 2.0 - 52.0);
    let height = factors.len() as f64 * row + 20.0;
    // Each side covers at least a factor of two, so that small differences look small.
    let most = most.max(1.0);
    let x = |factor: f64| middle + factor.log2() / most * side;
    let mut shapes = String::new();
    let reach = most.floor() as i32;
    let step = (reach / 2).max(1);
    for power in (-reach..=reach).filter(|power| power % step == 0) {
        let (factor, x) = (2f64.powi(power), x(2f64.powi(power)));
        let class = if power == 0 { "axis" } else { "grid" };
        let label = if power < 0 { format!("1/{}×", 2f64.powi(-power)) } else { format!("{factor}×") };
        shapes += &format!("<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"16\" y2=\"{height}\"/>");
        shapes += &format!("<text x=\"{x:.1}\" y=\"11\" text-anchor=\"middle\">{label}</text>\n");
    }
    for (position, (label, factor)) in factors.iter().enumerate() {
        let y = position as f64 * row + 20.0;
        let (from, to) = (x(factor.min(1.0)), x(factor.max(1.0)));
        let (anchor, at) = if *factor >= 1.0 { ("start", to + 5.0) } else { ("end", from - 5.0) };
        let class = match *factor {
            factor if factor > EVEN => "win",
            factor if factor < 1.0 / EVEN => "lose",
            _ => "even",
        };
        shapes += &format!(
            "<g class=\"{class}\"><text class=\"name\" x=\"2\" y=\"{:.1}\">{}</text>\
             <rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\"/>\
             <text class=\"value\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text></g>\n",
            y + 13.0,
            escape(&cut(label)),
            y + 18.0,
            (to - from).max(1.0),
            y + 29.0,
            times(*factor),
        );
    }
    figure(title, note, height, &shapes)
}

#[cfg(test)]
mod tests {
    use super::super::number::short;
    use super::*;

    #[test]
    fn charts_without_data_are_omitted() {
        assert_eq!(bars("nothing", "", &[], short), "");
        assert_eq!(bars("zero", "", &[Bar { color: 0, label: "a", value: 0.0, mark: Some(1.0) }], short), "");
        assert_eq!(factors("nothing", "", &[("a", f64::NAN), ("b", 0.0)]), "");
    }

    #[test]
    fn factors_are_drawn_on_their_side_of_one() {
        let chart = factors("t", "", &[("more", 4.0), ("less", 0.5)]);
        let (more, less) = chart.split_once("less").unwrap();
        assert!(more.contains("class=\"win\"") && more.contains("4.00×"));
        assert!(less.contains("0.50×") && !less.contains("class=\"win\""));
    }
}
