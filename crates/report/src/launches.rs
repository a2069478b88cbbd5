//! Every kernel launch.

use crate::copies::{slot, time};
use crate::number::bytes;
use crate::table::{Style, to_stdout};
use crate::{ReportError, json, rows};
use insight::Recording;
use insight::walk::Filter;
use schema::operations::LaunchRow;
use std::io::{self, Write};

/// Shows launches on standard output.
pub fn print(r: &Recording, filter: Filter, style: Style, as_json: bool) -> Result<(), ReportError> {
    to_stdout(|out| {
        if as_json {
            let mut array = json::Array::begin(out)?;
            each(r, filter, |row| array.push(&row))?;
            Ok(array.end()?)
        } else {
            write(r, filter, style, out)
        }
    })
}

/// Writes launches as lines of fixed columns, as they come.
pub fn write(r: &Recording, filter: Filter, style: Style, out: &mut dyn Write) -> Result<(), ReportError> {
    let head = format!(
        "{:>11}  {:>7}  {:<6}  {:<16}  {:<14}  {:<9}  {:>9}  {:>10}  {:<16}  QMD",
        "seconds", "thread", "slot", "grid", "block", "cluster", "registers", "shared", "program"
    );
    writeln!(out, "{}", style.bold(&head))?;
    each(r, filter, |row| line(out, &row))
}

/// `64 x 2 x 1`
pub fn extent(e: [u32; 3]) -> String {
    format!("{} x {} x {}", e[0], e[1], e[2])
}

fn line(out: &mut dyn Write, l: &LaunchRow) -> io::Result<()> {
    let begin = format!("{:>11}  {:>7}  {:<6}", time(l.when.seconds), l.when.tid, slot(l.when.slot, l.when.generation));
    let again = if l.again { ", again" } else { "" };
    match &l.shape {
        Some(_) if l.empty => {
            writeln!(out, "{begin}  an empty QMD at {:#x}, only orders or starts others ({}{again})", l.qmd, l.how)
        }
        Some(s) => writeln!(
            out,
            "{begin}  {:<16}  {:<14}  {:<9}  {:>9}  {:>10}  {:<16}  {:#x} ({}{again})",
            extent(s.grid),
            extent(s.block),
            s.cluster.map_or("-".into(), extent),
            s.registers,
            bytes(s.shared_memory.into()),
            format!("{:#x}", s.program),
            l.qmd,
            l.how
        ),
        None => writeln!(out, "{begin}  the QMD at {:#x} was never in the stream ({})", l.qmd, l.how),
    }
}

/// Calls `f` with each row that the filter wants.
pub fn each(r: &Recording, filter: Filter, f: impl FnMut(LaunchRow) -> io::Result<()>) -> Result<(), ReportError> {
    rows::each(r, filter, insight::rows::launch, f)
}
