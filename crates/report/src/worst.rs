//! What `bench worst` measured: a table for each stage, the worst transfers and where their time went, and JSON.
//!
//! Times of the software GPU are those of an emulation. The tables leave them out; JSON keeps them, marked `functional`.

use crate::ReportError;
use crate::bench;
use crate::number::{bytes, count, nanoseconds, seconds};
use crate::table::{self, Style};
use environment::Environment;
use lab::interference::{Ended, Load, Rate};
use lab::noise::Gaps;
use lab::worst::{Kind, Measured, Missing, Row, Split, Stage, Worst};
use serde_json::{Value, json};
use std::io::Write;

/// A run and what it ran on.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub environment: &'a Environment,
    pub functional: bool,
    pub load: &'a Load,
    /// What became of the load's threads.
    pub ended: Option<&'a Ended>,
    /// Without load.
    pub quiet: &'a Stage,
    pub loaded: Option<&'a Stage>,
    /// How far above the noise floor the worst may be, ns.
    pub within_ns: u64,
}

/// Worst transfers of each contender that the text shows; JSON has a hundred.
const SHOWN: usize = 3;

pub fn write(out: &mut dyn Write, style: &Style, run: &Run<'_>) -> Result<(), ReportError> {
    bench::head_of(out, style, run.environment, run.functional)?;
    writeln!(out)?;
    stage(out, style, run, "without load", run.quiet)?;
    if let Some(loaded) = run.loaded {
        writeln!(out)?;
        load(out, run, loaded.load)?;
        stage(out, style, run, "under load", loaded)?;
    }
    let last = run.loaded.unwrap_or(run.quiet);
    if !run.functional {
        writeln!(out)?;
        worst(out, style, last)?;
        unknown(out, last)?;
    }
    let rows = run.loaded.iter().flat_map(|s| &s.phase.rows).chain(&run.quiet.phase.rows);
    let mut missing: Vec<String> = rows.filter_map(why).collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        writeln!(out)?;
        missing.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    if !run.functional {
        writeln!(out)?;
        writeln!(
            out,
            "max is the largest observed in so many samples; it bounds nothing. A yes means: at most {} above the noise",
            nanoseconds(run.within_ns)
        )?;
        writeln!(out, "floor, the longest time that a thread which never sleeps was kept off this CPU.")?;
    }
    Ok(())
}

fn why(row: &Row) -> Option<String> {
    let name = title(row);
    Some(match row.missing.as_ref()? {
        Missing::Unavailable(reason) => format!("unavailable: {name}: {reason}"),
        Missing::Failed(reason) => format!("FAILED: {name}: {reason}"),
    })
}

fn title(row: &Row) -> String {
    format!("{} {}", row.name, bytes(row.bytes))
}

fn load(out: &mut dyn Write, run: &Run<'_>, rate: Option<Rate>) -> Result<(), ReportError> {
    let Load { route, threads, bytes: size, .. } = run.load;
    write!(out, "load: {threads} threads, {} by {route}", bytes(*size))?;
    if let Some(rate) = rate {
        write!(out, "; achieved {} transfers in {}", count(rate.transfers), seconds(rate.seconds))?;
        if !run.functional {
            write!(out, ", {:.0} a second, {:.2} GB/s", rate.per_second(), rate.gigabytes_per_second())?;
        }
    }
    writeln!(out)?;
    if let Some(ended) = run.ended {
        let Ended { threads, least, most, right, failed } = ended;
        writeln!(
            out,
            "load: {threads} threads to the end, {} to {} transfers each, data of {right} compared and right",
            count(*least),
            count(*most)
        )?;
        for (reason, threads) in failed {
            writeln!(out, "load: {threads} FAILED: {reason}")?;
        }
    }
    Ok(())
}

fn stage(out: &mut dyn Write, style: &Style, run: &Run<'_>, name: &str, stage: &Stage) -> Result<(), ReportError> {
    let phase = &stage.phase;
    let turns = format!("{name}: {} turns of each in {}", count(phase.turns), seconds(phase.seconds));
    writeln!(out, "{}", style.bold(&turns))?;
    if phase.full {
        writeln!(out, "note: where the room for samples was used up, no more were taken")?;
    }
    if !run.functional {
        let [before, after] = stage.noise.each_ref().map(|g| nanoseconds(g.max_ns));
        writeln!(
            out,
            "noise floor {}: the longest gap of a busy thread, {before} before, {} in turns between, {after} after",
            nanoseconds(stage.floor_ns()),
            nanoseconds(phase.noise.max_ns)
        )?;
        taken(out, stage)?;
        if let Some((times, error)) = phase.clock {
            writeln!(out, "the GPU's clock was compared {times} times, to {} either way", nanoseconds(error))?;
        }
    }
    let measured = || phase.rows.iter().filter_map(|r| Some((r, r.measured.as_ref()?)));
    if run.functional {
        let mut t = style.table(&["what", ">size", ">samples", "data"]);
        for (row, m) in measured() {
            let data = if row.missing.is_none() { "right" } else { "WRONG" };
            t.add_row([row.name.clone(), bytes(row.bytes), count(m.total.count), data.into()]);
        }
        return Ok(table::write(out, &t, 0)?);
    }
    let heads =
        ["what", ">size", ">samples", ">p50", ">p99", ">p99.9", ">max", ">call max", "the worst: mostly", "within"];
    let mut t = style.table(&heads);
    for (row, m) in measured() {
        let or = |ns: Option<u64>| ns.map_or("-".into(), nanoseconds);
        t.add_row([
            row.name.clone(),
            bytes(row.bytes),
            count(m.total.count),
            nanoseconds(m.total.p50),
            or(m.total.p99),
            or(m.total.p999),
            nanoseconds(m.total.max),
            nanoseconds(m.submit.max),
            m.worst.first().map_or("-".into(), mostly),
            if stage.is_within(row, run.within_ns) { "yes".into() } else { "no".into() },
        ]);
    }
    Ok(table::write(out, &t, 0)?)
}

