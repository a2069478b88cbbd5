//! Rounds in order, a panel for each cell: whether a cell has one speed or two, and whether it drifts. An upright line separates repeats, which are
//! separate processes, and no line joins them.

use crate::plot::axis::Axis;
use crate::plot::chart::{Chart, Drawing, Frame, Head, Look, cut, drawn};
use crate::plot::svg::{Pen, path};

/// The rounds of one cell, or of the same cell in two runs.
pub struct Panel {
    pub title: String,
    pub y: Axis,
    /// Series with distinct looks, which are the same in every panel.
    pub series: Vec<Rounds>,
}

/// The rounds of one cell in one run: the position and value of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// In the order of time.
    pub points: Vec<Round>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// From 0, over all repeats.
    pub at: usize,
    pub repeat: u32,
    pub value: f64,
}

/// What is drawn.
pub struct Picture<'a> {
    pub title: String,
    /// A description for readers who do not see it.
    pub about: String,
    pub below: [&'a str; 2],
    /// The name of the values, such as `p50`.
    pub label: &'a str,
    pub panels: &'a [Panel],
    /// Rounds in all, and where repeats begin, the first left out.
    pub rounds: usize,
    pub repeats: &'a [usize],
    /// Names of the series; empty if there is only one.
    pub names: &'a [String],
}

const HEIGHT: f64 = 92.0;
const GAP: f64 = 28.0;
/// With more rounds, marks would overlap.
const MARKED: usize = 80;

/// For a page, and as a file.
pub fn draw(picture: &Picture<'_>) -> [Drawing; 2] {
    drawn(|frame| one(picture, frame))
}

fn one(picture: &Picture<'_>, frame: Frame) -> Drawing {
    let head = Head::new(&picture.title, &picture.about, picture.below, frame);
    let each = HEIGHT + GAP;
    let mut chart = Chart::new(&head, each * picture.panels.len() as f64);
    let mut first = None;
    for (n, of) in picture.panels.iter().enumerate() {
        let label = if n == 0 { picture.label } else { "" };
        let top = each * n as f64 + GAP;
        let panel = chart.panel((Axis::whole(picture.rounds), of.y.clone()), (top, HEIGHT), label);
        let (left, above) = (panel.left(), panel.top());
        // On a narrow screen it begins at the edge, where there is more room.
        let (from, most) = if frame == Frame::PHONE { (4.0, 44) } else { (left, 90) };
        chart.svg.bold((from, above - 7.0), 12.0, &cut(&of.title, most));
        for at in picture.repeats {
            let x = panel.at_x(*at as f64);
            chart.svg.line((x, above), (x, above + HEIGHT), Pen { colour: "#444", width: 1.0, dash: "2 3" });
        }
        for (number, series) in of.series.iter().enumerate() {
            let look = Look { number };
            let at = |r: &Round| panel.at((r.at as f64 + 0.5, r.value));
            chart.svg.group("series", picture.names.get(number).map(String::as_str));
            let repeats = series.points.chunk_by(|a, b| a.repeat == b.repeat);
            let lines: String = repeats.map(|repeat| path(repeat.iter().map(at))).collect();
            chart.svg.path(&lines, Pen { width: 1.2, ..look.pen() });
            if picture.rounds <= MARKED {
                series.points.iter().for_each(|r| chart.svg.marker(number, at(r), 2.4, look.colour()));
            }
            chart.svg.close();
        }
        first.get_or_insert(panel);
    }
    if let Some(panel) = first.filter(|_| picture.names.len() > 1) {
        let entries: Vec<_> =
            picture.names.iter().enumerate().map(|(number, n)| (Look { number }, n.as_str(), String::new())).collect();
        chart.legend(&panel, &entries);
    }
    let repeats = if picture.repeats.is_empty() { "" } else { "; a dotted line: the next repeat" };
    chart.finish(&format!("round, in the order of time{repeats}"))
}
