//! The machine's own noise, as text and as JSON.

use crate::ReportError;
use crate::number::{count, nanoseconds};
use crate::table::{self, Style};
use measure::noise::Noise;
use serde_json::{Value, json};
use std::io::Write;

/// The object of a result file.
pub fn json(n: &Noise) -> Value {
    let (w, g) = (&n.wakeups, &n.gaps);
    json!({
        "cpu": n.cpu,
        "fifo": n.fifo,
        "notes": n.notes,
        "wakeups": {
            "period_ns": w.period.as_nanos() as u64,
            "samples": w.late_ns.count,
            "p50_ns": w.late_ns.p50,
            "p99_ns": w.late_ns.p99,
            "max_ns": w.late_ns.max,
            "missed": w.missed,
        },
        "gaps": {
            "samples": g.readings,
            "p50_ns": g.p50_ns,
            "p99_ns": g.p99_ns,
            "max_ns": g.max_ns,
            "over_1us": g.interruptions,
            "lost_ppm": g.lost_ppm,
        },
    })
}

/// The table.
///
/// # Errors
/// Errors of the output.
pub fn write(out: &mut dyn Write, style: &Style, n: &Noise) -> Result<(), ReportError> {
    let cpu = n.cpu.map_or("any CPU".into(), |c| format!("CPU {c}"));
    let class = n.fifo.map_or("no real-time priority".into(), |p| format!("SCHED_FIFO {p}"));
    writeln!(out, "{} ({cpu}, {class})", style.bold("noise of the machine"))?;
    let mut t = style.table(&["probe", ">p50", ">p99", ">max", ">count"]);
    let w = &n.wakeups;
    t.add_row([
        format!("wakeup late, every {}", nanoseconds(w.period.as_nanos() as u64)),
        nanoseconds(w.late_ns.p50),
        w.late_ns.p99.map_or("-".into(), nanoseconds),
        nanoseconds(w.late_ns.max),
        count(w.late_ns.count),
    ]);
    let g = &n.gaps;
    t.add_row([
        "gap of a busy thread".into(),
        nanoseconds(g.p50_ns),
        nanoseconds(g.p99_ns),
        nanoseconds(g.max_ns),
        count(g.readings),
    ]);
    table::write(out, &t, 2)?;
    writeln!(out, "  {} gaps above 1 us, {:.3} % of the time", count(g.interruptions), g.lost_ppm / 1e4)?;
    for note in &n.notes {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}
