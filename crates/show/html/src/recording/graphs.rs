//! CUDA graphs: how often each was launched, and its nodes.

use crate::document::{Block, Cell, Section, Table, head, number, text};
use crate::numbers::{bytes, count};
use schema::graphs::{GraphRow, RecipeRow};

/// Graphs whose nodes are listed, and nodes of each.
const GRAPHS: usize = 10;
const NODES: usize = 40;

pub fn section(graphs: &[GraphRow]) -> Option<Section> {
    if graphs.is_empty() {
        return None;
    }
    let mut section = Section::new("graphs", "CUDA graphs");
    let columns = vec![
        head("graph"),
        number("at", "s"),
        number("launches", ""),
        number("kernels", ""),
        number("nodes", ""),
        number("edges", ""),
        number("upload, submissions", ""),
        number("upload", "words"),
        number("a launch, submissions", ""),
        number("a launch", "words"),
        text("not understood"),
    ];
    let mut table = Table::new("graphs", "Graphs that were launched more than once", columns);
    for (n, g) in graphs.iter().enumerate() {
        let recipe = g.recipe.as_ref();
        let of = |f: fn(&RecipeRow) -> usize| recipe.map_or_else(Cell::none, |r| count(f(r) as u64));
        let sent = |of: Option<usize>| of.map_or_else(Cell::none, |v| count(v as u64));
        table.row(vec![
            (n + 1).to_string().into(),
            g.seconds.map_or_else(Cell::none, crate::numbers::seconds),
            count(g.launches),
            of(|r| r.kernels),
            of(|r| r.nodes.len()),
            of(|r| r.edges.len()),
            sent(g.upload.map(|u| u.submissions)),
            sent(g.upload.map(|u| u.words)),
            sent(Some(g.launch.submissions)),
            sent(Some(g.launch.words)),
            g.refused.as_deref().unwrap_or("-").into(),
        ]);
    }
    section.push(Block::Table(table.without_empty()));
    let understood = graphs.iter().enumerate().filter_map(|(n, g)| Some((n + 1, g.recipe.as_ref()?)));
    for (n, recipe) in understood.take(GRAPHS) {
        section.push(Block::Table(nodes(n, recipe).folded()));
    }
    Some(section)
}

fn nodes(graph: usize, recipe: &RecipeRow) -> Table {
    let columns = vec![
        head("node"),
        text("kind"),
        number("group", ""),
        text("grid"),
        text("block"),
        number("writes", "bytes"),
        number("parameters", "bytes"),
        text("behind"),
    ];
    let shown = recipe.nodes.len().min(NODES);
    let first = if shown < recipe.nodes.len() {
        format!(", the first {shown} of {}", recipe.nodes.len())
    } else {
        String::new()
    };
    let mut table = Table::new(format!("graph-{graph}"), format!("Nodes of graph {graph}{first}"), columns);
    for (n, node) in recipe.nodes.iter().enumerate().take(NODES) {
        let extent = |e: [u32; 3]| format!("{} x {} x {}", e[0], e[1], e[2]);
        let before: Vec<String> =
            recipe.edges.iter().filter(|e| e.to == n).map(|e| format!("{} ({})", e.from, e.by)).collect();
        table.row(vec![
            n.to_string().into(),
            node.kind.into(),
            count(node.group as u64),
            node.shape.as_ref().map_or_else(Cell::none, |s| extent(s.grid).into()),
            node.shape.as_ref().map_or_else(Cell::none, |s| extent(s.block).into()),
            node.bytes.map_or_else(Cell::none, bytes),
            node.parameter_bytes.map_or_else(Cell::none, |v| bytes(v.into())),
            if before.is_empty() { Cell::none() } else { before.join(", ").into() },
        ]);
    }
    table.without_empty()
}
