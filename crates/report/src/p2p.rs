//! The matrix of copies between GPUs, for people: for each way a table of each direction alone, of both at once, and of latency.
//!
//! Of the software GPU it says what was verified, and no rate or time.

use crate::ReportError;
use crate::number::{bytes, nanoseconds, of};
use crate::table::{self, Style};
use p2p::{Cell, Matrix, Status, Way};
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
    writeln!(out, "doorbell {}, {}; {}", matrix.doorbell, matrix.started, of(matrix.repeats.into(), "repeat"))?;
    if matrix.functional {
        writeln!(out, "note: functional: it shows what works, never how fast; rates and times are left out")?;
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
    let rate = |v: f64| format!("{:.2}", v / 1e9);
    let none = || "-".to_owned();
    square(out, style, matrix, way, "this direction alone, GB/s", |cell| {
        cell.alone.map_or_else(none, |alone| rate(alone.median))
    })?;
    square(out, style, matrix, way, "this direction while the other runs, GB/s", |cell| {
        cell.both.map_or_else(none, |both| rate(both.this.median))
    })?;
    square(out, style, matrix, way, "sum of both directions, GB/s", |cell| {
        cell.both.map_or_else(none, |both| rate(both.sum.median))
    })?;
    square(out, style, matrix, way, &format!("latency of {}, p50", bytes(matrix.latency_bytes)), |cell| {
        cell.latency.as_ref().map_or_else(none, |latency| nanoseconds(latency.p50))
    })
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
