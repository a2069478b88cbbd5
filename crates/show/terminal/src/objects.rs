//! The driver's objects as the recorded calls created them, and the mappings.

use crate::table::{Style, text_to_stdout, write as write_table};
use crate::{ReportError, json};
use decode::walk::{Filter, Sink, walk};
use decode::{Recording, rows};
use rm::graph::ObjectGraph;
use std::io::{self, Write};

struct Nothing;

impl Sink for Nothing {}

/// Shows the objects on standard output.
pub fn print(r: &Recording, filter: Filter, style: Style, as_json: bool) -> Result<(), ReportError> {
    let graphs = walk(r, &mut Nothing)?.graphs;
    let limit = filter.limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX);
    if as_json {
        json::document(&rows::objects(graphs.iter().map(|(p, g)| (*p, g)), limit))
    } else {
        text_to_stdout(style, |out| {
            for (i, (process, graph)) in graphs.iter().enumerate() {
                if graphs.len() > 1 {
                    let head = format!("{}Process {}", if i > 0 { "\n" } else { "" }, r.pid(*process));
                    writeln!(out, "{}", style.bold(&head))?;
                }
                write(out, &style, graph, limit)?;
            }
            Ok(())
        })
    }
}

/// Writes the tree of objects and the table of GPU mappings.
pub fn write(out: &mut dyn Write, style: &Style, graph: &ObjectGraph, limit: usize) -> io::Result<()> {
    let o = rows::objects(std::iter::once((0, graph)), limit);
    writeln!(out, "{}", style.bold(&format!("Objects ({} in all)", graph.objects().len())))?;
    for n in graph.object_tree().iter().take(limit) {
        writeln!(out, "  {n}")?;
    }
    writeln!(out, "\n{}", style.bold(&format!("GPU mappings ({} in all)", graph.gpu_mappings().count())))?;
    let mut t = style.table(&[">address", ">length", "!memory", ">offset", "place"]);
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
