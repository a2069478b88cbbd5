//! What a flight recorder saves its memory for: watched for in the events as they pass.

use std::time::Duration;
use tape::call;
use tape::event::{Body, Event};
use tape::lock::op;

/// Something to watch for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A call of CUDA's took longer.
    Call(Duration),
    /// A thread waited longer for a mutex or a rwlock.
    Wait(Duration),
    /// More events did not fit into the rings.
    Lost(u64),
    /// The program ended, in whatever way. (At a crash memory is always saved.)
    Exit,
}

/// Why memory is saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// What was waited for: `call > 5ms`, `SIGUSR1`.
    pub reason: String,
    /// What happened, in words.
    pub what: String,
    /// Time stamp counter.
    pub tsc: u64,
}

/// A trigger with the text that asked for it.
#[derive(Clone, Debug)]
pub struct When {
    pub trigger: Trigger,
    pub text: String,
}

struct Watched {
    ticks: u64,
    text: String,
}

/// All that is watched for, in ticks.
pub struct Triggers {
    call: Option<Watched>,
    wait: Option<Watched>,
    lost: Option<Watched>,
    hz: f64,
}

impl Triggers {
    /// Of several limits for the same thing the smallest counts. `hz`: ticks a second.
    pub fn new(when: &[When], hz: f64) -> Triggers {
        let least = |of: &dyn Fn(Trigger) -> Option<u64>| {
            let all = when.iter().filter_map(|w| Some(Watched { ticks: of(w.trigger)?, text: w.text.clone() }));
            all.min_by_key(|w| w.ticks)
        };
        let ticks = |d: Duration| (d.as_secs_f64() * hz) as u64;
        Triggers {
            call: least(&|t| if let Trigger::Call(d) = t { Some(ticks(d)) } else { None }),
            wait: least(&|t| if let Trigger::Wait(d) = t { Some(ticks(d)) } else { None }),
            lost: least(&|t| if let Trigger::Lost(n) = t { Some(n) } else { None }),
            hz,
        }
    }

    /// Whether an event of a thread is what is waited for.
    pub fn look(&self, tid: i32, e: &Event<'_>) -> Option<Why> {
        let tsc = e.head.tsc;
        match &e.body {
            Body::Call(c) => {
                let (w, took) = (self.call.as_ref()?, tsc.saturating_sub(c.began));
                (took > w.ticks).then(|| {
                    let name = call::function(e.head.flags).map_or("a call", |f| f.name);
                    self.why(w, format!("{name} took {} in thread {tid}", self.time(took)), tsc)
                })
            }
            Body::Hold(h) if !tape::lock::ended::is_open(h.ended) => self.waited(tid, tsc, e.head.flags, h.wait),
            Body::Op(o) => self.waited(tid, tsc, e.head.flags, o.wait),
            Body::Gap(g) => {
                let w = self.lost.as_ref()?;
                (g.events > w.ticks)
                    .then(|| self.why(w, format!("{} events of thread {tid} did not fit into its ring", g.events), tsc))
            }
            _ => None,
        }
    }

    /// Calls are watched.
    pub fn has_calls(&self) -> bool {
        self.call.is_some()
    }

    /// A call that has not returned: it began then.
    pub fn in_call(&self, tid: i32, function: u16, began: u64, now: u64) -> Option<Why> {
        let (w, took) = (self.call.as_ref()?, now.saturating_sub(began));
        (took > w.ticks).then(|| {
            let name = call::function(function).map_or("a call", |f| f.name);
            self.why(w, format!("{name} has not returned for {} in thread {tid}", self.time(took)), now)
        })
    }

    fn waited(&self, tid: i32, tsc: u64, flags: u16, wait: u64) -> Option<Why> {
        let w = self.wait.as_ref()?;
        // (Conditions and semaphores are waited for on purpose.)
        let is_lock = matches!((flags >> 8) as u8, op::MUTEX_LOCK..=op::MUTEX_CLOCKLOCK | op::RWLOCK_RDLOCK..=op::RWLOCK_CLOCKWRLOCK);
        (is_lock && wait > w.ticks)
            .then(|| self.why(w, format!("thread {tid} waited {} for a lock", self.time(wait)), tsc))
    }

    fn why(&self, w: &Watched, what: String, tsc: u64) -> Why {
        Why { reason: w.text.clone(), what, tsc }
    }

    fn time(&self, ticks: u64) -> String {
        match ticks as f64 / self.hz {
            s if s >= 1.0 => format!("{s:.2} s"),
            s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
            s => format!("{:.1} us", s * 1e6),
        }
    }
}
