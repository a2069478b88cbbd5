//! What `bench contention` measured: one table of all cells, what the policies changed, the histogram of launches alone, the
//! call times of copies by size, and JSON.
//!
//! Times of the software GPU are those of an emulation. The tables leave them out; JSON keeps them, marked `functional`.

use crate::ReportError;
use crate::bench;
use crate::json;
use crate::number::{bytes, count, nanoseconds, of, seconds};
use crate::table::{self, Style};
use environment::Environment;
use lock_lab::contention::{
    Against, Cell, Comparison, Effect, Loaded, Outcome, Parts, Row, STOCK, Series, Tail, Times, What,
};
use serde_json::{Value, json};
use std::io::Write;

/// One policy that cells were run under, or why they were not.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Policy {
    pub name: String,
    /// How a program is run under it.
    pub how: String,
    /// Why it has no figures, or not all.
    pub missing: Option<String>,
    /// What the agent says that it did, of the last process.
    pub report: Vec<String>,
}

/// A run and what it ran on.
#[derive(Clone, Copy, Debug)]
pub struct Contention<'a> {
    pub environment: &'a Environment,
    pub functional: bool,
    pub policies: &'a [Policy],
    pub cells: &'a [Cell],
    pub comparison: &'a Comparison,
    /// Asked for, of each cell under each policy.
    pub seconds: f64,
    pub rounds: u32,
    /// Cells and policies are still to come, or the run was given up.
    pub partial: bool,
}

pub fn write(out: &mut dyn Write, style: &Style, run: &Contention<'_>) -> Result<(), ReportError> {
    bench::head_of(out, style, run.environment, run.functional)?;
    let rows = &run.comparison.rows;
    let mut classes: Vec<String> = rows.iter().filter_map(|r| r.outcome.class).map(|c| c.to_string()).collect();
    classes.sort_unstable();
    classes.dedup();
    if !classes.is_empty() {
        writeln!(out, "measuring thread: {}", classes.join("; "))?;
    }
    let mut notes: Vec<&String> = rows.iter().flat_map(|r| &r.outcome.notes).collect();
    notes.sort_unstable();
    notes.dedup();
    notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
    let (throttled, moved) = rows.iter().fold((0, 0), |(t, m), r| (t + r.outcome.throttled, m + r.outcome.moved));
    if throttled + moved > 0 {
        writeln!(out, "note: throttled in {}, on another CPU {moved} times", of(throttled, "period"))?;
    }
    writeln!(out)?;
    table::write(out, &cells_table(style, run), 0)?;
    writeln!(out)?;
    legend(out, run)?;
    if !run.functional {
        rows.iter().filter(|r| r.cell == Cell::Sizes).try_for_each(|row| sizes(out, style, row))?;
        let alone = |r: &&Row| r.cell == Cell::Alone && (r.policy == STOCK || run.policies.len() == 1);
        rows.iter().filter(alone).try_for_each(|row| histogram(out, style, row))?;
        slowest(out, style, rows)?;
        verdicts(out, style, run)?;
    }
    loads(out, style, rows, run.functional)?;
    policies(out, style, run)?;
    missing(out, rows)?;
    if run.partial {
        writeln!(out, "\nnot all of it: the run was given up or is still going")?;
    }
    Ok(())
}

fn cells_table(style: &Style, run: &Contention<'_>) -> comfy_table::Table {
    let heads: &[&str] = if run.functional {
        &["cell", "policy", "what", ">samples"]
    } else {
        &["cell", "policy", "what", ">samples", ">p50", ">p99", ">p99.9", ">max", ">asleep", ">run queue", ">on CPU"]
    };
    let mut t = style.table(heads);
    let mut last = (String::new(), String::new());
    for row in run.comparison.rows.iter().filter(|r| r.cell != Cell::Sizes || run.functional) {
        let looked_at = |s: &'_ Series| s.looked_at().iter().map(|what| (s.clone(), *what)).collect::<Vec<_>>();
        for (series, what) in row.outcome.series.iter().flat_map(looked_at) {
            let times = series.times(what);
            if times.count == 0 {
                continue;
            }
            let (cell, policy) = (row.cell.to_string(), row.policy.clone());
            let same_cell = cell == last.0;
            let same_policy = same_cell && policy == last.1;
            let shown = |text: &str, hide: bool| if hide { String::new() } else { text.to_owned() };
            let mut line = vec![
                shown(&cell, same_cell),
                shown(&policy, same_policy),
                title(&series.name, series.own, row.cell.is_setup(), what),
            ];
            line.push(count(times.count));
            if !run.functional {
                line.extend(figures(times, series.is_capped(what)));
                line.extend(shares(series.parts_of(what)));
            }
            t.add_row(line);
            last = (cell, policy);
        }
    }
    t
}

