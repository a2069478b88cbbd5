//! Each time that a kernel ran.

use crate::cell::{stream, time};
use crate::foreign::{Plain, plain};
use crate::number::nanoseconds;
use crate::rows::{self, List};
use crate::table::columns::{Column, column};
use crate::table::{Style, text_to_stdout, to_stdout};
use crate::{ReportError, json, kernel_times};
use decode::Recording;
use decode::walk::Filter;
use schema::kernel_runs::KernelRun;
use schema::operations::Start;
use std::io;

/// What the rows can be sorted by, the largest first.
pub const SORTS: &[&str] = &["time", "queued"];

/// In the order of their doorbells, or by one of [`SORTS`].
const LIST: List<KernelRun> = List { each, columns: COLUMNS, cells, key };

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
    if as_json {
        return to_stdout(|out| {
            write!(out, "{{\"kernel_times\": ")?;
            serde_json::to_writer(Plain::json(&mut *out), &times).map_err(io::Error::from)?;
            write!(out, ",\n\"runs\": ")?;
            let mut array = json::Array::begin(out)?;
            LIST.each_of(r, filter, sorted, &mut |row| array.push(&row))?;
            array.end()?;
            Ok(writeln!(out, "}}")?)
        });
    }
    text_to_stdout(style, |out| {
        let Some(times) = times else {
            return Ok(writeln!(out, "no times of kernels were recorded: `record --gpu-times` records them")?);
        };
        LIST.write_all(r, filter, sorted, style, out)?;
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

const COLUMNS: &[Column] = &[
    column(">start", 11, 0),
    column(">GPU time", 10, 1),
    column(">queued", 10, 3),
    column("start", 7, 6),
    column(">thread", 7, 5),
    column("stream", 14, 4),
    column("kernel", 0, 2),
];

fn cells(k: &KernelRun) -> Vec<String> {
    let start = match k.gpu.start {
        Start::AfterTheDoorbell => "idle",
        Start::AfterTheOneBefore => "busy",
        Start::Bounded => "bounded",
        Start::Stored => "stored",
    };
    let stream = stream(k.when.call.as_ref().map(|call| call.stream));
    let name = k.name.as_deref().map_or(format!("{:#x}", k.code), plain);
    let graph = if k.in_graph { " (in a graph)" } else { "" };
    vec![
        time(k.ran.start_seconds),
        nanoseconds(k.gpu.duration_ns()),
        nanoseconds(k.gpu.queued_ns),
        start.into(),
        k.when.tid.to_string(),
        stream,
        format!("{name}{graph}"),
    ]
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
