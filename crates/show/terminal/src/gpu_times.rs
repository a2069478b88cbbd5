//! Each time that a kernel ran.

use crate::cell::time;
use crate::foreign::{Plain, plain};
use crate::number::nanoseconds;
use crate::rows::{self, List};
use crate::table::{Style, to_stdout};
use crate::{ReportError, json, kernel_times};
use decode::Recording;
use decode::walk::Filter;
use schema::kernel_runs::KernelRun;
use schema::operations::Start;
use std::io::{self, Write};

/// What the rows can be sorted by, the largest first.
pub const SORTS: &[&str] = &["time", "queued"];

/// In the order of their doorbells, or by one of [`SORTS`].
const LIST: List<KernelRun> = List { each, head, line, key };

/// Shows them on standard output, as [`List::print`] does, and how many kernels have a time.
pub fn print(
    r: &Recording,
    filter: &Filter,
    sort: Option<&str>,
    style: Style,
    as_json: bool,
) -> Result<(), ReportError> {
    let times = decode::kernel_times::kernel_times(r)?;
    let sorted = LIST.sorted(r, filter, sort)?;
    to_stdout(|out| {
        if as_json {
            write!(out, "{{\"kernel_times\": ")?;
            serde_json::to_writer(Plain::json(&mut *out), &times).map_err(io::Error::from)?;
            write!(out, ",\n\"runs\": ")?;
            let mut array = json::Array::begin(out)?;
            LIST.each_of(r, filter, sorted, &mut |row| array.push(&row))?;
            array.end()?;
            return Ok(writeln!(out, "}}")?);
        }
        let Some(times) = times else {
            return Ok(writeln!(out, "no times of kernels were recorded: `record --gpu-times` records them")?);
        };
        head(style, out)?;
        LIST.each_of(r, filter, sorted, &mut |row| line(out, &row))?;
        Ok(kernel_times::write(out, &style, &times)?)
    })
}

fn key(sort: &str, row: &KernelRun) -> u64 {
    match sort {
        "time" => row.gpu.duration_ns(),
        "queued" => row.gpu.queued_ns,
        _ => 0,
    }
}

fn head(style: Style, out: &mut dyn Write) -> io::Result<()> {
    let head = format!(
        "{:>11}  {:>10}  {:>10}  {:<7}  {:>7}  {:<14}  kernel",
        "start", "GPU time", "queued", "start", "thread", "stream"
    );
    writeln!(out, "{}", style.bold(&head))
}

fn line(out: &mut dyn Write, k: &KernelRun) -> io::Result<()> {
    let start = match k.gpu.start {
        Start::AfterTheDoorbell => "idle",
        Start::AfterTheOneBefore => "busy",
        Start::Bounded => "bounded",
        Start::Stored => "stored",
    };
    let stream = k.when.call.as_ref().map_or("-".into(), |call| format!("{:#x}", call.stream));
    let name = k.name.as_deref().map_or(format!("{:#x}", k.code), plain);
    let graph = if k.in_graph { " (in a graph)" } else { "" };
    writeln!(
        out,
        "{:>11}  {:>10}  {:>10}  {start:<7}  {:>7}  {stream:<14}  {name}{graph}",
        time(k.start_seconds),
        nanoseconds(k.gpu.duration_ns()),
        nanoseconds(k.gpu.queued_ns),
        k.when.tid,
    )
}

fn each(r: &Recording, filter: Filter, f: &mut dyn FnMut(KernelRun) -> io::Result<()>) -> Result<(), ReportError> {
    let wanted = filter.clone();
    let wants = |run: &KernelRun| wanted.wants_kernel(run.name.as_deref());
    rows::each_with_graphs(
        r,
        filter,
        |at, op, clock| decode::rows::kernel_run(at, op, clock).filter(wants),
        |at, kernel, clock| Some(decode::rows::graph_kernel_run(at, kernel, clock)).filter(wants),
        f,
    )
}