/// `launch`, or `launch and its wait`.
fn title(name: &str, own: bool, setup: bool, what: What) -> String {
    match (what, setup, own) {
        (What::Done, true, _) => format!("{name} and back"),
        (What::Done, false, false) => format!("{name} + wait"),
        _ => name.to_owned(),
    }
}

fn figures(times: &Times, capped: bool) -> [String; 4] {
    let Some(tail) = Tail::of(times) else { return [const { String::new() }; 4] };
    let or = |ns: Option<u64>| ns.map_or("too few".into(), |ns| at_least(ns, capped && ns == tail.max));
    [or(Some(tail.p50)), or(tail.p99), or(tail.p999), at_least(tail.max, capped)]
}

/// What ended because its load was told to stop would have taken longer.
fn at_least(ns: u64, capped: bool) -> String {
    format!("{}{}", if capped { "over " } else { "" }, nanoseconds(ns))
}

/// Parts of all calls' time, per cent.
fn shares(parts: Option<&Parts>) -> [String; 3] {
    let Some(p) = parts.filter(|p| p.wall_ns > 0) else { return [const { String::new() }; 3] };
    let share = |ns: u64| format!("{:.1} %", ns as f64 / p.wall_ns as f64 * 100.0);
    let known = |ns: u64| if p.unknown == 0 { share(ns) } else { "unknown".into() };
    [known(p.asleep_ns), known(p.run_queue_ns), share(p.on_cpu_ns)]
}

fn legend(out: &mut dyn Write, run: &Contention<'_>) -> Result<(), ReportError> {
    if run.functional {
        return Ok(());
    }
    for text in [
        "launch, graph, copy: the call alone, which does not wait for the engine; with its wait: until the work is done.",
        "Where that time went: asleep (in a lock, or in the kernel), ready without a CPU, on a CPU (the wait for the",
        "engine spins). Copies of ours: until the bytes are there.",
    ] {
        writeln!(out, "{text}")?;
    }
    if run.cells.iter().any(Cell::is_setup) {
        writeln!(
            out,
            "stream, memory, pinned memory: the call alone; `and back`: until it is given back. over: it had not come"
        )?;
        writeln!(
            out,
            "back when the threads beside it were told to stop; what stands behind it in turn was not begun."
        )?;
    }
    writeln!(out, "max is the largest observed in so many samples; it bounds nothing.")?;
    Ok(())
}

/// What the paper has as its Fig. 6b, beside it.
const PAPER_ALONE_NS: u64 = 30_000;
/// Lines of the histogram: 1 us each up to here, then powers of two.
const FINE: u64 = 16_000;
const BAR: usize = 50;

fn histogram(out: &mut dyn Write, style: &Style, row: &Row) -> Result<(), ReportError> {
    for series in row.outcome.series.iter().filter(|s| !s.own && s.call.count > 0) {
        let times = &series.call;
        let within = times.count - times.above(PAPER_ALONE_NS);
        let share = within as f64 / times.count as f64 * 100.0;
        let head = format!("{}, alone, {}: {} calls", series.name, row.policy, count(times.count));
        writeln!(out, "\n{}; {share:.4} % within 30 us (the paper: most)", style.bold(&head))?;
        let lines = bars(times);
        let most = lines.iter().map(|l| l.1).max().unwrap_or(1);
        for (from, n) in lines {
            // A logarithm shows the one slow call beside the million fast ones.
            let length = (n as f64).ln_1p() / (most as f64).ln_1p() * BAR as f64;
            writeln!(out, "{:>8} {:>12} {}", nanoseconds(from), count(n), "#".repeat(length.ceil() as usize))?;
        }
    }
    Ok(())
}

