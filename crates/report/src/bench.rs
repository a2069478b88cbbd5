//! What the closed loop measured: a table grouped by size, and JSON.
//!
//! Times of the software GPU are those of an emulation. The table leaves them out; JSON keeps them, marked `functional`.

use crate::ReportError;
use crate::number::{bytes, count, nanoseconds};
use crate::table::{self, Style};
use comfy_table::Table;
use environment::Environment;
use lab::cells::{Cell, Measured, Outcome, Plan};
use lab::noise::Noise;
use lab::statistics::{Interval, Ratio, Summary};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A run and what it ran on.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    pub plan: &'a Plan,
    pub environment: &'a Environment,
    /// On the software GPU: what works is a result, how long it took is none.
    pub functional: bool,
    pub noise: Option<&'a Noise>,
    pub cells: &'a [Cell],
}

/// Writes the table, and below it what was not measured and why.
pub fn write(out: &mut dyn Write, style: &Style, b: &Bench<'_>) -> Result<(), ReportError> {
    head(out, style, b)?;
    if let Some(n) = b.noise {
        writeln!(out)?;
        write_noise(out, style, n)?;
    }
    if b.cells.iter().any(|c| matches!(c.outcome, Outcome::Measured(_))) {
        writeln!(out)?;
        let t = if b.functional { functional_table(style, b) } else { times_table(style, b) };
        table::write(out, &t, 0)?;
    }
    not_measured(out, style, b)?;
    legend(out, b)
}

fn head(out: &mut dyn Write, style: &Style, b: &Bench<'_>) -> Result<(), ReportError> {
    head_of(out, style, b.environment, b.functional)
}

/// What a run ran on, in a few lines.
pub(crate) fn head_of(
    out: &mut dyn Write,
    style: &Style,
    e: &Environment,
    functional: bool,
) -> Result<(), ReportError> {
    let or = |v: &Option<String>, otherwise: &str| v.clone().unwrap_or_else(|| otherwise.into());
    let mut gpu = or(&e.gpu, "GPU unknown");
    for (what, v) in [("driver", &e.driver), ("CUDA", &e.cuda)] {
        if let Some(v) = v {
            gpu += &format!(", {what} {v}");
        }
    }
    if let (Some(g), Some(w)) = (e.pcie_generation, e.pcie_width) {
        gpu += &format!(", PCIe {g} x{w}");
    }
    writeln!(out, "{}", style.bold(&gpu))?;
    let cpus = e.affinity.as_deref().map_or("unknown".into(), ranges);
    writeln!(
        out,
        "{}, kernel {}; CPU {cpus}, {} {}; seed {}",
        or(&e.cpu, "CPU unknown"),
        or(&e.kernel, "unknown"),
        or(&e.scheduler, "scheduler unknown"),
        e.priority.unwrap_or(0),
        e.seed
    )?;
    for n in &e.notes {
        writeln!(out, "note: {n}")?;
    }
    if functional {
        writeln!(out, "note: the software GPU shows what works, never how fast; times are left out")?;
    }
    Ok(())
}

