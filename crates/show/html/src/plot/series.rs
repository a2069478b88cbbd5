//! Series of numbers on two axes, as lines or only as marks.

use crate::plot::axis::Axis;
use crate::plot::chart::{Chart, Drawing, Frame, Head, Look, OTHERS, drawn};
use crate::plot::svg::{Anchor, Pen, path};

/// Points, and the name of the series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub name: String,
    /// A text below the name in a legend.
    pub note: String,
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The text under a pointer.
    pub says: String,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// From one point to the next, with a mark at each.
    Lines,
    /// No mark: there are many points.
    Curves,
    Marks,
}

/// What is drawn.
pub struct Picture<'a> {
    pub title: String,
    /// A description for readers who do not see it.
    pub about: String,
    /// The machine of the measurement, and the version of doorbell.
    pub below: [&'a str; 2],
    pub axes: (Axis, Axis),
    pub labels: (&'a str, &'a str),
    pub form: Form,
    /// Series with distinct looks.
    pub series: &'a [Series],
    /// Thin grey series, and their description.
    pub others: &'a [Series],
    /// Upright lines: where, and a letter or a short word.
    pub crossings: &'a [(f64, String)],
}

const HEIGHT: f64 = 320.0;
/// Height of a line in a legend beside the panel.
const LINE: f64 = 34.0;

/// For a page, and as a file.
pub fn draw(picture: &Picture<'_>) -> [Drawing; 2] {
    drawn(|frame| one(picture, frame))
}

fn one(picture: &Picture<'_>, frame: Frame) -> Drawing {
    let head = Head::new(&picture.title, &picture.about, picture.below, frame);
    let height = if frame == Frame::FILE { HEIGHT.max(LINE * picture.series.len() as f64 + 12.0) } else { HEIGHT };
    let mut chart = Chart::new(&head, height);
    let panel = chart.panel(picture.axes.clone(), (0.0, height), picture.labels.1);
    let at = |p: &Point| panel.at((p.x, p.y));
    if !picture.others.is_empty() {
        chart.svg.group("others", None);
        for series in picture.others {
            chart.svg.group("thin", Some(&series.name));
            chart.svg.path(&path(series.points.iter().map(at)), OTHERS);
            chart.svg.close();
        }
        chart.svg.close();
    }
    for (x, name) in picture.crossings {
        let x = panel.at_x(*x);
        let (top, bottom) = (panel.top(), panel.top() + panel.height());
        chart.svg.line((x, top), (x, bottom), Pen { colour: "#444", width: 1.0, dash: "2 3" });
        chart.svg.text((x + 4.0, top + 13.0), 12.0, Anchor::Start, name);
    }
    for (number, series) in picture.series.iter().enumerate() {
        let look = Look { number };
        chart.svg.group("series", Some(&series.name));
        let points = || series.points.iter().map(at);
        match picture.form {
            Form::Lines | Form::Curves => chart.svg.path(&path(points()), look.pen()),
            Form::Marks => {}
        }
        if picture.form != Form::Curves {
            for p in &series.points {
                let says = Some(p.says.as_str()).filter(|says| !says.is_empty());
                if says.is_some() {
                    chart.svg.group("point", says);
                }
                chart.svg.marker(number, at(p), 4.0, look.colour());
                if says.is_some() {
                    chart.svg.close();
                }
            }
        }
        chart.svg.close();
    }
    let entries: Vec<_> =
        picture.series.iter().enumerate().map(|(n, s)| (Look { number: n }, s.name.as_str(), s.note.clone())).collect();
    chart.legend(&panel, &entries);
    if !picture.others.is_empty() {
        chart.others(format!("{} others, thin", picture.others.len()));
    }
    chart.finish(picture.labels.0)
}
