//! The raw study: an engine's own times as tables and as JSON, with the profiler's times.
//!
//! On the software GPU nothing is a time: the table shows what was moved correctly.

use crate::ReportError;
use crate::number::{bytes, nanoseconds, of};
use crate::run::three_digits;
use crate::table::{self, Style};
use environment::Environment;
use measure::raw::profiler::Reported;
use measure::raw::{Cell, Curve, Direction, Mode, Plan, WAYS, Way, curves};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};

/// A run and its machine.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    pub plan: &'a Plan,
    pub environment: &'a Environment,
    /// On the software GPU: it shows what works, not how fast.
    pub functional: bool,
    pub cells: &'a [Cell],
    /// What the profiler reported for CUDA's copies, if it was used, or why it could not be.
    pub profiler: Option<&'a Result<Vec<Reported>, String>>,
}

/// `h2d plain`.
fn name(way: Way) -> String {
    let mode = match way.mode {
        Mode::Plain => "plain",
        Mode::Pipelined => "pipelined",
        Mode::Inline => "inline",
    };
    format!("{} {mode}", direction(way.direction))
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::HostToDevice => "h2d",
        Direction::DeviceToHost => "d2h",
    }
}

/// Nanoseconds of one copy: with a decimal if the GPU's clock, over many copies, is precise enough.
fn per_copy(ns: f64) -> String {
    if ns < 1000.0 { format!("{ns:.1} ns") } else { nanoseconds(ns.round() as u64) }
}

/// Writes the tables, and below them what was not measured and why.
pub fn write(out: &mut dyn Write, style: &Style, r: &Raw<'_>) -> Result<(), ReportError> {
    let e = r.environment;
    let gpu = e.text("gpu.name").unwrap_or("GPU unknown");
    let driver = e.text("gpu.driver").map_or(String::new(), |v| format!(", driver {v}"));
    let link = match (e.integer("gpu.link_generation"), e.integer("gpu.link_width")) {
        (Some(g), Some(w)) => format!(", PCIe {g} x{w}"),
        _ => String::new(),
    };
    writeln!(out, "{}", style.bold(&format!("{gpu}{driver}{link}")))?;
    let repeats = of(u64::from(r.plan.repeats), "repeat");
    writeln!(out, "copy engine {}, {repeats} of each cell, seed {}", r.plan.copy_engine, r.plan.seed)?;
    if r.functional {
        writeln!(out, "note: functional: the software GPU shows what works, not how fast; there are no times")?;
    }
    writeln!(out)?;
    if r.functional {
        matrix(out, style, r, "moved right", |cell| if cell.verified { "right".into() } else { "-".into() })?;
    } else {
        matrix(out, style, r, "time of one copy, p50 (min to max)", time)?;
        writeln!(out)?;
        matrix(out, style, r, "GB/s", |cell| cell.gbps.map_or("-".into(), three_digits))?;
        write_curves(out, style, &curves(r.cells))?;
    }
    if let Some(profiler) = r.profiler {
        writeln!(out)?;
        write_profiler(out, style, r, profiler)?;
    }
    not_measured(out, style, r)
}

fn time(cell: &Cell) -> String {
    match (cell.raw_p50_ns, cell.raw_min_ns, cell.raw_max_ns) {
        (Some(p50), Some(min), Some(max)) => format!("{} ({} to {})", per_copy(p50), per_copy(min), per_copy(max)),
        _ => "-".into(),
    }
}

