//! CUDA's calls: how long they took and why, the pattern of locks in each, and the locks that they share.

use crate::cell::main_line;
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{self, Out, Style};
use schema::cuda_calls::{CallRow, Calls, ElementRow, PatternRow, SharedRow, Total};
use schema::holds::HoldsOthers;
use schema::locks::Locks;
use schema::names::lock;
use std::io;

/// Rows of each kind by default.
pub const ROWS: usize = 10;
/// For a recording of waits only.
const NOT_COUNTED: &str = "of locks only waits were recorded (`record --locks=waits`), so it is unknown which locks a call takes, and for how long";
/// Patterns of each call.
const PATTERNS: usize = 2;

/// Writes the text.
pub fn write(l: &Locks, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    let Some(c) = &l.calls else {
        return writeln!(out, "no calls were recorded: `doorbell record --locks PROGRAM` records them");
    };
    if c.calls.is_empty() {
        let made = if c.short.is_some() { "written" } else { "made" };
        writeln!(out, "no CUDA calls were {made} while it was recorded")?;
        return lacks(c, out);
    }
    table(c, limit, style, out)?;
    if !l.recorded {
        return writeln!(out, "\nno locks were recorded (`record --locks`), so not what the calls wait for");
    }
    if l.waits_only {
        return writeln!(out, "\n{}", NOT_COUNTED);
    }
    patterns(l, c, limit, style, out)?;
    shared(l, c, limit, style, out)
}

/// Only the calls.
pub fn table(c: &Calls, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    let all: u64 = c.totals.values().map(|t| t.calls).sum();
    writeln!(out, "{} {}", style.bold("calls"), totals(c, all))?;
    lacks(c, out)?;
    let mut heads = vec![
        "call",
        ">n",
        ">mean",
        ">p50",
        ">p99",
        ">max",
        ">doorbells",
        ">waited",
        ">off CPU",
        ">holding",
        ">locks a call",
    ];
    let has_lines = c.calls.iter().any(|r| r.python.is_some());
    let have_figures = c.calls.iter().take(limit).any(|r| r.holds_others.is_some());
    if have_figures {
        heads.push("holds others up");
    }
    if has_lines {
        heads.push("line of Python");
    }
    let mut t = style.table(&heads);
    for r in c.calls.iter().take(limit) {
        let part = |ns: u64| if ns == 0 { "-".into() } else { percent(ns, r.total.ns) };
        let mut cells = vec![
            name(r),
            count(r.total.calls),
            nanoseconds(r.total.mean_ns),
            nanoseconds(r.p50_ns),
            nanoseconds(r.p99_ns),
            nanoseconds(r.max_ns),
            if r.total.submissions == 0 { "-".into() } else { count(r.total.submissions) },
            part(r.total.wait_ns),
            r.total.off_cpu_ns.map_or_else(|| "?".into(), part),
            if c.waits_only { "?".into() } else { part(r.total.held_ns) },
            if c.waits_only { "?".into() } else { locks_a_call(&r.total) },
        ];
        if have_figures {
            cells.push(r.holds_others.as_ref().map_or("-".into(), holds_others));
        }
        if has_lines {
            cells.push(main_line(r.python.as_ref()));
        }
        t.add_row(cells);
    }
    out.table(&t, 2)?;
    table::more(out, c.calls.len(), limit, 2)?;
    writeln!(out, "  (waited: for mutexes and rwlocks; off CPU: but for that; holding: at least one of them)")?;
    match c.calls.iter().take(limit).find_map(|r| r.holds_others) {
        Some(HoldsOthers { gpu, .. }) => writeln!(
            out,
            "  (holds others up: the function's longest median on an {gpu}, not in this recording; docs/results/holds.md)"
        ),
        None => Ok(()),
    }
}

/// `455 ms at 1 GiB`, `851 ms (PTX, 400 kernels)`
pub fn holds_others(h: &HoldsOthers) -> String {
    let size = h.bytes.map_or(String::new(), |n| format!(" at {}", bytes(n)));
    let with = if h.with.is_empty() { String::new() } else { format!(" ({})", h.with) };
    format!("{}{size}{with}", nanoseconds(h.p50_ns))
}

fn lacks(c: &Calls, out: &mut dyn Out) -> io::Result<()> {
    let tables = c.export_tables.unwrap_or(0);
    let lacks = [
        (c.unfinished, "call", "had not returned when the recording ended"),
        (c.cut, "call", "took more locks than are remembered: counts of those lack some"),
        (
            c.short.unwrap_or(0),
            "short call",
            "without a stream of rarer functions (cuCtxGetCurrent, cuPointerGetAttribute, ..): counted, not written",
        ),
        (tables, "table", "of functions without names, from cuGetExportTable: calls through them are not recorded"),
    ];
    for (n, noun, what) in lacks.iter().filter(|(n, ..)| *n > 0) {
        writeln!(out, "  {} {what}", of(*n, noun))?;
    }
    Ok(())
}

