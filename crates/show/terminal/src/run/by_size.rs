//! Routes against sizes: a compact table for each direction, and for which sizes each route is the best.

use super::figures::{Column, fitted, three_digits};
use crate::number::{bytes, nanoseconds};
use crate::table::{Out, Style};
use experiment::Metric;
use run_folder::Run;
use run_folder::run::groups::{Group, routes, sizes, subjects};
use run_folder::run::{BestAt, BestOfRun, CellOfRun};
use statistics::Ratio;
use std::io;

/// With fewer sizes the tables of all cells are enough.
const SIZES: usize = 3;

/// Routes of one direction.
struct Direction<'a> {
    from: &'a str,
    to: &'a str,
    /// In the order of the experiment, each with its cells.
    subjects: Vec<(String, Vec<&'a CellOfRun>)>,
    sizes: Vec<u64>,
}

/// A table: its title, and the time in ns that it shows of a cell.
type Taken = (&'static str, fn(&CellOfRun) -> Option<f64>);

const TAKEN: [Taken; 3] = [
    ("p50 in us; * within 2 % of the best between the same two memories", |c| Some(c.observed()?.summary.p50 as f64)),
    ("p50 of the call alone in us, until it returned", |c| Some(c.figures.submit.as_ref()?.summary.p50 as f64)),
    ("on a CPU in us for each transfer, on average, by the kernel's counters in separate rounds", |c| {
        c.tally.filter(|t| t.calls > t.unknown).map(|t| t.on_cpu_ns as f64 / t.calls as f64)
    }),
];

/// The tables of each direction that has several routes and sizes.
pub(super) fn write(out: &mut dyn Out, style: &Style, run: &Run, groups: &[Group<'_>]) -> io::Result<()> {
    for group in groups {
        for direction in directions(group) {
            writeln!(out)?;
            let title = format!("{} to {}{}", direction.from, direction.to, group.behind());
            writeln!(out, "{}", style.bold(&title))?;
            for (number, (title, of)) in TAKEN.into_iter().enumerate() {
                compact(out, style, run, &direction, (title, of), number == 0)?;
            }
        }
    }
    best(out, style, run)
}

fn directions<'a>(group: &Group<'a>) -> Vec<Direction<'a>> {
    let of_ends = routes(&group.cells).into_iter().map(|((from, to), cells)| {
        let subjects = subjects(&cells).into_iter().map(|of| (of[0].label(), of)).collect();
        Direction { from, to, subjects, sizes: sizes(&cells) }
    });
    of_ends.filter(|d| d.sizes.len() >= SIZES && d.subjects.len() > 1).collect()
}

/// Three digits, and not more than the clock's precision.
fn microseconds(ns: f64) -> String {
    if ns < 99.5 { format!("{:.3}", ns / 1e3) } else { three_digits(ns / 1e3) }
}

