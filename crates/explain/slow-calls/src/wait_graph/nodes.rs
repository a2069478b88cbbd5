//! Threads, streams and other processes as the nodes of one graph.

use crate::wait_graph::edges::{Holder, Threads};
use crate::wait_graph::graph;
use crate::wait_graph::peers::Peers;
use crate::wait_graph::streams::Streams;
use std::collections::BTreeSet;

/// What waits, or is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// By its index in [`Threads::all`].
    Thread(usize),
    /// By its index in [`Streams::all`].
    Stream(usize),
    /// Another process, by its index in [`Peers::all`].
    Process(usize),
}

pub struct Nodes<'a> {
    pub threads: Threads<'a>,
    pub streams: Streams<'a>,
    pub peers: Peers<'a>,
}

impl Nodes<'_> {
    pub fn node(&self, n: usize) -> Node {
        let Some(s) = n.checked_sub(self.threads.all.len()) else { return Node::Thread(n) };
        s.checked_sub(self.streams.all.len()).map_or(Node::Stream(s), Node::Process)
    }

    /// A process's only thread counts instead of it.
    pub fn of_peer(&self, p: usize) -> usize {
        self.peers.thread_of(p).unwrap_or(self.threads.all.len() + self.streams.all.len() + p)
    }

    fn of_stream(&self, s: usize) -> usize {
        self.threads.all.len() + s
    }

    /// The threads are those of several processes.
    pub fn has_processes(&self) -> bool {
        let all = &self.threads.all;
        all.first().is_some_and(|first| all.iter().any(|t| t.process.pid != first.process.pid))
    }

    /// For each node those that it waits for, or may wait for. Threads come first.
    pub fn edges(&self) -> Vec<Vec<usize>> {
        let of_thread = |n: usize| -> Vec<usize> {
            let t = &self.threads.all[n];
            match t.waits.as_ref().map(|w| &w.holder) {
                Some(Holder::Threads(all)) if all.iter().any(|h| h.thread.is_some()) => {
                    return all.iter().filter_map(|h| h.thread).collect();
                }
                Some(Holder::Free | Holder::Changes) => return Vec::new(),
                // (In a call it may wait for a condition that the driver signals.)
                _ => {}
            }
            let joins = t.joins.into_iter();
            let streams = self.streams.of_threads[n].iter().map(|s| self.of_stream(*s));
            let peers = self.peers.of.get(&n).into_iter().flat_map(|of| &of.peers).map(|p| self.of_peer(*p));
            joins.chain(streams).chain(peers).collect()
        };
        let of_stream = |s: usize| -> Vec<usize> {
            let streams = self.streams.streams_of(s).into_iter().map(|x| self.of_stream(x));
            let peers = self.peers.of_streams.get(&s).into_iter().flatten().map(|p| self.of_peer(*p));
            streams.chain(self.streams.threads_of(s).iter().copied()).chain(peers).collect()
        };
        let threads = (0..self.threads.all.len()).map(of_thread);
        let streams = (0..self.streams.all.len()).map(of_stream);
        threads.chain(streams).chain(self.peers.all.iter().map(|_| Vec::new())).collect()
    }

    /// The same without waits that are not certain, where they would make a cycle: no cycle is a guess. (Of several that can end a wait those
    /// stay that are not in the cycle.)
    pub fn without_guesses(&self, mut edges: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
        let is_certain = |n: usize| match self.node(n) {
            Node::Stream(s) => {
                let head = self.streams.all[s].head.as_ref();
                head.is_none_or(|head| head.is_certain) && !self.peers.of_streams.contains_key(&s)
            }
            Node::Thread(t) => self.peers.of.get(&t).is_none_or(|of| of.is_certain),
            Node::Process(_) => true,
        };
        for component in graph::components(&edges).into_iter().filter(|c| c.len() > 1) {
            let all: BTreeSet<usize> = component.iter().copied().collect();
            component.into_iter().filter(|n| !is_certain(*n)).for_each(|n| edges[n].retain(|to| !all.contains(to)));
        }
        (0..edges.len()).filter(|n| !is_certain(*n)).for_each(|n| edges[n].retain(|to| *to != n));
        edges
    }
}