/// `0-3,8`.
fn ranges(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b).map(|r| match r {
        [one] => one.to_string(),
        r => format!("{}-{}", r[0], r[r.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

/// The measured cells by size. The size stands once, and a blank line between two sizes with several routes.
fn rows<'a>(b: &'a Bench<'_>, t: &mut Table, mut row: impl FnMut(&'a Cell, &'a Measured) -> Vec<String>) {
    let groups: Vec<Vec<(&Cell, &Measured)>> = b
        .cells
        .chunk_by(|x, y| x.bytes == y.bytes)
        .map(|g| {
            let measured = |c: &'a Cell| match &c.outcome {
                Outcome::Measured(m) => Some((c, m.as_ref())),
                _ => None,
            };
            g.iter().filter_map(measured).collect::<Vec<_>>()
        })
        .filter(|g| !g.is_empty())
        .collect();
    let apart = groups.iter().any(|g| g.len() > 1);
    for (i, g) in groups.iter().enumerate() {
        if apart && i > 0 {
            t.add_row([""]);
        }
        for (k, (c, m)) in g.iter().enumerate() {
            let size = if k == 0 { bytes(c.bytes) } else { String::new() };
            t.add_row(std::iter::once(size).chain(row(c, m)));
        }
    }
}

/// Columns of a terminal below which the interval is left to JSON; the rest stands in about a hundred.
const WIDE: u16 = 125;

fn times_table(style: &Style, b: &Bench<'_>) -> Table {
    let ratios = b.cells.iter().any(|c| matches!(&c.outcome, Outcome::Measured(m) if m.ratio.is_some()));
    let intervals = style.width.is_none_or(|w| w >= WIDE);
    let mut heads = vec![">size", "route", ">p50"];
    heads.extend(intervals.then_some(">95 % of p50"));
    heads.extend([">p99", ">max", ">submit p50", ">p99", ">GB/s", ">samples"]);
    heads.extend(ratios.then_some(">ratio"));
    let mut t = style.table(&heads);
    let maybe = |v: Option<u64>| v.map_or("-".into(), nanoseconds);
    rows(b, &mut t, |c, m| {
        let mut row = vec![c.route.clone(), nanoseconds(m.total.p50)];
        if intervals {
            let both = |i: Interval<u64>| format!("{} .. {}", nanoseconds(i.low), nanoseconds(i.high));
            row.push(m.total.median.map_or("-".into(), both));
        }
        row.extend([
            maybe(m.total.p99),
            nanoseconds(m.total.max),
            nanoseconds(m.submit.p50),
            maybe(m.submit.p99),
            gb_per_s(c.bytes, m.total.p50).map_or("-".into(), three_digits),
            count(m.total.count),
        ]);
        if ratios {
            row.push(m.ratio.map_or("-".into(), |(_, r)| ratio(&r)));
        }
        row
    });
    t
}

fn functional_table(style: &Style, b: &Bench<'_>) -> Table {
    let mut t = style.table(&[">size", "route", "bytes", ">samples"]);
    rows(b, &mut t, |c, m| vec![c.route.clone(), "right".into(), count(m.total.count)]);
    t
}

/// `~` where the two may be the same.
fn ratio(r: &Ratio) -> String {
    let sure = if r.differs() == Some(true) { "" } else { "~" };
    format!("{sure}{}", three_digits(r.median))
}

fn three_digits(v: f64) -> String {
    match v {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// Bytes of a transfer over its median time; 10^9 bytes.
fn gb_per_s(bytes: u64, p50_ns: u64) -> Option<f64> {
    (p50_ns > 0).then(|| bytes as f64 / p50_ns as f64)
}

/// Each route and reason once, with the sizes that it holds for.
fn not_measured(out: &mut dyn Write, style: &Style, b: &Bench<'_>) -> Result<(), ReportError> {
    let mut order = Vec::new();
    let mut sizes: BTreeMap<(&str, &str, bool), Vec<u64>> = BTreeMap::new();
    for c in b.cells {
        let (reason, failed) = match &c.outcome {
            Outcome::Measured(_) => continue,
            Outcome::Unavailable { reason } => (reason, false),
            Outcome::Failed(f) => (&f.error, true),
        };
        let key = (c.route.as_str(), reason.as_str(), failed);
        sizes
            .entry(key)
            .or_insert_with(|| {
                order.push(key);
                Vec::new()
            })
            .push(c.bytes);
    }
    for failed in [false, true] {
        let these: Vec<_> = order.iter().filter(|k| k.2 == failed).collect();
        if these.is_empty() {
            continue;
        }
        writeln!(out)?;
        writeln!(out, "{}", if failed { style.bad("failed") } else { style.bold("unavailable") })?;
        for key in these {
            let at = &sizes[key];
            let where_ = match at.as_slice() {
                at if at.len() == b.plan.sizes.len() => "every size".into(),
                [one] => bytes(*one),
                [first, .., last] => format!("{} sizes from {} to {}", at.len(), bytes(*first), bytes(*last)),
                [] => String::new(),
            };
            writeln!(out, "  {}, {where_}: {}", key.0, key.1)?;
        }
    }
    Ok(())
}

fn legend(out: &mut dyn Write, b: &Bench<'_>) -> Result<(), ReportError> {
    if b.functional {
        return Ok(());
    }
    let mut against: Vec<&str> = Vec::new();
    let (mut cut, mut few) = (false, false);
    for c in b.cells {
        let Outcome::Measured(m) = &c.outcome else { continue };
        let route = m.ratio.and_then(|(i, _)| b.plan.routes.get(i));
        if let Some(r) = route.filter(|r| !against.contains(&r.as_str())) {
            against.push(r);
        }
        cut |= m.total.count < m.asked;
        few |= m.total.p99.is_none();
    }
    let mut lines = Vec::new();
    if !against.is_empty() {
        lines.push(format!("ratio: p50 over that of {} in the same rounds; ~ may be 1", against.join(", ")));
    }
    if few {
        lines.push("-: a p99 needs 100 samples, an interval six".into());
    }
    if cut {
        lines.push("some cells ended with their time before they had all samples (--time-per-cell)".into());
    }
    if !lines.is_empty() {
        writeln!(out)?;
    }
    for l in lines {
        writeln!(out, "{l}")?;
    }
    Ok(())
}

/// Writes the two probes of the machine's own noise.
pub fn write_noise(out: &mut dyn Write, style: &Style, n: &Noise) -> Result<(), ReportError> {
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

/// One object; a cell a line.
pub fn write_json(out: &mut dyn Write, b: &Bench<'_>) -> Result<(), ReportError> {
    writeln!(out, "{{")?;
    writeln!(out, "\"bench\": \"closed loop\",")?;
    writeln!(out, "\"functional\": {},", b.functional)?;
    writeln!(out, "\"environment\": {},", line(b.environment)?)?;
    writeln!(out, "\"plan\": {},", line(&plan(b.plan))?)?;
    writeln!(out, "\"noise\": {},", line(&b.noise.map(noise))?)?;
    write!(out, "\"cells\": [")?;
    for (i, c) in b.cells.iter().enumerate() {
        write!(out, "{}{}", if i == 0 { "\n" } else { ",\n" }, line(&cell(b, c))?)?;
    }
    writeln!(out, "\n]\n}}")?;
    Ok(())
}

fn line<T: Serialize>(value: &T) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::from)
}

fn plan(p: &Plan) -> Value {
    json!({
        "routes": p.routes,
        "sizes": p.sizes,
        "rounds": p.rounds,
        "seconds_per_cell": p.time_per_cell.map(|t| t.as_secs_f64()),
        "timeout_s": p.timeout.as_secs_f64(),
        "seed": p.seed,
    })
}

/// The two probes as one object.
pub fn noise(n: &Noise) -> Value {
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

#[derive(Serialize)]
#[serde(untagged)]
enum CellRow<'a> {
    Measured(Box<MeasuredRow<'a>>),
    Unavailable { route: &'a str, bytes: u64, unavailable: &'a str },
    Failed { route: &'a str, bytes: u64, failed: &'a str, verified: bool, difference: Option<DifferenceRow> },
}

#[derive(Serialize)]
struct MeasuredRow<'a> {
    route: &'a str,
    bytes: u64,
    verified: bool,
    samples: u64,
    samples_asked: u64,
    min_ns: u64,
    p50_ns: u64,
    /// At least 95 % confidence.
    p50_interval_ns: Option<[u64; 2]>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: u64,
    mean_ns: f64,
    submit_min_ns: u64,
    submit_p50_ns: u64,
    submit_p50_interval_ns: Option<[u64; 2]>,
    submit_p99_ns: Option<u64>,
    submit_p999_ns: Option<u64>,
    submit_max_ns: u64,
    submit_mean_ns: f64,
    /// 10^9 bytes; null where the times are an emulation's.
    gb_per_s: Option<f64>,
    ratio: Option<RatioRow<'a>>,
    worst: Vec<WorstRow>,
}

#[derive(Serialize)]
struct RatioRow<'a> {
    to: &'a str,
    p50: f64,
    /// At least 95 % confidence.
    interval: Option<[f64; 2]>,
    rounds: u64,
    /// Null with too few rounds to say.
    differs: Option<bool>,
}

#[derive(Serialize)]
struct WorstRow {
    at_ns: u64,
    total_ns: u64,
    submit_ns: u64,
}

#[derive(Serialize)]
struct DifferenceRow {
    first: u64,
    differing: u64,
    expected: u8,
    found: u8,
    nothing_moved: bool,
}

fn cell<'a>(b: &Bench<'a>, c: &'a Cell) -> CellRow<'a> {
    let (route, bytes) = (c.route.as_str(), c.bytes);
    match &c.outcome {
        Outcome::Unavailable { reason } => CellRow::Unavailable { route, bytes, unavailable: reason },
        Outcome::Failed(f) => CellRow::Failed {
            route,
            bytes,
            failed: &f.error,
            verified: false,
            difference: f.difference.as_ref().map(|d| DifferenceRow {
                first: d.first,
                differing: d.differing,
                expected: d.expected,
                found: d.found,
                nothing_moved: d.nothing_moved,
            }),
        },
        Outcome::Measured(m) => CellRow::Measured(Box::new(measured(b, route, bytes, m))),
    }
}

fn measured<'a>(b: &Bench<'a>, route: &'a str, bytes: u64, m: &'a Measured) -> MeasuredRow<'a> {
    let interval = |s: &Summary| s.median.map(|i| [i.low, i.high]);
    let (t, s) = (&m.total, &m.submit);
    MeasuredRow {
        route,
        bytes,
        verified: true,
        samples: t.count,
        samples_asked: m.asked,
        min_ns: t.min,
        p50_ns: t.p50,
        p50_interval_ns: interval(t),
        p90_ns: t.p90,
        p99_ns: t.p99,
        p999_ns: t.p999,
        max_ns: t.max,
        mean_ns: t.mean,
        submit_min_ns: s.min,
        submit_p50_ns: s.p50,
        submit_p50_interval_ns: interval(s),
        submit_p99_ns: s.p99,
        submit_p999_ns: s.p999,
        submit_max_ns: s.max,
        submit_mean_ns: s.mean,
        gb_per_s: gb_per_s(bytes, t.p50).filter(|_| !b.functional),
        ratio: m.ratio.as_ref().and_then(|(i, r)| {
            Some(RatioRow {
                to: b.plan.routes.get(*i)?,
                p50: r.median,
                interval: r.interval.map(|i| [i.low, i.high]),
                rounds: r.rounds,
                differs: r.differs(),
            })
        }),
        worst: m
            .worst
            .iter()
            .map(|w| WorstRow { at_ns: w.at_ns, total_ns: w.total_ns, submit_ns: w.submit_ns })
            .collect(),
    }
}
