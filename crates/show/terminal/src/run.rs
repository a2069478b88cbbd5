//! The text of one run of an experiment: a table for each stage, and the details after it.
//!
//! Stages that differ only in their size share a table. Times of the software GPU are those of an emulation: they are left
//! out.

mod budget;
mod by_size;
mod commands;
mod figures;
mod largest;
mod lasted;
mod metered;
mod places;
mod repaid;
mod scaling;
mod side_by_side;
mod traffic;
mod winners;
mod within;

pub use figures::three_digits;
pub use metered::who_counted;

use crate::number::{bytes, count, nanoseconds, of, seconds};
use crate::table::{Out, Style};
use experiment::{Bound, Metric, Observe};
use run_folder::part::{BY_RATES, Loaded};
use run_folder::run::{
    Cause, CellOfRun, Group, Judged, JudgedCell, PartOfRun, StageOfRun, Verdict, WorstOfRun, baselines,
};
use run_folder::{Run, Status};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// CPU pressure is printed from this part of the time on.
const PRESSED: f64 = 0.01;

/// Writes all of it. `folder` is where the run's files stay; `None` if the run is not kept.
pub fn write(out: &mut dyn Out, style: &Style, run: &Run, folder: Option<&Path>) -> io::Result<()> {
    head(out, style, run)?;
    body(out, style, run)?;
    asserts(out, style, run)?;
    if !run.warnings.is_empty() {
        writeln!(out)?;
        run.warnings.iter().try_for_each(|w| writeln!(out, "warning: {w}"))?;
    }
    if let Some(folder) = folder {
        writeln!(out)?;
        writeln!(out, "{}: figures in run.json, every sample in samples/, plots in plots/", folder.display())?;
    }
    Ok(())
}

/// Writes the figures: without the head and what the run is a part of.
pub fn body(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    incomplete(out, style, run)?;
    let mut groups = run.groups();
    groups.iter_mut().for_each(|g| g.cells.sort_by_key(|c| c.bytes));
    for group in &groups {
        writeln!(out)?;
        stage(out, style, run, group, groups.len() > 1)?;
    }
    if !run.functional {
        side_by_side::write(out, style, &groups)?;
        repaid::write(out, style, run)?;
        by_size::write(out, style, run, &groups)?;
        winners::write(out, style, run)?;
        largest::write(out, style, run)?;
    }
    scaling::write(out, style, run)?;
    legend(out, run)?;
    not_measured(out, style, run)?;
    if !run.functional {
        within::write(out, style, run)?;
    }
    Ok(())
}

fn head(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    let e = &run.experiment;
    let title = if e.about.is_empty() { e.name.clone() } else { format!("{}: {}", e.name, e.about) };
    writeln!(out, "{}", style.bold(&title))?;
    writeln!(out, "{}", run.machine())?;
    let samples: u64 = run.cells.iter().map(|c| c.samples).sum();
    writeln!(
        out,
        "{}; {} in {}",
        run.version(),
        of(samples, "sample"),
        seconds(run.stages.iter().map(|s| s.seconds).sum())
    )?;
    if run.functional {
        writeln!(out, "note: the software GPU shows what works, not how fast; times are left out")?;
    }
    Ok(())
}

fn incomplete(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    if !run.complete {
        let all = run.missing.len() + run.parts.len();
        let line = format!("not complete: {} of {} missing", run.missing.len(), of(all as u64, "part"));
        writeln!(out, "{}", style.bad(&line))?;
        let mut why: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for m in &run.missing {
            why.entry(&m.why).or_default().push(format!("{}.{}", m.stage, m.repeat));
        }
        for (why, parts) in why {
            let more = if parts.len() > 4 { ", ..." } else { "" };
            writeln!(out, "  stage.repeat {}{more}: {why}", parts[..parts.len().min(4)].join(", "))?;
        }
    }
    Ok(())
}