/// From when on, and how many.
fn bars(times: &Times) -> Vec<(u64, u64)> {
    let from = |ns: u64| if ns < FINE { ns / 1_000 * 1_000 } else { FINE << (ns / FINE).ilog2() };
    let mut lines: Vec<(u64, u64)> = Vec::new();
    for (top, n) in &times.buckets {
        let at = from(*top);
        match lines.last_mut() {
            Some(last) if last.0 == at => last.1 += n,
            _ => lines.push((at, *n)),
        }
    }
    lines
}

fn sizes(out: &mut dyn Write, style: &Style, row: &Row) -> Result<(), ReportError> {
    writeln!(out, "\n{}", style.bold(&format!("copies of CUDA's to the GPU by size, {}", row.policy)))?;
    let heads = ["copy", ">samples", ">call p50", ">call p99", ">call max", ">done p50", ">done max", ">asleep"];
    let mut t = style.table(&heads);
    for s in row.outcome.series.iter().filter(|s| s.call.count > 0) {
        let [call50, call99, _, call_max] = figures(&s.call, false);
        let [done50, _, _, done_max] = figures(&s.done, false);
        let [asleep, ..] = shares(s.parts.as_ref());
        t.add_row([s.name.clone(), count(s.call.count), call50, call99, call_max, done50, done_max, asleep]);
    }
    Ok(table::write(out, &t, 0)?)
}

fn slowest(out: &mut dyn Write, style: &Style, rows: &[Row]) -> Result<(), ReportError> {
    let mut t = style.table(&["the slowest", "policy", "what", ">time", ">asleep", ">run queue", ">on CPU", ">at"]);
    for row in rows.iter().filter(|r| r.cell != Cell::Sizes) {
        for series in row.outcome.series.iter().filter(|s| !s.own) {
            for (what, slow) in [
                (What::Call, series.slowest.first().map(|s| (s, s.call_ns))),
                (What::Done, series.slowest_done.first().map(|s| (s, s.done_ns))),
            ] {
                let Some((slow, time)) = slow else { continue };
                let or = |ns: Option<u64>| ns.map_or("unknown".into(), nanoseconds);
                t.add_row([
                    row.cell.to_string(),
                    row.policy.clone(),
                    title(&series.name, series.own, row.cell.is_setup(), what),
                    at_least(time, slow.capped),
                    or(slow.asleep_ns),
                    or(slow.run_queue_ns),
                    or(slow.on_cpu_ns),
                    seconds(slow.at_ns as f64 / 1e9),
                ]);
            }
        }
    }
    if t.row_count() > 0 {
        writeln!(out)?;
        table::write(out, &t, 0)?;
    }
    Ok(())
}

/// Which policy helps, and which does not, in words.
fn verdicts(out: &mut dyn Write, style: &Style, run: &Contention<'_>) -> Result<(), ReportError> {
    let against = run.comparison.against();
    if against.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold("policies against stock"))?;
    for policy in run.policies.iter().filter(|p| p.name != STOCK) {
        let of_policy = || against.iter().filter(|a| a.policy == policy.name);
        let kind_of = |a: &&'_ Against| (a.series.clone(), a.what, a.cell.is_setup());
        let mut kinds: Vec<(String, What, bool)> = Vec::new();
        for kind in of_policy().map(|a| kind_of(&a)) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        for kind in kinds {
            let is = |a: &&Against| kind_of(a) == kind;
            // Our own are not compared.
            let text = title(&kind.0, false, kind.2, kind.1);
            let (maxima, percentiles): (Vec<&Against>, Vec<&Against>) =
                of_policy().filter(is).partition(|a| a.figure == "max");
            for (figure, of) in [("p99.9", percentiles), ("max", maxima)] {
                if !of.is_empty() {
                    writeln!(out, "{}", verdict(&policy.name, &format!("{text}, {figure}"), &of))?;
                }
            }
        }
    }
    writeln!(
        out,
        "helps, harms: in every round better, or worse, than stock in any, and by a tenth at least over all"
    )?;
    Ok(())
}

/// So many times longer or shorter is worth a word, although not every round says so.
const MUCH: f64 = 3.0;

