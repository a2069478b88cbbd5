//! Every kernel launch.

use crate::cell::{called, channel, extent, kernel, through, time};
use crate::number::{bytes, nanoseconds};
use crate::rows::List;
use crate::table::columns::{Column, column};
use schema::operations::{GpuTime, LaunchRow, Start};

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
pub const LIST: List<LaunchRow> = List { columns: COLUMNS, cells, key };

const COLUMNS: &[Column] = &[
    column(">seconds", 11, 0),
    column(">thread", 7, 5),
    column("channel", 7, 4),
    column("grid", 16, 2),
    column("block", 14, 3),
    column("cluster", 9, 8),
    column(">registers", 9, 7),
    column(">shared", 10, 6),
    column("kernel", 16, 1),
    column("QMD", 0, 9),
];

fn cells(l: &LaunchRow) -> Vec<String> {
    let mut cells = vec![time(l.when.seconds), l.when.tid.to_string(), channel(l.when.slot, l.when.generation)];
    let call = l.when.call.as_ref().map_or(String::new(), |call| format!(", in {}", called(call)));
    let again = if l.again { ", again" } else { "" };
    match &l.shape {
        Some(_) if l.empty => {
            let what = "only orders or starts others";
            cells.push(format!("an empty QMD at {:#x}, {what} ({}{again}){call}", l.qmd, l.how));
        }
        Some(s) => cells.extend([
            extent(s.grid),
            extent(s.block),
            s.cluster.map_or("-".into(), extent),
            s.registers.to_string(),
            bytes(s.shared_memory.into()),
            kernel(l.name.as_deref(), s),
            format!(
                "{:#x} ({}{again}{}){call}{}",
                l.qmd,
                l.how,
                through(s),
                l.gpu.as_ref().map_or(String::new(), |gpu| format!(", {}", ran(gpu)))
            ),
        ]),
        None => cells.push(format!("the QMD at {:#x} was never in the stream ({}){call}", l.qmd, l.how)),
    }
    cells
}

/// `ran 12.3 us, 1.7 us after its doorbell`
pub fn ran(gpu: &GpuTime) -> String {
    let most = if gpu.start == Start::Bounded { "at most " } else { "" };
    let ns = if gpu.start == Start::Bounded { gpu.end_ns - gpu.earliest_ns } else { gpu.duration_ns() };
    format!("ran {most}{}, {} after its doorbell", nanoseconds(ns), nanoseconds(gpu.queued_ns))
}