/// Rows are routes, columns sizes; several tables if one is too wide.
fn compact(
    out: &mut dyn Out,
    style: &Style,
    run: &Run,
    direction: &Direction<'_>,
    (title, of): Taken,
    marks: bool,
) -> io::Result<()> {
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    for size in &direction.sizes {
        let text = |of_subject: &[&CellOfRun]| {
            let cell = of_subject.iter().find(|c| c.bytes == *size)?;
            let value = of(cell)?;
            let mark = if marks && run.is_best(cell, value) { "*" } else { " " };
            Some(format!("{}{}", microseconds(value), if marks { mark } else { "" }))
        };
        let none = || if marks { "- ".into() } else { "-".into() };
        let cells = direction.subjects.iter().map(|(_, of)| text(of).unwrap_or_else(none)).collect();
        columns.push((bytes(*size), cells));
    }
    // The call's time is unknown if a cell observes something else, and the CPU's without counters.
    if columns.iter().all(|(_, cells)| cells.iter().all(|c| c.trim_end() == "-")) {
        return Ok(());
    }
    writeln!(out, "{title}")?;
    let names = direction.subjects.iter().map(|(name, _)| name.len()).chain([5]).max().unwrap_or(0) + 2;
    let width = |(head, cells): &(String, Vec<String>)| cells.iter().map(String::len).chain([head.len()]).max();
    let room = style.width.map_or(usize::MAX, |room| usize::from(room).saturating_sub(names));
    let mut rest = columns.as_slice();
    while !rest.is_empty() {
        let mut taken = 0;
        let fits = rest.iter().take_while(|column| {
            taken += width(column).unwrap_or(0) + 2;
            taken <= room
        });
        let (now, later) = rest.split_at(fits.count().max(1));
        let heads: Vec<String> =
            std::iter::once("route".into()).chain(now.iter().map(|(head, _)| format!(">{head}"))).collect();
        let mut t = style.table(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        for (n, (name, _)) in direction.subjects.iter().enumerate() {
            t.add_row(std::iter::once(name.clone()).chain(now.iter().map(|(_, cells)| cells[n].clone())));
        }
        out.table(&t, 0)?;
        rest = later;
    }
    Ok(())
}

/// For which sizes each route is the best, by each metric.
fn best(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    let same_table =
        |a: &BestOfRun, b: &BestOfRun| (&a.point, &a.source, &a.destination) == (&b.point, &b.source, &b.destination);
    let best: Vec<&BestOfRun> = run.best.iter().filter(|b| b.sizes.len() >= SIZES).collect();
    for of_ends in best.chunk_by(|a, b| same_table(a, b)) {
        let Some(first) = of_ends.first() else { continue };
        writeln!(out)?;
        let place: String = first.point.iter().map(|c| format!(", {c}")).collect();
        let title = format!("the best from {} to {}{place}", first.source, first.destination);
        writeln!(out, "{}", style.bold(&title))?;
        let rows: Vec<Row<'_>> = of_ends.iter().flat_map(|of_metric| rows(run, of_metric)).collect();
        let column =
            |head: &str, goes: u8, of: &dyn Fn(&Row<'_>) -> String| Column::of(head, goes, rows.iter().map(of));
        let ratio = |row: &Row<'_>| row.at.cuda.as_ref().and_then(|c| c.ratio);
        let mut columns = vec![
            column("by", 0, &|row| if row.first_of_metric { row.metric.to_string() } else { String::new() }),
            column("the best", 0, &|row| if row.last { "..".into() } else { row.label.clone() }),
            column(">size", 0, &|row| bytes(row.at.bytes)),
            column(">time", 0, &|row| nanoseconds(row.at.value_ns as u64)),
        ];
        if of_ends.iter().flat_map(|b| &b.sizes).any(|at| at.cuda.is_some()) {
            columns.push(column("CUDA's best", 0, &|row| row.cuda.clone()));
            columns.push(column(">time", 2, &|row| {
                row.at.cuda.as_ref().map_or("-".into(), |c| nanoseconds(c.value_ns as u64))
            }));
            columns.push(column(">times CUDA", 0, &|row| ratio(row).map_or("-".into(), |r| three_digits(r.ratio))));
            columns.push(column("95 %", 1, &|row| ratio(row).map_or("-".into(), interval)));
        }
        fitted(out, style, columns, |_| false)?;
    }
    if !best.is_empty() {
        writeln!(out, "from its first size to its last one (..) the named route is within 2 % of the best")?;
    }
    Ok(())
}

/// An end of a range.
struct Row<'r> {
    metric: Metric,
    first_of_metric: bool,
    /// The range ends here.
    last: bool,
    label: String,
    cuda: String,
    at: &'r BestAt,
}

fn rows<'r>(run: &Run, best: &'r BestOfRun) -> Vec<Row<'r>> {
    let mut rows = Vec::new();
    for range in &best.ranges {
        let ends = if range.from == range.to { vec![range.from] } else { vec![range.from, range.to] };
        for (n, size) in ends.into_iter().enumerate() {
            let Some(at) = best.sizes.iter().find(|at| at.bytes == size) else { continue };
            rows.push(Row {
                metric: best.metric,
                first_of_metric: rows.is_empty(),
                last: n > 0,
                label: run.label(at.stage, &at.subject),
                cuda: at.cuda.as_ref().map_or("-".into(), |c| run.label(at.stage, &c.subject)),
                at,
            });
        }
    }
    rows
}

pub(super) fn interval(ratio: Ratio) -> String {
    ratio.interval.map_or("-".into(), |i| format!("{} to {}", three_digits(i.low), three_digits(i.high)))
}
