//! Which route wins at which size in each stage, by mean and by the worst: where a load changes the answer.

use super::figures::{Column, fitted};
use crate::number::bytes;
use crate::table::{Out, Style};
use experiment::Metric;
use run_folder::Run;
use run_folder::run::BestOfRun;
use std::io;

/// In the order of the columns.
const BY: [Metric; 2] = [Metric::Mean, Metric::Max];

/// The rows of one stage, by mean and by the worst.
type Row<'r> = (&'r BestOfRun, Option<&'r BestOfRun>);

/// A table for each pair of memories whose routes were measured in several stages.
pub(super) fn write(out: &mut dyn Out, style: &Style, run: &Run) -> io::Result<()> {
    let mut ends: Vec<(&str, &str)> = Vec::new();
    for best in &run.best {
        let of = (best.source.as_str(), best.destination.as_str());
        if !ends.contains(&of) {
            ends.push(of);
        }
    }
    for (from, to) in ends {
        let of = |metric: Metric| {
            run.best
                .iter()
                .filter(move |b| b.metric == metric && (b.source.as_str(), b.destination.as_str()) == (from, to))
        };
        let rows: Vec<Row<'_>> = of(BY[0]).map(|mean| (mean, of(BY[1]).find(|max| max.point == mean.point))).collect();
        let Some((first, _)) = rows.first().copied().filter(|_| rows.len() > 1) else { continue };
        writeln!(out)?;
        writeln!(out, "{}", style.bold(&format!("who wins from {from} to {to}, stage by stage")))?;
        let mut axes: Vec<&str> = Vec::new();
        for c in rows.iter().flat_map(|row| &row.0.point) {
            if !axes.contains(&c.name.as_str()) {
                axes.push(&c.name);
            }
        }
        let column =
            |head: &str, goes: u8, of: &dyn Fn(&Row<'_>) -> String| Column::of(head, goes, rows.iter().map(of));
        let mut columns: Vec<Column> = axes
            .iter()
            .map(|name| {
                let value =
                    |b: &BestOfRun| b.point.iter().find(|c| c.name == *name).map_or("-".into(), |c| c.value.clone());
                column(name, 0, &|row| value(row.0))
            })
            .collect();
        columns.push(column("by mean", 0, &|row| ranges(run, row.0)));
        columns.push(column(">unlike the first row", 2, &|row| unlike(run, row.0, first)));
        columns.push(column("by the worst", 1, &|row| row.1.map_or("-".into(), |max| ranges(run, max))));
        fitted(out, style, columns, |_| false)?;
    }
    Ok(())
}

/// `bar1 to 256 B; ce3 to 8 MiB`: each is within 2 % of the best up to that size.
fn ranges(run: &Run, best: &BestOfRun) -> String {
    let stage = best.sizes.first().map_or(0, |at| at.stage);
    let range = |r: &run_folder::run::BestRange| format!("{} to {}", run.label(stage, &r.subject), bytes(r.to));
    best.ranges.iter().map(range).collect::<Vec<_>>().join("; ")
}

/// The number of sizes at which another route wins than in the first row.
fn unlike(run: &Run, best: &BestOfRun, first: &BestOfRun) -> String {
    let name = |of: &BestOfRun, size: u64| {
        of.sizes.iter().find(|at| at.bytes == size).map(|at| run.label(at.stage, &at.subject))
    };
    let sizes: Vec<u64> = best.sizes.iter().map(|at| at.bytes).collect();
    let others = sizes.iter().filter(|size| name(first, **size).is_some_and(|of| Some(of) != name(best, **size)));
    format!("{} of {}", others.count(), sizes.len())
}
