//! What the threads did when the recording ended: what they waited for and held, and the calls that had not returned. The recorder
//! writes that at the end of a thread and of a recording.
//!
//! Invariant: a thread with a later event of its own did not stay in that state.

use crate::facts::Facts;
use crate::fast_map::FastMap;
use crate::ops;
use decode::{Recording, Source};
use std::collections::BTreeMap;
use tape::call::CallBody;
use tape::event::{Body, Event};
use tape::live::{Live, LiveCall, LiveHold, LiveLock, LiveProcess, LiveThread, Looks, state};
use tape::lock::{HeldBody, left};

/// A wait counts if it lasted as long as the time between two looks at a program that runs.
const APART: f64 = 0.1;
/// A thread whose state was written so much earlier than its process's last event has ended before.
const ENDED: f64 = 1.0;

#[derive(Debug, Default)]
pub struct LastState {
    threads: BTreeMap<Source, State>,
    /// The threads that locks named as their holders.
    named: FastMap<(u32, u64), i32>,
    /// The last event of each process since the first state.
    ended: FastMap<u32, u64>,
}

#[derive(Clone, Debug, Default)]
struct State {
    tsc: u64,
    call: Option<LiveCall>,
    waits: Option<LiveHold>,
    holds: Vec<LiveHold>,
}

impl LastState {
    pub fn event(&mut self, source: Source, e: &Event<'_>) {
        let tsc = e.head.tsc;
        match &e.body {
            Body::Held(h) if h.waiting == left::NAMED => {
                self.named.insert((source.process, h.addr), source.tid);
            }
            Body::Held(h) => {
                let (flags, waits) = (e.head.flags, h.waiting == left::WAITING);
                let of = self.state(source, tsc);
                let HeldBody { addr: address, site, since, .. } = *h;
                let hold = LiveHold { address, site, since, flags, turn: 0 };
                if waits { of.waits = Some(hold) } else { of.holds.push(hold) }
            }
            Body::InCall(c) => {
                let CallBody { began, seq: number, stream, object, .. } = *c;
                let function = crate::labels::function_name(e.head.flags);
                self.state(source, tsc).call = Some(LiveCall { function, began, number, stream, object, kernel: 0 });
            }
            _ if self.threads.is_empty() => return,
            // The recorder writes these of threads that wait.
            Body::Sched(_) | Body::Gap(_) => {}
            _ => drop(self.threads.remove(&source)),
        }
        let ended = self.ended.entry(source.process).or_default();
        *ended = tsc.max(*ended);
    }

    /// The state of a thread at this time.
    fn state(&mut self, source: Source, tsc: u64) -> &mut State {
        let of = self.threads.entry(source).or_default();
        if of.tsc != tsc {
            *of = State { tsc, ..State::default() };
        }
        of
    }

    /// The last state as two looks at the program: all that had lasted for 100 ms is in both. `None` if no thread waited for a lock or
    /// was in a call for so long.
    pub fn looks(&self, r: &Recording, facts: &Facts) -> Option<Looks> {
        let tsc = self.ended.values().copied().max()?;
        let ticks = |seconds: f64| (seconds * r.hz()) as u64;
        let mut second = Live { tsc, hz: r.hz(), ..Live::default() };
        let mut of: BTreeMap<u32, Vec<(Source, &State)>> = BTreeMap::new();
        self.threads.iter().for_each(|(source, s)| of.entry(source.process).or_default().push((*source, s)));
        for (process, states) in of {
            let ended = self.ended.get(&process).copied().unwrap_or(tsc);
            // (All times count back from the end of the process.)
            let at = |since: u64| if since == 0 { 0 } else { since.saturating_add(tsc - ended) };
            let hold = |h: &LiveHold| LiveHold { since: at(h.since), ..*h };
            let thread = |(source, s): &(Source, &State)| LiveThread {
                tid: source.tid,
                name: facts.threads.name(*source).to_owned(),
                state: if s.tsc.saturating_add(ticks(ENDED)) < ended { state::ENDED } else { state::UNKNOWN }.into(),
                call: s.call.clone().map(|c| LiveCall { began: at(c.began), ..c }),
                waits: s.waits.as_ref().map(hold),
                holds: s.holds.iter().map(hold).collect(),
                ..LiveThread::default()
            };
            let mut p = LiveProcess {
                pid: r.pid(process),
                state: state::UNKNOWN.into(),
                threads: states.iter().map(thread).collect(),
                ..LiveProcess::default()
            };
            p.locks = self.locks(process, &p);
            second.processes.push(p);
        }
        let mut first = second.clone();
        first.tsc = tsc.saturating_sub(ticks(APART));
        let lasted = |since: u64| since <= first.tsc;
        let mut is_stuck = false;
        for t in first.processes.iter_mut().flat_map(|p| &mut p.threads) {
            t.call.take_if(|c| !lasted(c.began));
            t.waits.take_if(|w| !lasted(w.since));
            t.holds.retain(|h| lasted(h.since));
            let is_lock = |w: &LiveHold| ops::takes(w.op());
            is_stuck |= t.state != state::ENDED && (t.call.is_some() || t.waits.as_ref().is_some_and(is_lock));
        }
        is_stuck.then_some(Looks { first, second })
    }

    /// Holders that the tables of the threads that live do not have.
    fn locks(&self, process: u32, p: &LiveProcess) -> Vec<LiveLock> {
        let mut locks = BTreeMap::new();
        for w in p.threads.iter().filter_map(|t| t.waits.as_ref()) {
            let has = |t: &&LiveThread| t.holds.iter().any(|h| h.address == w.address && !ops::reads(h.op()));
            let holder = match p.threads.iter().find(has) {
                Some(t) if t.state == state::ENDED => t.tid,
                Some(_) => continue,
                None => match self.named.get(&(process, w.address)) {
                    Some(tid) => *tid,
                    None => continue,
                },
            };
            locks.insert(w.address, LiveLock { address: w.address, holder, readers: 0 });
        }
        locks.into_values().collect()
    }
}
