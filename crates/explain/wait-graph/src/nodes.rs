//! Threads and streams as the nodes of one graph.

use crate::edges::{Holder, Threads};
use crate::graph;
use crate::streams::Streams;

/// What waits, or is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// By its index in [`Threads::all`].
    Thread(usize),
    /// By its index in [`Streams::all`].
    Stream(usize),
}

pub struct Nodes<'a> {
    pub threads: Threads<'a>,
    pub streams: Streams<'a>,
}

impl Nodes<'_> {
    pub fn node(&self, n: usize) -> Node {
        n.checked_sub(self.threads.all.len()).map_or(Node::Thread(n), Node::Stream)
    }

    fn of_stream(&self, s: usize) -> usize {
        self.threads.all.len() + s
    }

    /// For each node those that it waits for. Threads come first. No cycle is a guess.
    pub fn edges(&self) -> Vec<Vec<usize>> {
        let of_thread = |n: usize| -> Vec<usize> {
            let t = &self.threads.all[n];
            match t.waits.as_ref().map(|w| &w.holder) {
                Some(Holder::Threads(all)) => return all.iter().filter_map(|h| h.thread).collect(),
                // (In a call it may wait for a condition that the driver signals.)
                Some(Holder::Signal) | None => {}
                Some(_) => return Vec::new(),
            }
            let joins = t.joins.into_iter();
            joins.chain(self.streams.of_threads[n].iter().map(|s| self.of_stream(*s))).collect()
        };
        let of_stream = |s: usize| -> Vec<usize> {
            let streams = self.streams.streams_of(s).into_iter().map(|x| self.of_stream(x));
            streams.chain(self.streams.threads_of(s).iter().copied()).collect()
        };
        let threads = (0..self.threads.all.len()).map(of_thread);
        let mut edges: Vec<Vec<usize>> = threads.chain((0..self.streams.all.len()).map(of_stream)).collect();
        self.cut(&mut edges);
        edges
    }

    /// Takes away the waits of streams that are not certain, where they would make a cycle.
    fn cut(&self, edges: &mut [Vec<usize>]) {
        loop {
            let maybe = |n: &usize| match self.node(*n) {
                Node::Stream(s) => self.streams.all[s].head.as_ref().is_some_and(|head| !head.is_certain),
                Node::Thread(_) => false,
            };
            let found = graph::cycles(edges);
            let Some(n) = found.iter().flat_map(|(_, component)| component).copied().find(maybe) else { return };
            edges[n].clear();
        }
    }
}
