//! A graph's nodes, as a public list.

use cuda_graph::{Recipe, Work};

/// One node of a graph, in the order in which a launch starts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number, for [`crate::Graph::set_parameter`].
    pub number: usize,
    pub kind: Kind,
    /// Nodes that end before it begins.
    pub after: Vec<usize>,
}

/// The work of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Kernel {
        /// Blocks, threads of a block, blocks of a cluster.
        grid: [u32; 3],
        block: [u32; 3],
        cluster: Option<[u32; 3]>,
        registers: u32,
        /// Bytes of a block's shared memory, including the system's own.
        shared: u32,
        /// Address of its code.
        program: u64,
        /// Bytes of its parameters.
        parameters: u32,
    },
    /// Runs no code, and starts others.
    Order,
    Fill {
        address: u64,
        bytes: u64,
    },
    Copy {
        from: u64,
        to: u64,
        bytes: u64,
    },
    Write {
        address: u64,
        bytes: u64,
    },
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Kernel { .. } => "kernel",
            Kind::Order => "order",
            Kind::Fill { .. } => "memset",
            Kind::Copy { .. } => "memcpy",
            Kind::Write { .. } => "write",
        }
    }
}

/// The nodes of a recipe.
pub(crate) fn nodes(recipe: &Recipe) -> Vec<Node> {
    let kind = |work: &Work| match work {
        Work::Kernel(k) => Kind::Kernel {
            grid: k.qmd.grid(),
            block: k.qmd.block(),
            cluster: k.qmd.cluster(),
            registers: k.qmd.registers(),
            shared: k.qmd.shared_memory(),
            program: k.qmd.program_address(),
            parameters: k.bank.and_then(|bank| recipe.banks.get(bank.0)).map_or(0, |bank| bank.parameters().1),
        },
        Work::Order(_) => Kind::Order,
        Work::Memset(memset) => Kind::Fill { address: memset.address, bytes: memset.bytes.into() },
        Work::Fill(fill) => Kind::Fill { address: fill.dst, bytes: fill.bytes() },
        Work::Copy(copy) => Kind::Copy { from: copy.src, to: copy.dst, bytes: copy.bytes() },
        Work::Write { address, bytes } => Kind::Write { address: *address, bytes: (*bytes).into() },
    };
    let mut nodes: Vec<Node> = recipe
        .nodes
        .iter()
        .enumerate()
        .map(|(number, n)| Node { number, kind: kind(&n.work), after: Vec::new() })
        .collect();
    for edge in &recipe.edges {
        if let Some(node) = nodes.get_mut(edge.to.0) {
            node.after.push(edge.from.0);
        }
    }
    for node in &mut nodes {
        node.after.sort_unstable();
        node.after.dedup();
    }
    nodes
}
