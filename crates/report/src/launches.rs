//! Every kernel launch.

use crate::ReportError;
use crate::cell::{extent, slot, through, time};
use crate::number::bytes;
use crate::rows::{self, Lines};
use crate::table::Style;
use insight::Recording;
use insight::walk::Filter;
use schema::operations::LaunchRow;
use std::io::{self, Write};

/// What the rows can be sorted by, the largest first.
pub const SORTS: &[&str] = &["blocks", "registers", "shared"];

fn key(sort: &str, row: &LaunchRow) -> u64 {
    match sort {
        "blocks" => row.shape.map_or(0, |s| s.grid.iter().fold(1, |n, g| n.saturating_mul(u64::from(*g)))),
        "registers" => row.shape.map_or(0, |s| s.registers.into()),
        "shared" => row.shape.map_or(0, |s| s.shared_memory.into()),
        _ => 0,
    }
}

/// Shows launches on standard output, in the order of time or by one of [`SORTS`].
pub fn print(
    r: &Recording,
    filter: Filter,
    sort: Option<&str>,
    style: Style,
    as_json: bool,
) -> Result<(), ReportError> {
    let key = sort.map(|sort| move |row: &LaunchRow| key(sort, row));
    rows::print(&filter, key, style, as_json, &Lines { head, line }, |filter, f| each(r, filter, f))
}

/// Writes launches as lines of fixed columns, as they come.
pub fn write(r: &Recording, filter: Filter, style: Style, out: &mut dyn Write) -> Result<(), ReportError> {
    head(style, out)?;
    each(r, filter, |row| line(out, &row))
}

fn head(style: Style, out: &mut dyn Write) -> io::Result<()> {
    let head = format!(
        "{:>11}  {:>7}  {:<6}  {:<16}  {:<14}  {:<9}  {:>9}  {:>10}  {:<16}  QMD",
        "seconds", "thread", "slot", "grid", "block", "cluster", "registers", "shared", "program"
    );
    writeln!(out, "{}", style.bold(&head))
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
            "{begin}  {:<16}  {:<14}  {:<9}  {:>9}  {:>10}  {:<16}  {:#x} ({}{again}{})",
            extent(s.grid),
            extent(s.block),
            s.cluster.map_or("-".into(), extent),
            s.registers,
            bytes(s.shared_memory.into()),
            format!("{:#x}", s.code()),
            l.qmd,
            l.how,
            through(s)
        ),
        None => writeln!(out, "{begin}  the QMD at {:#x} was never in the stream ({})", l.qmd, l.how),
    }
}

/// Calls `f` with each row that the filter wants.
pub fn each(r: &Recording, filter: Filter, f: impl FnMut(LaunchRow) -> io::Result<()>) -> Result<(), ReportError> {
    rows::each(r, filter, insight::rows::launch, f)
}
