//! One value for each name, as bars from the left with the names above them, so that long names have room on any screen. A short line on each bar
//! shows its interval.

use crate::plot::axis::Axis;
use crate::plot::chart::{Chart, Drawing, Frame, Head, Look, cut, drawn};
use crate::plot::svg::{Anchor, Pen};

/// One bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    pub name: String,
    pub value: f64,
    /// As it is written, with its unit.
    pub written: String,
    /// The bounds of the value.
    pub interval: Option<(f64, f64)>,
}

/// What is drawn.
pub struct Ranked<'a> {
    pub title: String,
    /// A description for readers who do not see it.
    pub about: String,
    pub below: [&'a str; 2],
    pub axis: Axis,
    /// Of the axis.
    pub label: &'a str,
    pub bars: &'a [Bar],
}

const EACH: f64 = 36.0;
const THICK: f64 = 13.0;

/// For a page, and as a file.
pub fn draw(ranked: &Ranked<'_>) -> [Drawing; 2] {
    drawn(|frame| one(ranked, frame))
}

fn one(ranked: &Ranked<'_>, frame: Frame) -> Drawing {
    let head = Head::new(&ranked.title, &ranked.about, ranked.below, frame.without_labels_of_y());
    let height = EACH * ranked.bars.len() as f64 + 10.0;
    let mut chart = Chart::new(&head, height);
    let panel = chart.panel((ranked.axis.clone(), Axis::names(&[])), (0.0, height), "");
    let look = Look { number: 0 };
    for (n, bar) in ranked.bars.iter().enumerate() {
        let top = panel.top() + EACH * n as f64 + 18.0;
        let (left, right) = (panel.left(), panel.at_x(bar.value));
        let says = format!("{}: {}", bar.name, bar.written);
        chart.svg.group("bar", Some(&says));
        let corners = [(left, top), (right, top), (right, top + THICK), (left, top + THICK)];
        chart.svg.area(corners, look.colour(), 0.55);
        if let Some((low, high)) = bar.interval {
            let middle = top + THICK / 2.0;
            let ink = Pen { colour: "#000", width: 1.5, dash: "" };
            chart.svg.line((panel.at_x(low), middle), (panel.at_x(high), middle), ink);
            for x in [panel.at_x(low), panel.at_x(high)] {
                chart.svg.line((x, middle - 4.0), (x, middle + 4.0), ink);
            }
        }
        let room = if frame == Frame::PHONE { 34 } else { 80 };
        chart.svg.text((left + 5.0, top - 4.0), 12.0, Anchor::Start, &cut(&bar.name, room));
        chart.svg.text((left + panel.width() - 5.0, top - 4.0), 12.0, Anchor::End, &bar.written);
        chart.svg.close();
    }
    chart.finish(ranked.label)
}