fn verdict(policy: &str, series: &str, all: &[&Against]) -> String {
    let with = |effect: Effect| all.iter().filter(move |a| a.effect == effect);
    let one = |a: &Against| {
        let (from, to) = (at_least(a.stock_ns, a.stock_capped), at_least(a.policy_ns, a.policy_capped));
        let less = a.stock_ns > a.policy_ns;
        let factor = if less { a.factor() } else { 1.0 / a.factor() };
        let figure = if series.ends_with(a.figure) { String::new() } else { format!("{} ", a.figure) };
        format!("{} {figure}{from} to {to}, {factor:.1} times {}", a.cell, if less { "less" } else { "more" })
    };
    let mut parts = Vec::new();
    for (effect, word) in [(Effect::Helps, "helps"), (Effect::Harms, "harms")] {
        let list: Vec<String> = with(effect).map(|a| one(a)).collect();
        if !list.is_empty() {
            parts.push(format!("{word} in {}: {}", of(list.len() as u64, "cell"), list.join("; ")));
        }
    }
    let much = |a: &&&Against| a.factor() >= MUCH || a.factor() <= 1.0 / MUCH;
    let (much, little): (Vec<&&Against>, Vec<&&Against>) = with(Effect::None).partition(|a| much(a));
    if !much.is_empty() {
        let list: Vec<String> = much.iter().map(|a| one(a)).collect();
        parts.push(format!("over all, not in every round: {}", list.join("; ")));
    }
    if !little.is_empty() {
        parts.push(format!("no difference in {}", of(little.len() as u64, "cell")));
    }
    let few: Vec<String> = with(Effect::TooFew).map(|a| one(a)).collect();
    if !few.is_empty() {
        parts.push(format!("too few rounds to say: {}", few.join("; ")));
    }
    format!("{policy}, {series}: {}", parts.join(". "))
}

fn loads(out: &mut dyn Write, style: &Style, rows: &[Row], functional: bool) -> Result<(), ReportError> {
    let heads: &[&str] =
        &["beside", "policy", "what", ">threads", ">right", ">a second", ">GB/s", ">CPUs had", ">CPUs waited for"];
    let mut t = style.table(if functional { &heads[..5] } else { heads });
    for row in rows {
        for load in &row.outcome.load {
            let Loaded { what, threads, bytes: size, transfers, seconds, right, .. } = load;
            let (per_second, gigabytes) = (*transfers as f64 / seconds, (*transfers * size) as f64 / seconds / 1e9);
            let what = if *size > 0 { format!("{what} {}", bytes(*size)) } else { what.clone() };
            let gigabytes = if *size > 0 { format!("{gigabytes:.2}") } else { String::new() };
            let (threads, right) = (threads.to_string(), right.to_string());
            let mut line = vec![row.cell.to_string(), row.policy.clone(), what, threads, right];
            if !functional {
                line.extend([count(per_second as u64), gigabytes]);
                line.extend([load.on_cpu, load.waiting].map(|cpus| format!("{cpus:.3}")));
            }
            t.add_row(line);
        }
    }
    if t.row_count() > 0 {
        writeln!(out)?;
        table::write(out, &t, 0)?;
    }
    for row in rows {
        for (why, n) in row.outcome.load.iter().flat_map(|l| &l.failed) {
            writeln!(out, "FAILED: {}, {}: {n} threads of the load: {why}", row.cell, row.policy)?;
        }
    }
    Ok(())
}

fn policies(out: &mut dyn Write, style: &Style, run: &Contention<'_>) -> Result<(), ReportError> {
    if run.policies.iter().all(|p| p.missing.is_none() && p.report.is_empty()) {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold("what the agent did"))?;
    for p in run.policies {
        for line in &p.report {
            writeln!(out, "{}: {line}", p.name)?;
        }
        if let Some(why) = &p.missing {
            writeln!(out, "unavailable: {} ({}): {why}", p.name, p.how)?;
        }
    }
    Ok(())
}

fn missing(out: &mut dyn Write, rows: &[Row]) -> Result<(), ReportError> {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        for s in &row.outcome.series {
            lines.extend(s.unavailable.as_ref().map(|why| format!("unavailable: {}: {why}", s.name)));
            lines.extend(
                s.failed.as_ref().map(|why| format!("FAILED: {}, {}, {}: {why}", row.cell, row.policy, s.name)),
            );
        }
    }
    lines.sort_unstable();
    lines.dedup();
    if !lines.is_empty() {
        writeln!(out)?;
    }
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(())
}

