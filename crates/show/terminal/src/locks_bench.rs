//! What `lock_bench::locks` measured: tables and JSON.
//!
//! A wait that the bench ended itself is written `> 2.01 s`, never as a time that the lock took; the highest of several is "the max observed in N",
//! not a worst case.

use crate::ReportError;
use crate::number::{count, nanoseconds, of};
use crate::table::{self, Style};
use environment::Environment;
use lock_bench::locks::{BATCH, Cost, Figures, Missing, Pairs, Plan, Policy, Waits};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// A run and its machine. `None` if an experiment was not requested.
#[derive(Clone, Copy, Debug)]
pub struct Locks<'a> {
    pub plan: &'a Plan,
    pub environment: &'a Environment,
    /// `glibc 2.36`.
    pub libc: &'a str,
    /// A writer that waits for readers.
    pub starvation: Option<&'a [Waits]>,
    /// A reader that waits for writers.
    pub reader_starvation: Option<&'a [Waits]>,
    /// Or why inversion cannot happen here.
    pub inversion: Option<&'a Result<Vec<Waits>, String>>,
    pub costs: Option<&'a [Cost]>,
}

/// Writes the tables, and below each what was not measured and why.
pub fn write(out: &mut dyn Write, style: &Style, r: &Locks<'_>) -> Result<(), ReportError> {
    head(out, style, r)?;
    let section = nanos(r.plan.section);
    let crowd = u64::from(r.plan.crowd);
    let sections = |who: &str| format!("behind {}, each inside for {}", of(crowd, who), nanoseconds(section));
    if let Some(all) = r.starvation {
        writeln!(out, "\n{} {}", style.bold("wait of a writer"), sections("overlapping reader"))?;
        waits(out, style, all, Some(section))?;
    }
    if let Some(all) = r.reader_starvation {
        writeln!(out, "\n{} {}", style.bold("wait of a reader"), sections("contending writer"))?;
        waits(out, style, all, Some(section))?;
    }
    if r.starvation.or(r.reader_starvation).is_some() {
        writeln!(
            out,
            ">: had not ended when the others were stopped; overtaken: the maximum of others' sections that"
        )?;
        writeln!(out, "began during one wait")?;
    }
    if let Some(inversion) = r.inversion {
        let three = format!(
            "on one CPU, SCHED_FIFO: low has a critical section of {}, middle burns {}",
            nanoseconds(nanos(r.plan.held)),
            nanoseconds(nanos(r.plan.burn))
        );
        writeln!(out, "\n{} {three}", style.bold("wait of the highest of three threads"))?;
        match inversion {
            Ok(all) => waits(out, style, all, None)?,
            Err(reason) => writeln!(out, "unavailable: {reason}")?,
        }
    }
    if let Some(all) = r.costs {
        costs(out, style, r, all)?;
    }
    Ok(())
}

fn nanos(duration: std::time::Duration) -> u64 {
    duration.as_nanos() as u64
}

