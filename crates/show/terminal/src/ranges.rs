//! NVTX ranges: how often, how long, and the work in them.

use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{Style, text_to_stdout, write as write_table};
use crate::{ReportError, json};
use decode::Recording;
use decode::walk::Filter;
use schema::ranges::{RangeRow, RangeWork, Ranges};
use std::io::{self, Write};

/// Shows the ranges on standard output, those with the most time first.
pub fn print(r: &Recording, filter: &Filter, style: Style, as_json: bool) -> Result<(), ReportError> {
    let ranges = lock_analysis::ranges(r, filter)?;
    if !ranges.watched.asked {
        return Err(ReportError::NotRecorded { path: r.path().into(), what: "ranges of NVTX" });
    }
    if as_json { json::print(&ranges) } else { text_to_stdout(style, |out| Ok(write(out, &style, &ranges)?)) }
}

fn write(out: &mut dyn Write, style: &Style, r: &Ranges) -> io::Result<()> {
    let has_locks = r.ranges.iter().any(|row| row.lock_waits.is_some());
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
        heads.extend([">GPU busy", ">all threads"]);
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
        cells.push(row.calls.map_or_else(|| "?".into(), done));
        cells.extend([row.submissions, row.launches, row.copies].map(done));
        cells.push(if marks { "-".into() } else { bytes(row.copy_bytes) });
        if has_locks {
            cells.push(row.lock_wait_ns.map_or_else(|| "?".into(), |ns| if ns == 0 { "-".into() } else { time(ns) }));
        }
        if has_work {
            let busy = |of: Option<RangeWork>| of.map_or_else(|| "-".into(), |work| nanoseconds(work.busy_ns));
            cells.extend([busy(row.work), busy(row.all_threads)]);
        }
        cells.push(name(row));
        table.add_row(cells);
    }
    if r.ranges.is_empty() {
        writeln!(out, "{}", nothing(r))?;
    } else {
        write_table(out, &table, 0)?;
    }
    if r.watched.missed && r.watched.connected {
        writeln!(out, "not all ranges: a part of the program has its own injection library (`show --summary`)")?;
    }
    if has_work {
        writeln!(
            out,
            "GPU busy: with what the ranges' threads submitted in them. all threads: with what any thread submitted while they were open"
        )?;
    }
    if r.ranges.iter().any(|row| row.unfinished > 0) {
        writeln!(out, "+: ranges whose end is not in the recording; no time includes them")?;
    }
    if r.ranges.iter().any(|row| row.calls.is_none()) {
        writeln!(out, "?: not recorded (`record --calls`, `record --locks`)")?;
    }
    let odd = [
        (r.stray_ends, "end", "of ranges that began when nothing was recorded, or never"),
        (r.left_out, "range", "left out: too many at a time"),
    ];
    for (n, noun, what) in odd.iter().filter(|(n, ..)| *n > 0) {
        writeln!(out, "{} {what}", of(*n, noun))?;
    }
    Ok(())
}

fn name(row: &RangeRow) -> String {
    let cut = if row.cut { "..." } else { "" };
    let domain = row.domain.as_ref().map_or(String::new(), |d| format!("{d}:"));
    let style = match row.style {
        "start_end" => " (of the process)",
        "mark" => " (mark)",
        _ => "",
    };
    format!("{domain}{}{cut}{style}", row.text)
}

fn nothing(r: &Ranges) -> &'static str {
    match (r.watched.missed, r.watched.connected) {
        (true, false) => {
            "ranges were not watched: the program has its own injection library, or an unknown version of NVTX"
        }
        (_, true) => "no range, of those that were asked for",
        (false, false) => "no range: nothing in the program used NVTX while it was recorded",
    }
}
