//! Every copy, inline write and fill.

use crate::number::bytes;
use crate::table::{Style, to_stdout};
use crate::{ReportError, json, rows};
use insight::Recording;
use insight::walk::Filter;
use schema::operations::CopyRow;
use std::io::{self, Write};

/// Shows copies on standard output.
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

/// Writes copies as lines of fixed columns, as they come.
pub fn write(r: &Recording, filter: Filter, style: Style, out: &mut dyn Write) -> Result<(), ReportError> {
    let head = format!(
        "{:>11}  {:>7}  {:<6}  {:<8}  {:<11}  {:>10}  {:<23}  {:<23}  semaphore",
        "seconds", "thread", "slot", "engine", "mode", "bytes", "from", "to"
    );
    writeln!(out, "{}", style.bold(&head))?;
    each(r, filter, |row| line(out, &row))
}

fn line(out: &mut dyn Write, c: &CopyRow) -> io::Result<()> {
    let from = match (c.src, c.src_place) {
        (Some(a), Some(p)) => format!("{} {a:#x}", p.name()),
        _ => "-".into(),
    };
    let to = format!("{} {:#x}", c.dst_place.name(), c.dst);
    let mut rest = c.semaphore.map_or(String::new(), |a| format!("{a:#x} = {:#x}", c.payload.unwrap_or(0)));
    for (is, what) in [
        (c.lines > 1, format!("{} lines", c.lines)),
        (!c.pitch, "block linear".into()),
        (c.pipelined, "pipelined".into()),
        (c.physical, "physical".into()),
        (!c.complete, "not all data seen".into()),
    ] {
        if is {
            rest.push_str(if rest.is_empty() { "" } else { ", " });
            rest.push_str(&what);
        }
    }
    let text = format!(
        "{:>11}  {:>7}  {:<6}  {:<8}  {:<11}  {:>10}  {from:<23}  {to:<23}  {rest}",
        time(c.when.seconds),
        c.when.tid,
        slot(c.when.slot, c.when.generation),
        c.when.engine,
        c.mode.name(),
        bytes(c.bytes),
    );
    writeln!(out, "{}", text.trim_end())
}

pub(crate) fn time(s: Option<f64>) -> String {
    s.map_or("-".into(), |s| format!("{s:.6}"))
}

pub(crate) fn slot(slot: u32, generation: u32) -> String {
    if generation == 0 { slot.to_string() } else { format!("{slot}.{generation}") }
}

/// Calls `f` with each row that the filter wants.
pub fn each(r: &Recording, filter: Filter, f: impl FnMut(CopyRow) -> io::Result<()>) -> Result<(), ReportError> {
    rows::each(r, filter, insight::rows::copy, f)
}