fn head(out: &mut dyn Write, style: &Style, r: &Locks<'_>) -> Result<(), ReportError> {
    let e = r.environment;
    let or = |fact: &str| e.text(fact).unwrap_or("unknown").to_string();
    let cpus = e.integer("cpu.online").map_or("?".into(), |n| of(n as u64, "CPU"));
    let load = e.list("kernel.load").first().and_then(environment::Value::number);
    let load = load.map_or("unknown".into(), |load| format!("{load:.1}"));
    writeln!(
        out,
        "{}",
        style.bold(&format!("{}, {cpus}, kernel {}, {}", or("cpu.model"), or("kernel.release"), r.libc))
    )?;
    writeln!(out, "load {load} before it began; seed {}", e.integer("run.seed").unwrap_or(0))?;
    for note in &e.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

/// `section`: for a column that counts in sections.
fn waits(out: &mut dyn Write, style: &Style, all: &[Waits], section: Option<u64>) -> Result<(), ReportError> {
    let mut heads = vec!["policy", ">p50", ">max observed"];
    heads.extend(section.map(|_| ">in sections"));
    heads.extend([">in", if section.is_some() { ">overtaken" } else { "middle ran first" }, ""]);
    let mut t = style.table(&heads);
    for w in all {
        let Some(summary) = w.summary() else { continue };
        let capped = w.capped();
        let more = |is: bool| if is { "> " } else { "" };
        // With half of them capped the median is one of those.
        let p50 = format!("{}{}", more(2 * capped > summary.count), nanoseconds(summary.p50));
        let max = format!("{}{}", more(capped > 0), nanoseconds(summary.max));
        let mut row = vec![w.policy.name().to_string(), p50, max];
        row.extend(section.map(|section| {
            let ratio = summary.max as f64 / section.max(1) as f64;
            format!("{}{ratio:.1}", more(capped > 0))
        }));
        row.push(of(summary.count, "wait"));
        row.push(match section {
            Some(_) => count(w.overtaken()),
            None => if w.overtaken() > 0 { "yes" } else { "no" }.into(),
        });
        row.push(w.policy.about().into());
        t.add_row(row);
    }
    table::write(out, &t, 0)?;
    let missing = all.iter().filter_map(|w| Some((w.policy.name().to_string(), w.outcome.as_ref().err()?)));
    not_measured(out, style, missing)
}

fn not_measured<'a>(
    out: &mut dyn Write,
    style: &Style,
    missing: impl Iterator<Item = (String, &'a Missing)>,
) -> Result<(), ReportError> {
    for (name, why) in missing {
        match why {
            Missing::Unavailable(reason) => writeln!(out, "unavailable: {name}: {reason}")?,
            Missing::Failed(what) => writeln!(out, "{}: {name}: {what}", style.bad("failed"))?,
        }
    }
    Ok(())
}

fn costs(out: &mut dyn Write, style: &Style, r: &Locks<'_>, all: &[Cost]) -> Result<(), ReportError> {
    let alone = |cost: &&Cost| cost.threads == 1;
    if all.iter().any(|cost| alone(&cost)) {
        let title = style.bold("a lock and an unlock without contention");
        writeln!(out, "\n{title}, ns a pair; a sample is the mean of {BATCH}")?;
        let heads = ["pair", "policy", ">p50", ">p99", ">max observed", ">samples", ">added to stock", ""];
        let mut t = style.table(&heads);
        rows(&mut t, all.iter().filter(alone), |cost, f| {
            let decimal = |v: f64| format!("{v:.1}");
            vec![
                decimal(f.p50_ns),
                f.p99_ns.map_or("-".into(), decimal),
                decimal(f.max_ns),
                count(f.samples),
                f.added_ns.map_or(String::new(), |v| format!("{v:+.1}")),
                cost.policy.about().into(),
            ]
        });
        table::write(out, &t, 0)?;
    }
    if all.iter().any(|cost| cost.threads > 1) {
        let title = style.bold("a lock and an unlock that others want");
        let (inside, reading) =
            (nanoseconds(nanos(r.plan.inside)), r.environment.number("clock.reading_ns").unwrap_or(0.0));
        writeln!(
            out,
            "\n{title}, time of both with the wait, two readings of the clock included ({reading:.0} ns each);"
        )?;
        writeln!(out, "each thread is inside for {inside} and returns at once")?;
        let heads = ["threads", "pair", "policy", ">p50", ">p99", ">max observed", ">samples", ">pairs/s"];
        let mut t = style.table(&heads);
        let contended = all.iter().filter(|cost| cost.threads > 1);
        let mut last = 0;
        for cost in contended {
            let Ok(f) = &cost.outcome else { continue };
            let first = cost.policy == Policy::Stock;
            let threads = if cost.threads == last { String::new() } else { cost.threads.to_string() };
            last = cost.threads;
            let whole = |v: f64| nanoseconds(v.round() as u64);
            t.add_row([
                threads,
                if first { cost.pairs.name().to_string() } else { String::new() },
                cost.policy.name().into(),
                whole(f.p50_ns),
                f.p99_ns.map_or("-".into(), whole),
                whole(f.max_ns),
                count(f.samples),
                f.pairs_per_s.map_or("-".into(), |v| count(v.round() as u64)),
            ]);
        }
        table::write(out, &t, 0)?;
    }
    let missing = all.iter().filter_map(|cost| {
        let name = format!("{}, {}, {}", cost.pairs.name(), cost.policy.name(), of(cost.threads.into(), "thread"));
        Some((name, cost.outcome.as_ref().err()?))
    });
    not_measured(out, style, missing)
}

/// The kind of pair is written once.
fn rows<'a>(t: &mut table::Table, all: impl Iterator<Item = &'a Cost>, row: impl Fn(&Cost, &Figures) -> Vec<String>) {
    for cost in all {
        let Ok(f) = &cost.outcome else { continue };
        let pair = if cost.policy == Policy::Stock { cost.pairs.name() } else { "" };
        t.add_row([pair.to_string(), cost.policy.name().into()].into_iter().chain(row(cost, f)));
    }
}

