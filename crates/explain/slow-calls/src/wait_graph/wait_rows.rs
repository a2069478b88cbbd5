//! Every wait as one row.

use crate::wait_graph::nodes::Node;
use crate::wait_graph::ns;
use crate::wait_graph::peers::what;
use crate::wait_graph::stream_words::{word, work};
use crate::wait_graph::streams::On;
use crate::wait_graph::words::Words;
use lock_analysis::ops;
use schema::now::NowEdge;
use std::collections::BTreeSet;
use tape::call::function;
use tape::live::{LiveProcess, state};

impl Words<'_> {
    pub fn rows(&self, edges: &[Vec<usize>]) -> Vec<NowEdge> {
        let mut all = Vec::new();
        for (n, to) in edges.iter().enumerate() {
            let Some(row) = self.row(n) else { continue };
            let work = self.work_row(n, &row);
            let holder = |to: &usize| NowEdge { holder: self.holder(*to), ..row.clone() };
            match to.is_empty() {
                true => all.push(row),
                false => all.extend(to.iter().map(holder)),
            }
            all.extend(work);
        }
        all.extend(self.live.processes.iter().filter_map(stopped));
        all
    }

    /// Node `n` as a waiter; `None` if it waits for nothing that is known.
    fn row(&self, n: usize) -> Option<NowEdge> {
        let waiter = self.full(n);
        let row = |call: &str, on: String, since: u64| {
            let ns = ns(self.live, self.live.tsc.saturating_sub(since));
            Some(NowEdge { waiter: waiter.clone(), call: call.into(), on, holder: String::new(), ns })
        };
        match self.nodes.node(n) {
            Node::Thread(_) => {
                let t = self.nodes.threads.all.get(n)?;
                let outside = self.nodes.peers.of.get(&n);
                let place = |class| outside.map(|of| what(of.on, class)).filter(|text| !text.is_empty());
                if let Some(w) = &t.waits {
                    let on = self.of_wait(t.process.pid, w);
                    let on = place(Some(w.class)).map_or(on.clone(), |place| format!("{on}, {place}"));
                    let call = if w.is_python { "take_gil".into() } else { full_name(w.lock.op()) };
                    return row(&call, on, w.lock.since);
                }
                if let (Some(of), None) = (outside, t.call) {
                    let call = match of.on.barrier {
                        Some(_) => "pthread_barrier_wait",
                        None => t.system_call.unwrap_or("polls"),
                    };
                    return row(call, place(None).unwrap_or_else(|| "shared memory".into()), self.live.tsc);
                }
                if let (Some(c), Some("ioctl")) = (t.call, t.system_call) {
                    let in_driver = row(&c.function, "an ioctl that has not returned".into(), c.began)?;
                    return Some(NowEdge { holder: "the driver".into(), ..in_driver });
                }
                if let Some(c) = t.call {
                    return row(&c.function, self.object(n, c.stream, c.object), c.began);
                }
                let p = self.nodes.streams.polls.get(&n)?;
                row(function(p.function)?.name, self.object(n, p.stream, p.object), p.since)
            }
            Node::Process(_) => None,
            Node::Stream(s) => {
                let head = self.nodes.streams.all.get(s)?.head.as_ref()?;
                let w = head.work;
                let on = match head.on {
                    On::Word(_) => word(w),
                    On::Event(..) => format!("event {:#x}", w.object),
                    On::HostFunction(_) => format!("host function {:#x}", w.object),
                    On::Work => work(w),
                };
                row(function(w.function)?.name, on, w.tsc)
            }
        }
    }

    /// What more is known of a stream's work: that the GPU does not read it, or the kernel.
    fn work_row(&self, n: usize, row: &NowEdge) -> Option<NowEdge> {
        let Node::Stream(s) = self.nodes.node(n) else { return None };
        if let Some(c) = self.nodes.streams.channel_of(s) {
            let on = format!("channel {} (GP_PUT {}, GP_GET {})", c.channel, c.put, c.get);
            return Some(NowEdge { call: "doorbell".into(), on, ..row.clone() });
        }
        let head = self.nodes.streams.all.get(s)?.head.as_ref()?;
        let on = format!("its end, in {}", self.stream(s));
        let peers = self.nodes.peers.of_streams.get(&s).into_iter().flatten();
        let holder: Vec<String> = peers.map(|p| self.holder(self.nodes.of_peer(*p))).collect();
        let holder = if holder.is_empty() { String::new() } else { format!("maybe {}", holder.join(", or ")) };
        (head.on == On::Work).then(|| NowEdge { waiter: self.undone(s, head), on, holder, ..row.clone() })
    }

    /// With its name, each time.
    fn full(&self, n: usize) -> String {
        self.node(n, &mut BTreeSet::new())
    }

    /// As the one who must act first: a stream with what it has not done.
    fn holder(&self, n: usize) -> String {
        if let Node::Process(p) = self.nodes.node(n) {
            let state = self.nodes.peers.all.get(p).map_or("", |p| p.state);
            return format!("{}, {state}", self.full(n));
        }
        let Node::Stream(s) = self.nodes.node(n) else { return self.full(n) };
        let head = self.nodes.streams.all.get(s).and_then(|s| s.head.as_ref());
        let of = match head.map(|h| (&h.on, h)) {
            Some((On::Work, h)) => format!(" ({})", self.undone(s, h)),
            Some((On::HostFunction(_), h)) => format!(" (host function {:#x})", h.work.object),
            _ => String::new(),
        };
        self.stream(s) + &of
    }

    /// What a call is about: its event and the stream.
    fn object(&self, n: usize, stream: u64, object: u64) -> String {
        let streams = self.nodes.streams.of_threads.get(n).into_iter().flatten().map(|s| self.stream(*s));
        let streams: Vec<String> = streams.collect();
        match (object, streams.is_empty()) {
            (0, true) if stream == 0 => String::new(),
            (0, true) => crate::wait_graph::stream_words::stream(stream),
            (0, false) => streams.join(", "),
            (_, true) => format!("{object:#x}"),
            (_, false) => format!("{object:#x} of {}", streams.join(", ")),
        }
    }
}

/// A process that a signal or a debugger has stopped.
fn stopped(p: &LiveProcess) -> Option<NowEdge> {
    let named = |pid: i32, name: &str| {
        if name.is_empty() { format!("process {pid}") } else { format!("process {pid} ({name})") }
    };
    let row = |call: &str, on: &str, holder| {
        let (waiter, call, on) = (named(p.pid, &p.name), call.into(), on.into());
        Some(NowEdge { waiter, call, on, holder, ns: 0 })
    };
    let is_traced = || p.threads.iter().any(|t| t.state == state::TRACED);
    match (&p.tracer, p.state.as_str()) {
        (_, state::STOPPED) => row("stop", "SIGCONT", String::new()),
        (Some(t), _) if is_traced() => row("ptrace-stop", "its debugger", named(t.pid, &t.name)),
        _ => None,
    }
}

fn full_name(op: u8) -> String {
    let name = ops::name(op);
    if name.starts_with("sem_") { name.into() } else { format!("pthread_{name}") }
}
