//! How full the link was, for people: a line for each cell, and the rate with which it is compared.
//!
//! For the software GPU or an emulated device it shows what was moved correctly, without rates or times.

use crate::ReportError;
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{self, Style};
use saturate::account::{Over, Saturated, Status, Total};
use saturate::link::Access;
use saturate::plan::CellName;
use saturate::source::{Operation, Submission};
use std::io::Write;

/// Writes all of it.
///
/// # Errors
/// The output cannot be written.
pub fn write(out: &mut dyn Write, style: &Style, run: &Saturated) -> Result<(), ReportError> {
    head(out, style, run)?;
    if run.functional {
        counts(out, style, run)?
    } else {
        rates(out, style, run)?
    }
    knees(out, run)?;
    for total in &run.cells {
        match &total.status {
            Status::Done => {}
            Status::Unavailable(why) => writeln!(out, "not available here: {}: {why}", name(total))?,
            Status::Failed(why) => writeln!(out, "{}", style.bad(&format!("failed: {}: {why}", name(total))))?,
        }
        if let Some(first) = &total.checked.first {
            let text = format!(
                "wrong: {}: {} of {}, {first}",
                name(total),
                total.checked.wrong,
                of(total.checked.blocks, "block")
            );
            writeln!(out, "{}", style.bad(&text))?;
        }
        if total.refused > 0 {
            let text = format!("{}: {} ended with a status", name(total), of(total.refused, "I/O"));
            writeln!(out, "{}", style.bad(&text))?;
        }
        for note in &total.notes {
            writeln!(out, "note: {}: {note}", name(total))?;
        }
    }
    for warning in &run.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}

/// A cell, for people.
pub fn name(total: &Total) -> String {
    let c = &total.cell;
    if total.is_peak() {
        return format!("plain copy to {}", c.target);
    }
    let batch = told(c);
    let queues = if c.queues > 1 { format!(" x {}", of(c.queues.into(), "queue")) } else { String::new() };
    let (threads, devices) = (of(c.threads.into(), "thread"), of(c.devices.into(), "device"));
    let way = if c.operation == Operation::Write { "written from" } else { "to" };
    format!("{} {way} {}, {threads}, {devices}{queues}, depth {}{batch}", bytes(c.bytes), c.target, c.depth)
}

/// How devices get a cell's I/Os, if not with a doorbell each, and how copy engines report completion.
fn told(c: &CellName) -> String {
    let batch = match (c.submission, c.batch) {
        (Submission::Armed, _) => ", armed".into(),
        (Submission::Doorbell, 0 | 1) => String::new(),
        (Submission::Doorbell, batch) => format!(", {batch} a doorbell"),
    };
    format!("{batch}{}", way(c))
}

/// `, no flush, commands in host memory`; empty if all is the default.
pub fn way(c: &CellName) -> String {
    let way = c.way.to_string();
    if way.is_empty() { way } else { format!(", {way}") }
}

/// GB/s with two decimals.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{:.2}", bytes_per_second / 1e9)
}

/// `1.10 (1.09 to 1.12)`.
pub fn interval(over: &Over, write: impl Fn(f64) -> String) -> String {
    match over.interval {
        Some(i) => format!("{} ({} to {})", write(over.median), write(i.low), write(i.high)),
        None => write(over.median),
    }
}

fn head(out: &mut dyn Write, style: &Style, run: &Saturated) -> Result<(), ReportError> {
    let about = if run.plan.about.is_empty() { String::new() } else { format!(": {}", run.plan.about) };
    writeln!(out, "{}", style.bold(&format!("saturate {}{about}", run.plan.name)))?;
    writeln!(out, "doorbell {}, {} to {}; {}", run.doorbell, run.started, run.ended, run.source)?;
    if !run.complete {
        writeln!(out, "{}", style.bad("not complete: --resume measures what is missing"))?;
    }
    if run.functional {
        writeln!(out, "note: functional: it shows what works, not how fast; rates and times are left out")?;
    }
    if let Some(of_run) = &run.link {
        writeln!(out, "link {}, {} GB/s in each direction", of_run.link, rate(of_run.line_rate))?;
        let p = &of_run.packets;
        writeln!(
            out,
            "assumed: MPS {}, MRRS {}, RCB {}",
            p.max_payload, p.max_read_request, p.read_completion_boundary
        )?;
        for text in &of_run.assumed {
            writeln!(out, "  {text}")?;
        }
    }
    writeln!(out)?;
    Ok(())
}

