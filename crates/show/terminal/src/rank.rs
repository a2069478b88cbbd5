//! What the recording of a rank contributes to a comparison of all ranks of a job (doorbell.fleet).

use crate::number::{count, nanoseconds};
use crate::symbols::Named;
use crate::table::{self, Style, text_to_stdout};
use crate::{ReportError, json};
use decode::Recording;
use decode::walk::Pattern;
use schema::Summary;
use schema::rank::{Rank, Ranks, SpentOn};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Kernels that all ranks run together, where nothing else is asked for.
const COLLECTIVES: &str = "nccl";
/// Rows by default.
const ROWS: usize = 10;

/// Shows the ranks of a recording on standard output: everything as JSON, `limit` rows of each as text.
pub fn print(
    r: &Recording,
    together: Option<&Pattern>,
    limit: Option<u64>,
    style: Style,
    as_json: bool,
) -> Result<(), ReportError> {
    let nccl;
    let together = match together {
        Some(pattern) => pattern,
        None => {
            nccl = Pattern::new(COLLECTIVES).map_err(io::Error::other)?;
            &nccl
        }
    };
    let ranks = ranks(r, together)?;
    if as_json {
        return json::compact(&ranks);
    }
    let limit = limit.map_or(ROWS, |n| usize::try_from(n).unwrap_or(usize::MAX));
    text_to_stdout(style, |out| Ok(ranks.ranks.iter().try_for_each(|rank| write(rank, limit, style, out))?))
}

/// The rank of the recording, or each one of a recording of several.
fn ranks(r: &Recording, together: &Pattern) -> Result<Ranks, ReportError> {
    let summary = decode::summary(r)?;
    // (The image that did the most is the rank's program, others are what it was started through.)
    let mut of_rank = BTreeMap::new();
    for p in &summary.processes {
        if let Some(rank) = &p.rank {
            let most = of_rank.entry(rank.rank).or_insert(p);
            if (p.submissions, p.driver_calls) > (most.submissions, most.driver_calls) {
                *most = p;
            }
        }
    }
    if of_rank.len() < 2 {
        return Ok(Ranks { ranks: vec![one(r, summary, together)?] });
    }
    let each = of_rank.values().map(|p| {
        let process = Recording::open_process(r.path(), p.pid, &mut |_, _| ())?;
        one(&process, decode::summary(&process)?, together)
    });
    Ok(Ranks { ranks: each.collect::<Result<_, _>>()? })
}

fn one(r: &Recording, summary: Summary, together: &Pattern) -> Result<Rank, ReportError> {
    let (mut rank, places) = slow_calls::rank(r, summary, together)?;
    let locks = |kind: &str| matches!(kind, "locks" | "conditions");
    let names = rank.rows.iter().filter(|row| locks(row.kind)).map(|row| crate::symbols::parts(&row.name).0);
    let symbols = symbols::look_up(&places, names);
    let named = Named { places: &places, symbols: &symbols };
    for row in rank.rows.iter_mut().filter(|row| locks(row.kind)) {
        row.name = named.lock_and_key(&row.name);
    }
    for of in rank.steps.iter_mut().flat_map(|steps| &mut steps.of).filter(|of| locks(of.kind)) {
        of.name = of.name.as_deref().map(|name| named.lock_and_key(name));
    }
    Ok(rank)
}

fn write(rank: &Rank, limit: usize, style: Style, out: &mut dyn Write) -> io::Result<()> {
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
