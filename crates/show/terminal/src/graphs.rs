//! CUDA graphs, and the nodes of each.

pub mod dot;

use crate::cell::{channel, extent, kernel, through, time};
use crate::number::bytes;
use crate::table::Style;
use crate::table::columns::{Column, Columns, column};
use schema::graphs::{EdgeRow, GraphRow, GroupRow, NodeRow, RecipeRow, SentRow};
use std::collections::HashMap;
use std::io::{self, Write};

/// What graphs can be sorted by, the largest first.
pub const SORTS: &[&str] = &["launches", "nodes"];
/// Nodes of a graph that are shown as text; JSON has all.
const NODES: usize = 24;

/// Sorts by one of [`SORTS`].
pub fn sort(rows: &mut [GraphRow], by: &str) {
    match by {
        "launches" => rows.sort_by_key(|g| std::cmp::Reverse(g.launches)),
        _ => rows.sort_by_key(|g| std::cmp::Reverse(g.recipe.as_ref().map_or(0, |r| r.nodes.len()))),
    }
}

/// Writes graphs as text.
pub fn write(rows: &[GraphRow], style: Style, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "no graph: no submission started a QMD that an earlier one wrote");
    }
    for (i, row) in rows.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", style.bold(&head(row)))?;
        writeln!(out, "  {}", sent(row))?;
        match (&row.recipe, &row.refused) {
            (Some(recipe), _) => of_recipe(recipe, style, out)?,
            (None, Some(why)) => refused(row, why, out)?,
            (None, None) => {}
        }
    }
    Ok(())
}

fn head(row: &GraphRow) -> String {
    format!(
        "graph at {} s, process {}, thread {}, channel {}: {}",
        time(row.seconds).trim(),
        row.pid,
        row.tid,
        channel(row.slot, row.generation),
        of(row.launches as usize, "launch", "launches")
    )
}

/// `1 node`, `2 nodes`
fn of(n: usize, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

/// What the driver sent for it.
fn sent(row: &GraphRow) -> String {
    let much = |s: &SentRow| match s.submissions {
        1 => of(s.words, "word", "words"),
        n => format!("{} in {n} submissions", of(s.words, "word", "words")),
    };
    let upload = match (row.uploaded_by, &row.upload) {
        (Some(number), Some(upload)) => format!("{}, from submission {number} on", much(upload)),
        _ => "not on the tape".into(),
    };
    format!("upload: {upload}; each launch after it: {}", much(&row.launch))
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

/// What a group waits for, in words.
fn waits(group: &GroupRow) -> String {
    let say = |wait: &&'static str| match *wait {
        "launch_before" => "the launch before",
        "counter" => "the group before, by a counter",
        "tracker" => "another channel",
        other => other,
    };
    let all: Vec<&str> = group.waits.iter().map(say).collect();
    if all.is_empty() { "nothing".into() } else { all.join(" and ") }
}

fn of_recipe(r: &RecipeRow, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let channels = r.groups.iter().map(|g| g.channel + 1).max().unwrap_or(0);
    writeln!(
        out,
        "  {} ({}), {}, {} on {}",
        of(r.nodes.len(), "node", "nodes"),
        of(r.kernels, "kernel", "kernels"),
        of(r.edges.len(), "edge", "edges"),
        of(r.groups.len(), "group", "groups"),
        of(channels, "channel", "channels")
    )?;
    writeln!(
        out,
        "  {} in QMDs and commands, {} of them not of the graph's own memory",
        of(r.references, "address", "addresses"),
        r.foreign
    )?;
    if !r.has_data {
        writeln!(out, "  constants and parameters were left out of the recording (--no-data)")?;
    }
    for (i, group) in r.groups.iter().enumerate() {
        let starts = group.starts.iter().map(|s| match s.action {
            Some(action) => format!("{} ({action})", s.node),
            None => s.node.to_string(),
        });
        let starts: Vec<String> = starts.collect();
        let on = if channels > 1 { format!(" on channel {}", group.channel) } else { String::new() };
        writeln!(out, "  group {i}{on}: waits for {}; starts {}", waits(group), listed(&starts))?;
    }
    for counter in &r.counters {
        let step = counter.step.map_or(String::new(), |s| format!("; {s} higher after each launch"));
        let nodes: Vec<String> = counter.nodes.iter().map(ToString::to_string).collect();
        writeln!(out, "  counter {:#x}: counted up by {}{step}", counter.address, listed(&nodes))?;
    }
    nodes(r, style, out)
}

/// The first of many.
fn listed(all: &[String]) -> String {
    const MANY: usize = 8;
    let what = if all.len() == 1 { "node" } else { "nodes" };
    match all.len() {
        0 => "nothing".into(),
        n if n > MANY => format!("{what} {} and {} more", all[..MANY - 1].join(", "), n + 1 - MANY),
        _ => format!("{what} {}", all.join(", ")),
    }
}

const COLUMNS: &[Column] = &[
    column(">node", 5, 0),
    column("kind", 7, 4),
    column("grid", 16, 3),
    column("block", 14, 5),
    column(">registers", 9, 8),
    column(">shared", 10, 7),
    column("kernel", 16, 1),
    column(">parameters", 10, 6),
    column("then", 0, 2),
];

fn nodes(r: &RecipeRow, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut after: HashMap<usize, Vec<&EdgeRow>> = HashMap::new();
    r.edges.iter().for_each(|e| after.entry(e.from).or_default().push(e));
    let mut columns = Columns::new(style, COLUMNS, 2);
    columns.head(out)?;
    for (i, node) in r.nodes.iter().enumerate().take(NODES) {
        let then = after.get(&i).into_iter().flatten();
        let then: Vec<String> = then.map(|e| format!("{} ({})", e.to, e.action.unwrap_or(e.by))).collect();
        columns.line(out, &of_node(i, node, &listed_edges(&then)))?;
    }
    columns.end(out)?;
    match r.nodes.len().saturating_sub(NODES) {
        0 => Ok(()),
        more => writeln!(out, "  and {} (--json has all)", of(more, "more node", "more nodes")),
    }
}

fn listed_edges(then: &[String]) -> String {
    const MANY: usize = 4;
    match then.len() {
        n if n > MANY => format!("{} and {} more", then[..MANY - 1].join(", "), n + 1 - MANY),
        _ => then.join(", "),
    }
}

fn of_node(i: usize, node: &NodeRow, then: &str) -> Vec<String> {
    let mut cells = vec![i.to_string(), node.kind.to_string()];
    match &node.shape {
        Some(s) if !s.is_empty() => cells.extend([
            extent(s.grid),
            extent(s.block),
            s.registers.to_string(),
            bytes(s.shared_memory.into()),
            kernel(node.name.as_deref(), s),
            node.parameter_bytes.map_or("-".into(), |b| bytes(b.into())),
            format!("{then}{}", through(s)),
        ]),
        Some(_) => cells.push(format!("no blocks: orders others, or fetches for them{}", then_of(then))),
        None => cells.push(format!(
            "{}{} to {:#x}{}",
            node.bytes.map_or("?".into(), bytes),
            node.value.map_or(String::new(), |value| format!(" of {value:#010x}")),
            node.address,
            then_of(then)
        )),
    }
    cells
}

fn then_of(then: &str) -> String {
    if then.is_empty() { String::new() } else { format!("; then {then}") }
}
