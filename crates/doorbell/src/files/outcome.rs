//! What is said when it is done. On the software GPU no time and no rate: they would be those of a program.

use crate::record::Gpu;
use files::{Backend, Report};
use report::number;
use report::table::to_stdout;
use serde_json::{Value, json};
use std::path::Path;

/// Where the bytes went or came from.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Gpu(Gpu, u32),
    /// Nowhere: slots of host memory.
    Host,
}

impl Side {
    /// Whether its time says nothing of a real one.
    fn is_functional(self) -> bool {
        matches!(self, Side::Gpu(Gpu::Soft, _))
    }

    fn name(self) -> String {
        match self {
            Side::Gpu(_, n) => format!("gpu{n}"),
            Side::Host => "host".into(),
        }
    }
}

pub fn as_json(operation: &str, path: &Path, side: Side, report: &Report) -> Value {
    let (via, unregistered, refused) = match &report.backend {
        Backend::Uring { unregistered } => ("io_uring", unregistered.clone(), None),
        Backend::Threads { refused } => ("threads", None, refused.clone()),
    };
    let mut all = json!({
        "operation": operation,
        "file": path.display().to_string(),
        "memory": side.name(),
        "functional": side.is_functional(),
        "bytes": report.bytes,
        "via": via,
        "io_uring_refused": refused,
        "direct_io": report.buffered.is_none(),
        "buffered_because": report.buffered.as_ref().map(ToString::to_string),
        "registered_buffers": via == "io_uring" && unregistered.is_none(),
        "unregistered_because": unregistered,
        "block": report.block,
        "depth": report.depth,
        "threads": report.threads,
        "made_again": report.counts.again,
        "short": report.counts.short,
        "verified_bytes": report.verified,
    });
    if !side.is_functional() {
        let seconds = report.took.as_secs_f64();
        all["seconds"] = json!(seconds);
        all["bytes_per_second"] = json!(report.bytes as f64 / seconds);
    }
    all
}

pub fn print(operation: &str, path: &Path, side: Side, report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        let all = as_json(operation, path, side, report);
        return Ok(to_stdout(|out| Ok(writeln!(out, "{all:#}")?))?);
    }
    Ok(to_stdout(|out| {
        let arrow = if operation == "write" { "<-" } else { "->" };
        let what = format!("{} {arrow} {}: {}", path.display(), side.name(), number::bytes(report.bytes));
        match side.is_functional() {
            true => writeln!(out, "{what} (on the software GPU, which has no rate)")?,
            false => writeln!(out, "{what} in {}, {}", number::seconds(report.took.as_secs_f64()), rate(report))?,
        }
        for line in lines(report) {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    })?)
}

fn rate(report: &Report) -> String {
    format!("{:.2} GB/s", report.bytes as f64 / report.took.as_secs_f64() / 1e9)
}

fn lines(report: &Report) -> Vec<String> {
    let direct = match &report.buffered {
        None => "O_DIRECT".to_owned(),
        Some(why) => format!("through the page cache ({why})"),
    };
    let via = match &report.backend {
        Backend::Uring { unregistered: None } => "io_uring, registered buffers".to_owned(),
        Backend::Uring { unregistered: Some(why) } => format!("io_uring, buffers not registered ({why})"),
        Backend::Threads { refused: None } => "threads".to_owned(),
        Backend::Threads { refused: Some(why) } => format!("threads (no io_uring: {why})"),
    };
    let mut lines = vec![
        format!("{via}, {direct}"),
        format!(
            "{} of {} under way on {}",
            number::of(report.depth as u64, "block"),
            number::bytes(report.block as u64),
            number::of(report.threads as u64, "thread")
        ),
    ];
    let counts = report.counts;
    if counts.again + counts.short > 0 {
        lines.push(format!("{} made again, {} short and continued", counts.again, counts.short));
    }
    if let Some(bytes) = report.verified {
        lines.push(format!("verified: {} compared with the file, all equal", number::of(bytes, "byte")));
    }
    lines
}