fn totals(c: &Calls, all: u64) -> String {
    let mut kinds: Vec<(&str, &Total)> = c.totals.iter().map(|(k, t)| (*k, t)).collect();
    kinds.sort_by_key(|(_, t)| std::cmp::Reverse(t.calls));
    let kinds: Vec<String> = kinds.iter().map(|(k, t)| format!("{k} {}", count(t.calls))).collect();
    if kinds.is_empty() { count(all) } else { format!("{}: {}", count(all), kinds.join(", ")) }
}

/// `cudaMemcpyAsync host to device, to 4 KiB`, `cuMemcpyBatchAsync to 16 MiB, 78.8 MiB in 1,280 copies`
fn name(r: &CallRow) -> String {
    let mut about: Vec<String> = r.direction.iter().chain(&r.size).map(|&s| s.into()).collect();
    if let Some(copies) = r.total.copies {
        let at_least = if r.total.bytes_at_least { "at least " } else { "" };
        let copies = if copies == 1 { "1 copy".into() } else { format!("{} copies", count(copies)) };
        about.push(format!("{at_least}{} in {copies}", bytes(r.total.bytes)));
    }
    let failed = if r.total.failed > 0 { format!(" ({} failed)", count(r.total.failed)) } else { String::new() };
    format!("{} {}", r.call, about.join(", ")).trim_end().to_owned() + &failed
}

fn percent(part: u64, of: u64) -> String {
    let p = part as f64 * 100.0 / of.max(1) as f64;
    if p < 10.0 { format!("{p:.1} %") } else { format!("{p:.0} %") }
}

/// `2.0 mutex, 1.0 read`
fn locks_a_call(t: &Total) -> String {
    let each = [(t.mutex_locks, "mutex"), (t.read_locks, "read"), (t.write_locks, "write")];
    let words: Vec<String> = each
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{:.1} {what}", *n as f64 / t.calls.max(1) as f64))
        .collect();
    if words.is_empty() { "-".into() } else { words.join(", ") }
}

fn patterns(l: &Locks, c: &Calls, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    let with: Vec<&CallRow> = c.calls.iter().filter(|r| r.patterns.iter().any(|p| !p.locks.is_empty())).collect();
    if with.is_empty() {
        return writeln!(out, "\nno call takes a mutex or rwlock");
    }
    writeln!(out, "\n{} in the order of taking, nested ones indented", style.bold("locks of a call"))?;
    for r in with.iter().take(limit) {
        for p in r.patterns.iter().take(PATTERNS) {
            writeln!(
                out,
                "  {}: {} of {}, {} on average",
                name(r),
                count(p.calls),
                of(r.total.calls, "call"),
                nanoseconds(p.mean_ns)
            )?;
            pattern(l, p, style, out)?;
        }
        let told: u64 = r.patterns.iter().take(PATTERNS).map(|p| p.calls).sum();
        if told < r.total.calls {
            writeln!(out, "    {} otherwise (--json)", of(r.total.calls - told, "call"))?;
        }
    }
    table::more(out, with.len(), limit, 2)
}

fn pattern(all: &Locks, p: &PatternRow, style: Style, out: &mut dyn Out) -> io::Result<()> {
    if p.locks.is_empty() {
        return writeln!(out, "    none");
    }
    let mut t = style.table(&["lock", "how", ">times", ">after", ">held", ">waited"]);
    for l in &p.locks {
        let ns = |n: u64| if n == 0 { "-".into() } else { nanoseconds(n) };
        let times = if l.times == 1.0 { String::new() } else { format!("{:.1}", l.times) };
        let indent = "  ".repeat(l.depth.into());
        t.add_row([
            format!("{indent}{}", lock(all, &l.lock)),
            how(l),
            times,
            nanoseconds(l.at_ns),
            ns(l.hold_ns),
            ns(l.wait_ns),
        ]);
    }
    out.table(&t, 4)
}

fn how(l: &ElementRow) -> String {
    match (l.failed, l.again) {
        (true, _) => format!("{}, not got", l.mode),
        (_, true) => format!("{}, back from a condition", l.mode),
        _ => l.mode.to_owned(),
    }
}

/// Locks in common.
pub fn shared(l: &Locks, c: &Calls, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    if c.shared.is_empty() {
        return writeln!(out, "\nno two calls take the same lock");
    }
    writeln!(out, "\n{} that more than one of the calls takes", style.bold("locks"))?;
    for s in c.shared.iter().take(limit) {
        writeln!(out, "  {}: {}", lock(l, &s.lock), line(s))?;
    }
    table::more(out, c.shared.len(), limit, 2)
}

