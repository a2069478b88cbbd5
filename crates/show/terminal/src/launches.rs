//! Every kernel launch.

use crate::ReportError;
use crate::cell::{called, extent, slot, through, time};
use crate::number::bytes;
use crate::rows::{self, List};
use crate::table::Style;
use decode::Recording;
use decode::walk::Filter;
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

/// In the order of time or by one of [`SORTS`].
pub const LIST: List<LaunchRow> = List { each, head, line, key };

fn head(style: Style, out: &mut dyn Write) -> io::Result<()> {
    let head = format!(
        "{:>11}  {:>7}  {:<6}  {:<16}  {:<14}  {:<9}  {:>9}  {:>10}  {:<16}  QMD",
        "seconds", "thread", "slot", "grid", "block", "cluster", "registers", "shared", "kernel"
    );
    writeln!(out, "{}", style.bold(&head))
}

fn line(out: &mut dyn Write, l: &LaunchRow) -> io::Result<()> {
    let begin = format!("{:>11}  {:>7}  {:<6}", time(l.when.seconds), l.when.tid, slot(l.when.slot, l.when.generation));
    let call = l.when.call.as_ref().map_or(String::new(), |call| format!(", in {}", called(call)));
    let again = if l.again { ", again" } else { "" };
    match &l.shape {
        Some(_) if l.empty => {
            writeln!(
                out,
                "{begin}  an empty QMD at {:#x}, only orders or starts others ({}{again}){call}",
                l.qmd, l.how
            )
        }
        Some(s) => writeln!(
            out,
            "{begin}  {:<16}  {:<14}  {:<9}  {:>9}  {:>10}  {:<16}  {:#x} ({}{again}{}){call}",
            extent(s.grid),
            extent(s.block),
            s.cluster.map_or("-".into(), extent),
            s.registers,
            bytes(s.shared_memory.into()),
            l.name.as_deref().map_or_else(|| format!("{:#x}", s.code()), |name| short(name).to_owned()),
            l.qmd,
            l.how,
            through(s)
        ),
        None => writeln!(out, "{begin}  the QMD at {:#x} was never in the stream ({}){call}", l.qmd, l.how),
    }
}

/// `gemm` of `void lib::gemm<float, 3>(float*)`.
fn short(name: &str) -> &str {
    let until = |end: char| move |s: &str| s.find(end).map_or(s.len(), |at| at);
    let plain = &name[..until('(')(name).min(until('<')(name))];
    let from = plain.rfind([':', ' ']).map_or(0, |at| at + 1);
    if plain[from..].is_empty() { name } else { &plain[from..] }
}

fn each(r: &Recording, filter: Filter, f: &mut dyn FnMut(LaunchRow) -> io::Result<()>) -> Result<(), ReportError> {
    rows::each(r, filter, decode::rows::launch, f)
}
