//! How busy the kernels of each stream kept the GPU (`record --gpu-times`).

use crate::document::{Cell, Table, head, number, text};
use crate::numbers::{count, ns};
use schema::kernels::StreamRow;
use terminal::cell;

/// Rows of a table that is open from the start.
const OPEN: usize = 20;

/// How busy each stream was.
pub fn table(rows: &[StreamRow]) -> Table {
    let columns = vec![
        head("stream"),
        text("on"),
        text("process"),
        number("priority", ""),
        text("green context"),
        number("kernels", ""),
        number("busy", ""),
        number("kernels ran", "ns"),
        number("mean wait", "ns"),
        number("gaps", ""),
        number("in gaps", "ns"),
        number("longest gap", "ns"),
    ];
    let about =
        "How busy the kernels of each stream kept the GPU, from the first to the last of them; gaps of more than 10 us";
    let mut table = Table::new("streams", about, columns);
    let many = rows.iter().any(|s| s.pid != rows[0].pid);
    for s in rows {
        table.row(vec![
            s.stream.map_or("kernels that no call launched".into(), stream_name).into(),
            on(s).trim_start_matches("engine ").into(),
            if many { Cell::text(s.pid.to_string()) } else { Cell::none() },
            priority(s),
            green(s),
            count(s.runs),
            Cell::number(busy(s), s.share),
            ns(s.busy_ns),
            ns(s.queued_ns / s.runs.max(1)),
            count(s.gaps),
            ns(s.gaps_ns),
            ns(s.longest_gap_ns),
        ]);
    }
    table.without_empty().folded_above(OPEN)
}

/// (A column without any is left out.)
fn priority(s: &StreamRow) -> Cell {
    let priority = s.kind.map(|kind| kind.priority).filter(|priority| *priority != 0);
    priority.map_or(Cell::none(), |priority| Cell::number(priority.to_string(), priority.into()))
}

fn green(s: &StreamRow) -> Cell {
    s.kind.as_ref().filter(|kind| kind.green).map_or(Cell::none(), |kind| Cell::text(cell::green(kind)))
}

/// A stream, its engine and channel, and how busy it was.
pub fn title(row: &StreamRow, with_process: bool) -> String {
    let process = if with_process { format!(", pid {}", row.pid) } else { String::new() };
    let stream = row.stream.map_or("kernels that no call launched".into(), stream_name);
    let kind = row.kind.map_or(String::new(), |kind| format!(" ({})", kind.words()));
    format!("{stream}{kind} on {}{process}: busy {}", on(row), busy(row))
}

/// A channel that copies, and how busy it was.
pub fn copies_title(row: &StreamRow, with_process: bool) -> String {
    let process = if with_process { format!(", pid {}", row.pid) } else { String::new() };
    format!("copies on {}{process}: busy {}", on(row), busy(row))
}

fn on(row: &StreamRow) -> String {
    let engine = if row.engine.is_empty() { "?" } else { &row.engine };
    let gpu = row.gpu.map_or(String::new(), |gpu| format!(", GPU {gpu}"));
    format!("engine {engine}, channel {}{gpu}", cell::channel(row.slot, row.generation))
}

/// A stream in words.
pub fn stream_name(handle: u64) -> String {
    let name = cell::stream(Some(handle));
    if name.starts_with("0x") { format!("stream {name}") } else { name.replacen("default", "default stream", 1) }
}

/// Of its time.
fn busy(row: &StreamRow) -> String {
    let most = if row.bounded > 0 { "at most " } else { "" };
    format!("{most}{:.1} %", 100.0 * row.share)
}