fn line(s: &SharedRow) -> String {
    let by = s.by.iter().map(|b| {
        let how = [(b.mutex_locks, ""), (b.read_locks, " read"), (b.write_locks, " write")];
        let how: Vec<String> =
            how.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{}{what}", count(*n))).collect();
        let waited = if b.wait_ns > 0 { format!(" (waited {})", nanoseconds(b.wait_ns)) } else { String::new() };
        format!("{} {}{waited}", b.call, how.join(" + "))
    });
    by.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::cuda_calls::ShareRow;
    use std::collections::BTreeMap;

    #[test]
    fn calls_are_told_with_their_locks() {
        let element = |lock: &str, mode, depth, times| ElementRow {
            lock: lock.into(),
            mode,
            depth,
            failed: false,
            again: false,
            times,
            at_ns: 310,
            wait_ns: 0,
            hold_ns: 3100,
        };
        let total = Total {
            submissions: 200,
            calls: 100,
            ns: 500_000,
            mean_ns: 5000,
            mutex_locks: 300,
            read_locks: 100,
            wait_ns: 50_000,
            off_cpu_ns: Some(0),
            ..Total::default()
        };
        let row = CallRow {
            call: "cudaMemcpyAsync".into(),
            kind: "async copy",
            direction: Some("host to device"),
            size: Some("to 4 KiB"),
            total: total.clone(),
            p50_ns: 4900,
            p99_ns: 9000,
            max_ns: 12_000,
            histogram: Vec::new(),
            max_at: 0.5,
            max_tsc: 0,
            max_process: 0,
            max_tid: 7,
            python: None,
            holds_others: None,
            patterns: vec![PatternRow {
                calls: 98,
                mean_ns: 4950,
                locks: vec![
                    element("libcuda+0x1/rwlock", "read", 0, 1.0),
                    element("libcuda+0x2/mutex", "mutex", 1, 3.0),
                ],
            }],
            other_patterns: 2,
        };
        let share = |call: &str, read_locks, wait_ns| ShareRow {
            call: call.into(),
            mutex_locks: 0,
            read_locks,
            write_locks: 0,
            wait_ns,
        };
        let by = vec![share("cudaMemcpyAsync", 100, 2_000_000), share("cudaLaunchKernel", 50, 0)];
        let calls = Calls {
            totals: BTreeMap::from([("async copy", total)]),
            calls: vec![row],
            shared: vec![SharedRow { lock: "libcuda+0x1/rwlock".into(), wait_ns: 2_000_000, by }],
            unfinished: 1,
            export_tables: Some(2),
            short: Some(3000),
            ..Calls::default()
        };
        let text = |l: &Locks| {
            let mut out = Vec::new();
            write(l, 10, Style::default(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let l = Locks { recorded: true, calls: Some(calls), ..Locks::default() };
        let said = text(&l);
        for line in [
            "calls 100: async copy 100",
            "1 call had not returned",
            "  3,000 short calls without a stream of rarer functions",
            "  2 tables of functions without names, from cuGetExportTable: calls through them are not recorded",
            "  cudaMemcpyAsync host to device, to 4 KiB  100  5.00 us  4.90 us  9.00 us  12.0 us        200    10 %        -",
            "3.0 mutex, 1.0 read",
            "  cudaMemcpyAsync host to device, to 4 KiB: 98 of 100 calls, 4.95 us on average",
            "    libcuda+0x1/rwlock   read          310 ns  3.10 us       -",
            "      libcuda+0x2/mutex  mutex    3.0  310 ns  3.10 us       -",
            "    2 calls otherwise",
            "  libcuda+0x1/rwlock: cudaMemcpyAsync 100 read (waited 2.00 ms), cudaLaunchKernel 50 read",
        ] {
            assert!(said.contains(line), "{line}\n{said}");
        }
        assert!(!said.contains("holds others up"), "{said}");
        let mut measured = l.clone();
        if let Some(row) = measured.calls.as_mut().and_then(|c| c.calls.first_mut()) {
            let (bytes, with) = (Some(1 << 30), "fresh pages");
            row.holds_others = Some(HoldsOthers { p50_ns: 368_630_500, max_ns: 1, bytes, with, gpu: "NVIDIA H200" });
        }
        let said = text(&measured);
        assert!(said.contains("369 ms at 1 GiB (fresh pages)") && said.contains("on an NVIDIA H200"), "{said}");
        let mut batches = l.clone();
        if let Some(row) = batches.calls.as_mut().and_then(|c| c.calls.first_mut()) {
            (row.direction, row.total.copies, row.total.bytes) = (None, Some(1280), 3 << 20);
            row.total.bytes_at_least = true;
        }
        let said = text(&batches);
        assert!(said.contains("  cudaMemcpyAsync to 4 KiB, at least 3 MiB in 1,280 copies  100"), "{said}");
        assert!(text(&Locks { recorded: false, ..l }).contains("no locks were recorded"));
        assert!(text(&Locks::default()).contains("no calls were recorded"));
    }
}
