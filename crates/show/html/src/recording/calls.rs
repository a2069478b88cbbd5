//! CUDA's calls: how long they take, what they wait for, and which locks they share.

use crate::document::{Block, Cell, Section, Table, head, number, text};
use crate::numbers::{count, ns, ns_or_none};
use schema::cuda_calls::{CallRow, Calls, PatternRow, Total};
use schema::locks::Locks;
use terminal::symbols::lock;

/// Rows of a table that is open from the start.
const OPEN: usize = 20;

pub fn section(locks: &Locks) -> Option<Section> {
    let calls = locks.calls.as_ref().filter(|c| !c.calls.is_empty())?;
    let mut section = Section::new("calls", "CUDA's calls");
    section.push(Block::Table(all(calls)));
    if calls.waits_only {
        section.push(Block::Text("Only waits for locks were recorded, so not which locks a call takes.".into()));
    } else {
        section.push(Block::Table(patterns(locks, calls).folded()));
    }
    let shared = shared(locks, calls);
    if !shared.rows.is_empty() {
        section.push(Block::Table(shared));
    }
    if calls.unfinished > 0 {
        section.push(Block::Text(format!(
            "{} had not returned at the end.",
            terminal::number::of(calls.unfinished, "call")
        )));
    }
    if let Some(n) = calls.short {
        let short = terminal::number::of(n, "short call");
        section.push(Block::Text(format!("{short} without a stream of rarer functions: counted, not written.")));
    }
    if let Some(n) = calls.export_tables {
        let tables = terminal::number::of(n, "table");
        section.push(Block::Text(format!(
            "The program got {tables} of functions without names from cuGetExportTable. Calls through them are not recorded."
        )));
    }
    Some(section)
}

fn all(calls: &Calls) -> Table {
    let columns = vec![
        head("call"),
        text("direction"),
        text("size"),
        number("copies in batches", ""),
        number("bytes in batches", "B"),
        number("calls", ""),
        number("failed", ""),
        number("in all", "ns"),
        number("mean", "ns"),
        number("p50", "ns"),
        number("p99", "ns"),
        number("longest", "ns"),
        number("locks taken", ""),
        number("had to wait", ""),
        number("waited", "ns"),
        number("off CPU", "ns"),
        text("holds others up, as measured on an H200"),
    ];
    let mut table = Table::new("calls", "By function, what took the most time in all first", columns);
    for c in &calls.calls {
        table.row(call(c, calls.waits_only));
    }
    table.without_empty().folded_above(OPEN)
}

fn call(c: &CallRow, waits_only: bool) -> Vec<Cell> {
    let t = &c.total;
    vec![
        c.call.as_str().into(),
        c.direction.unwrap_or("-").into(),
        c.size.unwrap_or("-").into(),
        t.copies.map_or_else(Cell::none, count),
        t.copies.map_or_else(Cell::none, |_| in_batches(t)),
        count(t.calls),
        ns_free(t.failed),
        ns(t.ns),
        ns(t.mean_ns),
        ns(c.p50_ns),
        ns(c.p99_ns),
        ns(c.max_ns),
        if waits_only { Cell::none() } else { count(t.mutex_locks + t.read_locks + t.write_locks) },
        count(t.contended),
        ns(t.wait_ns),
        ns_or_none(t.off_cpu_ns),
        c.holds_others.as_ref().map_or_else(Cell::none, |h| Cell::text(terminal::calls::holds_others(h))),
    ]
}

fn in_batches(t: &Total) -> Cell {
    let at_least = if t.bytes_at_least { "at least " } else { "" };
    Cell::number(format!("{at_least}{}", terminal::number::bytes(t.bytes)), t.bytes as f64)
}

/// A count that is usually 0.
fn ns_free(n: u64) -> Cell {
    if n > 0 { count(n).marked(crate::document::Mark::Bad) } else { Cell::none() }
}

fn patterns(locks: &Locks, calls: &Calls) -> Table {
    let columns =
        vec![head("call"), number("calls", ""), number("mean", "ns"), text("locks in the order of their taking")];
    let mut table = Table::new("patterns", "Which locks calls take", columns);
    for (c, pattern) in calls.calls.iter().flat_map(|c| c.patterns.iter().map(move |p| (c, p))) {
        let what: Vec<&str> = [c.direction, c.size].into_iter().flatten().collect();
        let name = if what.is_empty() { c.call.clone() } else { format!("{} ({})", c.call, what.join(", ")) };
        table.row(vec![name.into(), count(pattern.calls), ns(pattern.mean_ns), locks_of(locks, pattern).into()]);
    }
    table
}

fn locks_of(locks: &Locks, pattern: &PatternRow) -> String {
    let one = |l: &schema::cuda_calls::ElementRow| {
        let times = if l.times > 1.05 { format!(" x {:.1}", l.times) } else { String::new() };
        let inside = if l.depth > 0 { "inside: " } else { "" };
        let failed = if l.failed { ", not got" } else { "" };
        format!("{inside}{} ({}{failed}){times}", lock(locks, &l.lock), l.mode)
    };
    let all: Vec<String> = pattern.locks.iter().map(one).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

fn shared(locks: &Locks, calls: &Calls) -> Table {
    let columns = vec![head("lock"), number("waited", "ns"), text("by")];
    let mut table = Table::new("shared", "Locks that more than one function takes", columns);
    for row in &calls.shared {
        let by = row.by.iter().map(|b| {
            let takings = b.mutex_locks + b.read_locks + b.write_locks;
            format!(
                "{} ({}, waited {})",
                b.call,
                terminal::number::count(takings),
                terminal::number::nanoseconds(b.wait_ns)
            )
        });
        let by: Vec<String> = by.collect();
        table.row(vec![lock(locks, &row.lock).into(), ns(row.wait_ns), by.join(", ").into()]);
    }
    table.folded_above(OPEN)
}
