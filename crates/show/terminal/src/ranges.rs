//! NVTX ranges: how often, how long, and the work in them; or each of them, and where its time was spent.

use crate::cell::time;
use crate::foreign::plain;
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{Out, Style, Table};
use schema::ranges::{EachRange, EachRow, RangeCounts, RangeWork, Ranges, Watched};
use std::collections::HashSet;
use std::io;

/// Writes a row for each name.
pub fn write(out: &mut dyn Out, style: &Style, r: &Ranges) -> io::Result<()> {
    let has_locks = r.ranges.iter().any(|row| row.counts.lock_waits.is_some());
    let has_work = r.ranges.iter().any(|row| row.work.is_some());
    let mut heads = vec![
        ">count",
        ">total",
        ">mean",
        ">p50",
        ">p99",
        ">max",
        ">calls",
        ">doorbells",
        ">launches",
        ">copies",
        ">copied",
    ];
    if has_locks {
        heads.push(">waited");
    }
    if has_work {
        heads.extend([">GPU busy", ">all threads", ">queued", ">idle"]);
    }
    heads.push("!range");
    let mut table = style.table(&heads);
    for row in &r.ranges {
        let marks = row.style == "mark";
        let time = |ns: u64| if marks || row.count == 0 { "-".into() } else { nanoseconds(ns) };
        let done = |n: u64| if marks { "-".into() } else { count(n) };
        let unfinished = if row.unfinished > 0 { format!(" + {}", count(row.unfinished)) } else { String::new() };
        let mut cells = vec![format!("{}{unfinished}", count(row.count))];
        cells.extend([row.ns, row.mean_ns, row.p50_ns, row.p99_ns, row.max_ns].map(time));
        cells.push(row.counts.calls.map_or_else(|| "?".into(), done));
        cells.extend([row.counts.submissions, row.counts.launches, row.counts.copies].map(done));
        cells.push(if marks { "-".into() } else { bytes(row.counts.copy_bytes) });
        if has_locks {
            cells.push(waited(row.counts.lock_wait_ns));
        }
        if has_work {
            cells.push(of_work(row.work, |work| work.busy_ns));
            cells.extend(on_gpu(row.all_threads));
        }
        cells.push(name(row.domain.as_deref(), &row.text, row.cut, row.style));
        table.add_row(cells);
    }
    write_rows(out, &table, &r.watched)?;
    if has_work {
        writeln!(out, "GPU busy: what the ranges' threads submitted in them. all threads: {MEANINGS}")?;
        without_time(out, r.ranges.iter().map(|row| row.all_threads))?;
    }
    if r.ranges.iter().any(|row| row.unfinished > 0) {
        writeln!(out, "+: ranges whose end is not in the recording; no time includes them")?;
    }
    let odd = [
        (r.stray_ends, "end", "of ranges that began when nothing was recorded, or never"),
        (r.left_out, "range", "left out: too many at a time"),
    ];
    write_lacks(out, r.ranges.iter().map(|row| &row.counts), &odd)
}

/// The rows, and whether they are all.
fn write_rows(out: &mut dyn Out, table: &Table, watched: &Watched) -> io::Result<()> {
    if table.is_empty() {
        writeln!(out, "{}", nothing(watched))?;
    } else {
        out.table(table, 0)?;
    }
    not_all(out, watched)
}

/// What was not recorded, and what the rows do not have: how often, a noun, and a text.
fn write_lacks<'c>(
    out: &mut dyn Out,
    mut counts: impl Iterator<Item = &'c RangeCounts>,
    odd: &[(u64, &str, &str)],
) -> io::Result<()> {
    if counts.any(|counts| counts.calls.is_none()) {
        writeln!(out, "?: not recorded (`record --calls`, `record --locks`)")?;
    }
    for (n, noun, what) in odd.iter().filter(|(n, ..)| *n > 0) {
        writeln!(out, "{} {what}", of(*n, noun))?;
    }
    Ok(())
}

/// If some of the work has no time.
fn without_time(out: &mut dyn Out, mut works: impl Iterator<Item = Option<RangeWork>>) -> io::Result<()> {
    if works.any(|work| work.is_some_and(|work| work.without_time > 0)) {
        writeln!(
            out,
            "not all launches and copies have a time (`show --gpu-times`): where the others ran, ranges seem idle"
        )?;
    }
    Ok(())
}

/// Of the columns of all threads.
const MEANINGS: &str = "what any thread submitted while they were open; queued: at least one of these waited for its start, also while others ran; idle: none ran";

