//! Copies back to back: what each way moves in a second, as a table and as JSON.
//!
//! On the software GPU nothing is a time: the table says what was moved right.

use crate::ReportError;
use crate::number::{bytes, of};
use crate::table::{self, Style};
use environment::Environment;
use lab::bandwidth::{Cell, Plan, Versus};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, Write};

/// A run and what it ran on.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth<'a> {
    pub plan: &'a Plan,
    pub environment: &'a Environment,
    pub cells: &'a [Cell],
}

/// 10^9 bytes a second: four digits, for what is compared differs by less than a hundredth.
fn rate(gbps: f64) -> String {
    match gbps {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// `1.002 (1.001 to 1.003)`.
fn versus(v: &Versus) -> String {
    match (v.low, v.high) {
        (Some(low), Some(high)) => format!("{:.3} ({low:.3} to {high:.3})", v.median),
        _ => format!("{:.3}", v.median),
    }
}

/// Writes the table, and below it what was not measured and why.
pub fn write(out: &mut dyn Write, style: &Style, b: &Bandwidth<'_>) -> Result<(), ReportError> {
    let (e, plan) = (b.environment, b.plan);
    let gpu = e.gpu.as_deref().unwrap_or("GPU unknown");
    let driver = e.driver.as_deref().map_or(String::new(), |v| format!(", driver {v}"));
    let link = match (e.pcie_generation, e.pcie_width) {
        (Some(g), Some(w)) => format!(", PCIe {g} x{w}"),
        _ => String::new(),
    };
    writeln!(out, "{}", style.bold(&format!("{gpu}{driver}{link}")))?;
    let copies = match plan.copies {
        1 => "1 copy".into(),
        n => format!("{n} copies back to back"),
    };
    let rounds = of(u64::from(plan.rounds), "round");
    writeln!(out, "{copies} of {}, {rounds} in turns, seed {}", bytes(plan.bytes), plan.seed)?;
    if plan.functional {
        writeln!(out, "note: functional: the software GPU shows what works, never how fast; there are no times")?;
    }
    writeln!(out)?;
    rows(out, style, b)?;
    for (title, failed) in [("unavailable", false), ("failed", true)] {
        let why = |cell: &Cell| (if failed { &cell.failed } else { &cell.unavailable }).clone();
        let reasons: Vec<(&str, String)> =
            b.cells.iter().filter_map(|cell| Some((cell.route.as_str(), why(cell)?))).collect();
        if reasons.is_empty() {
            continue;
        }
        writeln!(out)?;
        writeln!(out, "{}", if failed { style.bad(title) } else { style.bold(title) })?;
        for (route, reason) in reasons {
            writeln!(out, "  {route}: {reason}")?;
        }
    }
    Ok(())
}

fn rows(out: &mut dyn Write, style: &Style, b: &Bandwidth<'_>) -> Result<(), ReportError> {
    if b.plan.functional {
        let mut t = style.table(&["route", "moved right", ">rounds"]);
        for cell in b.cells {
            let right = if cell.verified { "right" } else { "-" };
            t.add_row([cell.route.clone(), right.into(), cell.rounds.to_string()]);
        }
        return Ok(table::write(out, &t, 0)?);
    }
    let mut t =
        style.table(&["route", ">GB/s p50", ">least", ">most", ">by the CPU's clock", ">times as much", "data"]);
    for cell in b.cells {
        let none = || "-".to_string();
        let of = |pick: fn(&lab::bandwidth::Rate) -> f64| cell.gpu_gbps.as_ref().map(pick).map_or_else(none, rate);
        t.add_row([
            cell.route.clone(),
            of(|r| r.p50),
            of(|r| r.min),
            of(|r| r.max),
            cell.cpu_gbps.map_or_else(none, |r| rate(r.p50)),
            cell.versus.as_ref().map_or_else(none, versus),
            if cell.verified { "right".into() } else { none() },
        ]);
    }
    table::write(out, &t, 0)?;
    let mut against: Vec<&str> = b.cells.iter().filter_map(|cell| Some(cell.versus.as_ref()?.route.as_str())).collect();
    against.dedup();
    if !against.is_empty() {
        let against = against.join(" and ");
        writeln!(out, "times as much: than {against}, median over the rounds and where it lies with 95 %")?;
    }
    Ok(())
}

/// One object; a cell a line.
pub fn write_json(out: &mut dyn Write, b: &Bandwidth<'_>) -> Result<(), ReportError> {
    writeln!(out, "{{")?;
    writeln!(out, "\"bench\": \"bandwidth\",")?;
    writeln!(out, "\"functional\": {},", b.plan.functional)?;
    writeln!(out, "\"environment\": {},", line(b.environment)?)?;
    writeln!(out, "\"plan\": {},", line(&plan(b.plan))?)?;
    write!(out, "\"cells\": [")?;
    for (i, cell) in b.cells.iter().enumerate() {
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
        "bytes": p.bytes,
        "copies": p.copies,
        "rounds": p.rounds,
        "seed": p.seed,
        "timeout_s": p.timeout.as_secs_f64(),
    })
}
