//! The triggers that make a flight recorder save a file. They look at events as they arrive, and at what `Flight::look` finds.

use crate::kernel_watch::{KernelWatch, Ran};
use crate::medians::Medians;
use numbers::{nanoseconds, seconds};
use std::time::Duration;
use tape::call;
use tape::event::{Body, Event};
use tape::lock::op;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A CUDA call took longer.
    Call(Duration),
    /// A thread waited longer for a mutex or a rwlock.
    Wait(Duration),
    /// A CUDA call has not returned, a thread waits for a mutex or a rwlock, or a kernel has not ended, for longer.
    Hang(Duration),
    /// A kernel took longer.
    Kernel(Duration),
    /// A kernel took longer than its median, by this factor in hundredths.
    KernelMedian(u32),
    /// More events did not fit into the rings.
    Lost(u64),
    /// NVIDIA's driver has reported an error of a GPU in the kernel's log.
    Xid,
    /// The program ended, in any way. (A file is always saved after a crash.)
    Exit,
}

/// Why a file is saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// The trigger: `call > 5ms`, `SIGUSR1`.
    pub reason: String,
    /// What happened, as text.
    pub what: String,
    /// Time stamp counter.
    pub tsc: u64,
}

/// A trigger and its text on the command line.
#[derive(Clone, Debug)]
pub struct When {
    pub trigger: Trigger,
    pub text: String,
}

struct Watched {
    /// Ticks, nanoseconds of a kernel, or hundredths of its median.
    limit: u64,
    text: String,
}

/// All triggers of a recording.
pub struct Triggers {
    call: Option<Watched>,
    wait: Option<Watched>,
    hang: Option<Watched>,
    kernel: Option<Watched>,
    median: Option<Watched>,
    lost: Option<Watched>,
    xid: Option<Watched>,
    /// Ticks per second.
    pub hz: f64,
}

/// A kernel counts as slower than its median only if it took this many nanoseconds longer, because starts are known within
/// microseconds.
const CLEARLY: u64 = 20_000;

/// The triggers for kernels, with the facts about all kernels that they need.
pub struct KernelTriggers {
    watch: KernelWatch,
    medians: Medians,
}

/// Kernels that triggers could judge, and those that they could not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    pub timed: u64,
    /// Their start is not known.
    pub not_timed: u64,
    /// They have no median: too many different kernels ran.
    pub without_median: u64,
}

impl KernelTriggers {
    /// `None` without such a trigger.
    pub fn of(triggers: &Triggers) -> Option<KernelTriggers> {
        let (watch, medians) = (KernelWatch::new(triggers.hz), Medians::default());
        triggers.has_kernels().then_some(KernelTriggers { watch, medians })
    }

    /// Takes an event of a thread, and calls `happened` with each reason to save.
    pub fn event(&mut self, triggers: &Triggers, at: (u32, i32), e: &Event<'_>, mut happened: impl FnMut(Why)) {
        let mut slow: Option<(Ran, Option<u64>)> = None;
        let medians = &mut self.medians;
        self.watch.event(at.0, at.1, e, |ran| {
            let median = medians.add((ran.process, ran.code), ran.ns);
            // (If several in one event are slow, the first is enough.)
            if slow.is_none() && triggers.kernel(ran.ns, median, String::new, 0).is_some() {
                slow = Some((ran, median));
            }
        });
        if let Some((ran, median)) = slow
            && let Some(why) = triggers.kernel(ran.ns, median, || self.watch.name(&ran), e.head.tsc)
        {
            happened(why);
        }
    }

    pub fn forget(&mut self, process: u32) {
        self.watch.forget(process);
        self.medians.forget(process);
    }

    pub fn counts(&self) -> KernelCounts {
        let KernelWatch { timed, not_timed, .. } = self.watch;
        KernelCounts { timed, not_timed, without_median: self.medians.without_place }
    }
}

impl Triggers {
    /// The smallest of several limits for the same thing counts. `hz`: ticks per second.
    pub fn new(when: &[When], hz: f64) -> Triggers {
        let least = |of: &dyn Fn(Trigger) -> Option<u64>| {
            let all = when.iter().filter_map(|w| Some(Watched { limit: of(w.trigger)?, text: w.text.clone() }));
            all.min_by_key(|w| w.limit)
        };
        let ticks = |d: Duration| (d.as_secs_f64() * hz) as u64;
        Triggers {
            call: least(&|t| if let Trigger::Call(d) = t { Some(ticks(d)) } else { None }),
            wait: least(&|t| if let Trigger::Wait(d) = t { Some(ticks(d)) } else { None }),
            hang: least(&|t| if let Trigger::Hang(d) = t { Some(ticks(d)) } else { None }),
            kernel: least(&|t| if let Trigger::Kernel(d) = t { u64::try_from(d.as_nanos()).ok() } else { None }),
            median: least(&|t| if let Trigger::KernelMedian(n) = t { Some(n.into()) } else { None }),
            lost: least(&|t| if let Trigger::Lost(n) = t { Some(n) } else { None }),
            xid: least(&|t| (t == Trigger::Xid).then_some(0)),
            hz,
        }
    }