fn stage(out: &mut dyn Out, style: &Style, run: &Run, group: &Group<'_>, several: bool) -> io::Result<()> {
    let place = group.place();
    let stages = || run.stages.iter().filter(|s| group.stages.contains(&s.number));
    if !place.is_empty() || several {
        writeln!(out, "{}", style.bold(if place.is_empty() { "all else as it is" } else { &place }))?;
    }
    let mut named: Vec<&str> = Vec::new();
    for load in stages().flat_map(|s| &s.loads) {
        if !named.contains(&load.name.as_str()) {
            named.push(&load.name);
        }
    }
    for name in named {
        let all: Vec<&Loaded> = stages().flat_map(|s| &s.loads).filter(|l| l.name == name).collect();
        load(out, style, &all, run.functional)?;
    }
    let floor = stages().filter_map(|s| s.noise_floor_ns).max();
    if let Some(floor) = floor.filter(|_| !run.functional) {
        writeln!(
            out,
            "noise floor {}: the longest time that a thread which never sleeps was kept off its CPU",
            nanoseconds(floor)
        )?;
    }
    if let Some(pressure) = run.pressure_of(&group.stages).filter(|p| *p >= PRESSED && !run.functional) {
        let percent = 100.0 * pressure;
        writeln!(out, "CPU pressure {percent:.0} %: the part of the time in which a runnable thread had no CPU")?;
    }
    if !run.functional {
        lasted::write(out, run, &stages().collect::<Vec<_>>(), &group.cells)?;
        counted(out, run, &stages().collect::<Vec<_>>())?;
    }
    figures::write(out, style, run, &group.cells)?;
    commands::write(out, style, &group.cells, run.functional)?;
    traffic::write(out, style, run, &group.cells)?;
    if !run.functional {
        slowest(out, &group.cells)?;
        places::write(out, style, &group.cells)?;
        metered::write(out, style, &group.cells)?;
        budget::write(out, style, &group.cells)?;
        figures::counters(out, style, &group.cells)?;
        // For a sample without counters it is known only if the engine's times are.
        let counted = || group.cells.iter().flat_map(|c| &c.worst_counted).filter(|w| w.on_cpu_ns.is_some());
        if counted().next().is_some() {
            writeln!(out, "{}", causes("slowest of those rounds", counted()))?;
        }
    }
    Ok(())
}

/// What a load did, in one line: the minimum and the maximum over several stages.
fn load(out: &mut dyn Out, style: &Style, all: &[&Loaded], functional: bool) -> io::Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    let name = if first.name == first.what { String::new() } else { format!("{}, ", first.name) };
    write!(out, "beside: {name}{} by {}", of(first.threads.into(), "thread"), first.what)?;
    let least_and_most = |f: &dyn Fn(&Loaded) -> f64, text: &dyn Fn(f64) -> String| {
        let values = || all.iter().filter(|l| l.seconds > 0.0).map(|l| f(l));
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let (low, high) = if low > high { (0.0, 0.0) } else { (low, high) };
        let (low, high) = (text(low), text(high));
        if low == high { high } else { format!("{low} to {high}") }
    };
    let transfers: u64 = all.iter().map(|l| l.transfers).sum();
    write!(out, "; {}", of(transfers, "transfer"))?;
    if !functional {
        let rate = least_and_most(&|l| l.transfers as f64 / l.seconds, &|v| count(v.round() as u64));
        write!(out, ", {rate} a second")?;
        if all.iter().any(|l| l.bytes > 0) {
            let rate = least_and_most(&|l| l.bytes as f64 / l.seconds / 1e9, &figures::three_digits);
            write!(out, ", {rate} GB/s")?;
        }
        let longest = all.iter().map(|l| l.longest_ns).max().unwrap_or(0);
        if longest > 0 {
            write!(out, ", the longest {}", nanoseconds(longest))?;
        }
    }
    let checked: u64 = all.iter().map(|l| l.checked).sum();
    if checked > 0 {
        write!(out, "; {} compared", count(checked))?;
    }
    writeln!(out)?;
    if let Some(why) = all.iter().find_map(|l| l.unavailable.as_ref()) {
        writeln!(out, "{}", style.bad(&format!("  measured without it: {why}")))?;
    }
    if let Some(missed) = all.iter().find_map(|l| l.missed.as_ref()) {
        writeln!(out, "{}", style.bad(&format!("  missed its rate: {missed}")))?;
    }
    let mut failed: BTreeMap<&str, u32> = BTreeMap::new();
    for (why, n) in all.iter().flat_map(|l| &l.failed) {
        *failed.entry(why).or_default() += n;
    }
    for (why, n) in failed {
        writeln!(out, "{}", style.bad(&format!("  {} FAILED: {why}", of(n.into(), "thread"))))?;
    }
    Ok(())
}

