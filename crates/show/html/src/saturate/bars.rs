//! The figure: the payload below, the remainder of the wire bytes above it; lines for line rate and peak, and the reachable rate at each bar.

use crate::document::{Block, Cell, Figure, Section, Table, head, number};
use crate::numbers::{bytes, slug};
use crate::plot::Axis;
use crate::plot::bars::{Bar, Bars, draw};
use ::saturate::account::{Figures, Saturated, Total};
use ::saturate::plan::CellName;
use ::saturate::source::{Operation, Submission};
use terminal::number::of;
use terminal::saturate::{rate, way as told};

/// One figure for each target, number of threads and queues, depth and kind of submission.
pub fn section(run: &Saturated, below: [&str; 2]) -> Option<Section> {
    let mut section = Section::new("link", "How full the link is");
    let mut groups: Vec<CellName> = Vec::new();
    for total in run.cells.iter().filter(|total| !total.is_peak() && total.figures.is_some()) {
        let group = CellName { bytes: 0, devices: 0, ..total.cell };
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for group in groups {
        let mut totals: Vec<&Total> =
            run.cells.iter().filter(|total| CellName { bytes: 0, devices: 0, ..total.cell } == group).collect();
        totals.sort_by_key(|total| (total.cell.bytes, total.cell.devices));
        section.push(Block::Figure(Box::new(figure(run, &group, &totals, below))));
    }
    section.some()
}

fn gb(bytes_per_second: f64) -> Cell {
    Cell::number(rate(bytes_per_second), bytes_per_second)
}

fn figure(run: &Saturated, group: &CellName, totals: &[&Total], below: [&str; 2]) -> Figure {
    let batch = match (group.submission, group.batch) {
        (Submission::Armed, _) => ", armed".into(),
        (Submission::Doorbell, 0 | 1) => String::new(),
        (Submission::Doorbell, batch) => format!(", {batch} I/Os a doorbell"),
    };
    let queues =
        if group.queues > 1 { format!(", {} a device", of(group.queues.into(), "queue")) } else { String::new() };
    let threads = of(group.threads.into(), "thread");
    let writes = group.operation == Operation::Write;
    let way = if writes { "Written from" } else { "To" };
    let title = format!("{way} the {}: {threads}{queues}, depth {}{batch}{}", group.target, group.depth, told(group));
    let several = totals.iter().any(|total| total.cell.devices != totals[0].cell.devices);
    let known: Vec<(&Total, &Figures)> =
        totals.iter().filter_map(|total| Some((*total, total.figures.as_ref()?))).collect();
    let bars: Vec<Bar> = known.iter().map(|(total, figures)| bar(total, figures, several)).collect();
    let mut levels: Vec<(String, f64)> = Vec::new();
    levels.extend(
        run.link.as_ref().map(|l| (format!("line rate, {}: {} GB/s", l.link, rate(l.line_rate)), l.line_rate / 1e9)),
    );
    let peak = run.peak(group.target).filter(|_| !writes).map(|peak| peak.median);
    levels.extend(peak.map(|peak| (format!("plain copy this way: {} GB/s", rate(peak)), peak / 1e9)));
    let tops = bars.iter().map(|bar| bar.parts.iter().map(|part| part.0).sum::<f64>());
    let marks = bars.iter().flat_map(|bar| bar.marks.iter().flatten().copied());
    let high = tops.chain(marks).chain(levels.iter().map(|level| level.1)).fold(1.0, f64::max);
    let [page, file] = draw(&Bars {
        title: format!("{}: {title}", run.plan.name),
        about: "Payload below, the rest of the bytes that crossed the link in that direction above it".into(),
        below,
        axis: Axis::values(0.0, high, |v, decimals| format!("{v:.decimals$} GB/s")),
        labels: (if several { "size of an I/O, and devices" } else { "size of an I/O" }, "bytes a second"),
        parts: &["payload", "wire bytes beyond it"],
        bars: &bars,
        marks: &["reachable"],
        levels: &levels,
    });
    let armed = if group.submission == Submission::Armed { " armed" } else { "" };
    let name = slug(&format!(
        "saturate {} {} t{} q{} d{} b{}{armed}{}",
        if writes { "from" } else { "to" },
        group.target,
        group.threads,
        group.queues,
        group.depth,
        group.batch,
        told(group)
    ));
    Figure {
        table: table(&name, &title, &known, peak),
        name,
        title,
        about: "Means over the same moments of each repeat, medians over the repeats. Reachable is counted from packets, with completions of MPS bytes.".into(),
        page,
        file: file.svg,
        says: Vec::new(),
    }
}

fn bar(total: &Total, figures: &Figures, several: bool) -> Bar {
    let size = terminal::number::bytes(total.cell.bytes);
    let name = if several { format!("{size}, {}", total.cell.devices) } else { size };
    let payload = figures.payload.median;
    let mut parts = vec![(payload / 1e9, format!("{name}: {} GB/s of payload", rate(payload)))];
    if let Some(wire) = &figures.wire {
        let along = wire.along.median;
        let says = format!("{name}: {} GB/s on the wire, {:.3} of the payload", rate(along), wire.factor.median);
        parts.push(((along - payload).max(0.0) / 1e9, says));
    }
    Bar { name, parts, marks: vec![figures.reachable.map(|reachable| reachable.payload / 1e9)] }
}

fn table(name: &str, title: &str, known: &[(&Total, &Figures)], peak: Option<f64>) -> Table {
    let columns = vec![
        head("size"),
        number("devices", ""),
        number("payload, GB/s", "bytes/s"),
        number("on the wire, GB/s", "bytes/s"),
        number("wire over payload", ""),
        number("low", ""),
        number("high", ""),
        number("reachable, GB/s", "bytes/s"),
        number("with completions of RCB", "bytes/s"),
        number("plain copy, GB/s", "bytes/s"),
    ];
    let mut table = Table::new(name, title, columns);
    for (total, figures) in known {
        let wire = figures.wire.as_ref();
        let factor = |of: fn(&statistics::Interval<f64>) -> f64| {
            let interval = wire.and_then(|wire| wire.factor.interval);
            interval.map_or_else(Cell::none, |i| Cell::number(format!("{:.3}", of(&i)), of(&i)))
        };
        let reachable = figures.reachable;
        table.row(vec![
            bytes(total.cell.bytes),
            Cell::number(total.cell.devices.to_string(), total.cell.devices.into()),
            gb(figures.payload.median),
            wire.map_or_else(Cell::none, |wire| gb(wire.along.median)),
            wire.map_or_else(Cell::none, |w| Cell::number(format!("{:.3}", w.factor.median), w.factor.median)),
            factor(|i| i.low),
            factor(|i| i.high),
            reachable.map_or_else(Cell::none, |reachable| gb(reachable.payload)),
            reachable.and_then(|reachable| reachable.with_short_completions).map_or_else(Cell::none, gb),
            peak.map_or_else(Cell::none, gb),
        ]);
    }
    table.without_empty()
}
