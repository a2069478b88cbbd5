//! The four pictures.

use crate::axis::Axis;
use crate::chart::{Chart, Drawing, Frame, Head, Look, Panel};
use crate::shape::Shape;
use crate::svg::{Anchor, Pen};
use experiment::Observe;
use numbers::tick::{bytes, count, nanoseconds};
use run_folder::run::CellOfRun;
use std::fmt::Write;

const HEIGHT: f64 = 440.0;
const PAGE_HEIGHT: f64 = 300.0;
const LINE_HEIGHT: f64 = 120.0;
const LINE_GAP: f64 = 30.0;

fn what(cells: &[&CellOfRun]) -> &'static str {
    let first = cells.first().map(|c| c.observe);
    match first.filter(|f| cells.iter().all(|c| c.observe == *f)) {
        Some(Observe::Done) => "from the intended release until the CPU saw the end",
        Some(Observe::Submit) => "of the call alone, until it returned",
        Some(Observe::Engine) => "of the engine alone, by the GPU's clock",
        None => "as each subject is observed",
    }
}

/// Room for the legend, if it is beside the panel.
fn height(head: &Head<'_>, series: usize) -> f64 {
    if head.frame == Frame::FILE { HEIGHT.max(34.0 * series as f64 + 12.0) } else { PAGE_HEIGHT }
}

/// The least and the largest.
fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values.into_iter().fold((f64::INFINITY, 0.0), |(low, high), v| (v.min(low), v.max(high)))
}

/// p50 against size, with a band up to p99.9. `None` if nothing has two sizes.
pub fn latency(head: &Head<'_>, cells: &[&CellOfRun]) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for c in cells.iter().filter(|c| c.bytes > 0 && c.observed().is_some()) {
        if !names.contains(&c.subject.as_str()) {
            names.push(&c.subject);
        }
    }
    let of = |name: &str| -> Vec<(&CellOfRun, f64, Option<f64>)> {
        let these = cells.iter().filter(|c| c.subject == name && c.bytes > 0);
        let point = |c: &&'_ CellOfRun| c.observed().map(|f| (f.summary.p50.max(1) as f64, f.summary.p999));
        let mut points: Vec<_> =
            these.filter_map(|c| point(c).map(|(p50, p999)| (*c, p50, p999.map(|v| v.max(1) as f64)))).collect();
        points.sort_by_key(|p| p.0.bytes);
        points
    };
    let series: Vec<(&str, Vec<_>)> = names.into_iter().map(|n| (n, of(n))).collect();
    let sizes = || series.iter().flat_map(|s| s.1.iter().map(|p| p.0.bytes));
    let (least, most) = (sizes().min()?, sizes().max()?);
    if least == most {
        return None;
    }
    let (low, high) =
        range(series.iter().flat_map(|s| s.1.iter().flat_map(|p| [Some(p.1), p.2].into_iter().flatten())));
    let height = height(head, series.len());
    let mut chart = Chart::new(head, height);
    let panel = chart.panel((Axis::sizes(least, most), Axis::times(low, high)), (0.0, height), "time");
    for (number, (name, points)) in series.iter().enumerate() {
        let look = Look { number };
        let band: Vec<_> = points.iter().filter_map(|p| Some((p.0.bytes as f64, p.1, p.2?))).collect();
        chart.svg.group("band", Some(&format!("{name}: p50 to p99.9")));
        if band.len() > 1 {
            let upper = || band.iter().map(|b| panel.at((b.0, b.2)));
            chart.svg.area(upper().chain(band.iter().rev().map(|b| panel.at((b.0, b.1)))), look.colour(), 0.1);
            chart.svg.path(&crate::svg::path(upper()), look.thin());
        }
        chart.svg.close();
    }
    for (number, (name, points)) in series.iter().enumerate() {
        let look = Look { number };
        chart.svg.group("series", Some(name));
        let at = |p: &(&CellOfRun, f64, Option<f64>)| panel.at((p.0.bytes as f64, p.1));
        chart.svg.path(&crate::svg::path(points.iter().map(at)), look.pen());
        for p in points {
            let tail = p.2.map_or(String::new(), |v| format!(", p99.9 {}", nanoseconds(v)));
            chart.svg.group("point", Some(&format!("{name}, {}: p50 {}{tail}", bytes(p.0.bytes), nanoseconds(p.1))));
            chart.svg.marker(number, at(p), 4.0, look.colour());
            chart.svg.close();
        }
        chart.svg.close();
    }
    let note = |points: &[(&CellOfRun, f64, Option<f64>)]| match points.iter().filter(|p| p.2.is_some()).count() {
        0 => "p50; too few samples for p99.9".to_owned(),
        n if n < points.len() => "p50, and p99.9 where it is known".into(),
        _ => "p50, and a band up to p99.9".into(),
    };
    let entries: Vec<_> = series.iter().enumerate().map(|(number, s)| (Look { number }, s.0, note(&s.1))).collect();
    chart.legend(&panel, &entries);
    Some(chart.finish("size").svg)
}