/// What the GPU and the kernel counted while the stages of a table were measured.
fn counted(out: &mut dyn Out, run: &Run, stages: &[&StageOfRun]) -> io::Result<()> {
    let mut said: Vec<String> = Vec::new();
    let links: Option<Vec<_>> = stages.iter().map(|s| s.used.link).collect();
    if let Some(links) = links.filter(|links| !links.is_empty()) {
        let is_of = |part: &&PartOfRun| stages.iter().any(|stage| stage.number == part.stage);
        let by_rates = run.parts.iter().filter(is_of).flat_map(|part| &part.notes).any(|note| note.contains(BY_RATES));
        let by = if by_rates { format!(" ({BY_RATES})") } else { String::new() };
        for (way, of) in [("to", 0), ("from", 1)] {
            let all = links.iter().map(|link| if of == 0 { link.to_gpu } else { link.from_gpu });
            let (payload, counted) = all.fold((0.0, 0.0), |sum, c| (sum.0 + c.payload_bytes, sum.1 + c.counted_bytes));
            said.push(format!("{} {way} the GPU{by}, {} of it payload", bytes(counted as u64), bytes(payload as u64)));
        }
    }
    let sum = |of: fn(&StageOfRun) -> Option<f64>| stages.iter().map(|s| of(s)).sum::<Option<f64>>();
    said.extend(sum(|s| s.used.energy_j).map(|joule| format!("{joule:.0} J")));
    said.extend(stages.iter().filter_map(|s| s.used.temperature_c).reduce(f64::max).map(|t| format!("{t:.0} C")));
    said.extend(sum(|s| s.used.cpu_seconds).map(|cpu| format!("{} of CPUs", seconds(cpu))));
    if said.is_empty() || stages.is_empty() {
        return Ok(());
    }
    writeln!(out, "counted: {}", said.join("; "))
}

/// The slowest sample of each table, and what the slowest ones of all its cells have in common.
fn slowest(out: &mut dyn Out, cells: &[&CellOfRun]) -> io::Result<()> {
    let Some((cell, worst)) = run_folder::run::slowest(cells.iter().copied()) else { return Ok(()) };
    let at = format!("repeat {}, round {}, sample {}", worst.repeat, worst.round, count(worst.index));
    write!(out, "slowest: {}, {} in {at}", title(cell), nanoseconds(worst.value_ns))?;
    writeln!(out, "{}", parts(worst, cell.observe))?;
    writeln!(out, "{}", causes("slowest", cells.iter().flat_map(|c| &c.worst)))
}

/// Where most of their time went, the commonest first.
fn causes<'a>(what: &str, all: impl Iterator<Item = &'a WorstOfRun>) -> String {
    let causes = run_folder::run::causes(all);
    let total: u64 = causes.iter().map(|(_, n)| n).sum();
    let causes: Vec<String> = causes.iter().map(|(c, n)| format!("{} {}", name(*c), count(*n))).collect();
    format!("the {} {what}, by where most of their time went: {}", count(total), causes.join(", "))
}

fn parts(w: &WorstOfRun, observe: Observe) -> String {
    let mut all = Vec::new();
    let mut add = |name: &str, value: Option<String>| all.extend(value.map(|v| format!("{name} {v}")));
    // Its parts are those of the whole sample.
    add("of the whole sample", (observe != Observe::Done).then(|| nanoseconds(w.total_ns)));
    add("waited for those before it", (w.queued_ns > 0).then(|| nanoseconds(w.queued_ns)));
    add("call", Some(nanoseconds(w.submit_ns)));
    let positive = |ns: i64| nanoseconds(ns.max(0) as u64);
    match w.engine_ns {
        // The rest of the call's time, or all of it, went by after the end.
        Some(ns) if ns < 0 => add("ended before the call was back by", Some(nanoseconds(ns.unsigned_abs()))),
        ns => {
            add("engine", ns.map(positive));
            add("seen after", w.seen_ns.map(positive));
        }
    }
    add("longest gap", w.longest_gap_ns.map(nanoseconds));
    add("asleep", w.asleep_ns.map(nanoseconds));
    add("run queue", w.run_queue_ns.map(nanoseconds));
    add("on a CPU", w.on_cpu_ns.map(nanoseconds));
    let least = if w.capped { "at least; " } else { "" };
    format!(" ({least}{})", all.join(", "))
}

