//! Every kernel launch.

use crate::ReportError;
use crate::cell::{called, extent, kernel, slot, through, time};
use crate::number::{bytes, nanoseconds};
use crate::rows::{self, List};
use crate::table::Style;
use decode::Recording;
use decode::walk::{At, Filter};
use pushbuf::ops::Op;
use schema::Clock;
use schema::operations::{GpuTime, LaunchRow, Start};
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
            "{begin}  {:<16}  {:<14}  {:<9}  {:>9}  {:>10}  {:<16}  {:#x} ({}{again}{}){call}{}",
            extent(s.grid),
            extent(s.block),
            s.cluster.map_or("-".into(), extent),
            s.registers,
            bytes(s.shared_memory.into()),
            kernel(l.name.as_deref(), s),
            l.qmd,
            l.how,
            through(s),
            l.gpu.as_ref().map_or(String::new(), |gpu| format!(", {}", ran(gpu)))
        ),
        None => writeln!(out, "{begin}  the QMD at {:#x} was never in the stream ({}){call}", l.qmd, l.how),
    }
}

/// `ran 12.3 us, 1.7 us after its doorbell`
pub fn ran(gpu: &GpuTime) -> String {
    let most = if gpu.start == Start::Bounded { "at most " } else { "" };
    let ns = if gpu.start == Start::Bounded { gpu.end_ns - gpu.earliest_ns } else { gpu.duration_ns() };
    format!("ran {most}{}, {} after its doorbell", nanoseconds(ns), nanoseconds(gpu.queued_ns))
}

fn each(r: &Recording, filter: Filter, f: &mut dyn FnMut(LaunchRow) -> io::Result<()>) -> Result<(), ReportError> {
    let wanted = filter.clone();
    let launch = |at: &At<'_>, op: &Op, clock: &Clock| {
        decode::rows::launch(at, op, clock).filter(|l| wanted.wants_kernel(l.name.as_deref()))
    };
    rows::each(r, filter, launch, f)
}
