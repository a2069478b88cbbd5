//! CUDA graphs, and what each is made of.

use crate::cell::{extent, slot, through, time};
use crate::number::bytes;
use crate::table::{Style, to_stdout};
use crate::{ReportError, json};
use insight::Recording;
use schema::graphs::{EdgeRow, GraphRow, NodeRow, RecipeRow};
use std::collections::HashMap;
use std::io::{self, Write};

/// What graphs can be sorted by, the largest first.
pub const SORTS: &[&str] = &["launches", "nodes"];
/// Nodes of a graph that are shown as text; JSON has all.
const NODES: usize = 24;

/// Shows graphs on standard output, in the order of time or by one of [`SORTS`].
pub fn print(
    r: &Recording,
    limit: Option<u64>,
    sort: Option<&str>,
    style: Style,
    as_json: bool,
) -> Result<(), ReportError> {
    let graphs = insight::graphs::graphs(r)?;
    let mut rows: Vec<GraphRow> = graphs.iter().map(insight::graphs::row).collect();
    match sort {
        Some("launches") => rows.sort_by_key(|g| std::cmp::Reverse(g.launches)),
        Some("nodes") => rows.sort_by_key(|g| std::cmp::Reverse(g.recipe.as_ref().map_or(0, |r| r.nodes.len()))),
        _ => {}
    }
    rows.truncate(limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX));
    to_stdout(|out| {
        if as_json {
            let mut array = json::Array::begin(out)?;
            rows.iter().try_for_each(|row| array.push(row))?;
            Ok(array.end()?)
        } else {
            Ok(write(&rows, style, out)?)
        }
    })
}

/// Writes graphs as text.
pub fn write(rows: &[GraphRow], style: Style, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "no graph: nothing was started again from a QMD that an earlier submission wrote");
    }
    for (i, row) in rows.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let head = format!(
            "graph at {} s, process {}, thread {}, slot {}: {} launches",
            time(row.seconds).trim(),
            row.pid,
            row.tid,
            slot(row.slot, row.generation),
            row.launches
        );
        writeln!(out, "{}", style.bold(&head))?;
        match (&row.recipe, &row.refused) {
            (Some(recipe), _) => of_recipe(recipe, out)?,
            (None, Some(why)) => refused(row, why, out)?,
            (None, None) => {}
        }
    }
    Ok(())
}

fn refused(row: &GraphRow, why: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  not understood: {why}")?;
    let hint = match row.uploaded_by {
        None => "its first launch is not on the tape: record from before it",
        Some(_) if why.contains("QMD") => {
            "words may be missing: record without --no-data, and look for losses in the summary"
        }
        Some(_) => "see --submissions for what its launches send",
    };
    writeln!(out, "  hint: {hint}")
}

fn of_recipe(r: &RecipeRow, out: &mut dyn Write) -> io::Result<()> {
    let words = |words: Option<usize>| words.map_or("?".into(), |w| w.to_string());
    writeln!(
        out,
        "  kernels {}, nodes {}, edges {}, groups {}; upload {} words, each launch {}; {} references, {} to memory of others",
        r.kernels,
        r.nodes.len(),
        r.edges.len(),
        r.groups.len(),
        words(r.upload_words),
        words(r.relaunch_words),
        r.references,
        r.foreign
    )?;
    for (i, group) in r.groups.iter().enumerate() {
        let starts = group.starts.iter().map(|s| match s.action {
            Some(action) => format!("{} ({action})", s.node),
            None => s.node.to_string(),
        });
        let waits = if group.waits.is_empty() { "nothing".into() } else { group.waits.join(", ") };
        let starts: Vec<String> = starts.collect();
        writeln!(out, "  group {i}: waits for {waits}; starts {}", starts.join(", "))?;
    }
    for counter in &r.counters {
        let step = counter.step.map_or(String::new(), |s| format!(", {s} higher each launch"));
        let nodes: Vec<String> = counter.nodes.iter().map(ToString::to_string).collect();
        writeln!(out, "  counter {:#x}: released by {}{step}", counter.address, nodes.join(", "))?;
    }
    let mut after: HashMap<usize, Vec<&EdgeRow>> = HashMap::new();
    r.edges.iter().for_each(|e| after.entry(e.from).or_default().push(e));
    let head = format!(
        "  {:>5}  {:<7}  {:<16}  {:<14}  {:>9}  {:>10}  {:<16}  {:>10}  then",
        "node", "kind", "grid", "block", "registers", "shared", "program", "parameters"
    );
    writeln!(out, "{head}")?;
    for (i, node) in r.nodes.iter().enumerate().take(NODES) {
        let then = after.get(&i).into_iter().flatten();
        let then: Vec<String> = then.map(|e| format!("{} ({})", e.to, e.action.unwrap_or(e.by))).collect();
        of_node(i, node, &then.join(", "), out)?;
    }
    match r.nodes.len().saturating_sub(NODES) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more nodes (--json has all)"),
    }
}

fn of_node(i: usize, node: &NodeRow, then: &str, out: &mut dyn Write) -> io::Result<()> {
    let begin = format!("  {i:>5}  {:<7}", node.kind);
    let line = match &node.shape {
        Some(s) if !s.is_empty() => format!(
            "{begin}  {:<16}  {:<14}  {:>9}  {:>10}  {:<16}  {:>10}  {then}{}",
            extent(s.grid),
            extent(s.block),
            s.registers,
            bytes(s.shared_memory.into()),
            format!("{:#x}", s.code()),
            node.parameter_bytes.map_or("-".into(), |b| bytes(b.into())),
            through(s)
        ),
        Some(_) => format!("{begin}  the QMD at {:#x} only orders or fetches; then {then}", node.address),
        None => format!("{begin}  {} to {:#x}; then {then}", node.bytes.map_or("?".into(), bytes), node.address),
    };
    writeln!(out, "{}", line.trim_end())
}
