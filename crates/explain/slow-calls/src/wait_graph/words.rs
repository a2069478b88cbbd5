//! Sentences about threads that wait.

use crate::wait_graph::edges::{Held, Holder, How, Thread, Wait, has_limit};
use crate::wait_graph::nodes::{Node, Nodes};
use crate::wait_graph::stream_words;
use crate::wait_graph::{Names, ns};
use lock_analysis::ops::Class;
use numbers::nanoseconds;
use schema::now::NowKernel;
use std::collections::BTreeSet;
use tape::live::{Live, LiveCall, state};

const PYTHON_LOCK: &str = "Python's lock (GIL)";

pub struct Words<'a> {
    pub nodes: &'a Nodes<'a>,
    /// The second look.
    pub live: &'a Live,
    /// Kernels that have not ended, the longest first.
    pub kernels: &'a [NowKernel],
    pub names: &'a dyn Names,
}

/// A holder's kind in JSON.
pub fn holder(h: &Holder) -> &'static str {
    match h {
        Holder::Threads(_) => "known",
        Holder::Unknown => "unknown",
        Holder::Free => "free",
        Holder::Changes => "changes",
        Holder::Signal => "signal",
    }
}

impl Words<'_> {
    fn since(&self, at: u64) -> String {
        nanoseconds(ns(self.live, self.live.tsc.saturating_sub(at)))
    }

    pub fn at(&self, n: usize) -> Option<&Thread<'_>> {
        self.nodes.threads.all.get(n)
    }

    pub fn tids(&self, path: &[usize]) -> Vec<i32> {
        path.iter().filter_map(|n| Some(self.at(*n)?.row.tid)).collect()
    }

    /// Handles of the streams in a path.
    pub fn streams(&self, path: &[usize]) -> Vec<u64> {
        let handle = |n: &usize| match self.nodes.node(*n) {
            Node::Stream(s) => Some(self.nodes.streams.all.get(s)?.handle),
            _ => None,
        };
        path.iter().filter_map(handle).collect()
    }

    /// Ticks that a thread has waited, or been in a call.
    pub fn waited(&self, n: usize) -> u64 {
        let Some(t) = self.at(n) else { return 0 };
        let poll = self.nodes.streams.polls.get(&n).map(|p| p.since);
        let since = t.waits.as_ref().map(|w| w.lock.since).or(t.call.map(|c| c.began)).or(poll);
        since.map_or(0, |since| self.live.tsc.saturating_sub(since))
    }

    /// A lock that a thread waits for.
    pub fn of_wait(&self, pid: i32, w: &Wait) -> String {
        if w.is_python { PYTHON_LOCK.into() } else { self.lock(pid, w.lock.address, w.class) }
    }

    fn lock(&self, pid: i32, address: u64, class: Class) -> String {
        let name = self.names.variable(pid, address).unwrap_or_else(|| format!("{address:#x}"));
        format!("{name}/{}", class.name())
    }

    pub fn node(&self, n: usize, named: &mut BTreeSet<usize>) -> String {
        match self.nodes.node(n) {
            Node::Thread(_) => self.thread(n, named),
            Node::Stream(s) => self.stream(s),
            Node::Process(p) => self.process(p),
        }
    }

    /// A thread; with its name when it is named for the first time.
    pub fn thread(&self, n: usize, named: &mut BTreeSet<usize>) -> String {
        let Some(t) = self.at(n) else { return "a thread".into() };
        let (tid, pid) = (t.row.tid, t.process.pid);
        if !named.insert(n) {
            return format!("thread {tid}");
        }
        let name = if t.row.name.is_empty() { String::new() } else { format!(" ({})", t.row.name) };
        let of = if self.nodes.has_processes() { format!(" of process {pid}") } else { String::new() };
        format!("thread {tid}{name}{of}")
    }

    /// `waits 31.2 s for libb+0x4040/mutex`
    fn waits(&self, pid: i32, w: &Wait) -> String {
        if w.is_python {
            return format!("waits for {PYTHON_LOCK}");
        }
        let limit = if has_limit(&w.lock) { " (with a time limit)" } else { "" };
        let to = match w.lock.op() {
            tape::lock::op::RWLOCK_RDLOCK..=tape::lock::op::RWLOCK_CLOCKRDLOCK => "to read ",
            tape::lock::op::RWLOCK_WRLOCK..=tape::lock::op::RWLOCK_CLOCKWRLOCK => "to write ",
            _ => "for ",
        };
        format!("waits {}{limit} {to}{}", self.since(w.lock.since), self.lock(pid, w.lock.address, w.class))
    }

    /// `thread 12 (writer), 31.2 s for libb+0x4040/cond`
    pub fn longest_wait(&self, pid: i32, tid: i32) -> Option<String> {
        let n = self.nodes.threads.position(pid, tid)?;
        let w = self.at(n)?.waits.as_ref()?;
        let thread = self.thread(n, &mut BTreeSet::new());
        let t = self.at(n)?;
        Some(format!("{thread}, {} for {}{}", self.since(w.lock.since), self.of_wait(pid, w), self.signalled(t, w)))
    }

    /// `, which thread 12 (worker) signalled last, 3.20 s ago`
    pub fn signalled(&self, t: &Thread<'_>, w: &Wait) -> String {
        let last = t.process.signals.iter().find(|s| s.address == w.lock.address);
        match last {
            Some(s) => {
                let by = self.nodes.threads.position(t.process.pid, s.tid);
                let by = by.map_or_else(|| format!("thread {}", s.tid), |n| self.thread(n, &mut BTreeSet::new()));
                format!(", which {by} signalled last, {} ago", self.since(s.tsc))
            }
            None if t.process.has_signals => ", which nobody has signalled in this recording".into(),
            None => String::new(),
        }
    }

    /// `thread 12 (writer) waits 31.2 s for libb+0x4040/mutex, which thread 13 (reader) holds`; `next`: which of the holders is meant.
    fn link(&self, n: usize, next: usize, named: &mut BTreeSet<usize>) -> String {
        if let Node::Stream(s) = self.nodes.node(n) {
            return self.stream_link(s, next, named);
        }
        if let Some(t) = self.at(n)
            && t.joins.is_none()
            && self.nodes.streams.of_threads.get(n).is_none_or(Vec::is_empty)
            && self.nodes.peers.of.contains_key(&n)
        {
            let call = t.call.map_or_else(String::new, |_| self.does(n, t).unwrap_or_default() + ", where it ");
            let (this, next) = (self.thread(n, named), self.node(next, named));
            return format!("{this} {call}{}", self.waits_outside(n, &next).unwrap_or_default());
        }
        if let (Some(t), Node::Stream(_)) = (self.at(n), self.nodes.node(next)) {
            let does = self.does(n, t).unwrap_or_else(|| "waits".into());
            return format!("{} {does}, for {}", self.thread(n, named), self.node(next, named));
        }
        let Some((t, w)) = self.at(n).and_then(|t| Some((t, t.waits.as_ref()?))) else {
            return format!("{} waits for the end of {}", self.thread(n, named), self.thread(next, named));
        };
        let (thread, waits) = (self.thread(n, named), self.waits(t.process.pid, w));
        let all: &[Held] = match &w.holder {
            Holder::Threads(all) => all,
            _ => &[],
        };
        let Some(held) = all.iter().find(|h| h.thread == Some(next)) else { return format!("{thread} {waits}") };
        let others = match all.len() - 1 {
            0 => String::new(),
            n => format!(" (and {})", numbers::of(n as u64, "other")),
        };
        match held.how {
            _ if n == next => format!("{thread} {waits}, which it holds itself{others}"),
            How::Alone => format!("{thread} {waits}, which {} holds", self.thread(next, named)),
            How::Reads => format!("{thread} {waits}, which {}{others} holds to read", self.thread(next, named)),
            How::Queues => {
                format!("{thread} {waits}, after {}{others}, which waits to write it first", self.thread(next, named))
            }
        }
    }

    /// What a cycle is made of, in JSON.
    pub fn kind(&self, cycle: &[usize]) -> &'static str {
        let any = |f: &dyn Fn(usize) -> bool| cycle.iter().any(|n| f(*n));
        let is_python = |n: usize| self.at(n).and_then(|t| t.waits.as_ref()).is_some_and(|w| w.is_python);
        match () {
            () if any(&is_python) => "python_lock",
            () if any(&|n| matches!(self.nodes.node(n), Node::Stream(_))) => "streams",
            () if any(&|n| self.nodes.peers.of.contains_key(&n)) => "processes",
            () => "locks",
        }
    }

    pub fn cycle(&self, cycle: &[usize]) -> String {
        let mut named = BTreeSet::new();
        let next = cycle.iter().cycle().skip(1);
        let links: Vec<String> = cycle.iter().zip(next).map(|(n, next)| self.link(*n, *next, &mut named)).collect();
        links.join("; ")
    }

    /// `end`: what the last thread does. `waiting`: how many threads have the same end.
    pub fn chain(&self, chain: &[usize], end: &str, waiting: usize) -> String {
        let mut named = BTreeSet::new();
        let mut parts: Vec<String> = chain.windows(2).map(|pair| self.link(pair[0], pair[1], &mut named)).collect();
        if let Some(last) = chain.last() {
            parts.push(format!("{} {end}", self.node(*last, &mut named)));
        }
        let links = chain.len() - 1;
        let threads = chain.iter().filter(|n| self.at(**n).is_some()).count();
        let links = links.min(threads);
        if links > 0 && waiting > links {
            parts.push(format!("{} in all wait for it", numbers::of(waiting as u64, "thread")));
        }
        parts.join("; ")
    }

    /// `is in cuStreamSynchronize for 31.2 s`
    fn does(&self, n: usize, t: &Thread<'_>) -> Option<String> {
        let poll = |p: &&tape::live::LivePoll| {
            let name = tape::call::function(p.function).map_or("a call", |f| f.name);
            let object = if p.object == 0 { String::new() } else { format!(" for event {:#x}", p.object) };
            format!("asks again and again ({name}{object}, since {})", self.since(p.since))
        };
        let call = t.call.map(|c| format!("is in {} for {}", c.function, self.since(c.began)));
        call.or_else(|| self.nodes.streams.polls.get(&n).map(poll))
    }

    /// What the last node of a chain does: its kind in JSON, and in words after its name.
    pub fn end(&self, n: usize, is_in_cycle: bool) -> (&'static str, String) {
        if is_in_cycle {
            return ("cycle", "is in a cycle".into());
        }
        match self.nodes.node(n) {
            Node::Stream(s) => return self.stream_end(s),
            Node::Process(p) => return self.process_end(p),
            Node::Thread(_) => {}
        }
        let Some(t) = self.at(n) else { return ("unknown", "was not seen".into()) };
        let pid = t.process.pid;
        match t.state {
            state::STOPPED if t.process.state == state::STOPPED => {
                return ("stopped", format!("is stopped: process {pid} is stopped (SIGSTOP)"));
            }
            state::STOPPED => return ("stopped", "is stopped (SIGSTOP)".into()),
            state::TRACED => return ("traced", "is stopped by a debugger".into()),
            state::ENDED => return ("ended", "has ended without giving it back".into()),
            _ => {}
        }
        let call = t.call.map(|c| {
            let kernel =
                self.awaited(pid, c).map_or_else(String::new, |k| format!(", which waits for kernel {}", k.name));
            self.does(n, t).unwrap_or_default() + &kernel
        });
        let Some(w) = &t.waits else {
            return match (call, t.state, t.system_call) {
                (Some(call), _, Some("ioctl")) => {
                    ("ioctl", format!("{call}, in an ioctl of the driver that has not returned"))
                }
                (Some(call), ..) => ("call", call),
                _ if t.row.joins.is_some() => {
                    ("join", format!("waits for the end of thread {}", t.row.joins.unwrap_or(0)))
                }
                _ if let Some(waits) = self.waits_outside(n, "") => ("system_call", waits),
                (_, _, Some("futex")) => ("system_call", "sleeps in futex: for what is not followed".into()),
                (_, _, Some(name)) => ("system_call", format!("sleeps in {name}")),
                (_, state::RUNNING, _) => ("running", "runs".into()),
                _ => ("unknown", "does what was not seen".into()),
            };
        };
        let waits = call.map_or_else(String::new, |call| format!("{call}, where it ")) + &self.waits(pid, w);
        match &w.holder {
            Holder::Signal if w.class == Class::Cond => {
                ("condition", format!("{waits}: who will signal it is not known{}", self.signalled(t, w)))
            }
            Holder::Signal => ("semaphore", format!("{waits}: who will post it is not known{}", self.signalled(t, w))),
            Holder::Free => ("free", format!("{waits}, which no thread had in either look")),
            Holder::Changes => ("changes", format!("{waits}, which other threads take and give back meanwhile")),
            Holder::Unknown => ("unknown_holder", format!("{waits}, whose holder is unknown")),
            Holder::Threads(all) => match all.iter().find(|h| h.tid > 0) {
                Some(h) => {
                    ("unknown_holder", format!("{waits}, which thread {} holds, of which no more is known", h.tid))
                }
                None => ("unknown_holder", format!("{waits}, whose holder is unknown")),
            },
        }
    }

    /// The thread whose CUDA call began first of those that have not returned, and that in words.
    pub fn longest_call(&self) -> Option<(i32, String)> {
        let calls = self.nodes.threads.all.iter().enumerate().filter_map(|(n, t)| Some((n, t, t.call?)));
        let (n, t, call) = calls.min_by_key(|(.., c)| c.began)?;
        let stream = if call.stream == 0 { String::new() } else { format!(", {}", stream_words::stream(call.stream)) };
        let thread = self.thread(n, &mut BTreeSet::new());
        let kernel = self.awaited(t.process.pid, call).map_or_else(String::new, |k| format!(", for kernel {}", k.name));
        Some((t.row.tid, format!("{thread} is in {} for {}{stream}{kernel}", call.function, self.since(call.began))))
    }

    /// The kernel for which a call waits: the first one of its stream, or for calls that wait for all streams the one that was launched first.
    fn awaited(&self, pid: i32, call: &LiveCall) -> Option<&NowKernel> {
        let waits_for_all = ["cuCtxSynchronize", "cudaDeviceSynchronize"].contains(&call.function.as_str());
        let is_waited_for =
            |k: &&NowKernel| k.pid == pid && (waits_for_all || call.stream != 0 && k.stream == call.stream);
        self.kernels.iter().find(is_waited_for)
    }

    /// `kernel spin of stream 0x55d0 has not ended 31.2 s after its launch by thread 12 (server); 3 kernels wait after it in the stream`
    pub fn kernel(&self, k: &NowKernel) -> String {
        let launcher = self.nodes.threads.position(k.pid, k.tid);
        let thread = launcher.map_or_else(|| format!("thread {}", k.tid), |n| self.thread(n, &mut BTreeSet::new()));
        let stream = stream_words::stream(k.stream);
        let after = match k.after {
            0 => String::new(),
            1 => "; 1 kernel waits after it in the stream".into(),
            n => format!("; {} wait after it in the stream", numbers::of(n, "kernel")),
        };
        format!("kernel {} of {stream} has not ended {} after its launch by {thread}{after}", k.name, nanoseconds(k.ns))
    }

    /// Threads that wait for a lock at this moment, but did not wait for it in both looks.
    pub fn short_waits(&self) -> Option<String> {
        let short = &self.nodes.threads.short;
        let (n, w) = short.iter().min_by_key(|(_, w)| w.since)?;
        let t = self.at(*n)?;
        let lock = self.lock(t.process.pid, w.address, Class::of(w.op())?);
        let (count, verb) =
            (numbers::of(short.len() as u64, "thread"), if short.len() == 1 { "waits" } else { "wait" });
        let longest =
            format!("{} the longest, {} for {lock}", self.thread(*n, &mut BTreeSet::new()), self.since(w.since));
        Some(format!("{count} {verb} for a lock for a short time: {longest}"))
    }
}
