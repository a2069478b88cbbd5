//! Names of the streams of a timeline's tracks.

use schema::kernels::StreamRow;
use terminal::cell;

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
    let name = schema::names::stream(Some(handle));
    if name.starts_with("0x") { format!("stream {name}") } else { name.replacen("default", "default stream", 1) }
}

/// Of its time.
fn busy(row: &StreamRow) -> String {
    let most = if row.bounded > 0 { "at most " } else { "" };
    format!("{most}{:.1} %", 100.0 * row.share)
}