/// One cell and the distribution of its samples.
pub type Drawn<'a> = (&'a CellOfRun, Shape);

fn legend(chart: &mut Chart, panel: &Panel, cells: &[Drawn<'_>]) {
    let note = |(c, s): &Drawn<'_>| {
        let p50 = c.observed().map_or(String::new(), |f| format!("p50 {}, ", nanoseconds(f.summary.p50 as f64)));
        let max = s.worst.map_or(String::new(), |w| format!("max {}", nanoseconds(w.1)));
        format!("{p50}{max} of {}", count(s.samples as f64))
    };
    let entries: Vec<_> =
        cells.iter().enumerate().map(|(number, d)| (Look { number }, d.0.subject.as_str(), note(d))).collect();
    chart.legend(panel, &entries);
}

/// The fraction of the samples below a time; each nine has as much room as the one before.
pub fn distribution(head: &Head<'_>, cells: &[Drawn<'_>]) -> Drawing {
    let (low, high) = range(cells.iter().flat_map(|d| d.1.distribution.iter().map(|p| p.0)));
    let most = cells.iter().map(|d| d.1.samples).max().unwrap_or(0);
    let height = height(head, cells.len());
    let mut chart = Chart::new(head, height);
    let panel = chart.panel((Axis::times(low, high), Axis::nines(most)), (0.0, height), "samples below");
    for (number, (cell, shape)) in cells.iter().enumerate() {
        let look = Look { number };
        chart.svg.group("series", Some(&cell.subject));
        let points: Vec<_> = shape.distribution.iter().map(|p| panel.at(*p)).collect();
        // The curve steps up at each sample, then runs to the next.
        let steps = points.windows(2).flat_map(|w| [w[0], (w[0].0, w[1].1)]).chain(points.last().copied());
        chart.svg.path(&crate::svg::path(steps), look.pen());
        for p in spaced(&points) {
            chart.svg.marker(number, p, 4.0, look.colour());
        }
        chart.svg.close();
    }
    legend(&mut chart, &panel, cells);
    let all: Vec<_> = cells.iter().map(|d| d.0).collect();
    chart.finish(&format!("time {}", what(&all)))
}

/// Points about 70 apart, and the last.
fn spaced(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (i, p) in points.iter().enumerate() {
        let far = kept.last().is_none_or(|k| (k.0 - p.0).hypot(k.1 - p.1) >= 70.0);
        if far || i + 1 == points.len() {
            kept.push(*p);
        }
    }
    kept
}

/// How many samples took how long, both by their logarithm.
pub fn histogram(head: &Head<'_>, cells: &[Drawn<'_>]) -> Drawing {
    let (low, high) = range(cells.iter().flat_map(|d| d.1.buckets.iter().flat_map(|b| [b.0, b.1])));
    let most = cells.iter().flat_map(|d| d.1.buckets.iter().map(|b| b.2)).max().unwrap_or(1);
    let height = height(head, cells.len());
    let mut chart = Chart::new(head, height);
    let panel = chart.panel((Axis::times(low, high), Axis::counts(most as f64 * 1.3)), (0.0, height), "samples");
    let floor = panel.top() + panel.height();
    for (number, (cell, shape)) in cells.iter().enumerate() {
        let look = Look { number };
        chart.svg.group("series", Some(&cell.subject));
        // Down to the axis where buckets between are empty.
        for run in shape.buckets.chunk_by(|a, b| b.0 <= a.1 * 1.0001) {
            let bars = run.iter().flat_map(|b| {
                let y = panel.at_y(b.2 as f64);
                [(panel.at_x(b.0), y), (panel.at_x(b.1), y)]
            });
            let ends = run.first().zip(run.last()).map(|(a, b)| [panel.at_x(a.0), panel.at_x(b.1)]);
            let [left, right] = ends.unwrap_or_default();
            let outline: Vec<_> = [(left, floor)].into_iter().chain(bars).chain([(right, floor)]).collect();
            chart.svg.area(outline.iter().copied(), look.colour(), 0.07);
            chart.svg.path(&crate::svg::path(outline), look.pen());
        }
        let top = shape.buckets.iter().max_by_key(|b| b.2);
        if let Some(b) = top {
            let at = ((panel.at_x(b.0) + panel.at_x(b.1)) / 2.0, panel.at_y(b.2 as f64));
            chart.svg.marker(number, at, 4.0, look.colour());
        }
        if let Some(b) = shape.buckets.last().filter(|b| Some(*b) != top) {
            let at = ((panel.at_x(b.0) + panel.at_x(b.1)) / 2.0, panel.at_y(b.2 as f64));
            chart.svg.marker(number, at, 4.0, look.colour());
        }
        chart.svg.close();
    }
    legend(&mut chart, &panel, cells);
    let all: Vec<_> = cells.iter().map(|d| d.0).collect();
    chart.finish(&format!("time {}", what(&all)))
}

