//! The objects as a tree, for people.

use super::*;
use crate::class::engine;
use std::fmt;

/// One line of the tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeNode<'a> {
    /// 0 for clients and for objects whose parent was never seen.
    pub depth: usize,
    pub object: &'a Object,
    graph: &'a ObjectGraph,
}

impl ObjectGraph {
    /// All objects, freed ones too, each before its children and in the order they were made.
    pub fn object_tree(&self) -> Vec<TreeNode<'_>> {
        let mut out = Vec::with_capacity(self.objects.len());
        let mut todo: Vec<(usize, &Object)> =
            self.objects.iter().rev().filter(|o| o.parent.is_none()).map(|o| (0, o)).collect();
        while let Some((depth, object)) = todo.pop() {
            out.push(TreeNode { depth, object, graph: self });
            todo.extend(object.children.iter().rev().map(|c| (depth + 1, &self.objects[c.0])));
        }
        out
    }
}

impl TreeNode<'_> {
    /// What is particular to the object: a memory's size and place, a channel's ring.
    pub fn detail(&self) -> String {
        let engine_of = |e: u32| engine::name(e).map_or_else(|| format!("engine {e:#x}"), str::to_owned);
        match self.object.kind {
            ObjectKind::Device { instance } => format!("GPU {instance}"),
            ObjectKind::Memory(id) => self.graph.memory(id).map_or(String::new(), |m| {
                let place = match m.place {
                    Place::Video => "GPU memory",
                    Place::Host => "host memory",
                    Place::Unknown => "place unknown",
                };
                let alias = if (m.client, m.handle) == (self.object.client, self.object.handle) {
                    String::new()
                } else {
                    format!(", same as {:#010x} of {:#010x}", m.handle, m.client)
                };
                let size = if m.size == 0 { "size unknown".into() } else { numbers::bytes(m.size) };
                format!("{size}, {place}{alias}")
            }),
            ObjectKind::Group { engine, .. } => engine_of(engine),
            ObjectKind::Channel(id) => self.graph.channels.get(id.0).map_or(String::new(), |c| {
                let token = c.token.map_or(String::new(), |t| format!(", token {t:#x}"));
                format!("{}, GPFIFO {:#x} of {} entries{token}", engine_of(c.engine), c.gpfifo, c.entries)
            }),
            ObjectKind::Usermode(page) => self.graph.pages.get(page).map_or(String::new(), |p| {
                let bar = if p.bar1 { "BAR1" } else { "BAR0" };
                p.cpu.map_or_else(|| format!("{bar}, not mapped"), |a| format!("{bar}, mapped at {a:#x}"))
            }),
            ObjectKind::Subdevice { .. }
            | ObjectKind::Client
            | ObjectKind::VaSpace
            | ObjectKind::ContextShare { .. }
            | ObjectKind::Engine
            | ObjectKind::Other => String::new(),
        }
    }
}

impl fmt::Display for TreeNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = self.object;
        write!(f, "{:indent$}{:#010x} {}", "", o.handle, o.class_name(), indent = self.depth * 2)?;
        let detail = self.detail();
        if !detail.is_empty() {
            write!(f, " ({detail})")?;
        }
        if o.freed.is_some() {
            f.write_str(" freed")?;
        }
        Ok(())
    }
}
