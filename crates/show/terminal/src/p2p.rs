//! The matrix of copies between GPUs, for people: for each way, a table of each direction alone, of both together, and of latency.
//!
//! For the software GPU it shows what was verified, without rates or times.

use crate::ReportError;
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{self, Style};
use p2p::{Cell, Matrix, Rate, Status, Times, Way};
use statistics::Interval;
use std::io::Write;

/// Writes all of it.
///
/// # Errors
/// The output cannot be written.
pub fn write(out: &mut dyn Write, style: &Style, matrix: &Matrix) -> Result<(), ReportError> {
    writeln!(
        out,
        "{}",
        style.bold(&format!("p2p: {}, {} a transfer", of(matrix.gpus.into(), "GPU"), bytes(matrix.bytes)))
    )?;
    writeln!(out, "doorbell {}, {}; {}", matrix.doorbell, matrix.started, of(matrix.rounds.into(), "round"))?;
    if matrix.functional {
        writeln!(out, "note: functional: it shows what works, not how fast; rates and times are left out")?;
    }
    for way in matrix.ways() {
        writeln!(out, "\n{}", style.bold(&format!("{way}: {}", way.about())))?;
        one(out, style, matrix, way)?;
    }
    for cell in &matrix.cells {
        let name = format!("{} gpu{} to gpu{}", cell.way, cell.from, cell.to);
        match &cell.status {
            Status::Failed(why) => writeln!(out, "{}", style.bad(&format!("failed: {name}: {why}")))?,
            Status::Unavailable(why) => writeln!(out, "not available here: {name}: {why}")?,
            Status::Done => {}
        }
        if let Some(wrong) = &cell.wrong {
            writeln!(out, "{}", style.bad(&format!("wrong: {name}: {wrong}")))?;
        }
    }
    for warning in &matrix.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

fn one(out: &mut dyn Write, style: &Style, matrix: &Matrix, way: Way) -> Result<(), ReportError> {
    if matrix.functional {
        let right = |cell: &Cell| match (&cell.status, &cell.wrong) {
            (Status::Done, None) => format!("right, {} compared", cell.verified),
            (Status::Done, Some(_)) => "wrong".into(),
            (Status::Unavailable(_), _) => "-".into(),
            (Status::Failed(_), _) => "failed".into(),
        };
        return square(out, style, matrix, way, "verified", right);
    }
    square(out, style, matrix, way, "this direction alone, GB/s", |cell| rate(cell.alone.as_ref()))?;
    square(out, style, matrix, way, "this direction while the other runs, GB/s", |cell| {
        rate(cell.both.as_ref().map(|both| &both.this))
    })?;
    square(out, style, matrix, way, "sum of both directions, GB/s", |cell| {
        rate(cell.both.as_ref().map(|both| &both.sum))
    })?;
    if matrix.cells.iter().any(|cell| cell.way == way && cell.over_ce.is_some()) {
        square(out, style, matrix, way, "time alone, of a copy engine's", |cell| {
            cell.over_ce.as_ref().map_or_else(none, |over| spread(over.ratio, over.interval, |v| format!("{v:.3}")))
        })?;
    }
    let latency = format!("latency of {}: p50, p99, max", bytes(matrix.latency_bytes));
    square(out, style, matrix, way, &latency, |cell| {
        cell.latency.as_ref().map_or_else(none, |latency| {
            let ns = &latency.ns;
            let p99 = ns.p99.map_or_else(none, nanoseconds);
            format!("{}, {p99}, {}", nanoseconds(ns.p50), nanoseconds(ns.max))
        })
    })?;
    let of_way = || matrix.cells.iter().filter(|cell| cell.way == way);
    let counted = |times: &Times| times.ns.count;
    let fewest = |count: fn(&Cell) -> Option<&Times>| of_way().filter_map(count).map(counted).min().unwrap_or(0);
    writeln!(
        out,
        "of all samples of all rounds, at least {} transfers and {} latencies; in brackets 95 % of the p50, by rounds",
        count(fewest(|cell| cell.alone.as_ref().map(|alone| &alone.times))),
        count(fewest(|cell| cell.latency.as_ref()))
    )?;
    Ok(())
}

fn none() -> String {
    "-".into()
}

fn spread(value: f64, interval: Option<Interval<f64>>, write: impl Fn(f64) -> String) -> String {
    match interval {
        Some(i) => format!("{} ({} to {})", write(value), write(i.low), write(i.high)),
        None => write(value),
    }
}

fn rate(of: Option<&Rate>) -> String {
    of.map_or_else(none, |of| spread(of.rate, of.interval, |v| format!("{:.2}", v / 1e9)))
}

/// From the rows to the columns.
fn square(
    out: &mut dyn Write,
    style: &Style,
    matrix: &Matrix,
    way: Way,
    what: &str,
    text: impl Fn(&Cell) -> String,
) -> Result<(), ReportError> {
    let names: Vec<String> = (0..matrix.gpus).map(|n| format!(">to gpu{n}")).collect();
    let heads: Vec<&str> = std::iter::once(what).chain(names.iter().map(String::as_str)).collect();
    let mut t = style.table(&heads);
    for from in 0..matrix.gpus {
        let mut row = vec![format!("from gpu{from}")];
        row.extend((0..matrix.gpus).map(|to| matrix.cell(way, from, to).map_or_else(String::new, &text)));
        t.add_row(row);
    }
    Ok(table::write(out, &t, 0)?)
}
