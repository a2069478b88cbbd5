//! Sentences about other processes.

use crate::wait_graph::peers::what;
use crate::wait_graph::words::Words;
use tape::live::{how, on, state};

impl Words<'_> {
    /// `process 12 (rank2)`
    pub fn process(&self, p: usize) -> String {
        let Some(of) = self.nodes.peers.all.get(p) else { return "a process".into() };
        let name = if of.name.is_empty() { String::new() } else { format!(" ({})", of.name) };
        format!("process {}{name}", of.pid)
    }

    /// What a thread waits for in a system call, and for whom: after its name. `next`: who must act; empty if nobody is known.
    pub fn waits_outside(&self, n: usize, next: &str) -> Option<String> {
        let of = self.nodes.peers.of.get(&n)?;
        let t = self.at(n)?;
        let class = t.waits.as_ref().map(|w| w.class);
        let call = t.system_call.unwrap_or("a system call");
        let thing = what(of.on, class);
        let others = match of.others {
            0 => String::new(),
            n => format!(" ({}, too)", numbers::of(n as u64, "other process")),
        };
        let kind = of.on.kind.as_str();
        Some(match (kind, next.is_empty()) {
            (on::PIPE | on::SOCKET | on::FILE_LOCK, true) => {
                format!("is in {call}, for {thing}: no other process is known that could end that")
            }
            (_, true) => return None,
            ("", _) => format!(
                "runs, or sleeps for short times, in no call. It may wait for {next}, with which it shares memory"
            ),
            (on::PIPE, _) => {
                let does = if of.on.to == how::READ { "writes to" } else { "reads from" };
                format!("is in {call}, for {thing}, which {next}{others} {does}")
            }
            (on::SOCKET, _) => format!("is in {call}, for {thing}, of which {next}{others} is the other end"),
            (on::FILE_LOCK, _) => format!("is in {call}, for {thing}, which {next}{others} has"),
            (on::CHILD, _) => format!("is in {call}, for the end of {next}"),
            (on::FUTEX, _) if of.on.barrier.is_some() => format!("waits in {thing}, in which {next} is missing"),
            (on::FUTEX, _) => format!("waits for {thing}, in memory that it shares with {next}{others}"),
            _ => format!("is in {call}, for {thing} of {next}{others}"),
        })
    }

    /// It waits for another process, as far as is known.
    pub fn waits_for_peer(&self, pid: i32, tid: i32) -> bool {
        let n = self.nodes.threads.position(pid, tid);
        n.and_then(|n| self.nodes.peers.of.get(&n)).is_some_and(|of| !of.peers.is_empty())
    }

    /// What a chain is about, in JSON.
    pub fn kind_of_chain(&self, chain: &[usize]) -> &'static str {
        let is_missing = |n: &usize| self.nodes.peers.of.get(n).is_some_and(|of| of.on.barrier.is_some());
        let pid = |n: &usize| self.at(*n).map(|t| t.process.pid);
        match (chain.first().and_then(pid), chain.last().and_then(pid)) {
            _ if chain.iter().any(is_missing) => "barrier",
            (Some(first), Some(last)) if first != last => "process",
            _ => "",
        }
    }

    /// What a process does at which a chain ends: its kind in JSON, and in words after its name.
    pub fn process_end(&self, p: usize) -> (&'static str, String) {
        let Some(of) = self.nodes.peers.all.get(p) else { return ("unknown", "was not seen".into()) };
        match (of.ended, of.state) {
            (Some(end), _) => {
                let zombie = if end.zombie { ", and nobody has waited for it" } else { "" };
                let how = if end.how == "ended" { String::new() } else { format!(" ({})", end.how) };
                ("process_ended", format!("has ended{how}{zombie}"))
            }
            (_, state::ENDED) => ("process_ended", "has ended".into()),
            (_, state::STOPPED) => ("process_stopped", "is stopped (SIGSTOP)".into()),
            (_, state::TRACED) => ("process_stopped", "is stopped by a debugger".into()),
            (_, state) if of.threads > 1 => ("process", format!("has {} threads, the first is {state}", of.threads)),
            (_, state) => ("process", format!("is {state}")),
        }
    }
}
