//! Line charts as inline SVG, over seconds or over names. The style sheet of the page defines colours and fonts.

use std::fmt::Write;

use super::html::{COLORS, WIDTH, escape, figure};
use super::number::{round, ticks};

const HEIGHT: f64 = 190.0;
/// Room for the labels: left of the values, and below them.
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 10.0;
const RIGHT: f64 = 14.0;
const RIGHT_END: f64 = WIDTH - RIGHT;
const FLOOR: f64 = HEIGHT - BOTTOM;

/// One line.
#[derive(Default)]
pub struct Line {
    /// Its colour.
    pub color: usize,
    /// Its points, left to right.
    pub values: Vec<f64>,
    /// Points marked with a dot and a stripe over the whole height.
    pub marks: Vec<usize>,
    /// A reference level, drawn as a dashed line.
    pub level: Option<f64>,
    /// A band from one level to another.
    pub band: Option<(f64, f64)>,
}

/// Maps values to positions.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    points: usize,
}

impl Scale {
    fn x(&self, point: usize) -> f64 {
        LEFT + point as f64 / (self.points - 1) as f64 * (RIGHT_END - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(0.01).log10() } else { value };
        FLOOR - (value - self.low) / (self.high - self.low).max(1e-9) * (FLOOR - TOP)
    }
}

/// Lines over seconds; empty if all values are zero or no line has two points.
pub fn seconds(title: &str, note: &str, lines: &[Line]) -> String {
    let Some((points, max)) = extent(lines) else { return String::new() };
    let ticks = ticks(max);
    let scale = Scale { low: 0.0, high: ticks.last().copied().unwrap_or(max), logarithmic: false, points };
    let mut shapes = String::new();
    for tick in ticks {
        shapes += &level(&scale, tick, &round(tick));
    }
    for (position, second) in self::ticks((points - 1) as f64).into_iter().enumerate() {
        if second.fract() == 0.0 && (second as usize) < points {
            let label = if position == 0 { "0".to_owned() } else { format!("{} s", round(second)) };
            shapes += &below(scale.x(second as usize), &label);
        }
    }
    for line in lines {
        shapes += &draw(&scale, line, false);
    }
    figure(title, note, HEIGHT, &shapes)
}

/// Lines over names with a logarithmic scale, labelled by `number`; empty if all values are zero.
pub fn named(title: &str, note: &str, lines: &[Line], names: &[&str], number: fn(f64) -> String) -> String {
    let Some((points, max)) = extent(lines) else { return String::new() };
    let min = lines.iter().flat_map(|line| line.values.iter().copied()).fold(max, f64::min).max(0.01);
    let (low, high) = (min.log10().floor(), max.log10().ceil().max(min.log10().floor() + 1.0));
    let scale = Scale { low, high, logarithmic: true, points };
    let mut shapes = String::new();
    for power in low as i32..=high as i32 {
        shapes += &level(&scale, 10f64.powi(power), &number(10f64.powi(power)));
    }
    for (point, name) in names.iter().enumerate() {
        shapes += &below(scale.x(point), name);
    }
    for line in lines {
        shapes += &draw(&scale, line, true);
    }
    figure(title, note, HEIGHT, &shapes)
}

/// The most points of a line, and the largest value of all.
fn extent(lines: &[Line]) -> Option<(usize, f64)> {
    let points = lines.iter().map(|line| line.values.len()).max().filter(|points| *points > 1)?;
    let levels = lines.iter().filter_map(|line| line.level);
    let max = lines.iter().flat_map(|line| line.values.iter().copied()).chain(levels).fold(0.0, f64::max);
    (max > 0.0).then_some((points, max))
}

fn level(scale: &Scale, value: f64, label: &str) -> String {
    let y = scale.y(value);
    format!(
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT_END}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
        LEFT - 6.0,
        y + 4.0,
        escape(label),
    )
}

fn below(x: f64, label: &str) -> String {
    let anchor = if x > RIGHT_END - 14.0 { "end" } else { "middle" };
    let x = if anchor == "end" { WIDTH - 1.0 } else { x };
    format!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>\n", HEIGHT - 5.0, escape(label))
}

fn draw(scale: &Scale, line: &Line, dots: bool) -> String {
    let mut shapes = format!("<g class=\"c{}\">", line.color % COLORS);
    if let Some((low, high)) = line.band {
        let (top, height) = (scale.y(high), scale.y(low) - scale.y(high));
        let width = RIGHT_END - LEFT;
        shapes += &format!(
            "<rect class=\"band\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{width}\" height=\"{:.1}\"/>",
            height.max(1.0)
        );
    }
    let width = (scale.x(1) - scale.x(0)).max(2.0);
    for &mark in &line.marks {
        let x = (scale.x(mark) - width / 2.0).max(LEFT);
        shapes += &format!(
            "<rect class=\"band\" x=\"{x:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{}\"/>",
            width.min(RIGHT_END - x),
            FLOOR - TOP
        );
    }
    if let Some(level) = line.level {
        let y = scale.y(level);
        shapes += &format!("<line class=\"level\" x1=\"{LEFT}\" x2=\"{RIGHT_END}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
    }
    let mut path = String::new();
    for (point, &value) in line.values.iter().enumerate() {
        let _ = write!(path, "{:.1},{:.1} ", scale.x(point), scale.y(value)); // Writing to a String cannot fail.
    }
    shapes += &format!("<polyline points=\"{}\"/>", path.trim_end());
    let dotted: Vec<usize> =
        if dots || line.values.len() == 1 { (0..line.values.len()).collect() } else { line.marks.clone() };
    for point in dotted {
        let value = line.values.get(point).copied().unwrap_or_default();
        shapes += &format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>", scale.x(point), scale.y(value));
    }
    shapes + "</g>\n"
}

#[cfg(test)]
mod tests {
    use super::super::number::time;
    use super::*;

    #[test]
    fn charts_without_data_are_omitted() {
        let line = |values: Vec<f64>| [Line { values, ..Line::default() }];
        assert_eq!(seconds("one point", "", &line(vec![1.0])), "");
        assert_eq!(seconds("zeros", "", &line(vec![0.0, 0.0])), "");
        assert!(seconds("some", "", &line(vec![0.0, 5.0])).contains("<polyline"));
        assert!(named("same", "", &line(vec![5.0, 5.0]), &["a", "b"], time).contains("10 µs"));
    }

    #[test]
    fn all_shapes_are_within_the_chart() {
        let line = Line {
            values: vec![3.0, 0.0, 1000.0],
            marks: vec![1],
            level: Some(1200.0),
            band: Some((3.0, 900.0)),
            ..Line::default()
        };
        let chart = seconds("t", "", &[line]);
        let number = |text: &str| text.split_once('"').and_then(|(number, _)| number.parse::<f64>().ok());
        for part in ["y=\"", "y1=\"", "cy=\""] {
            let positions: Vec<f64> = chart.split(part).skip(1).filter_map(number).collect();
            assert!(!positions.is_empty() && positions.iter().all(|y| (0.0..=HEIGHT).contains(y)), "{part} {chart}");
        }
        assert!(chart.contains("class=\"band\"") && chart.contains("<circle") && chart.contains("class=\"level\""));
    }
}