/// Every sample in order: for each column the minimum and the maximum, with the slowest of all marked.
pub fn time_line(head: &Head<'_>, cells: &[Drawn<'_>]) -> Drawing {
    let each = LINE_HEIGHT + LINE_GAP;
    let mut chart = Chart::new(head, each * cells.len() as f64);
    let seconds = cells.iter().map(|d| d.1.seconds).fold(0.0, f64::max);
    for (number, (cell, shape)) in cells.iter().enumerate() {
        let look = Look { number };
        let (low, high) = range(shape.columns.iter().flat_map(|c| [c.1, c.2]));
        let y = if shape.columns.is_empty() { Axis::times(1.0, 10.0) } else { Axis::times(low, high) };
        let top = each * number as f64 + LINE_GAP;
        let panel = chart.panel((Axis::seconds(seconds), y), (top, LINE_HEIGHT), "time");
        chart.svg.group("series", Some(&cell.subject));
        chart.svg.bold((panel.left(), panel.top() - 7.0), 12.0, &cell.subject);
        let mut d = String::new();
        for (at, least, most) in &shape.columns {
            let (x, low, high) = (panel.at_x(*at), panel.at_y(*least), panel.at_y(*most));
            // A single value is a dot.
            let _ = write!(d, "M{x:.1} {:.1}V{:.1}", low + 0.7, high - 0.7);
        }
        chart.svg.path(&d, Pen { width: 1.2, dash: "", ..look.pen() });
        for at in &shape.repeats {
            let x = panel.at_x(*at);
            chart.svg.line(
                (x, panel.top()),
                (x, panel.top() + panel.height()),
                Pen { colour: "#444", width: 1.0, dash: "3 3" },
            );
        }
        let mut beside = vec![format!("{} samples", shape.samples)];
        if let Some(f) = cell.observed() {
            let y = panel.at_y(f.summary.p50.max(1) as f64);
            let right = panel.left() + panel.width();
            chart.svg.line((panel.left(), y), (right, y), Pen { colour: "#000", width: 1.0, dash: "6 3" });
            beside.push(format!("dashed: p50, {}", nanoseconds(f.summary.p50 as f64)));
        }
        if let Some((at, ns)) = shape.worst {
            let (x, y) = panel.at((at, ns));
            chart.svg.group("worst", Some(&format!("{} at {at:.3} s", nanoseconds(ns))));
            chart.svg.marker(0, (x, y), 5.0, "#B00020");
            chart.svg.close();
            beside.push(format!("circle: max, {}", nanoseconds(ns)));
            beside.extend(cell.worst.first().map(|w| format!("  (repeat {}, sample {})", w.repeat, w.index)));
        }
        if !shape.repeats.is_empty() {
            beside.push("dotted: the next repeat".into());
        }
        for (i, text) in beside.iter().enumerate() {
            let x = panel.left() + panel.width() + 12.0;
            chart.svg.text((x, panel.top() + 14.0 + 17.0 * i as f64), 11.0, Anchor::Start, text);
        }
        chart.svg.close();
    }
    let all: Vec<_> = cells.iter().map(|d| d.0).collect();
    chart.finish(&format!("when each was released; its time: {}", what(&all)))
}
