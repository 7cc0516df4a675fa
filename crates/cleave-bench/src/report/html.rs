//! What all parts of the page share: the width and the colours of charts, escaped text, a chart with its title.

/// Number of colours of the page for engines.
pub const COLORS: usize = 8;
/// The width of every chart in the units of its shapes, which are about pixels.
pub const WIDTH: f64 = 360.0;

/// Escapes `text` for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A chart with its title, and the lines of `note` below it.
pub fn figure(title: &str, note: &str, height: f64, shapes: &str) -> String {
    let title = escape(title);
    let note: String = note.lines().map(|line| format!("<small>{}</small>", escape(line))).collect();
    format!(
        "<figure><figcaption>{title}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{title}\">\n{shapes}</svg>{note}</figure>\n"
    )
}
