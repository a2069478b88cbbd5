//! Sentences about streams.

use crate::wait_graph::nodes::Node;
use crate::wait_graph::streams::{Head, On};
use crate::wait_graph::words::Words;
use decode::Kernel;
use numbers::nanoseconds;
use schema::names::short_name;
use schema::now::NowKernel;
use std::collections::BTreeSet;
use tape::call::{Class, function, number, thread_of};
use tape::live::LiveWork;

/// `stream 0x55d0`
pub fn stream(handle: u64) -> String {
    match handle {
        0 | 1 => "the default stream".into(),
        2 => "a thread's own default stream".into(),
        _ => match thread_of(handle) {
            Some(tid) => format!("the default stream of thread {tid}"),
            None => format!("stream {handle:#x}"),
        },
    }
}

/// What a stream compares a word with (cuda.h, CUstreamWaitValue_flags).
fn wanted(w: &LiveWork) -> String {
    let value = if w.function == const { number("cuStreamWaitValue64") } { w.value } else { w.value as u32 as u64 };
    match w.how {
        0 => format!("{value} or more wanted"),
        1 => format!("{value} wanted"),
        2 => format!("a bit of {value:#x} wanted"),
        _ => format!("a bit that is 0 in both it and {value:#x} wanted"),
    }
}

/// `word 0x7f00 (6 there, 7 or more wanted)`
pub fn word(w: &LiveWork) -> String {
    let there = w.there.map_or_else(|| "its value is not known".into(), |n| format!("{n} there"));
    format!("word {:#x} ({there}, {})", w.object, wanted(w))
}

/// Kernel, copy or graph, by name.
pub fn work(w: &LiveWork) -> String {
    let Some(f) = function(w.function) else { return "work".into() };
    match f.class {
        Class::Launch if w.name.is_empty() => format!("kernel {:#x}", w.object),
        Class::Launch => format!("kernel {}", short_name(&Kernel::new(w.name.as_bytes()).name)),
        Class::GraphLaunch => format!("graph {:#x}", w.object),
        Class::CopyAsync | Class::Copy => format!("a copy ({})", f.name),
        Class::Memset => format!("a fill ({})", f.name),
        _ => format!("the work of {}", f.name),
    }
}

/// Kernels named as what else may not be done.
const NAMED: usize = 3;

/// `kernel gate, or kernel mark`: what a stream has not done, or may not have done.
pub fn either(head: &Head<'_>) -> String {
    let mut names: Vec<String> = vec![work(head.work)];
    for name in head.others.iter().map(|w| work(w)) {
        if names.len() <= NAMED && !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", or ")
}

/// `; which of 8 calls is not known`
fn others(head: &Head<'_>) -> String {
    match head.others.len() {
        0 => String::new(),
        n => format!("; which of {} calls it is is not known (record --gpu-times)", n + 1),
    }
}

impl Words<'_> {
    fn ago(&self, w: &LiveWork) -> String {
        nanoseconds(crate::wait_graph::ns(self.live, self.live.tsc.saturating_sub(w.tsc)))
    }

    fn head(&self, s: usize) -> Option<&Head<'_>> {
        self.nodes.streams.all.get(s)?.head.as_ref()
    }

    fn not_ended(&self, s: usize) -> Option<&NowKernel> {
        let of = self.nodes.streams.all.get(s)?;
        self.kernels.iter().find(|k| (k.pid, k.stream) == (of.pid, of.handle))
    }

    /// What a stream has not done: the kernel whose end the GPU has not stored, else what may be it.
    pub fn undone(&self, s: usize, head: &Head<'_>) -> String {
        let Some(k) = self.not_ended(s) else { return either(head) };
        match function(head.work.function).map(|f| f.class) {
            Some(Class::GraphLaunch) => format!("kernel {} of {}", short_name(&k.name), work(head.work)),
            _ => format!("kernel {}", short_name(&k.name)),
        }
    }

    /// A stream, with its process if there are several.
    pub fn stream(&self, s: usize) -> String {
        let Some(of) = self.nodes.streams.all.get(s) else { return "a stream".into() };
        let process = if self.nodes.has_processes() { format!(" of process {}", of.pid) } else { String::new() };
        stream(of.handle) + &process
    }

    /// `stream b waits for event 0x10, which stream a is to record`
    pub fn stream_link(&self, s: usize, next: usize, named: &mut BTreeSet<usize>) -> String {
        let this = self.stream(s);
        let Some(head) = self.head(s) else { return this };
        match (&head.on, self.nodes.node(next)) {
            (On::Event(..), Node::Stream(x)) => {
                format!(
                    "{this} waits for event {:#x}, which {} has recorded and not reached",
                    head.work.object,
                    self.stream(x)
                )
            }
            (On::Word(_), Node::Stream(x)) => {
                let who = if x == s {
                    "which it is to write itself, later".into()
                } else {
                    format!("which {} is to write", self.stream(x))
                };
                format!("{this} waits for {}, {who}", word(head.work))
            }
            (On::HostFunction(_), Node::Thread(_)) => {
                format!("{this} waits for its host function, in which {} is", self.thread(next, named))
            }
            (On::Work, _) => {
                let (_, does) = self.stream_end(s);
                format!(
                    "{this} {does}. It may wait for {}, with which its process shares memory",
                    self.node(next, named)
                )
            }
            _ => format!("{this} waits for {}", self.node(next, named)),
        }
    }

    /// What a stream does at which a chain ends: its kind in JSON, and in words after the stream's name.
    pub fn stream_end(&self, s: usize) -> (&'static str, String) {
        let Some(head) = self.head(s) else { return ("unknown", "does what was not seen".into()) };
        let w = head.work;
        let by = match self.not_ended(s).filter(|_| head.on == On::Work) {
            Some(k) => format!("{} ago by thread {}", nanoseconds(k.ns), k.tid),
            None => format!("{} ago by thread {}", self.ago(w), w.tid),
        };
        let maybe = if head.is_certain { "" } else { "as far as is known " };
        let others = others(head);
        match &head.on {
            On::Word(_) if w.there.is_some() => {
                ("word", format!("waits for {}, which no stream is to write: asked for {by}", word(w)))
            }
            On::Word(_) => ("word", format!("{maybe}waits for {}, asked for {by}{others}", word(w))),
            On::Event(..) => ("event", format!("{maybe}waits for event {:#x}", w.object)),
            On::HostFunction(_) => ("host_function", format!("{maybe}waits for its host function, given {by}{others}")),
            On::Work if let Some(c) = self.nodes.streams.channel_of(s) => (
                "doorbell",
                format!(
                    "has not ended {}, launched {by}: the GPU does not read channel {} (GP_PUT {}, GP_GET {}): its doorbell was lost, or it does not run",
                    self.undone(s, head),
                    c.channel,
                    c.put,
                    c.get
                ),
            ),
            On::Work => {
                let is_launch = function(w.function).is_some_and(|f| f.class == Class::Launch);
                let kind = if is_launch || self.not_ended(s).is_some() { "kernel" } else { "work" };
                (kind, format!("has not ended {}, launched {by}{others}", self.undone(s, head)))
            }
        }
    }
}
