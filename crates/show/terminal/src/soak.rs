//! The text of a soak: its duration, the tables of its cells, leaks and drift, and each fault.
//!
//! Times of the software GPU are those of an emulation: they are left out.

mod above;

use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{self, Style};
use above::above;
pub use above::lines as delay_lines;
use numbers::duration;
use run_folder::soak::Soak;
use run_folder::soak::account::{CellName, Fault, FaultKind, LoadOfPeriod};
use std::io::{self, Write};

/// Faults that are shown, equal ones together; the others are counted.
const FAULTS: usize = 20;

/// Writes all of it.
///
/// # Errors
/// The output cannot be written.
pub fn write(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    head(out, style, soak)?;
    cells(out, style, soak)?;
    if !soak.functional {
        stability(out, style, soak)?;
        thirds(out, style, soak)?;
        power(out, soak)?;
    }
    loads(out, style, soak)?;
    leaks(out, style, soak)?;
    drift(out, style, soak)?;
    gaps(out, soak)?;
    faults(out, style, soak)?;
    above(out, soak)?;
    for warning in &soak.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    writeln!(out)?;
    let text = format!("{}: {}", soak.verdict.headline, soak.verdict.text);
    writeln!(out, "{}", if soak.verdict.held { style.good(&text) } else { style.bad(&text) })
}

fn head(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    let e = &soak.experiment;
    let about = if e.about.is_empty() { String::new() } else { format!(": {}", e.about) };
    writeln!(out, "{}", style.bold(&format!("soak {}, {}{about}", e.name, soak.verdict.headline)))?;
    let every = duration(soak.every_s);
    writeln!(
        out,
        "doorbell {}, {} to {}; {} of {every}, {}",
        soak.doorbell,
        soak.started,
        soak.ended,
        of(soak.periods.len() as u64, "period"),
        of(soak.processes.len() as u64, "measuring process")
    )?;
    if let Some(why) = &soak.stopped_because {
        writeln!(out, "{}", style.bad(&format!("not complete: {why}")))?;
    }
    if soak.simulated_clock {
        writeln!(out, "note: the clock was simulated: no hour of it was measured")?;
    }
    if soak.functional {
        writeln!(out, "note: the software GPU shows what works, not how fast; times are left out")?;
    }
    Ok(())
}

/// A cell, for people.
fn name(soak: &Soak, cell: &CellName) -> String {
    let stages = soak.cells.iter().any(|c| c.cell.stage != cell.stage);
    let stage = if stages { format!("{}: ", cell.stage) } else { String::new() };
    let size = if cell.bytes > 0 { format!(" {}", bytes(cell.bytes)) } else { String::new() };
    format!("{stage}{}{size}", cell.subject)
}

fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".into(), |ns| nanoseconds(ns.round() as u64))
}

fn whole(ns: Option<u64>) -> String {
    time(ns.map(|ns| ns as f64))
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".into(), |part| format!("±{:.1} %", part * 100.0))
}

fn cells(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    writeln!(out)?;
    let counts = ["cell", ">samples", ">compared", ">wrong", ">lost"];
    let times = [">mean", ">p50", ">p99", ">p99.9", ">max", ">GB/s", ">speed-up"];
    let heads: Vec<&str> = if soak.functional { counts.to_vec() } else { counts.into_iter().chain(times).collect() };
    let mut t = style.table(&heads);
    for c in &soak.cells {
        let mut row = vec![name(soak, &c.cell), count(c.count), count(c.checked), count(c.wrong), count(c.lost)];
        if !soak.functional {
            row.extend([time(c.mean_ns), whole(c.p50_ns), whole(c.p99_ns), whole(c.p999_ns), whole(c.max_ns)]);
            row.push(c.bytes_per_second.map_or_else(|| "-".into(), |rate| format!("{:.2}", rate / 1e9)));
            row.push(c.over.as_ref().and_then(|over| over.speed_up.as_ref()).map_or_else(String::new, |s| {
                match s.interval {
                    Some(i) => format!("{:.2} ({:.2} to {:.2})", s.times, i.low, i.high),
                    None => format!("{:.2}", s.times),
                }
            }));
        }
        t.add_row(row);
    }
    table::write(out, &t, 0)?;
    let mut over: Vec<&str> =
        soak.cells.iter().filter_map(|c| Some(c.over.as_ref()?.speed_up.as_ref()?.over.as_str())).collect();
    over.dedup();
    if !over.is_empty() && !soak.functional {
        writeln!(out, "speed-up over {}, paired by periods, 95 %", over.join(", "))?;
    }
    for c in &soak.cells {
        if let Some(why) = &c.unavailable {
            writeln!(out, "not available here: {}: {why}", name(soak, &c.cell))?;
        }
    }
    Ok(())
}

fn stability(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    writeln!(out)?;
    let heads = ["stability", ">min", ">max", ">jitter", ">stddev/mean", ">least mean", ">largest mean", ">of means"];
    let mut t = style.table(&heads);
    for c in soak.cells.iter().filter(|c| c.count > 0) {
        let over = c.over.as_ref();
        t.add_row([
            name(soak, &c.cell),
            whole(c.min_ns),
            whole(c.max_ns),
            whole(c.jitter_ns),
            percent(c.relative_fluctuation),
            time(over.and_then(|over| over.least_mean_ns)),
            time(over.and_then(|over| over.largest_mean_ns)),
            percent(over.and_then(|over| over.fluctuation_of_means)),
        ]);
    }
    table::write(out, &t, 0)
}