pub fn write_json(out: &mut dyn Write, run: &Contention<'_>) -> Result<(), ReportError> {
    let mut environment = serde_json::to_value(run.environment).map_err(std::io::Error::from)?;
    if let Some(fields) = environment.as_object_mut() {
        fields.retain(|_, v| !v.is_null());
    }
    let cells: Vec<Value> = run.comparison.rows.iter().map(row_json).collect();
    let against = run.comparison.against();
    let against: Vec<Value> = against.iter().map(against_json).collect();
    let plan = json!({
        "seconds": run.seconds, "rounds": run.rounds, "cells": run.cells, "policies": run.policies,
    });
    let head = [
        ("functional", json!(run.functional)),
        ("partial", json!(run.partial)),
        ("environment", environment),
        ("plan", plan),
    ];
    // A cell is a line: its histograms have thousands of numbers.
    writeln!(out, "{{")?;
    for (key, value) in head {
        writeln!(out, "\"{key}\": {value:#},")?;
    }
    write!(out, "\"cells\": ")?;
    lines(out, &cells)?;
    write!(out, ",\n\"against_stock\": ")?;
    lines(out, &against)?;
    Ok(writeln!(out, "\n}}")?)
}

fn lines(out: &mut dyn Write, values: &[Value]) -> std::io::Result<()> {
    let mut array = json::Array::begin(out)?;
    values.iter().try_for_each(|value| array.push(value))?;
    array.end()
}

fn against_json(a: &Against) -> Value {
    let mut v = serde_json::to_value(a).unwrap_or_default();
    v["factor"] = json!(a.factor());
    v
}

fn row_json(row: &Row) -> Value {
    let o = &row.outcome;
    let series: Vec<Value> = o.series.iter().map(|s| series_json(row, s)).collect();
    json!({
        "cell": row.cell,
        "policy": row.policy,
        "rounds": row.rounds(),
        "seconds": o.seconds,
        "cpu": o.cpu,
        "class": o.class,
        "throttled_periods": o.throttled,
        "moved": o.moved,
        "notes": o.notes,
        "load": o.load,
        "series": series,
    })
}

fn series_json(row: &Row, s: &Series) -> Value {
    let rounds = |what| row.tails(&s.name, what).collect::<Vec<Tail>>();
    json!({
        "name": s.name,
        "about": s.about,
        "own": s.own,
        "unavailable": s.unavailable,
        "failed": s.failed,
        "call": times_json(&s.call),
        "done": times_json(&s.done),
        "call_parts": s.parts,
        "done_parts": s.done_parts,
        "call_rounds": rounds(What::Call),
        "done_rounds": rounds(What::Done),
        "slowest": s.slowest,
        "slowest_done": s.slowest_done,
    })
}

fn times_json(times: &Times) -> Value {
    let Some(t) = Tail::of(times) else { return Value::Null };
    json!({
        "samples": times.count, "min_ns": times.min, "mean_ns": times.mean(),
        "p50_ns": t.p50, "p99_ns": t.p99, "p999_ns": t.p999, "max_ns": t.max,
        "histogram": times.buckets,
    })
}

/// One cell as it ends, in a line.
pub fn line(policy: &str, outcome: &Outcome) -> String {
    let of = |s: &Series| {
        let what = *s.looked_at().first()?;
        let tail = Tail::of(s.times(what))?;
        let max = |w: &What| at_least(s.times(*w).max, s.is_capped(*w));
        let max = s.looked_at().iter().map(max).collect::<Vec<_>>().join(" and done ");
        Some(format!("{} p50 {}, max {max}", s.name, nanoseconds(tail.p50)))
    };
    let series: Vec<String> = outcome.series.iter().filter_map(of).collect();
    format!("{policy}, {}, {}: {}", outcome.cell, seconds(outcome.seconds), series.join("; "))
}

/// How long all of it takes, about.
pub fn estimate(cells: usize, policies: usize, rounds: u32, seconds_each: f64) -> String {
    // Starting threads and buffers takes about half a second a cell, starting CUDA three a process.
    let all = cells as f64 * policies as f64 * (seconds_each + 0.5 * f64::from(rounds))
        + policies as f64 * f64::from(rounds) * 3.0;
    format!("about {}", seconds(all))
}
