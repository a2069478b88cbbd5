//! What delayed one transfer: the locks that its thread waited for and their holders, its time off CPU, and the calls at the same time.

use crate::attribution::Error;
use crate::attribution::windows::Ticks;
use decode::Recording;
use lock_analysis::Happened;
use run_folder::Sample;
use run_folder::commands::Counter;
use run_folder::delay::{CudaCall, Delay, Holder, OffCpu, Waited};
use schema::happened::{OneCall, OneSwitch};
use schema::locks::{HolderRow, WaitRow};

/// The number of longest waits of a recording that are examined.
const WAITS: usize = 10_000;
/// Maximum number of reported calls of other threads.
const BESIDE: usize = 5;

/// The events in the recording of a sample's process, from the sample's call to its end.
///
/// # Errors
/// The recording cannot be read, or is not of the measuring process.
pub fn of_sample(recording: &Recording, counter: &Counter, sample: &Sample) -> Result<Delay, Error> {
    if !recording.images().iter().any(|image| image.process.pid == counter.pid) {
        return Err(Error::NoProcess(counter.pid));
    }
    let ticks = Ticks::of(counter)?;
    let span = Span { tid: counter.tid, from: ticks.at(sample.call_ns), to: ticks.at(sample.done_ns), ticks };
    let locks = lock_analysis::locks(recording, WAITS)?;
    let mut waits: Vec<Waited> = locks
        .waits
        .iter()
        .filter(|wait| recording.pid(wait.process) == counter.pid)
        .filter_map(|wait| span.wait(wait))
        .collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.ns));
    let (mut calls, mut beside) = (Vec::new(), Vec::new());
    let mut runs = Runs::new(&span);
    lock_analysis::each_call(recording, |happened| {
        match happened {
            Happened::Call(call) if call.pid == counter.pid && span.holds(&call) => {
                if call.tid == span.tid { &mut calls } else { &mut beside }.push(cuda_call(call));
            }
            Happened::Switch(switch) if switch.pid == counter.pid && switch.tid == span.tid => runs.switch(&switch),
            _ => {}
        }
        Ok::<(), Error>(())
    })?;
    beside.sort_by_key(|call: &CudaCall| std::cmp::Reverse(call.ns.unwrap_or(u64::MAX)));
    beside.truncate(BESIDE);
    let off_cpu = (locks.switches.scope != "none").then(|| runs.finish());
    Ok(Delay { waits, off_cpu, calls, beside, incomplete_because: locks.incomplete_because })
}

/// The time span of a sample in the recording.
#[derive(Clone, Copy)]
struct Span {
    tid: i32,
    from: u64,
    to: u64,
    ticks: Ticks,
}

impl Span {
    /// How much of a time range is within the span, ns.
    fn share_ns(&self, from: u64, to: u64) -> u64 {
        self.ticks.ns(to.min(self.to).saturating_sub(from.max(self.from)))
    }

    fn holds(&self, call: &OneCall) -> bool {
        let to = call.ns.map_or(u64::MAX, |ns| call.tsc.saturating_add(self.ticks.of_ns(ns)));
        call.tsc < self.to && to > self.from
    }

    fn wait(&self, wait: &WaitRow) -> Option<Waited> {
        let ns = self.share_ns(wait.tsc, wait.tsc.saturating_add(self.ticks.of_ns(wait.wait_ns)));
        (wait.tid == self.tid && ns > 0).then(|| Waited {
            lock: wait.lock.clone(),
            ns,
            free_ns: wait.free_ns.min(ns),
            inside: wait.inside.clone(),
            holders: wait.holders.iter().map(holder).collect(),
        })
    }
}

fn holder(row: &HolderRow) -> Holder {
    Holder {
        tid: row.tid,
        thread: row.thread.clone(),
        of_wait_ns: row.of_wait_ns,
        inside: row.inside.clone(),
        site: row.site.clone(),
        off_cpu_ns: row.off_cpu.as_ref().map(|off| off.off_ns),
    }
}

fn cuda_call(call: OneCall) -> CudaCall {
    CudaCall { tid: call.tid, call: call.call, ns: call.ns, size: call.size }
}

/// When the measuring thread was off its CPU.
struct Runs<'s> {
    span: &'s Span,
    off: OffCpu,
    /// Since when it is off, and whether it was runnable.
    since: Option<(u64, bool)>,
}

impl Runs<'_> {
    fn new(span: &Span) -> Runs<'_> {
        Runs { span, off: OffCpu::default(), since: None }
    }

    fn switch(&mut self, switch: &OneSwitch) {
        match switch.what {
            "on" => self.on(switch.tsc),
            what => {
                let preempted = what == "preempted";
                self.since = Some((switch.tsc, preempted));
                if preempted && switch.tsc < self.span.to && !switch.other_name.is_empty() {
                    self.off.by.clone_from(&switch.other_name);
                }
            }
        }
    }

    fn on(&mut self, tsc: u64) {
        let Some((since, preempted)) = self.since.take() else { return };
        let ns = self.span.share_ns(since, tsc);
        self.off.ns += ns;
        if preempted {
            self.off.preempted_ns += ns;
        }
        if self.off.preempted_ns == 0 {
            self.off.by.clear();
        }
    }

    fn finish(mut self) -> OffCpu {
        self.on(u64::MAX);
        self.off
    }
}