/// What a sample's time went to.
pub fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::Queue => "queue",
        Cause::Submission => "submission",
        Cause::Engine => "engine",
        Cause::CpuKeptAway => "CPU kept away",
        Cause::Seeing => "seeing the end",
        Cause::Asleep => "asleep",
        Cause::RunQueue => "run queue",
        Cause::OnCpu => "on a CPU",
        Cause::Unknown => "not known",
    }
}

fn title(cell: &CellOfRun) -> String {
    match cell.bytes {
        0 => cell.subject.clone(),
        n => format!("{} {}", cell.subject, bytes(n)),
    }
}

fn legend(out: &mut dyn Out, run: &Run) -> io::Result<()> {
    let measured = || run.cells.iter().filter(|c| c.observed().is_some());
    if run.functional || measured().next().is_none() {
        return Ok(());
    }
    writeln!(out)?;
    for (observe, what) in [
        (Observe::Done, "from the intended release until the CPU saw the end"),
        (Observe::Submit, "of the call alone, until it returned"),
        (Observe::Engine, "from the engine's start to its end, by the GPU's clock"),
    ] {
        let mut of: Vec<&str> = measured().filter(|c| c.observe == observe).map(|c| c.subject.as_str()).collect();
        of.sort_unstable();
        of.dedup();
        let others = measured().filter(|c| c.observe != observe).count();
        let of = match of.as_slice() {
            [] => continue,
            _ if others == 0 => String::new(),
            [_, _, _, _, _, ..] if others < of.len() => " of all others".into(),
            _ => format!(" of {}", of.join(", ")),
        };
        writeln!(out, "times{of}: {what}")?;
    }
    writeln!(
        out,
        "95 %, +-: from what processes differ by; - with fewer than three. max is the largest of this many, not a bound"
    )?;
    if let Some(ratio) = measured().find_map(|c| c.ratio.as_ref()) {
        let metric = ratio.metric;
        let (head, of) = match baselines(measured()).as_slice() {
            [one] => (format!("times {one}"), "its"),
            _ => ("times".into(), "the baseline's"),
        };
        let bare = match metric {
            Metric::Max | Metric::Min => format!("; a {metric} has no interval, and another run may say anything else"),
            _ => String::new(),
        };
        writeln!(out, "{head}: {metric} over {of} {metric}, in the same rounds; ~ may be 1{bare}")?;
    }
    let capped: u64 = measured().map(|c| c.capped).sum();
    if capped > 0 {
        let short = "cut short: the loads rested until it ended; with loads it would have taken longer";
        writeln!(out, "{} {short}; >= and <= mark values known only from that side", of(capped, "sample"))?;
    }
    Ok(())
}

const UNAVAILABLE: &str = "unavailable";
const INVALID: &str = "INVALID, and without figures";
const FAILED: &str = "FAILED";

/// Each subject and reason once, with the sizes that it holds for.
fn not_measured(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    let mut order = Vec::new();
    let mut sizes: BTreeMap<(&str, &str, &str), Vec<u64>> = BTreeMap::new();
    for c in &run.cells {
        let (why, title) = match &c.status {
            Status::Measured => continue,
            Status::Unavailable(why) => (why, UNAVAILABLE),
            Status::Invalid(why) => (why, INVALID),
            Status::Failed(why) => (why, FAILED),
        };
        let key = (c.subject.as_str(), why.as_str(), title);
        if !sizes.contains_key(&key) {
            order.push(key);
        }
        let of = sizes.entry(key).or_default();
        if !of.contains(&c.bytes) {
            of.push(c.bytes);
        }
    }
    for title in [UNAVAILABLE, INVALID, FAILED] {
        let these: Vec<_> = order.iter().filter(|k| k.2 == title).collect();
        if these.is_empty() {
            continue;
        }
        writeln!(out)?;
        writeln!(out, "{}", if title == UNAVAILABLE { style.bold(title) } else { style.bad(title) })?;
        for key in these {
            let at = match sizes[key].as_slice() {
                [] | [0] => String::new(),
                [one] => format!(", {}", bytes(*one)),
                [first, .., last] => {
                    format!(", {} sizes from {} to {}", sizes[key].len(), bytes(*first), bytes(*last))
                }
            };
            writeln!(out, "  {}{at}: {}", key.0, key.1)?;
        }
    }
    Ok(())
}