/// Who had the CPU in the gaps: the guest's scheduler is told from interrupts and the host by the thread's own switches, and
/// the host by its steal time.
fn taken(out: &mut dyn Write, stage: &Stage) -> Result<(), ReportError> {
    let all = || stage.noise.iter().chain([&stage.phase.noise]);
    let most = |f: fn(&Gaps) -> u64| nanoseconds(all().map(f).max().unwrap_or(0));
    writeln!(
        out,
        "in gaps over 20 us another thread had the CPU {} times, at most {}; without one the longest is {}",
        all().map(|g| g.switched).sum::<u64>(),
        most(|g| g.switched_max_ns),
        most(|g| g.unswitched_max_ns)
    )?;
    if let Some(t) = stage.taken {
        let interrupts = t.interrupts.map_or(String::new(), |n| format!(" ({} of them)", count(n)));
        writeln!(
            out,
            "CPU {} meanwhile: the host took {}, interrupts {}{interrupts}, softirqs {}, each to 10 ms",
            t.cpu,
            seconds(t.steal.as_secs_f64()),
            seconds(t.interrupts_time.as_secs_f64()),
            seconds(t.softirq_time.as_secs_f64())
        )?;
    }
    if stage.throttled > 0 {
        writeln!(
            out,
            "the measuring thread's budget was used up {} times: it was kept off its CPU then",
            stage.throttled
        )?;
    }
    Ok(())
}

fn mostly(worst: &Worst) -> String {
    let cause = worst.split.cause(worst.submit_ns, worst.total_ns);
    serde_json::to_value(cause).ok().and_then(|v| Some(v.as_str()?.replace('_', " "))).unwrap_or_default()
}

