//! Graphs in the language of Graphviz: a box for each group, an edge for each order.

use super::{head, waits};
use crate::cell::extent;
use crate::number::bytes;
use schema::graphs::{EdgeRow, GraphRow, NodeRow, RecipeRow};
use std::io::{self, Write};

/// Writes each graph as a separate `digraph`.
pub fn write(rows: &[GraphRow], out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        // (A reader of DOT needs at least one.)
        return writeln!(out, "digraph none {{\n  label=\"no graph in this recording\"\n}}");
    }
    for row in rows {
        writeln!(out, "digraph at_submission_{} {{", row.submission)?;
        writeln!(out, "  label={}; labelloc=t; node [shape=box, fontname=monospace]", quoted(&title(row)))?;
        if let Some(recipe) = &row.recipe {
            of_recipe(recipe, out)?;
        }
        writeln!(out, "}}")?;
    }
    Ok(())
}

fn title(row: &GraphRow) -> String {
    match &row.refused {
        Some(why) => format!("{}\nnot understood: {why}", head(row)),
        None => head(row),
    }
}

fn of_recipe(r: &RecipeRow, out: &mut dyn Write) -> io::Result<()> {
    for (i, group) in r.groups.iter().enumerate() {
        let label = format!("group {i} on channel {}, waits for {}", group.channel, waits(group));
        writeln!(out, "  subgraph cluster_{i} {{\n    label={}", quoted(&label))?;
        for (n, node) in r.nodes.iter().enumerate().filter(|(_, node)| node.group == i) {
            let action = group.starts.iter().find(|s| s.node == n).and_then(|s| s.action);
            let style = if group.starts.iter().any(|s| s.node == n) { ", style=bold" } else { "" };
            writeln!(out, "    n{n} [label={}{style}]", quoted(&label_of(n, node, action)))?;
        }
        writeln!(out, "  }}")?;
    }
    r.edges.iter().try_for_each(|edge| of_edge(edge, out))
}

fn label_of(n: usize, node: &NodeRow, action: Option<&str>) -> String {
    let mut label = format!("{n}: {}", node.kind);
    match (&node.shape, node.bytes) {
        (Some(shape), _) if !shape.is_empty() => {
            label += &format!("\n{} blocks\n{} threads", extent(shape.grid), extent(shape.block));
        }
        (None, Some(b)) => label += &format!("\n{} to {:#x}", bytes(b), node.address),
        _ => {}
    }
    if let Some(action) = action {
        label += &format!("\n{action}");
    }
    label
}

fn of_edge(edge: &EdgeRow, out: &mut dyn Write) -> io::Result<()> {
    let style = match edge.by {
        "dependent" => "solid",
        "stream" => "bold",
        "counter" => "dashed",
        _ => "dotted",
    };
    let label = quoted(edge.action.unwrap_or(edge.by));
    writeln!(out, "  n{} -> n{} [style={style}, label={label}]", edge.from, edge.to)
}

/// A DOT string whose lines are centred.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