/// One object. `starvation_ms`, `reader_starvation_ms` and `inversion_ms` hold the longest wait of each policy, as a number, or null if it is
/// missing. `capped` names those that the bench ended; the rest has every wait.
pub fn write_json(out: &mut dyn Write, r: &Locks<'_>) -> Result<(), ReportError> {
    let waits = [("starvation", r.starvation), ("reader_starvation", r.reader_starvation)];
    let inversion = r.inversion.map(|i| i.as_ref().map_or(&[][..], Vec::as_slice));
    let skipped = r.inversion.and_then(|i| i.as_ref().err());
    writeln!(out, "{{")?;
    writeln!(out, "\"bench\": \"locks\",")?;
    writeln!(out, "\"libc\": {},", line(&r.libc)?)?;
    writeln!(out, "\"environment\": {},", line(r.environment)?)?;
    writeln!(out, "\"plan\": {},", line(&plan(r.plan))?)?;
    for (name, all) in waits {
        writeln!(out, "\"{name}_ms\": {},", line(&all.map(longest))?)?;
    }
    writeln!(out, "\"inversion_ms\": {},", line(&r.inversion.map(inversion_ms))?)?;
    writeln!(out, "\"inversion_unavailable\": {},", line(&skipped)?)?;
    for (name, all) in waits.into_iter().chain([("inversion", inversion)]) {
        writeln!(out, "\"{name}\": {},", line(&all.map(every))?)?;
    }
    write!(out, "\"costs\": [")?;
    for (i, cost) in r.costs.unwrap_or_default().iter().enumerate() {
        write!(out, "{}{}", if i == 0 { "\n" } else { ",\n" }, line(&cost_row(cost))?)?;
    }
    writeln!(out, "\n]\n}}")?;
    Ok(())
}

fn line<T: Serialize>(value: &T) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::from)
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn longest(all: &[Waits]) -> Map<String, Value> {
    let one = |w: &Waits| (w.policy.name().to_string(), json!(w.summary().map(|summary| ms(summary.max))));
    all.iter().map(one).collect()
}

/// If inversion cannot happen, every policy is listed without a figure.
fn inversion_ms(inversion: &Result<Vec<Waits>, String>) -> Map<String, Value> {
    match inversion {
        Ok(all) => longest(all),
        Err(_) => lock_bench::locks::INVERTED.iter().map(|policy| (policy.name().to_string(), Value::Null)).collect(),
    }
}

fn every(all: &[Waits]) -> Map<String, Value> {
    let one = |w: &Waits| {
        let value = match &w.outcome {
            Err(missing) => unmeasured(missing),
            Ok(list) => json!({
                "waits": list.len(),
                "p50_ms": w.summary().map(|summary| ms(summary.p50)),
                "min_ms": w.summary().map(|summary| ms(summary.min)),
                "max_ms": w.summary().map(|summary| ms(summary.max)),
                "capped": w.capped() > 0,
                "waits_capped": w.capped(),
                "overtaken": list.iter().map(|wait| wait.overtaken).collect::<Vec<_>>(),
                "every_ms": list.iter().map(|wait| ms(wait.ns)).collect::<Vec<_>>(),
            }),
        };
        (w.policy.name().to_string(), value)
    };
    all.iter().map(one).collect()
}

fn unmeasured(missing: &Missing) -> Value {
    match missing {
        Missing::Unavailable(reason) => json!({ "unavailable": reason }),
        Missing::Failed(what) => json!({ "failed": what }),
    }
}

fn cost_row(cost: &Cost) -> Value {
    let mut row = match &cost.outcome {
        Err(missing) => unmeasured(missing),
        Ok(f) => json!({
            "samples": f.samples,
            "p50_ns": f.p50_ns,
            "p99_ns": f.p99_ns,
            "max_ns": f.max_ns,
            "added_ns": f.added_ns,
            "pairs_per_s": f.pairs_per_s,
        }),
    };
    row["pair"] = cost.pairs.name().into();
    row["policy"] = cost.policy.name().into();
    row["threads"] = cost.threads.into();
    row["pairs_a_sample"] = if cost.threads == 1 { BATCH.into() } else { 1.into() };
    row
}

fn plan(p: &Plan) -> Value {
    json!({
        "seed": p.seed,
        "crowd": p.crowd,
        "section_ms": p.section.as_secs_f64() * 1e3,
        "cap_ms": p.cap.as_secs_f64() * 1e3,
        "repeats": p.repeats,
        "burn_ms": p.burn.as_secs_f64() * 1e3,
        "held_ms": p.held.as_secs_f64() * 1e3,
        "inversions": p.inversions,
        "rounds": p.rounds,
        "samples": p.samples,
        "threads": p.threads,
        "inside_us": p.inside.as_secs_f64() * 1e6,
        "contended_ms": p.contended.as_secs_f64() * 1e3,
        "pairs": Pairs::ALL.map(Pairs::name),
    })
}