/// Sizes down, ways across.
fn matrix(
    out: &mut dyn Write,
    style: &Style,
    r: &Raw<'_>,
    title: &str,
    text: impl Fn(&Cell) -> String,
) -> Result<(), ReportError> {
    writeln!(out, "{}", style.bold(title))?;
    let heads: Vec<String> = std::iter::once(">size".into()).chain(WAYS.map(|way| format!(">{}", name(way)))).collect();
    let mut t = style.table(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for group in r.cells.chunk_by(|a, b| a.bytes == b.bytes) {
        let column = |way: Way| group.iter().find(|cell| cell.way() == way).map_or("-".into(), &text);
        t.add_row(std::iter::once(bytes(group[0].bytes)).chain(WAYS.map(column)));
    }
    Ok(table::write(out, &t, 0)?)
}

fn write_curves(out: &mut dyn Write, style: &Style, curves: &[Curve]) -> Result<(), ReportError> {
    if curves.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut t = style.table(&["way", "engine", ">start-up", ">at", ">most GB/s", ">at", ">90 % of it from"]);
    for c in curves {
        t.add_row([
            name(Way { direction: c.direction, mode: c.mode }),
            c.engine.clone(),
            per_copy(c.startup_ns),
            bytes(c.startup_bytes),
            three_digits(c.best_gbps),
            bytes(c.best_bytes),
            bytes(c.saturation_bytes),
        ]);
    }
    Ok(table::write(out, &t, 0)?)
}

/// The p50 of one way at one size.
fn raw(r: &Raw<'_>, direction: Direction, mode: Mode, size: u64) -> Option<f64> {
    let way = Way { direction, mode };
    r.cells.iter().find(|cell| cell.way() == way && cell.bytes == size).and_then(|cell| cell.raw_p50_ns)
}

/// The part of the profiler's time that the engine did not take.
fn beyond(profiler_ns: u64, raw_ns: Option<f64>) -> Option<f64> {
    raw_ns.filter(|_| profiler_ns > 0).map(|raw| 100.0 * (profiler_ns as f64 - raw) / profiler_ns as f64)
}

fn write_profiler(
    out: &mut dyn Write,
    style: &Style,
    r: &Raw<'_>,
    profiler: &Result<Vec<Reported>, String>,
) -> Result<(), ReportError> {
    writeln!(out, "{}", style.bold("CUDA's copies as the profiler (CUPTI) reports them, in a separate run"))?;
    let rows = match profiler {
        Ok(rows) => rows,
        Err(reason) => return Ok(writeln!(out, "unavailable: {reason}")?),
    };
    let heads = ["", ">size", ">profiler p50", ">raw inline", ">beyond", ">raw copy engine", ">beyond"];
    let mut t = style.table(&heads);
    for row in rows {
        let cells = [Mode::Inline, Mode::Plain].map(|mode| {
            let raw = raw(r, row.direction, mode, row.bytes);
            let beyond = beyond(row.p50_ns, raw).map_or("-".into(), |percent| format!("{percent:.1} %"));
            [raw.map_or("-".into(), per_copy), beyond]
        });
        let head = [direction(row.direction).into(), bytes(row.bytes), nanoseconds(row.p50_ns)];
        t.add_row(head.into_iter().chain(cells.into_iter().flatten()));
    }
    table::write(out, &t, 0)?;
    Ok(writeln!(out, "beyond: the part of the profiler's time that the engine by itself does not take")?)
}

/// Each way and reason once, with the sizes that it holds for.
fn not_measured(out: &mut dyn Write, style: &Style, r: &Raw<'_>) -> Result<(), ReportError> {
    for (title, failed) in [("unavailable", false), ("failed", true)] {
        let mut reasons: Vec<(Way, &str, Vec<u64>)> = Vec::new();
        for cell in r.cells {
            let Some(reason) = (if failed { &cell.failed } else { &cell.unavailable }) else { continue };
            match reasons.iter_mut().find(|(way, why, _)| *way == cell.way() && why == reason) {
                Some((.., sizes)) => sizes.push(cell.bytes),
                None => reasons.push((cell.way(), reason, vec![cell.bytes])),
            }
        }
        if reasons.is_empty() {
            continue;
        }
        writeln!(out)?;
        writeln!(out, "{}", if failed { style.bad(title) } else { style.bold(title) })?;
        for (way, reason, sizes) in reasons {
            let at = match sizes.as_slice() {
                [first, .., last] => format!("{} sizes from {} to {}", sizes.len(), bytes(*first), bytes(*last)),
                sizes => sizes.first().map(|one| bytes(*one)).unwrap_or_default(),
            };
            writeln!(out, "  {}, {at}: {reason}", name(way))?;
        }
    }
    Ok(())
}

/// One object, with a cell per line.
pub fn write_json(out: &mut dyn Write, r: &Raw<'_>) -> Result<(), ReportError> {
    writeln!(out, "{{")?;
    writeln!(out, "\"bench\": \"raw\",")?;
    writeln!(out, "\"functional\": {},", r.functional)?;
    writeln!(out, "\"environment\": {},", line(r.environment)?)?;
    writeln!(out, "\"plan\": {},", line(&plan(r.plan))?)?;
    writeln!(out, "\"curves\": {},", line(&curves(r.cells))?)?;
    writeln!(out, "\"profiler\": {},", line(&r.profiler.map(|p| profiler(r, p)))?)?;
    write!(out, "\"cells\": [")?;
    for (i, cell) in r.cells.iter().enumerate() {
        write!(out, "{}{}", if i == 0 { "\n" } else { ",\n" }, line(cell)?)?;
    }
    writeln!(out, "\n]\n}}")?;
    Ok(())
}

fn line<T: Serialize>(value: &T) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::from)
}

fn plan(p: &Plan) -> Value {
    json!({
        "sizes": p.sizes,
        "repeats": p.repeats,
        "seed": p.seed,
        "copy_engine": p.copy_engine,
        "timeout_s": p.timeout.as_secs_f64(),
    })
}

fn profiler(r: &Raw<'_>, reported: &Result<Vec<Reported>, String>) -> Value {
    let rows = match reported {
        Ok(rows) => rows,
        Err(reason) => return json!({ "unavailable": reason }),
    };
    let row = |row: &Reported| {
        let of = |mode| raw(r, row.direction, mode, row.bytes);
        let (inline, copy) = (of(Mode::Inline), of(Mode::Plain));
        json!({
            "direction": row.direction,
            "bytes": row.bytes,
            "samples": row.samples,
            "profiler_p50_ns": row.p50_ns,
            "profiler_min_ns": row.min_ns,
            "profiler_max_ns": row.max_ns,
            "raw_inline_p50_ns": inline,
            "beyond_inline_percent": beyond(row.p50_ns, inline),
            "raw_copy_p50_ns": copy,
            "beyond_copy_percent": beyond(row.p50_ns, copy),
        })
    };
    json!({ "rows": rows.iter().map(row).collect::<Vec<_>>() })
}
