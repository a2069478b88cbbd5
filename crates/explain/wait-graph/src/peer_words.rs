//! Sentences about other processes.

use crate::peers::what;
use crate::words::Words;
use tape::live::{on, state};

impl Words<'_> {
    /// `process 12 (rank2)`
    pub fn process(&self, p: usize) -> String {
        let Some(of) = self.nodes.peers.all.get(p) else { return "a process".into() };
        let name = if of.name.is_empty() { String::new() } else { format!(" ({})", of.name) };
        format!("process {}{name}", of.pid)
    }

    /// What a thread waits for in a system call, after its name.
    pub fn waits_outside(&self, n: usize) -> Option<String> {
        let of = self.nodes.peers.of.get(&n)?;
        let t = self.at(n)?;
        let class = t.waits.as_ref().map(|w| w.class);
        let call = t.system_call.unwrap_or("a system call");
        let thing = what(of.on, class);
        let others = match of.others {
            0 => String::new(),
            n => format!(" ({} can end it, too)", numbers::of(n as u64, "other process")),
        };
        Some(match of.on.kind.as_str() {
            "" => "runs in no call, and may wait for memory that it shares with".into(),
            on::PIPE | on::SOCKET if of.on.to.is_empty() => format!("is in {call} of {thing}{others}, for"),
            on::PIPE | on::SOCKET => format!("is in {call}, to {} {thing}{others}, for", of.on.to),
            on::FUTEX if of.on.barrier.is_some() => format!("waits in {thing}{others}, where these are missing:"),
            on::FUTEX => format!("waits for {thing}{others}, in memory that it shares with"),
            _ => format!("is in {call}, for {thing}{others}, of"),
        })
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
