//! The table of some cells. Columns for which a terminal has no room are left out, the least important first, and named.

use crate::number::{bytes, count, nanoseconds};
use crate::table::{self, Out, Style};
use experiment::{Arrival, Metric, Observe};
use run_folder::Run;
use run_folder::Status;
use run_folder::run::{Bounded, CellOfRun, Figure, baselines};
use statistics::Interval;
use std::io;

/// A number with three digits.
pub fn three_digits(v: f64) -> String {
    match v {
        0.0 => "0".into(),
        v if v < 0.0 => format!("-{}", three_digits(-v)),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.9995 => format!("{v:.2}"),
        v if v >= 0.00995 => format!("{v:.3}"),
        v => format!("{v:.5}"),
    }
}

/// `2.47 .. 2.49 us`
fn range(i: Interval<f64>) -> String {
    let (low, high) = (nanoseconds(i.low.round() as u64), nanoseconds(i.high.round() as u64));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} .. {high}"),
        _ => format!("{low} .. {high}"),
    }
}

pub(super) struct Column {
    pub head: String,
    pub cells: Vec<String>,
    /// Without room, columns with the highest number are left out first; 0 is always kept.
    pub goes: u8,
    /// A shorter column that replaces it first.
    pub short: Option<Box<Column>>,
}

impl Column {
    pub fn of(head: impl Into<String>, goes: u8, cells: impl IntoIterator<Item = String>) -> Column {
        Column { head: head.into(), cells: cells.into_iter().collect(), goes, short: None }
    }
}

fn width(columns: &[Column]) -> usize {
    let head = |c: &Column| c.head.trim_start_matches('>').lines().map(str::len).max().unwrap_or(0);
    let one = |c: &Column| c.cells.iter().map(String::len).chain([head(c)]).max();
    columns.iter().filter_map(one).map(|w| w + 2).sum()
}

pub(super) fn write(out: &mut dyn Out, style: &Style, run: &Run, cells: &[&CellOfRun]) -> io::Result<()> {
    let cells: Vec<&CellOfRun> = cells.iter().copied().filter(|c| c.samples > 0).collect();
    if cells.is_empty() {
        writeln!(out, "nothing was measured")?;
        return Ok(());
    }
    let columns = if run.functional { functional(&cells) } else { times(run, &cells) };
    let apart = cells.chunk_by(|a, b| a.bytes == b.bytes).any(|g| g.len() > 1);
    fitted(out, style, columns, |i| apart && cells[i - 1].bytes != cells[i].bytes)
}

