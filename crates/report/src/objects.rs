//! The driver's objects as the calls on the tape made them, and what is mapped where.

use crate::table::{Style, to_stdout, write as write_table};
use crate::{ReportError, json};
use insight::walk::{Filter, Sink, walk};
use insight::{Place, Recording};
use rm::graph::ObjectGraph;
use serde::Serialize;
use std::io::{self, Write};

struct Nothing;

impl Sink for Nothing {}

/// Shows the objects on standard output.
pub fn print(r: &Recording, filter: Filter, style: Style, as_json: bool) -> Result<(), ReportError> {
    let graph = walk(r, &mut Nothing)?.graph;
    let limit = filter.limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX);
    if as_json {
        json::print(&Objects::of(&graph, limit))
    } else {
        to_stdout(|out| Ok(write(out, &style, &graph, limit)?))
    }
}

/// Writes the tree of objects and the table of GPU mappings.
pub fn write(out: &mut dyn Write, style: &Style, graph: &ObjectGraph, limit: usize) -> io::Result<()> {
    let o = Objects::of(graph, limit);
    writeln!(out, "{}", style.bold(&format!("Objects ({} in all)", graph.objects().len())))?;
    for n in graph.object_tree().iter().take(limit) {
        writeln!(out, "  {n}")?;
    }
    writeln!(out, "\n{}", style.bold(&format!("GPU mappings ({} in all)", graph.gpu_mappings().count())))?;
    let mut t = style.table(&[">address", ">length", "memory", ">offset", "place"]);
    for m in &o.gpu_mappings {
        t.add_row([
            format!("{:#x}", m.base),
            crate::number::bytes(m.length),
            m.handle.map_or("UVM semaphore pool".into(), |h| format!("{h:#010x}")),
            format!("{:#x}", m.offset),
            m.place.name().into(),
        ]);
    }
    write_table(out, &t, 2)
}

#[derive(Debug, Serialize)]
pub struct Objects {
    pub objects: Vec<ObjectRow>,
    pub gpu_mappings: Vec<MappingRow>,
}

#[derive(Debug, Serialize)]
pub struct ObjectRow {
    pub client: u32,
    pub handle: u32,
    pub parent: u32,
    pub class: u32,
    pub class_name: String,
    pub detail: String,
    pub depth: usize,
    pub freed: bool,
}

#[derive(Debug, Serialize)]
pub struct MappingRow {
    pub base: u64,
    pub length: u64,
    pub client: Option<u32>,
    pub handle: Option<u32>,
    pub offset: u64,
    pub place: Place,
}

impl Objects {
    pub fn of(graph: &ObjectGraph, limit: usize) -> Objects {
        let row = |n: &rm::graph::TreeNode<'_>| ObjectRow {
            client: n.object.client,
            handle: n.object.handle,
            parent: n.object.parent_handle,
            class: n.object.class,
            class_name: n.object.class_name(),
            detail: n.detail(),
            depth: n.depth,
            freed: n.object.freed.is_some(),
        };
        let mapping = |m: rm::graph::GpuMapping| MappingRow {
            base: m.base,
            length: m.length,
            client: m.handle.map(|h| h.0),
            handle: m.handle.map(|h| h.1),
            offset: m.offset,
            place: m.place.into(),
        };
        Objects {
            objects: graph.object_tree().iter().take(limit).map(row).collect(),
            gpu_mappings: graph.gpu_mappings().take(limit).map(mapping).collect(),
        }
    }
}