fn counts(out: &mut dyn Write, style: &Style, run: &Saturated) -> Result<(), ReportError> {
    let mut t = style.table(&["cell", ">repeats", ">I/Os", ">blocks compared", ">wrong", ">refused"]);
    for total in &run.cells {
        let checked = &total.checked;
        t.add_row([
            name(total),
            total.repeats.to_string(),
            count(total.submitted),
            count(checked.blocks),
            count(checked.wrong),
            count(total.refused),
        ]);
    }
    Ok(table::write(out, &t, 0)?)
}

fn rates(out: &mut dyn Write, style: &Style, run: &Saturated) -> Result<(), ReportError> {
    let heads =
        ["cell", ">IOPS", ">payload GB/s", ">on the wire", ">against", ">wire/payload", ">reachable", ">part of it"];
    let mut t = style.table(&heads);
    let mut latencies = style.table(&["cell", ">I/Os", ">p50", ">p99", ">p99.9", ">max", ">cycles/I/O", ">CPU/I/O"]);
    for total in &run.cells {
        let Some(figures) = &total.figures else { continue };
        let none = || "-".to_owned();
        let wire = figures.wire.as_ref();
        let reachable = figures.reachable.as_ref();
        t.add_row([
            name(total),
            count(figures.iops.median.round() as u64),
            interval(&figures.payload, rate),
            wire.map_or_else(none, |wire| rate(wire.along.median)),
            wire.map_or_else(none, |wire| rate(wire.against.median)),
            wire.map_or_else(none, |wire| interval(&wire.factor, |v| format!("{v:.3}"))),
            reachable.map_or_else(none, |reachable| match reachable.with_short_completions {
                Some(short) => format!("{} to {}", rate(short), rate(reachable.payload)),
                None => rate(reachable.payload),
            }),
            reachable
                .map_or_else(none, |reachable| format!("{:.1} %", 100.0 * figures.payload.median / reachable.payload)),
        ]);
        let l = &figures.latency;
        latencies.add_row([
            name(total),
            count(l.count),
            l.p50_ns.map_or_else(none, nanoseconds),
            l.p99_ns.map_or_else(none, nanoseconds),
            l.p999_ns.map_or_else(none, nanoseconds),
            l.max_ns.map_or_else(none, nanoseconds),
            figures.cycles_per_io.as_ref().map_or_else(none, |cycles| count(cycles.median.round() as u64)),
            nanoseconds(figures.cpu_ns_per_io.median.round() as u64),
        ]);
    }
    table::write(out, &t, 0)?;
    writeln!(out, "medians of the repeats; in brackets their 95 % intervals")?;
    let is_read = |total: &Total| {
        let reachable = total.figures.as_ref().and_then(|figures| figures.reachable);
        reachable.is_some_and(|reachable| reachable.access == Access::Read)
    };
    if run.cells.iter().any(is_read) {
        writeln!(
            out,
            "reachable by reads: with completions of RCB bytes, and of MPS bytes; the fraction is of the latter"
        )?;
    }
    writeln!(out)?;
    table::write(out, &latencies, 0)?;
    writeln!(
        out,
        "percentiles of the I/Os of all repeats together. Submitting threads poll: their CPU time is all of the time"
    )?;
    Ok(())
}

fn knees(out: &mut dyn Write, run: &Saturated) -> Result<(), ReportError> {
    for knee in &run.knees {
        let c = &knee.cell;
        let (queues, told) = (of(c.queues.into(), "queue"), told(c));
        let of_what = format!("{} to {}, depth {}, {queues} a device{told}", bytes(c.bytes), c.target, c.depth);
        match (&knee.knee, &knee.why) {
            (Some(k), _) => writeln!(
                out,
                "knee: {of_what}: {} and {} make {} GB/s, within {} % of the best, {} GB/s",
                of(k.threads.into(), "thread"),
                of(k.devices.into(), "device"),
                rate(k.rate),
                100.0 * k.within,
                rate(k.best)
            )?,
            (None, why) => writeln!(out, "knee: {of_what}: {}", why.as_deref().unwrap_or("none"))?,
        }
    }
    Ok(())
}
