//! What the recording of a rank contributes to a comparison of all ranks of a job (doorbell.fleet).

use crate::number::{count, nanoseconds};
use crate::table::{self, Style};
use schema::rank::{Rank, SpentOn};
use std::io::{self, Write};

/// Rows by default.
pub const ROWS: usize = 10;

/// Writes the first `limit` rows of each kind.
pub fn write(rank: &Rank, limit: usize, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let number = rank.rank.map_or("no rank".into(), |rank| format!("rank {rank}"));
    let of = rank.world_size.map_or(String::new(), |size| format!(" of {size}"));
    writeln!(out, "{}", style.bold(&format!("{number}{of}")))?;
    for steps in &rank.steps {
        let between = || steps.list.iter().filter(|step| !step.ns.is_empty());
        writeln!(out, "by {}: {} events, {} looked at", steps.by, count(steps.events), count(steps.list.len() as u64))?;
        let mut spent: Vec<(u64, &SpentOn)> = Vec::new();
        for (n, of) in steps.of.iter().enumerate() {
            spent.push((between().filter_map(|step| step.ns.get(n)).sum(), of));
        }
        spent.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        let all: u64 = spent.iter().map(|(ns, _)| ns).sum();
        let mut t = style.table(&[">time", ">share", ">of a step", "!spent on"]);
        for (ns, of) in spent.iter().take(limit) {
            let name = of.name.as_deref().unwrap_or("others");
            let share = format!("{:.1} %", *ns as f64 * 100.0 / all.max(1) as f64);
            t.add_row([
                nanoseconds(*ns),
                share,
                nanoseconds(ns / (between().count().max(1) as u64)),
                format!("{}: {name}", of.kind),
            ]);
        }
        table::write(out, &t, 2)?;
        table::more(out, spent.len(), limit, 2)?;
    }
    if rank.steps.is_empty() {
        writeln!(
            out,
            "no event that all ranks have in common: neither collectives nor ranges, and no calls (`record --locks --gpu-times`)"
        )?;
    }
    Ok(())
}
