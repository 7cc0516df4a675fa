//! Charts as inline SVG. Colours and fonts are the page's.

use std::fmt::Write;

/// Colours that the page has.
pub const COLORS: usize = 6;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 170.0;
/// Room for the labels: left of the values, and below them.
const LEFT: f64 = 44.0;
const BOTTOM: f64 = 20.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 12.0;

/// One bar.
pub struct Bar<'a> {
    /// Its colour.
    pub color: usize,
    /// What is left of it.
    pub label: &'a str,
    /// Its length, and the number beside it.
    pub value: f64,
}

/// One line.
pub struct Line {
    /// Its colour.
    pub color: usize,
    /// Its points, left to right.
    pub values: Vec<f64>,
    /// Points that get a dot.
    pub marks: Vec<usize>,
}

/// `text` as it goes between tags.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Horizontal bars; nothing if there are none.
pub fn bars(title: &str, bars: &[Bar<'_>]) -> String {
    let max = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    if max <= 0.0 {
        return String::new();
    }
    let (left, room) = (64.0, WIDTH - 64.0 - 56.0);
    let mut shapes = String::new();
    for (position, bar) in bars.iter().enumerate() {
        let (y, length) = (position as f64 * 24.0 + 4.0, (bar.value / max * room).max(1.0));
        shapes += &format!(
            "<g class=\"c{}\"><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{left}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"16\" rx=\"2\"/>\
             <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n",
            bar.color % COLORS,
            left - 6.0,
            y + 12.0,
            escape(bar.label),
            left + length + 5.0,
            y + 12.0,
            short(bar.value),
        );
    }
    figure(title, bars.len() as f64 * 24.0 + 4.0, &shapes)
}

/// Lines over seconds, or over `names`; nothing if all of it is zero or no line has two points.
pub fn lines(title: &str, lines: &[Line], names: &[String], logarithmic: bool) -> String {
    let values = || lines.iter().flat_map(|line| line.values.iter().copied());
    let points = lines.iter().map(|line| line.values.len()).max().unwrap_or(0);
    let max = values().fold(0.0, f64::max);
    if points < 2 || max <= 0.0 {
        return String::new();
    }
    let (low, high) = match logarithmic {
        true => (values().fold(max, f64::min).max(0.01).log10().floor(), max.log10().ceil()),
        false => (0.0, max * 1.05),
    };
    let x = |point: usize| LEFT + point as f64 / (points - 1) as f64 * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        let value = if logarithmic { value.max(0.01).log10() } else { value };
        HEIGHT - BOTTOM - (value - low) / (high - low).max(1e-9) * (HEIGHT - BOTTOM - TOP)
    };
    let ticks: Vec<f64> = match logarithmic {
        true => (low as i32..=high as i32).map(|power| 10f64.powi(power)).collect(),
        false => (0..=3).map(|part| max * f64::from(part) / 3.0).collect(),
    };
    let mut shapes = String::new();
    for tick in ticks {
        let (y, right, label) = (y(tick), WIDTH - RIGHT, short(tick));
        shapes += &format!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        shapes += &format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n", LEFT - 5.0, y + 4.0);
    }
    let labels: Vec<(usize, String)> = match names {
        [] => vec![(0, "1 s".to_owned()), (points - 1, format!("{points} s"))],
        names => names.iter().cloned().enumerate().collect(),
    };
    for (point, label) in labels {
        let (x, y, label) = (x(point), HEIGHT - 4.0, escape(&label));
        shapes += &format!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>\n");
    }
    for line in lines {
        let mut path = String::new();
        for (point, &value) in line.values.iter().enumerate() {
            let _ = write!(path, "{:.1},{:.1} ", x(point), y(value)); // A string takes everything.
        }
        shapes += &format!("<g class=\"c{}\"><polyline points=\"{}\"/>", line.color % COLORS, path.trim_end());
        for &mark in &line.marks {
            let value = line.values.get(mark).copied().unwrap_or_default();
            shapes += &format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>", x(mark), y(value));
        }
        shapes += "</g>\n";
    }
    figure(title, HEIGHT, &shapes)
}

fn figure(title: &str, height: f64, shapes: &str) -> String {
    let title = escape(title);
    format!(
        "<figure><figcaption>{title}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{title}\">\n{shapes}</svg></figure>\n"
    )
}

/// A number of three or four digits.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{:.1}M", value / 1e6),
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e4 => format!("{:.1}k", value / 1e3),
        value if value >= 100.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        let cases =
            [(0.0, "0"), (0.254, "0.25"), (12.34, "12.3"), (450.4, "450"), (123_456.0, "123.5k"), (2.5e6, "2.50M")];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn charts_without_anything_to_show_are_left_out() {
        let line = |values: Vec<f64>| [Line { color: 0, values, marks: vec![] }];
        assert_eq!(bars("nothing", &[]), "");
        assert_eq!(lines("one point", &line(vec![1.0]), &[], false), "");
        assert_eq!(lines("zeros", &line(vec![0.0, 0.0]), &[], false), "");
        assert!(lines("some", &line(vec![0.0, 5.0]), &[], true).contains("<polyline"));
    }
}