/// A sentence for the longest of each name, then a row for each range.
pub fn write_each(out: &mut dyn Out, style: &Style, r: &EachRange) -> io::Result<()> {
    let has_locks = r.ranges.iter().any(|row| row.counts.lock_waits.is_some());
    let has_work = r.ranges.iter().any(|row| row.parts.is_some());
    let mut heads = vec![">at", ">took"];
    if has_work {
        heads.extend([">GPU busy", ">queued", ">idle"]);
    }
    heads.extend([">copies", ">copied", ">calls"]);
    if has_locks {
        heads.push(">waited");
    }
    heads.extend([">thread", "!range"]);
    let mut table = style.table(&heads);
    let mut names = HashSet::new();
    for row in &r.ranges {
        let (range, counts) = (&row.range, &row.counts);
        let name = name(range.domain.as_deref(), &range.text, false, range.style);
        let mut cells = vec![time(Some(range.at)), nanoseconds(range.ns.unwrap_or(0))];
        if has_work {
            cells.extend(on_gpu(range.all_threads));
        }
        cells.extend([count(counts.copies), bytes(counts.copy_bytes)]);
        cells.push(counts.calls_ns.map_or_else(|| "?".into(), nanoseconds));
        if has_locks {
            cells.push(waited(counts.lock_wait_ns));
        }
        cells.extend([range.tid.to_string(), name.clone()]);
        table.add_row(cells);
        if names.len() < NAMES
            && let Some(sentence) = sentence(row)
            && names.insert(name.clone())
        {
            writeln!(out, "{}: the longest {sentence}", plain(&name))?;
        }
    }
    write_rows(out, &table, &r.watched)?;
    if has_work {
        writeln!(out, "GPU busy: {MEANINGS}")?;
        without_time(out, r.ranges.iter().map(|row| row.range.all_threads))?;
    }
    let odd = [
        (r.unfinished, "range", "not shown: their end is not in the recording"),
        (r.left_out, "range", "left out: too many"),
        (r.not_counted, "event", "not counted: the later ranges did more than they show"),
    ];
    write_lacks(out, r.ranges.iter().map(|row| &row.counts), &odd)
}

/// Names that get a sentence.
const NAMES: usize = 12;

/// `took 41.0 ms: 30.1 ms on the GPU, 4.00 ms waiting for locks, 6.00 ms queued, 900 us other`. The parts do not overlap.
fn sentence(row: &EachRow) -> Option<String> {
    let parts = row.parts?;
    let all = [
        (parts.gpu_ns, "on the GPU"),
        (parts.lock_ns, "waiting for locks"),
        (parts.queued_ns, "queued"),
        (parts.other_ns, "other"),
    ];
    let texts: Vec<String> =
        all.iter().filter(|(ns, _)| *ns > 0).map(|(ns, what)| format!("{} {what}", nanoseconds(*ns))).collect();
    let after = match parts.after_ns {
        0 => String::new(),
        ns => format!("; its last work ended {} later", nanoseconds(ns)),
    };
    let without = match row.range.all_threads.map_or(0, |work| work.without_time) {
        0 => String::new(),
        n => format!(
            "; {} no time",
            if n == 1 { "1 launch or copy has".into() } else { format!("{} launches or copies have", count(n)) }
        ),
    };
    Some(format!("took {}: {}{after}{without}", nanoseconds(row.range.ns?), texts.join(", ")))
}

fn of_work(work: Option<RangeWork>, ns: fn(RangeWork) -> u64) -> String {
    work.map_or_else(|| "-".into(), |work| nanoseconds(ns(work)))
}

/// Busy, queued and idle.
fn on_gpu(work: Option<RangeWork>) -> [String; 3] {
    let each: [fn(RangeWork) -> u64; 3] = [|work| work.busy_ns, |work| work.queued_ns, |work| work.idle_ns];
    each.map(|ns| of_work(work, ns))
}

fn waited(ns: Option<u64>) -> String {
    match ns {
        None => "?".into(),
        Some(0) => "-".into(),
        Some(ns) => nanoseconds(ns),
    }
}

fn name(domain: Option<&str>, text: &str, cut: bool, style: &str) -> String {
    let cut = if cut { "..." } else { "" };
    let domain = domain.map_or(String::new(), |d| format!("{d}:"));
    let style = match style {
        "start_end" => " (of the process)",
        "mark" => " (mark)",
        _ => "",
    };
    format!("{domain}{text}{cut}{style}")
}

fn not_all(out: &mut dyn Out, watched: &Watched) -> io::Result<()> {
    if watched.missed && watched.connected {
        writeln!(out, "not all ranges: a part of the program has its own injection library (`show --summary`)")?;
    }
    Ok(())
}

fn nothing(watched: &Watched) -> &'static str {
    match (watched.missed, watched.connected) {
        (true, false) => {
            "ranges were not watched: the program has its own injection library, or an unknown version of NVTX"
        }
        (_, true) => "no range, of those that were asked for",
        (false, false) => "no range: nothing in the program used NVTX while it was recorded",
    }
}
