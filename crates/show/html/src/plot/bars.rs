//! Stacked bars, with levels across all of them and marks at each.

use crate::plot::axis::Axis;
use crate::plot::chart::{Chart, Drawing, Frame, Head, Look, drawn};
use crate::plot::svg::Pen;

/// One bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// Below it.
    pub name: String,
    /// From the axis up: the height of each part, and its text under a pointer.
    pub parts: Vec<(f64, String)>,
    /// A short line across only this bar for each of [`Bars::marks`], if there is one.
    pub marks: Vec<Option<f64>>,
}

/// What is drawn.
pub struct Bars<'a> {
    pub title: String,
    /// A description for readers who do not see it.
    pub about: String,
    /// The machine of the measurement, and the version of doorbell.
    pub below: [&'a str; 2],
    pub axis: Axis,
    pub labels: (&'a str, &'a str),
    /// Names of the parts, from the axis up.
    pub parts: &'a [&'a str],
    pub bars: &'a [Bar],
    /// Names of the marks.
    pub marks: &'a [&'a str],
    /// Lines across all bars.
    pub levels: &'a [(String, f64)],
}

const HEIGHT: f64 = 340.0;
/// Height of a line in a legend beside the panel.
const LINE: f64 = 34.0;
/// Fraction of the room that a bar fills.
const WIDTH: f64 = 0.62;

/// For a page, and as a file.
pub fn draw(bars: &Bars<'_>) -> [Drawing; 2] {
    drawn(|frame| one(bars, frame))
}

fn one(bars: &Bars<'_>, frame: Frame) -> Drawing {
    let head = Head::new(&bars.title, &bars.about, bars.below, frame);
    let entries = bars.parts.len() + bars.marks.len() + bars.levels.len();
    let height = if frame == Frame::FILE { HEIGHT.max(LINE * entries as f64 + 12.0) } else { HEIGHT };
    let mut chart = Chart::new(&head, height);
    let names: Vec<&str> = bars.bars.iter().map(|bar| bar.name.as_str()).collect();
    let panel = chart.panel((Axis::names(&names), bars.axis.clone()), (0.0, height), bars.labels.1);
    for (n, bar) in bars.bars.iter().enumerate() {
        let at = |part: f64| panel.at_x(n as f64 + 0.5 + part * WIDTH / 2.0);
        let (left, right) = (at(-1.0), at(1.0));
        chart.svg.group("bar", Some(&bar.name));
        let mut from = 0.0;
        for (number, (more, says)) in bar.parts.iter().enumerate().filter(|(_, (more, _))| *more > 0.0) {
            let (low, high) = (panel.at_y(from), panel.at_y(from + more));
            let corners = [(left, low), (left, high), (right, high), (right, low), (left, low)];
            let look = Look { number };
            chart.svg.group("point", Some(says.as_str()).filter(|says| !says.is_empty()));
            // The lower parts are denser, so they can also be distinguished without colour.
            chart.svg.area(corners, look.colour(), if number == 0 { 0.55 } else { 0.18 });
            chart.svg.path(&crate::plot::svg::path(corners), look.thin());
            chart.svg.close();
            from += more;
        }
        for (m, mark) in bar.marks.iter().enumerate().filter_map(|(m, mark)| Some((m, (*mark)?))) {
            let look = Look { number: bars.parts.len() + m };
            let y = panel.at_y(mark);
            chart.svg.line((at(-1.35), y), (at(1.35), y), Pen { dash: "", ..look.pen() });
            chart.svg.marker(look.number, (at(0.0), y), 4.0, look.colour());
        }
        chart.svg.close();
    }
    let (first, last) = (panel.left(), panel.left() + panel.width());
    let above = bars.parts.len() + bars.marks.len();
    for (n, (name, level)) in bars.levels.iter().enumerate() {
        let (look, y) = (Look { number: above + n }, panel.at_y(*level));
        chart.svg.group("level", Some(name));
        chart.svg.line((first, y), (last, y), look.pen());
        chart.svg.close();
    }
    let levels = bars.levels.iter().map(|(name, _)| name.as_str());
    let entries: Vec<_> =
        bars.parts.iter().copied().chain(bars.marks.iter().copied()).chain(levels).enumerate().collect();
    let entries: Vec<_> = entries.into_iter().map(|(number, name)| (Look { number }, name, String::new())).collect();
    chart.legend(&panel, &entries);
    chart.finish(bars.labels.0)
}