/// Writes what the experiment asserts, and where that does not hold.
pub fn asserts(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    if run.asserts.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    if run.functional {
        return Ok(writeln!(out, "not judged: {}, for there are no times", of(run.asserts.len() as u64, "assert"))?);
    }
    for judged in &run.asserts {
        let asked = asked(judged);
        match judged.verdict {
            Verdict::Held => writeln!(out, "{}: {asked}", style.good("held"))?,
            Verdict::NotJudged => writeln!(out, "not judged: {asked}")?,
            Verdict::Broken => writeln!(out, "{}: {asked}", style.bad("BROKEN"))?,
        }
        let left = judged.not_held();
        for c in left.iter().take(SHOWN) {
            writeln!(out, "  {}", of_cell(run, judged, c))?;
        }
        if left.len() > SHOWN {
            writeln!(out, "  and {} more", left.len() - SHOWN)?;
        }
    }
    Ok(())
}

/// The number of cells shown that broke an assert.
const SHOWN: usize = 5;

/// A value of a metric, with its unit.
pub fn amount(metric: Metric, v: f64) -> String {
    match metric {
        Metric::Misses => format!("{:.3} %", v * 100.0),
        Metric::Rate => format!("{} GB/s", figures::three_digits(v / 1e9)),
        _ => nanoseconds(v.max(0.0) as u64),
    }
}

/// The bound of an assert, in words.
pub fn asked(judged: &Judged) -> String {
    let a = &judged.assert;
    let who = if a.subject == "*" { "every subject" } else { &a.subject };
    format!("{} of {who}: {}", a.metric, bound_text(&a.bound, a.metric))
}

/// A bound, in words.
pub fn bound_text(bound: &Bound, metric: Metric) -> String {
    match bound {
        Bound::AtMost(v) => format!("at most {}", amount(metric, *v)),
        Bound::AtLeast(v) => format!("at least {}", amount(metric, *v)),
        Bound::AtMostTimes(times, other) => format!("at most {times} times that of {other}"),
        Bound::AboveNoise(ns) => format!("at most {} above the noise floor", nanoseconds(*ns as u64)),
        Bound::WithinBest(within) => {
            let of = match within.among.as_slice() {
                [] => "of all other routes between the same memories".to_owned(),
                among => format!("of {}", among.join("; ")),
            };
            let more = [
                (within.percent > 0.0).then(|| format!("{} %", within.percent)),
                (within.ns > 0.0).then(|| nanoseconds(within.ns as u64)),
            ];
            let more: Vec<String> = more.into_iter().flatten().collect();
            let more = if more.is_empty() { "nothing".to_owned() } else { more.join(" or ") };
            format!("at most {more} above the best {of}")
        }
    }
}

/// A cell of an assert that did not hold it, and why.
pub fn of_cell(run: &Run, judged: &Judged, c: &JudgedCell) -> String {
    let size = if c.bytes > 0 { format!(" {}", bytes(c.bytes)) } else { String::new() };
    let stage = run.stages.iter().find(|s| s.number == c.stage).filter(|_| run.stages.len() > 1);
    let point: Vec<String> = stage
        .into_iter()
        .flat_map(|s| &s.point)
        .filter(|p| p.name != "bytes")
        .map(|p| format!(", {} = {}", p.name, p.value))
        .collect();
    let what = match (&c.why, c.value, c.bound) {
        (Some(why), ..) => why.clone(),
        (None, Some(v), Some(b)) => {
            let best = c.against.as_ref().map_or(String::new(), |a| {
                let times = a.ratio.map_or(String::new(), |r| {
                    format!(" ({} times, {})", figures::three_digits(r.ratio), by_size::interval(r))
                });
                format!("; the best is {} with {}{times}", a.subject, amount(judged.assert.metric, a.value_ns))
            });
            format!("{}, and the bound is {}{best}", amount(judged.assert.metric, v), amount(judged.assert.metric, b))
        }
        _ => "not known".into(),
    };
    format!("{}{size}{}: {what}", c.subject, point.concat())
}
