//! Each time that a kernel ran.

use crate::cell::time;
use crate::foreign::plain;
use crate::number::nanoseconds;
use crate::rows::List;
use crate::table::columns::{Column, column};
use schema::kernel_runs::KernelRun;
use schema::names::stream;
use schema::operations::Start;

/// What the rows can be sorted by, the largest first.
pub const SORTS: &[&str] = &["time", "queued"];

/// In the order of their doorbells, or by one of [`SORTS`].
pub const LIST: List<KernelRun> = List { columns: COLUMNS, cells, key };

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