    /// Whether an event of a thread is a reason to save.
    pub fn look(&self, tid: i32, e: &Event<'_>) -> Option<Why> {
        let tsc = e.head.tsc;
        match &e.body {
            Body::Call(c) => {
                let (w, took) = (self.call.as_ref()?, tsc.saturating_sub(c.began));
                (took > w.limit).then(|| {
                    let name = call::function(e.head.flags).map_or("a call", |f| f.name);
                    self.why(w, format!("{name} took {} in thread {tid}", seconds(took as f64 / self.hz)), tsc)
                })
            }
            Body::Hold(h) if !tape::lock::ended::is_open(h.ended) => self.waited(tid, tsc, e.head.flags, h.wait),
            Body::Op(o) => self.waited(tid, tsc, e.head.flags, o.wait),
            Body::Gap(g) => {
                let w = self.lost.as_ref()?;
                (g.events > w.limit)
                    .then(|| self.why(w, format!("{} events of thread {tid} did not fit into its ring", g.events), tsc))
            }
            _ => None,
        }
    }

    /// There is a trigger for calls.
    pub fn has_calls(&self) -> bool {
        self.call.is_some()
    }

    /// Whether a call that has not returned is a reason to save.
    pub fn in_call(&self, tid: i32, function: u16, began: u64, now: u64) -> Option<Why> {
        let (w, took) = (self.call.as_ref()?, now.saturating_sub(began));
        (took > w.limit).then(|| {
            let name = call::function(function).map_or("a call", |f| f.name);
            self.why(w, format!("{name} has not returned for {} in thread {tid}", seconds(took as f64 / self.hz)), now)
        })
    }

    /// The limit of the trigger for hangs, if there is one.
    pub fn hang(&self) -> Option<Duration> {
        self.hang.as_ref().map(|w| Duration::from_secs_f64(w.limit as f64 / self.hz))
    }

    /// Whether something that goes on since `began` is a reason to save.
    pub fn hangs(&self, what: &str, began: u64, now: u64) -> Option<Why> {
        let (w, took) = (self.hang.as_ref()?, now.saturating_sub(began));
        (took > w.limit).then(|| self.why(w, format!("{what}, for {} so far", seconds(took as f64 / self.hz)), now))
    }

    /// There is a trigger for the driver's reports.
    pub fn has_xid(&self) -> bool {
        self.xid.is_some()
    }

    /// Whether a report of the driver is a reason to save.
    pub fn xid(&self, report: String, now: u64) -> Option<Why> {
        self.xid.as_ref().map(|w| self.why(w, report, now))
    }

    fn waited(&self, tid: i32, tsc: u64, flags: u16, wait: u64) -> Option<Why> {
        let w = self.wait.as_ref()?;
        (is_lock((flags >> 8) as u8) && wait > w.limit)
            .then(|| self.why(w, format!("thread {tid} waited {} for a lock", seconds(wait as f64 / self.hz)), tsc))
    }

    /// There is a trigger for kernels.
    fn has_kernels(&self) -> bool {
        self.kernel.is_some() || self.median.is_some()
    }

    /// Whether a kernel's time is a reason to save. `median`: of its earlier runs.
    fn kernel(&self, ns: u64, median: Option<u64>, name: impl Fn() -> String, tsc: u64) -> Option<Why> {
        let of_median = median.map(|m| {
            let factor = ns as f64 / m.max(1) as f64;
            format!(", {factor:.*} times its median of {}", usize::from(factor < 10.0), nanoseconds(m))
        });
        let is_slower = |w: &&Watched| {
            median.is_some_and(|m| {
                u128::from(ns) * 100 > u128::from(m) * u128::from(w.limit) && ns.saturating_sub(m) >= CLEARLY
            })
        };
        let by_time = self.kernel.as_ref().filter(|w| ns > w.limit);
        let w = by_time.or_else(|| self.median.as_ref().filter(is_slower))?;
        Some(self.why(w, format!("{} took {}{}", name(), nanoseconds(ns), of_median.unwrap_or_default()), tsc))
    }

    fn why(&self, w: &Watched, what: String, tsc: u64) -> Why {
        Why { reason: w.text.clone(), what, tsc }
    }
}

/// The operation takes a mutex or a rwlock. (Threads wait for conditions and semaphores on purpose.)
pub fn is_lock(operation: u8) -> bool {
    matches!(operation, op::MUTEX_LOCK..=op::MUTEX_CLOCKLOCK | op::RWLOCK_RDLOCK..=op::RWLOCK_CLOCKWRLOCK)
}