/// Writes a table of the columns that there is room for, and names the others. `apart`: whether a blank line is above a row.
pub(super) fn fitted(
    out: &mut dyn Out,
    style: &Style,
    mut columns: Vec<Column>,
    apart: impl Fn(usize) -> bool,
) -> io::Result<()> {
    let left_out = fit(&mut columns, style.width);
    let mut t = style.table(&columns.iter().map(|c| c.head.as_str()).collect::<Vec<_>>());
    for i in 0..columns.first().map_or(0, |c| c.cells.len()) {
        if i > 0 && apart(i) {
            t.add_row([""]);
        }
        t.add_row(columns.iter().map(|c| c.cells[i].clone()));
    }
    out.table(&t, 0)?;
    table::left_out(out, &left_out.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Writes a table with a row for each of some cells, below a line about it. Nothing without cells.
pub(super) fn rows<T>(
    out: &mut dyn Out,
    style: &Style,
    lead: &str,
    heads: &[&str],
    cells: &[(&CellOfRun, T)],
    row: impl Fn(&CellOfRun, &T) -> Vec<String>,
) -> io::Result<()> {
    if cells.is_empty() {
        return Ok(());
    }
    writeln!(out, "{lead}")?;
    let mut t = style.table(&[&[">size", "!what"], heads].concat());
    for (cell, of) in cells {
        let size = if cell.bytes > 0 { bytes(cell.bytes) } else { "-".into() };
        t.add_row([size, cell.subject.clone()].into_iter().chain(row(cell, of)));
    }
    out.table(&t, 0)
}

/// Leaves out columns for which there is no room, and returns their names.
fn fit(columns: &mut Vec<Column>, room: Option<u16>) -> Vec<String> {
    let mut left_out = Vec::new();
    while let Some(room) = room {
        let least = columns.iter().enumerate().filter(|(_, c)| c.goes > 0).max_by_key(|(_, c)| c.goes);
        match least {
            Some((i, _)) if width(columns) > usize::from(room) => match columns[i].short.take() {
                Some(short) => columns[i] = *short,
                None => left_out.push(columns.remove(i).head.trim_start_matches('>').replace('\n', " ")),
            },
            _ => break,
        }
    }
    left_out.reverse();
    left_out
}

fn column(head: &str, goes: u8, cells: &[&CellOfRun], f: impl Fn(&CellOfRun) -> String) -> Column {
    Column::of(head, goes, cells.iter().map(|c| f(c)))
}

/// Intervals as their bounds or, without room, as half their width in per cent of the value.
fn intervals(
    [head, short_head]: [&str; 2],
    goes: u8,
    cells: &[&CellOfRun],
    f: impl Fn(&CellOfRun) -> Option<(f64, Interval<f64>)>,
    bounds: impl Fn(Interval<f64>) -> String,
) -> Column {
    let half = |c: &CellOfRun| match f(c) {
        Some((value, i)) if value > 0.0 => format!("{:.1} %", (i.high - i.low) / 2.0 / value * 100.0),
        _ => "-".into(),
    };
    let short = column(short_head, goes, cells, half);
    let long = column(head, 6, cells, |c| f(c).map_or("-".into(), |(_, i)| bounds(i)));
    Column { short: Some(Box::new(short)), ..long }
}

/// The size once, and the name.
fn names(cells: &[&CellOfRun]) -> Vec<Column> {
    let mut columns = Vec::new();
    if cells.iter().any(|c| c.bytes > 0) {
        let sizes = cells.iter().enumerate().map(|(i, c)| match i.checked_sub(1).map(|k| cells[k].bytes) {
            Some(before) if before == c.bytes => String::new(),
            _ if c.bytes == 0 => "-".into(),
            _ => bytes(c.bytes),
        });
        columns.push(Column::of(">size", 0, sizes));
    }
    columns.push(column("what", 0, cells, |c| {
        let many = if c.back_to_back > 1 { format!(", {} each", c.back_to_back) } else { String::new() };
        let spoilt = match c.status {
            Status::Failed(_) => " FAILED",
            Status::Invalid(_) => " INVALID",
            Status::Measured | Status::Unavailable(_) => "",
        };
        format!("{}{many}{spoilt}", c.subject)
    }));
    columns
}

fn functional(cells: &[&CellOfRun]) -> Vec<Column> {
    let mut columns = names(cells);
    columns.push(column(">samples", 0, cells, |c| count(c.samples)));
    columns.push(column(">compared", 0, cells, |c| count(c.checked.whole)));
    columns.push(column("data", 0, cells, |c| match (&c.status, c.checked.whole) {
        (Status::Failed(_) | Status::Invalid(_), _) => "see below".into(),
        (_, 0) => "-".into(),
        _ if c.checked.guards => "right, bytes around untouched".into(),
        _ => "right".into(),
    }));
    columns
}

fn times(run: &Run, cells: &[&CellOfRun]) -> Vec<Column> {
    let of = |c: &CellOfRun, figure: statistics::Figure, f: &dyn Fn(&Figure) -> u64| {
        c.observed().map_or("-".into(), |found| time(c, figure, f(found)))
    };
    let mut columns = names(cells);
    columns.push(column(">samples", 4, cells, |c| count(c.samples)));
    columns.push(column(">p50", 0, cells, |c| of(c, statistics::Figure::P50, &|f| f.summary.p50)));
    // A value known only from one side has no interval.
    let is_known = |c: &&CellOfRun| !c.is_at_least(statistics::Figure::P50);
    let of_p50 = |c: &CellOfRun| {
        let known = Some(c).filter(is_known).and_then(CellOfRun::observed);
        known.and_then(|f| Some((f.summary.p50 as f64, f.p50_interval?)))
    };
    columns.push(intervals([">95 % of p50", ">+- p50"], 2, cells, of_p50, range));
    tails(&mut columns, cells);
    columns.push(column(">max", 0, cells, |c| of(c, statistics::Figure::Max, &|f| f.summary.max)));
    let baselines = baselines(cells.iter().copied());
    if let Some(first) = baselines.first() {
        let is_baseline = |c: &CellOfRun| baselines.iter().any(|name| c.subject == *name || c.policy == *name);
        let head = if baselines.len() == 1 { format!(">times {first}") } else { ">times".into() };
        columns.push(column(&head, 0, cells, |c| match &c.ratio {
            Some(r) => {
                let sign = match r.bounded {
                    Some(Bounded::AtLeast) => ">= ",
                    Some(Bounded::AtMost) => "<= ",
                    None if r.ratio.differs() == Some(true) => "",
                    None | Some(Bounded::NotKnown) => "~",
                };
                format!("{sign}{}", three_digits(r.ratio.ratio))
            }
            None if is_baseline(c) => "1".into(),
            None => "-".into(),
        }));
        let of_ratio = |c: &CellOfRun| {
            c.ratio.as_ref().filter(|r| r.bounded.is_none()).and_then(|r| Some((r.ratio.ratio, r.ratio.interval?)))
        };
        let bounds = |i: Interval<f64>| format!("{} .. {}", three_digits(i.low), three_digits(i.high));
        columns.push(intervals([">95 % of it", ">+- it"], 1, cells, of_ratio, bounds));
        if baselines.len() > 1 {
            columns.push(column("of", 0, cells, |c| c.ratio.as_ref().map_or("-".into(), |r| r.baseline.clone())));
        }
    }
    if cells.iter().any(|c| c.misses.is_some()) {
        columns.push(column(">missed", 0, cells, |c| c.misses.map_or("-".into(), |m| count(m.missed))));
        columns.push(column(">in a row", 3, cells, |c| c.misses.map_or("-".into(), |m| count(m.longest_run))));
    }
    rates(&mut columns, run, cells);
    if cells.iter().any(|c| c.tally.is_some_and(|t| t.calls > 0)) {
        columns.push(column(">CPU", 8, cells, |c| match c.tally.filter(|t| t.calls > 0) {
            Some(tally) => nanoseconds(tally.on_cpu_ns / tally.calls),
            None => "-".into(),
        }));
    }
    if cells.iter().any(|c| c.observe != Observe::Submit && c.figures.submit.is_some()) {
        columns.push(column(">call p50", 8, cells, |c| {
            c.figures.submit.as_ref().map_or("-".into(), |f| nanoseconds(f.summary.p50))
        }));
    }
    columns
}

/// A time of what a cell observes; `>=` if interrupted samples would be at it or beyond.
pub(super) fn time(c: &CellOfRun, figure: statistics::Figure, ns: u64) -> String {
    format!("{}{}", if c.is_at_least(figure) { ">= " } else { "" }, nanoseconds(ns))
}

type Tail = fn(&Figure) -> Option<u64>;

const TAILS: [(&str, statistics::Figure, Tail); 3] = [
    (">p99", statistics::Figure::P99, |f| f.summary.p99),
    (">p99.9", statistics::Figure::P999, |f| f.summary.p999),
    (">p99.99", statistics::Figure::P9999, |f| f.summary.p9999),
];

/// The first percentile with too few samples beyond it is marked so; those after it are left out.
fn tails(columns: &mut Vec<Column>, cells: &[&CellOfRun]) {
    for (i, (head, figure, tail)) in TAILS.iter().enumerate() {
        let before = |f: &Figure| i == 0 || TAILS[i - 1].2(f).is_some();
        if !cells.iter().any(|c| c.observed().is_some_and(before)) {
            return;
        }
        columns.push(column(head, [0, 3, 5][i], cells, |c| match c.observed() {
            None => "-".into(),
            Some(f) => match tail(f) {
                Some(ns) => time(c, *figure, ns),
                None if before(f) => format!("max of {}", count(f.summary.count)),
                None => String::new(),
            },
        }));
    }
}

/// What the kernel counted around the calls.
pub(super) fn counters(out: &mut dyn Out, style: &Style, cells: &[&CellOfRun]) -> io::Result<()> {
    let counted: Vec<_> = cells.iter().filter_map(|c| Some((*c, c.tally.filter(|t| t.calls > 0)?))).collect();
    let lead = "in other rounds, counted by the kernel round each call, on average:";
    let heads = [">calls", ">time", ">on a CPU", ">run queue", ">asleep", ">slept", ">preempted"];
    rows(out, style, lead, &heads, &counted, |_, tally| {
        let part = |n: u64| format!("{:.1} %", n as f64 * 100.0 / tally.calls as f64);
        let times = [tally.wall_ns, tally.on_cpu_ns, tally.run_queue_ns, tally.asleep_ns];
        let mut row = vec![count(tally.calls)];
        row.extend(times.map(|ns| nanoseconds(ns / tally.calls)));
        row.extend([part(tally.slept), part(tally.preempted)]);
        row
    })
}

fn rates(columns: &mut Vec<Column>, run: &Run, cells: &[&CellOfRun]) {
    let is_asked = |m: Metric| {
        run.experiment.compare.as_ref().is_some_and(|c| c.metric == m)
            || run.experiment.asserts.iter().any(|a| a.metric == m)
    };
    let matters =
        is_asked(Metric::Rate) || cells.iter().any(|c| c.back_to_back > 1 || c.arrival != Arrival::Closed { depth: 1 });
    let goes = if matters { 0 } else { 7 };
    if cells.iter().any(|c| c.rate.as_ref().is_some_and(|r| r.bytes_per_second.is_some())) {
        columns.push(column(">GB/s", goes, cells, |c| {
            let rate = c.rate.as_ref().and_then(|r| r.bytes_per_second);
            rate.map_or("-".into(), |v| three_digits(v / 1e9))
        }));
    }
    if matters {
        columns.push(column(">a second", 4, cells, |c| {
            c.rate.as_ref().map_or("-".into(), |r| count(r.transfers_per_second.round() as u64))
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_stays_in_front() {
        assert_eq!([0.0, -0.0, -0.5, -123.4, 123.4].map(three_digits), ["0", "0", "-0.500", "-123", "123"]);
    }
}
