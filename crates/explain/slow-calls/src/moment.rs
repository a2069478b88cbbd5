//! Who waited for whom when a flight recorder saved the recording, or when the recording ended, by the code that answers for a program
//! that runs (`wait_graph`).

use decode::{Awaited, InsightError, Recording};
use lock_analysis::facts::Facts;
use schema::now::NowKernel;
use schema::slow_calls::Moment;
use std::time::Duration;
use tape::live::{Live, state};

/// A kernel that has not ended so long after its launch is shown.
const LONG: Duration = Duration::from_millis(500);

/// `None` if no thread was seen waiting.
///
/// # Errors
/// The recording cannot be read.
pub fn moment(r: &Recording, facts: &Facts) -> Result<Option<Moment>, InsightError> {
    let reason = r.header().saved.as_ref().map_or("", |s| s.reason.as_str());
    let (looks, when) = match r.looks() {
        Some(looks) => (looks.clone(), format!("at the moment of saving ({reason})")),
        None => match facts.last.looks(r, facts) {
            Some(looks) => (looks, "when the recording ended".to_owned()),
            None => return Ok(None),
        },
    };
    let live = &looks.second;
    let in_call = live.processes.iter().flat_map(|p| &p.threads).any(|t| t.call.is_some());
    let awaited = if in_call || r.looks().is_some() { decode::awaited(r)?.unwrap_or_default() } else { Vec::new() };
    let mut now =
        crate::wait_graph::now(&looks.first, live, kernels(awaited, live), &Places { r, facts, tsc: live.tsc });
    (now.pid, now.program) = (r.end().map_or(0, |e| e.pid), r.header().exe.clone());
    let lacks = [(!r.header().locks, "locks (record --locks)"), (facts.calls.is_none(), "CUDA calls (record --calls)")];
    now.not_followed.extend(lacks.into_iter().filter(|(lacks, _)| *lacks).map(|(_, what)| what.to_owned()));
    let is_idle = now.cycles.is_empty()
        && now.chains.is_empty()
        && now.kernels.is_empty()
        && now.stopped.is_empty()
        && now.threads.iter().all(|t| t.call.is_none());
    Ok((!is_idle).then_some(Moment { when, now }))
}

/// The first kernel of each stream that was launched [`LONG`] before the look and has not ended. (The end of a shorter one may still be
/// on its way to the file.)
pub fn kernels(awaited: Vec<Awaited>, live: &Live) -> Vec<NowKernel> {
    let ns = |a: &Awaited| (live.tsc.saturating_sub(a.tsc) as f64 / live.hz.max(1.0) * 1e9) as u64;
    let is_live = |a: &Awaited| live.processes.iter().any(|p| p.pid == a.pid && p.state != state::ENDED);
    let long = awaited.into_iter().filter(|a| is_live(a) && ns(a) >= LONG.as_nanos() as u64);
    let row = |a: Awaited| NowKernel {
        pid: a.pid,
        ns: ns(&a),
        name: a.name.unwrap_or_else(|| format!("{:#x}", a.code)),
        stream: a.stream,
        tid: a.tid,
        after: a.count.saturating_sub(1),
    };
    long.map(row).collect()
}

/// Names by the mappings on the tape.
struct Places<'a> {
    r: &'a Recording,
    facts: &'a Facts,
    tsc: u64,
}

impl Places<'_> {
    /// The last image of a process.
    fn image(&self, pid: i32) -> Option<u32> {
        self.r.images().iter().rfind(|i| i.process.pid == pid).map(|i| i.process.index)
    }
}

impl crate::wait_graph::Names for Places<'_> {
    fn variable(&self, pid: i32, address: u64) -> Option<String> {
        self.facts.names.of_static(self.image(pid)?, address, self.tsc)
    }

    fn site(&self, pid: i32, address: u64) -> String {
        self.image(pid).map_or_else(|| format!("{address:#x}"), |i| self.facts.names.site(i, address, self.tsc))
    }
}
