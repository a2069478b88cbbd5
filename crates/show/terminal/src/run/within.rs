//! Whether a route is as good as the best one, cell by cell: the asserts `within-best` of one subject in one table.

use super::figures::three_digits;
use super::figures::{Column, fitted};
use crate::number::{bytes, nanoseconds};
use crate::table::{Out, Style};
use experiment::{Bound, WithinBest};
use run_folder::Run;
use run_folder::run::{Judged, JudgedCell, Verdict};
use std::io;

fn within(judged: &Judged) -> Option<&WithinBest> {
    match &judged.assert.bound {
        Bound::WithinBest(within) => Some(within),
        _ => None,
    }
}

pub(super) fn write(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    let asserts: Vec<&Judged> = run.asserts.iter().filter(|j| within(j).is_some()).collect();
    let same = |a: &&Judged, b: &&Judged| (&a.assert.subject, a.assert.metric) == (&b.assert.subject, b.assert.metric);
    for of_subject in asserts.chunk_by(same) {
        one(out, style, run, of_subject)?;
    }
    Ok(())
}

/// All are about the same cells.
fn one(out: &mut dyn Out, style: &Style, run: &Run, asserts: &[&Judged]) -> io::Result<()> {
    let Some(first) = asserts.first() else { return Ok(()) };
    let every = first.assert.subject == "*";
    writeln!(out)?;
    let who = if every { "every subject" } else { &first.assert.subject };
    writeln!(out, "{}", style.bold(&format!("{} of {who} against the best", first.assert.metric)))?;
    let cells = &first.cells;
    let of = |judged: &Judged, row: usize| -> Option<JudgedCell> {
        let is_it = |c: &&JudgedCell| {
            (c.stage, &c.subject, c.bytes) == (cells[row].stage, &cells[row].subject, cells[row].bytes)
        };
        judged.cells.iter().find(is_it).cloned()
    };
    let column =
        |head: &str, goes: u8, text: &dyn Fn(usize) -> String| Column::of(head, goes, (0..cells.len()).map(text));
    let time = |ns: Option<f64>| ns.map_or("-".into(), |ns| nanoseconds(ns.max(0.0) as u64));
    let mut columns = Vec::new();
    for name in axes(run) {
        columns.push(column(&name, 0, &|row| value(run, cells[row].stage, &name)));
    }
    columns.push(column(">size", 0, &|row| bytes(cells[row].bytes)));
    if every {
        columns.push(column("what", 0, &|row| cells[row].subject.clone()));
    }
    columns.push(column(&format!(">{}", first.assert.metric), 0, &|row| time(cells[row].value)));
    for judged in asserts {
        let head = match within(judged).map_or(0, |within| within.among.len()) {
            0 => "the best".to_owned(),
            n => format!("of {n} named"),
        };
        let against = |row: usize| of(judged, row).and_then(|c| c.against);
        let best = |row: usize| against(row).map_or("-".into(), |a| run.label(cells[row].stage, &a.subject));
        columns.push(column(&head, 0, &best));
        columns.push(column(">its", 1, &|row| time(against(row).map(|a| a.value_ns))));
        columns.push(column(">more", 2, &|row| {
            cells[row].value.zip(against(row)).map_or("-".into(), |(value, a)| more(value - a.value_ns))
        }));
        columns.push(column(">times", 0, &|row| {
            against(row).and_then(|a| a.ratio).map_or("-".into(), |r| three_digits(r.ratio))
        }));
        columns.push(column("", 0, &|row| match of(judged, row).map(|c| c.verdict) {
            Some(Verdict::Held) => "held".into(),
            Some(Verdict::Broken) => "BROKEN".into(),
            Some(Verdict::NotJudged) | None => "not judged".into(),
        }));
    }
    fitted(out, style, columns, |_| false)
}

/// `+40 ns`
fn more(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "-" } else { "+" }, nanoseconds(ns.abs() as u64))
}

/// Axes with more than one value, without the size.
fn axes(run: &Run) -> Vec<String> {
    let several = run.experiment.matrix.iter().filter(|axis| axis.values.len() > 1 && axis.name != "bytes");
    several.map(|axis| axis.name.clone()).collect()
}

fn value(run: &Run, stage: u32, axis: &str) -> String {
    let stage = run.stages.iter().find(|s| s.number == stage);
    let found = stage.and_then(|s| s.point.iter().find(|c| c.name == axis));
    found.map_or("-".into(), |c| c.value.clone())
}
