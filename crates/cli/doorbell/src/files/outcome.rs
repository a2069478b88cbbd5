//! The text of a result. Without times and rates for the software GPU, where they would be those of a program.

use files::cufile::{self, CuFile, Mode};
use files::{Backend, Report};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use terminal::number;
use terminal::table::to_stdout;

/// The source or target of the bytes.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Gpu(u32),
    SoftGpu(u32),
    /// Nowhere: slots of host memory.
    Host,
}

impl Side {
    /// Whether its times do not apply to real hardware.
    pub fn is_functional(self) -> bool {
        matches!(self, Side::SoftGpu(_))
    }

    pub fn name(self) -> String {
        match self {
            Side::Gpu(n) | Side::SoftGpu(n) => format!("gpu{n}"),
            Side::Host => "host".into(),
        }
    }
}

pub(super) fn as_json(operation: &str, path: &Path, side: Side, report: &Report) -> Value {
    let (via, unregistered, refused) = match &report.backend {
        Backend::Uring { unregistered } => ("io_uring", unregistered.clone(), None),
        Backend::Threads { refused } => ("threads", None, refused.clone()),
    };
    let own = json!({
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
    with_common(own, operation, path, side, (report.bytes, report.took))
}

/// Adds what every result has.
fn with_common(mut all: Value, operation: &str, path: &Path, side: Side, (bytes, took): (u64, Duration)) -> Value {
    all["operation"] = json!(operation);
    all["file"] = json!(path.display().to_string());
    all["memory"] = json!(side.name());
    all["functional"] = json!(side.is_functional());
    all["bytes"] = json!(bytes);
    if !side.is_functional() {
        let seconds = took.as_secs_f64();
        all["seconds"] = json!(seconds);
        all["bytes_per_second"] = json!(bytes as f64 / seconds);
    }
    all
}

pub fn print(operation: &str, path: &Path, side: Side, report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        let all = as_json(operation, path, side, report);
        return Ok(terminal::json::print(&all)?);
    }
    to_stdout(|out| {
        writeln!(out, "{}", headline(operation, path, side, (report.bytes, report.took)))?;
        for line in lines(report) {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    })
}

/// The result of cuFile, and the path that the bytes took.
pub fn of_cufile(
    operation: &str,
    path: &Path,
    side: Side,
    (library, report, verified): (&CuFile, &cufile::Report, Option<u64>),
    json: bool,
) -> anyhow::Result<()> {
    let measured = report.measured;
    let mode = match measured.mode {
        Mode::Direct => "direct",
        Mode::Compatibility => "compatibility",
        Mode::Unknown => "unknown",
    };
    if json {
        let own = json!({
            "via": "cufile",
            "mode": mode,
            "bytes_through_host": measured.through_host,
            "bytes_by_nvidia_fs": measured.by_nvidia_fs,
            "may_fall_back": library.says().map(|(allows, _)| allows),
            "nvidia_fs_version": library.says().map(|(_, (major, minor))| format!("{major}.{minor}")),
            "block": report.block,
            "threads": report.threads,
            "verified_bytes": verified,
        });
        let all = with_common(own, operation, path, side, (report.bytes, report.took));
        return Ok(terminal::json::print(&all)?);
    }
    let counted = |count: Option<u64>| count.map_or_else(|| "not counted".to_owned(), number::bytes);
    to_stdout(|out| {
        writeln!(out, "{}", headline(operation, path, side, (report.bytes, report.took)))?;
        writeln!(out, "  cuFile, {}", measured.mode)?;
        let (host, module) = (counted(measured.through_host), counted(measured.by_nvidia_fs));
        writeln!(out, "  through host memory by calls: {host}; by nvidia-fs: {module}")?;
        let (block, threads) = (number::bytes(report.block as u64), number::of(report.threads as u64, "thread"));
        writeln!(out, "  blocks of {block} on {threads}")?;
        if let Some(bytes) = verified {
            writeln!(out, "  {}", compared(bytes))?;
        }
        Ok(())
    })
}

fn headline(operation: &str, path: &Path, side: Side, (bytes, took): (u64, Duration)) -> String {
    let arrow = if operation == "write" { "<-" } else { "->" };
    let what = format!("{} {arrow} {}: {}", path.display(), side.name(), number::bytes(bytes));
    if side.is_functional() {
        return format!("{what} (on the software GPU, which has no rate)");
    }
    let seconds = took.as_secs_f64();
    format!("{what} in {}, {:.2} GB/s", number::seconds(seconds), bytes as f64 / seconds / 1e9)
}

fn compared(bytes: u64) -> String {
    format!("verified: {} compared with the file, all equal", number::of(bytes, "byte"))
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
        lines.push(compared(bytes));
    }
    lines
}