fn thirds(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    if soak.thirds.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let names: Vec<String> = soak.cells.iter().map(|c| format!(">{}", name(soak, &c.cell))).collect();
    let mut heads: Vec<&str> = vec!["measured"];
    heads.extend(names.iter().map(String::as_str));
    heads.push(">power");
    let mut t = style.table(&heads);
    for third in &soak.thirds {
        let mut row = vec![format!("{} to {}", duration(third.from_s), duration(third.to_s))];
        row.extend(third.mean_ns.iter().map(|mean| time(*mean)));
        row.push(third.power_w.map_or_else(|| "-".into(), |w| format!("{w:.1} W")));
        t.add_row(row);
    }
    table::write(out, &t, 0)
}

fn power(out: &mut dyn Write, soak: &Soak) -> io::Result<()> {
    let Some(p) = &soak.power else { return Ok(()) };
    let energy = p.energy_j.map_or(String::new(), |j| format!(", {:.1} Wh", j / 3600.0));
    writeln!(
        out,
        "power: {:.1} W, {:.1} to {:.1} (±{:.1} %){energy}",
        p.mean_w,
        p.min_w,
        p.max_w,
        p.fluctuation * 100.0
    )
}

fn loads(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    let Some(first) = soak.periods.first().filter(|period| !period.loads.is_empty()) else { return Ok(()) };
    writeln!(out)?;
    let mut t = style.table(&["load", ">threads", ">transfers", ">held in"]);
    for n in 0..first.loads.len() {
        let all: Vec<&LoadOfPeriod> = soak.periods.iter().filter_map(|period| period.loads.get(n)).collect();
        let held = all.iter().filter(|load| load.held).count();
        t.add_row([
            first.loads[n].name.clone(),
            first.loads[n].threads.to_string(),
            count(all.iter().map(|load| load.transfers).sum()),
            format!("{held} of {}", of(all.len() as u64, "period")),
        ]);
    }
    table::write(out, &t, 0)
}

fn leaks(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    writeln!(out)?;
    let mut t = style.table(&["held by the process", ">at first", ">at last", ">an hour", ">95 % of it", "!"]);
    for leak in &soak.leaks {
        let is_bytes = leak.what.ends_with("_bytes");
        let number = |v: f64| if is_bytes { format!("{:.2} MiB", v / 1_048_576.0) } else { format!("{v:.2}") };
        let whole = |v: Option<u64>| match v {
            Some(v) if is_bytes => number(v as f64),
            Some(v) => count(v),
            None => "-".into(),
        };
        t.add_row([
            leak.what.trim_end_matches("_bytes").replace('_', " "),
            whole(leak.from),
            whole(leak.to),
            leak.slope_per_hour.map_or_else(String::new, number),
            leak.interval.map_or(String::new(), |i| format!("{} to {}", number(i.low), number(i.high))),
            match &leak.not_judged {
                Some(why) => format!("not judged: {why}"),
                None if leak.leaking => style.bad("leaks"),
                None if leak.is_open(soak.done_s) => "too short or too uneven to decide".into(),
                None => "no leak".into(),
            },
        ]);
    }
    table::write(out, &t, 0)
}

fn drift(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    if soak.functional || soak.drift.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut t = style.table(&["drift", "", ">first third", ">last third", ">ratio", "95 %", "!"]);
    for d in &soak.drift {
        t.add_row([
            name(soak, &d.cell),
            d.metric.clone(),
            time(Some(d.first_third)),
            time(Some(d.last_third)),
            format!("{:.3}", d.ratio),
            d.interval.map_or(String::new(), |i| format!("{:.3} to {:.3}", i.low, i.high)),
            match &d.not_judged {
                Some(why) => format!("not judged: {why}"),
                None if d.drifted => style.bad("drifted"),
                None => String::new(),
            },
        ]);
    }
    table::write(out, &t, 0)
}

fn gaps(out: &mut dyn Write, soak: &Soak) -> io::Result<()> {
    if !soak.gaps.is_empty() {
        writeln!(out)?;
    }
    for gap in &soak.gaps {
        writeln!(out, "gap: {} from {}: {}", duration(gap.seconds), gap.from, gap.why)?;
    }
    Ok(())
}

/// The name of a kind of fault.
pub fn fault_name(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Corrupted => "corrupted",
        FaultKind::Lost => "lost",
        FaultKind::Failed => "failed",
        FaultKind::Leak => "leak",
        FaultKind::Drift => "drift",
        FaultKind::Stall => "stall",
        FaultKind::Died => "died",
        FaultKind::DeadLoad => "dead load",
        FaultKind::Above => "above the bound",
    }
}

fn faults(out: &mut dyn Write, style: &Style, soak: &Soak) -> io::Result<()> {
    if !soak.faults.is_empty() {
        writeln!(out)?;
    }
    let mut groups: Vec<Vec<&Fault>> = Vec::new();
    for fault in &soak.faults {
        let alike =
            |g: &&mut Vec<&Fault>| (g[0].kind, &g[0].cell, &g[0].what) == (fault.kind, &fault.cell, &fault.what);
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(fault),
            None => groups.push(vec![fault]),
        }
    }
    for group in groups.iter().take(FAULTS) {
        let fault = group[0];
        let cell = fault.cell.as_ref().map_or(String::new(), |cell| format!("{}: ", name(soak, cell)));
        let period = fault.period.map_or(String::new(), |period| format!(" in period {period}"));
        let at = fault.at.as_ref().map_or(String::new(), |at| format!(" at {at}"));
        let more = if group.len() > 1 { format!(" and {} later ones", group.len() - 1) } else { String::new() };
        let what = format!("fault: {}{period}{more}{at}: {cell}{}", fault_name(fault.kind), fault.what);
        writeln!(out, "{}", style.bad(&what))?;
    }
    if groups.len() > FAULTS {
        writeln!(out, "and {} other kinds in soak.json", groups.len() - FAULTS)?;
    }
    Ok(())
}
