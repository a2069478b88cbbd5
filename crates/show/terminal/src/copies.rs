//! Every copy, inline write and fill.

use crate::cell::{called, channel, place_name, time};
use crate::launches::ran;
use crate::number::bytes;
use crate::rows::List;
use crate::table::columns::{Column, column};
use schema::operations::CopyRow;

/// What the rows can be sorted by, the largest first.
pub const SORTS: &[&str] = &["bytes", "lines", "time"];

fn key(sort: &str, row: &CopyRow) -> u64 {
    match sort {
        "bytes" => row.bytes,
        "lines" => row.lines.into(),
        "time" => row.gpu.map_or(0, |gpu| gpu.duration_ns()),
        _ => 0,
    }
}

/// In the order of time or by one of [`SORTS`].
pub const LIST: List<CopyRow> = List { columns: COLUMNS, cells, key };

const COLUMNS: &[Column] = &[
    column(">seconds", 11, 0),
    column(">thread", 7, 7),
    column("channel", 7, 4),
    column("engine", 8, 6),
    column("mode", 11, 5),
    column(">bytes", 10, 1),
    column("from", 23, 3),
    column("to", 23, 2),
    column("semaphore", 0, 8),
];

fn cells(c: &CopyRow) -> Vec<String> {
    // The GPUs are named only if they differ.
    let peers = c.src_gpu.is_some() && c.dst_gpu.is_some() && c.src_gpu != c.dst_gpu;
    let from = match (c.src, c.src_place) {
        (Some(a), Some(p)) => format!("{} {a:#x}", place_name(p, c.src_gpu.filter(|_| peers))),
        _ => "-".into(),
    };
    let to = format!("{} {:#x}", place_name(c.dst_place, c.dst_gpu.filter(|_| peers)), c.dst);
    let mut rest = c.semaphore.map_or(String::new(), |a| format!("{a:#x} = {:#x}", c.payload.unwrap_or(0)));
    for (is, what) in [
        (c.lines > 1, format!("{} lines", c.lines)),
        (!c.pitch, "block linear".into()),
        (c.pipelined, "pipelined".into()),
        (c.physical, "physical".into()),
        (!c.complete, "not all data seen".into()),
        (c.guessed, "guessed: set in a gap".into()),
        (c.when.call.is_some(), c.when.call.as_ref().map_or(String::new(), |call| format!("in {}", called(call)))),
        (c.gpu.is_some(), c.gpu.as_ref().map_or(String::new(), ran)),
    ] {
        if is {
            rest.push_str(if rest.is_empty() { "" } else { ", " });
            rest.push_str(&what);
        }
    }
    vec![
        time(c.when.seconds),
        c.when.tid.to_string(),
        channel(c.when.slot, c.when.generation),
        c.when.engine.to_string(),
        c.mode.name().into(),
        bytes(c.bytes),
        from,
        to,
        rest,
    ]
}