fn worst(out: &mut dyn Write, style: &Style, stage: &Stage) -> Result<(), ReportError> {
    writeln!(out, "{}", style.bold("the worst, and what is known of their time"))?;
    let mut t = style.table(&["what", ">at", ">total", ">call", ">its parts"]);
    for row in &stage.phase.rows {
        let Some(m) = &row.measured else { continue };
        for w in m.worst.iter().take(SHOWN) {
            let at = seconds(w.at_ns as f64 / 1e9);
            t.add_row([title(row), at, nanoseconds(w.total_ns), nanoseconds(w.submit_ns), parts(&w.split)]);
        }
    }
    if let Some(c) = t.column_mut(4) {
        c.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    Ok(table::write(out, &t, 0)?)
}

fn parts(split: &Split) -> String {
    let signed = |ns: i64| match ns < 0 {
        true => format!("-{}", nanoseconds(ns.unsigned_abs())),
        false => nanoseconds(ns as u64),
    };
    let mut all = Vec::new();
    let mut add = |name: &str, value: Option<String>| all.extend(value.map(|v| format!("{name} {v}")));
    add("doorbell to release", split.engine_ns.map(signed));
    add("release to seen", split.seen_ns.map(signed));
    add("longest gap", split.longest_gap_ns.map(nanoseconds));
    add("asleep", split.asleep_ns.map(nanoseconds));
    add("run queue", split.run_queue_ns.map(nanoseconds));
    add("on a CPU", split.on_cpu_ns.map(nanoseconds));
    add("slept and preempted", split.switches.map(|(slept, taken)| format!("{slept} and {taken} times")));
    all.join(", ")
}

fn unknown(out: &mut dyn Write, stage: &Stage) -> Result<(), ReportError> {
    let rows = stage.phase.rows.iter().filter_map(|r| r.measured.as_ref());
    let mut all: Vec<&str> = rows.flat_map(|m| &m.worst).flat_map(|w| &w.split.unknown).copied().collect();
    all.sort_unstable();
    all.dedup();
    all.iter().try_for_each(|reason| writeln!(out, "not known: {reason}"))?;
    Ok(())
}

pub fn write_json(out: &mut dyn Write, run: &Run<'_>) -> Result<(), ReportError> {
    let mut environment = serde_json::to_value(run.environment).map_err(std::io::Error::from)?;
    if let Some(fields) = environment.as_object_mut() {
        fields.retain(|_, v| !v.is_null());
    }
    let Load { route, threads, bytes, seed, .. } = run.load;
    let ended = run.ended.map(|e| {
        let failed: Vec<_> = e.failed.iter().map(|(r, n)| json!({ "reason": r, "threads": n })).collect();
        json!({ "threads": e.threads, "least": e.least, "most": e.most, "right": e.right, "failed": failed })
    });
    let all = json!({
        "functional": run.functional,
        "environment": environment,
        "within_ns": run.within_ns,
        "load": { "route": route, "threads": threads, "bytes": bytes, "seed": seed, "ended": ended },
        "quiet": stage_json(run.quiet, run.within_ns),
        "loaded": run.loaded.map(|s| stage_json(s, run.within_ns)),
    });
    Ok(writeln!(out, "{all:#}")?)
}

fn stage_json(stage: &Stage, within_ns: u64) -> Value {
    let phase = &stage.phase;
    let rows: Vec<_> = phase.rows.iter().map(|r| row_json(stage, r, within_ns)).collect();
    json!({
        "seconds": phase.seconds,
        "turns": phase.turns,
        "room_used_up": phase.full,
        "noise_floor_ns": stage.floor_ns(),
        "noise_before": gaps_json(&stage.noise[0]),
        "noise_after": gaps_json(&stage.noise[1]),
        "noise_between": gaps_json(&phase.noise),
        "cpu_taken": stage.taken.map(|t| json!({
            "cpu": t.cpu,
            "steal_ns": t.steal.as_nanos() as u64,
            "interrupts_ns": t.interrupts_time.as_nanos() as u64,
            "softirqs_ns": t.softirq_time.as_nanos() as u64,
            "interrupts": t.interrupts,
        })),
        "throttled": stage.throttled,
        "gpu_clock": phase.clock.map(|(n, e)| json!({ "correlations": n, "error_ns": e })),
        "load": stage.load.map(|r| json!({
            "transfers": r.transfers, "bytes": r.bytes, "seconds": r.seconds,
            "transfers_per_second": r.per_second(), "gb_per_s": r.gigabytes_per_second(),
        })),
        "rows": rows,
    })
}

fn gaps_json(g: &Gaps) -> Value {
    json!({
        "readings": g.readings, "p50_ns": g.p50_ns, "p99_ns": g.p99_ns, "max_ns": g.max_ns,
        "interruptions": g.interruptions, "lost_ppm": g.lost_ppm,
        "switched": g.switched, "switched_max_ns": g.switched_max_ns, "unswitched_max_ns": g.unswitched_max_ns,
    })
}

fn row_json(stage: &Stage, row: &Row, within_ns: u64) -> Value {
    let (unavailable, failed) = match &row.missing {
        Some(Missing::Unavailable(reason)) => (Some(reason), None),
        Some(Missing::Failed(reason)) => (None, Some(reason)),
        None => (None, None),
    };
    let mut v = json!({
        "route": row.name,
        "about": row.about,
        "kind": match row.kind { Kind::Own => "own", Kind::Cuda => "cuda" },
        "bytes": row.bytes,
        "unavailable": unavailable,
        "failed": failed,
        "verified": row.missing.is_none() && row.measured.is_some(),
    });
    if let Some(m) = &row.measured {
        let Measured { total, submit, worst } = m;
        for (key, value) in [
            ("samples", json!(total.count)),
            ("p50_ns", json!(total.p50)),
            ("p99_ns", json!(total.p99)),
            ("p999_ns", json!(total.p999)),
            ("max_ns", json!(total.max)),
            ("mean_ns", json!(total.mean)),
            ("submit_p50_ns", json!(submit.p50)),
            ("submit_p99_ns", json!(submit.p99)),
            ("submit_max_ns", json!(submit.max)),
            ("above_noise_floor_ns", json!(total.max as i64 - stage.floor_ns() as i64)),
            ("within", json!(stage.is_within(row, within_ns))),
            ("worst", worst.iter().map(worst_json).collect()),
        ] {
            v[key] = value;
        }
    }
    v
}

fn worst_json(w: &Worst) -> Value {
    let s = &w.split;
    let all = [
        ("at_ns", json!(w.at_ns)),
        ("submit_ns", json!(w.submit_ns)),
        ("total_ns", json!(w.total_ns)),
        ("mostly", json!(s.cause(w.submit_ns, w.total_ns))),
        ("doorbell_to_release_ns", json!(s.engine_ns)),
        ("release_to_seen_ns", json!(s.seen_ns)),
        ("clock_error_ns", json!(s.clock_error_ns)),
        ("longest_gap_ns", json!(s.longest_gap_ns)),
        ("asleep_ns", json!(s.asleep_ns)),
        ("run_queue_ns", json!(s.run_queue_ns)),
        ("on_cpu_ns", json!(s.on_cpu_ns)),
        ("slept", json!(s.switches.map(|s| s.0))),
        ("preempted", json!(s.switches.map(|s| s.1))),
    ];
    let mut v: serde_json::Map<_, _> =
        all.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.to_string(), v)).collect();
    if !s.unknown.is_empty() {
        v.insert("unknown".into(), json!(s.unknown));
    }
    v.into()
}
