//! Schema rows of graphs.

use super::{Graph, Sent};
use crate::qmds;
use cuda_graph::{Form, How, Node, Recipe, Step, Target, Wait, Work};
use schema::graphs::{CounterRow, EdgeRow, GraphRow, GroupRow, NodeRow, RecipeRow, SentRow, StartRow};

/// The row of a graph.
pub fn graph(g: &Graph) -> GraphRow {
    GraphRow {
        submission: g.submission,
        seconds: g.seconds,
        process: g.process,
        pid: g.pid,
        tid: g.tid,
        slot: g.slot,
        generation: g.generation,
        uploaded_by: g.uploaded_by,
        launches: g.launches,
        upload: g.upload.map(sent),
        launch: sent(g.launch),
        refused: g.recipe.as_ref().err().map(ToString::to_string),
        recipe: g.recipe.as_ref().ok().map(|r| recipe(g, r)),
    }
}

fn sent(s: Sent) -> SentRow {
    SentRow { submissions: s.submissions, words: s.words }
}

fn recipe(g: &Graph, r: &Recipe) -> RecipeRow {
    let words = |form| r.words(form).ok().map(|segments| segments.iter().map(|(_, words)| words.len()).sum());
    RecipeRow {
        kernels: r.kernels(),
        has_data: r.has_data(),
        upload_words: words(Form::Upload),
        relaunch_words: words(Form::Relaunch),
        references: r.references().count(),
        foreign: r.references().filter(|x| matches!(x.target, Target::Foreign(_))).count(),
        nodes: r.nodes.iter().map(|n| node(g, r, n)).collect(),
        edges: r.edges.iter().map(edge).collect(),
        groups: r.groups.iter().map(group).collect(),
        counters: (0..r.counters.len()).filter_map(|i| counter(r, i)).collect(),
    }
}

fn node(g: &Graph, r: &Recipe, n: &Node) -> NodeRow {
    let row = |address, bytes| NodeRow {
        kind: n.work.name(),
        group: n.group,
        address,
        bytes,
        value: None,
        shape: None,
        symbol: None,
        name: None,
        bank: None,
        bank_bytes: None,
        parameter_bytes: None,
    };
    match &n.work {
        Work::Kernel(k) | Work::Order(k) => {
            let bank = k.bank.and_then(|b| r.banks.get(b.0));
            let shape = qmds::shape(&k.qmd);
            let kernel = g.codes.at(shape.code(), g.last).filter(|_| !shape.is_empty());
            NodeRow {
                symbol: kernel.map(|kernel| kernel.symbol.clone()),
                name: kernel.map(|kernel| kernel.name.clone()),
                shape: Some(shape),
                bank: bank.map(|b| b.address),
                bank_bytes: bank.map(|b| b.bytes),
                parameter_bytes: bank.map(|b| b.parameters().1),
                ..row(k.address, None)
            }
        }
        Work::Memset(m) => NodeRow { value: Some(m.value), ..row(m.address, Some(m.bytes.into())) },
        Work::Fill(f) => row(f.dst, Some(f.bytes())),
        Work::Copy(c) => row(c.dst, Some(c.bytes())),
        Work::Write { address, bytes } => row(*address, Some((*bytes).into())),
    }
}

fn edge(e: &cuda_graph::Edge) -> EdgeRow {
    let (by, action) = match e.how {
        How::Dependent { action, .. } => ("dependent", Some(action.name())),
        How::Counter(_) => ("counter", None),
        How::Tracker => ("tracker", None),
        How::Stream => ("stream", None),
    };
    EdgeRow { from: e.from.0, to: e.to.0, by, action }
}

fn group(g: &cuda_graph::Group) -> GroupRow {
    let wait = |(_, wait): &(usize, Wait)| match wait {
        Wait::LaunchBefore(_) => "launch_before",
        Wait::Before => "stream_before",
        Wait::Counter(_) => "counter",
        Wait::Tracker(_) => "tracker",
    };
    let start = |s: &cuda_graph::Start| StartRow { node: s.node.0, action: s.action.map(|a| a.name()) };
    GroupRow {
        channel: g.channel,
        waits: g.acquires.iter().map(wait).collect(),
        starts: g.starts.iter().map(start).collect(),
        nodes: g.nodes.len(),
    }
}

fn counter(r: &Recipe, i: usize) -> Option<CounterRow> {
    let counter = r.counters.get(i)?;
    let is_acquired = |at: usize| {
        r.relaunch
            .get(at)
            .is_some_and(|p| matches!(p.step, Step::Acquire { address, .. } if address == counter.address))
    };
    let step = r.payloads.iter().find(|(at, _)| is_acquired(*at)).and_then(|(_, p)| p.step);
    Some(CounterRow { address: counter.address, nodes: counter.released.iter().map(|(n, ..)| n.0).collect(), step })
}
