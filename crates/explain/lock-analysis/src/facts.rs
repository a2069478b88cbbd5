//! The first walk over a tape's locks: the locks, the operations on them, and the longest waits.

use crate::fast_map::FastMap;
use crate::graph::{Graph, Hold};
use crate::last_state::LastState;
use crate::names::Names;
use crate::ops::{self, Class};
use crate::threads::Threads;
use decode::events;
use decode::gaps::GapTotals;
use decode::histogram::Sparse;
use decode::{InsightError, Recording, Source};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use tape::call;
use tape::event::{Body, Event};
use tape::fault::{self, WatchedBody};
use tape::lock::{HeldBody, LAYOUT, LAYOUT_WAITS, attr, ended, left, op};
use tape::region::HELD;
use tape::switch::scope;

/// Waits that are kept, the longest ones.
pub const WAITS: usize = 50_000;
/// Locks that are kept, the first ones: a program that makes and destroys locks all the time has ever more.
pub const LOCKS: usize = 1 << 20;
/// Samples of stolen time that are kept, a tenth of a second apart.
const STOLEN: usize = 1 << 20;
/// Unlocks by threads that had not taken the lock that are kept for each lock.
const FOREIGN: usize = 10_000;

/// A lock from its creation, or first use, to its end.
#[derive(Clone, Debug)]
pub struct Lock {
    /// Index of the process image.
    pub process: u32,
    pub addr: u64,
    pub class: Class,
    pub attr: u8,
    /// When and where it was made, if that is on the tape.
    pub made: Option<(u64, u64)>,
    /// When and where it was used first.
    pub used: (u64, u64),
    pub ops: Ops,
    /// Operations that did not return 0.
    pub failed: u64,
    /// Taken again by the return from a wait for a condition.
    pub reacquired: u64,
    /// How often a thread had to wait for it, and how long in total, ticks.
    pub contended: u64,
    pub wait: u64,
    pub longest_wait: u64,
    /// Waits by their length, ticks; `None` before the first.
    pub waits: Option<Box<Sparse>>,
    pub hold: u64,
    pub longest_hold: u64,
    /// Where and when the longest hold began, and in which thread.
    pub longest_hold_at: (u64, u64, i32),
    pub foreign_unlocks: u64,
    /// When foreign unlocks were, in order.
    pub foreign: Vec<u64>,
}

impl Lock {
    /// When a hold of it ended. Where its thread did not release it, another one may have done so before.
    pub fn released(&self, h: &Held) -> u64 {
        if matches!(h.ended, ended::UNLOCK | ended::COND_WAIT) {
            return h.released;
        }
        let next = self.foreign.partition_point(|t| *t < h.taken);
        h.released.min(self.foreign.get(next).copied().unwrap_or(u64::MAX))
    }
}

/// Counts of each operation. Most locks see two or three kinds, and there may be millions of locks.
#[derive(Clone, Debug, Default)]
pub struct Ops(Vec<(u8, u64)>);

impl Ops {
    fn add(&mut self, op: u8) {
        match self.0.iter_mut().find(|(o, _)| *o == op) {
            Some((_, n)) => *n += 1,
            None if usize::from(op) < op::COUNT => {
                self.0.reserve_exact(1);
                self.0.push((op, 1));
            }
            None => {}
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        self.0.iter().copied()
    }
}

/// A wait for a mutex or rwlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    pub ticks: u64,
    pub lock: usize,
    pub from: u64,
    pub tid: i32,
    pub site: u64,
    pub op: u8,
    /// 0 if it got the lock.
    pub result: i32,
    /// It still waited when the recording ended.
    pub unfinished: bool,
}

impl Wait {
    pub fn to(&self) -> u64 {
        self.from.saturating_add(self.ticks)
    }
}

/// The lock at each address, at the current time of the walk.
#[derive(Debug, Default)]
pub struct Addresses {
    live: FastMap<(u32, u64), (usize, Class)>,
    count: usize,
}

impl Addresses {
    /// The lock of an operation, and whether it is a new one; `None` if there are [`LOCKS`] already. Call it for all events,
    /// in order.
    pub fn lock(&mut self, process: u32, addr: u64, class: Class, op: u8, result: i32) -> Option<(usize, bool)> {
        let addr = (process, addr);
        let known = self.live.get(&addr).filter(|(_, c)| *c == class).map(|(i, _)| *i);
        let (i, new) = match known {
            // A new lock where another was: the program gave that one up without destroying it.
            Some(i) if !(ops::makes(op) && result == 0) => (i, false),
            _ if self.count == LOCKS => {
                // (What follows at this address is not its earlier lock's.)
                self.live.remove(&addr);
                return None;
            }
            _ => {
                self.count += 1;
                self.live.insert(addr, (self.count - 1, class));
                (self.count - 1, true)
            }
        };
        if ops::destroys(op) && result == 0 {
            self.live.remove(&addr);
        }
        Some((i, new))
    }
}

/// A lock is used.
#[derive(Clone, Copy, Debug)]
struct Use {
    process: u32,
    addr: u64,
    class: Class,
    op: u8,
    attr: u8,
    result: i32,
    when: u64,
    site: u64,
}

/// A hold from an event of the tape.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub addr: u64,
    pub site: u64,
    pub op: u8,
    pub attr: u8,
    pub taken: u64,
    pub released: u64,
    pub wait: u64,
    /// One of [`ended`], or [`AT_THE_END`].
    pub ended: u32,
    /// `Some` if the begin is not known, only that it was by `taken`: the number of the CUDA call in which the hold began, 0 for
    /// none.
    pub open: Option<u32>,
}

/// Held when the thread or the recording ended.
pub const AT_THE_END: u32 = 100;

impl Held {
    /// The tape has when it was released, or that it was not.
    pub fn end_is_known(&self) -> bool {
        !matches!(self.ended, ended::BY_ANOTHER | ended::PAUSED | ended::OPEN_LATE)
    }

    /// Open, and held when its thread or the recording ended. `taken` is only when the recorder saw that.
    pub fn is_left_open(&self) -> bool {
        self.open.is_some() && self.ended == AT_THE_END
    }

    pub fn of(e: &Event<'_>) -> Option<Held> {
        let (op, attr) = ((e.head.flags >> 8) as u8, e.head.flags as u8);
        let tsc = e.head.tsc;
        Some(match &e.body {
            Body::Pair(p) => Held {
                addr: p.addr,
                site: p.site,
                op,
                attr,
                taken: tsc.saturating_sub(p.hold.into()),
                released: tsc,
                wait: 0,
                ended: ended::UNLOCK,
                open: None,
            },
            Body::Hold(h) => Held {
                addr: h.addr,
                site: h.site,
                op,
                attr,
                taken: tsc.saturating_sub(h.hold),
                released: tsc,
                wait: if ended::is_open(h.ended) { 0 } else { h.wait },
                ended: h.ended,
                open: ended::is_open(h.ended).then_some(h.wait as u32),
            },
            Body::Held(h) if h.waiting == left::OPEN => Held {
                addr: h.addr,
                site: h.site,
                op,
                attr,
                taken: tsc,
                released: tsc,
                wait: 0,
                ended: AT_THE_END,
                open: Some((h.wait >> 32) as u32),
            },
            Body::Held(h) if h.waiting == left::HELD => Held {
                addr: h.addr,
                site: h.site,
                op,
                attr,
                taken: h.since,
                released: tsc,
                wait: h.wait,
                ended: AT_THE_END,
                open: None,
            },
            // Taken, and its release was not seen by this thread.
            Body::Op(o) if ops::takes(op) && o.result == 0 && o.other != 0 => Held {
                addr: o.addr,
                site: o.site,
                op,
                attr,
                taken: o.other,
                released: tsc,
                wait: o.wait,
                ended: ended::BY_ANOTHER,
                open: None,
            },
            _ => return None,
        })
    }
}

/// Held or waited for at the end.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    pub tid: i32,
    pub lock: usize,
    pub since: u64,
    pub site: u64,
    pub waiting: bool,
    /// The begin of the hold is not known: `since` is when the recorder saw it.
    pub open: bool,
}

/// The context switches in the recording.
#[derive(Debug, Default)]
pub struct Switches {
    /// One of [`tape::switch::scope`], with the reason if there are none.
    pub scope: Option<(u32, String)>,
    pub count: u64,
    pub lost: u64,
}

/// The page faults in the recording, and the time that a hypervisor took.
#[derive(Debug, Default)]
pub struct Faults {
    /// One of [`tape::fault::scope`], with the reason if there are none: the smallest scope of all processes. `None` on older
    /// tapes.
    pub scope: Option<(u32, String)>,
    /// One of [`tape::fault::steal`].
    pub steal: u32,
    /// Records that were lost, 0 for an unknown number.
    pub lost: Option<u64>,
    /// When and how long, ns. All processes have the same.
    stolen: BTreeMap<u64, u64>,
}

impl Faults {
    fn watched(&mut self, w: &WatchedBody, text: &[u8]) {
        self.steal = w.steal;
        let reach = |scope: u32| match scope {
            fault::scope::ALL => 2,
            fault::scope::PROGRAM => 1,
            _ => 0,
        };
        if self.scope.as_ref().is_none_or(|(scope, _)| reach(w.scope) < reach(*scope)) {
            self.scope = Some((w.scope, String::from_utf8_lossy(text).into_owned()));
        }
    }

    /// Time that a hypervisor took from all CPUs together, ns; `None` where that is not known.
    pub fn stolen(&self) -> Option<u64> {
        (self.steal != fault::steal::NOT_KNOWN)
            .then(|| self.stolen.values().fold(0u64, |all, ns| all.saturating_add(*ns)))
    }
}

#[derive(Debug, Default)]
pub struct Facts {
    pub layout: Option<u32>,
    /// Layout of the calls, if there are any.
    pub calls: Option<u32>,
    /// Threads that made some.
    pub callers: HashSet<Source>,
    /// Launches and copies of each process.
    pub launched: FastMap<u32, u64>,
    pub switches: Switches,
    pub faults: Faults,
    pub locks: Vec<Lock>,
    addresses: Addresses,
    pub names: Names,
    pub threads: Threads,
    pub graph: Graph,
    waits: BinaryHeap<Reverse<Wait>>,
    pub waits_seen: u64,
    /// The locks that each thread holds at the end, and where it took them; as many as its table has rows.
    at_end: HashMap<Source, VecDeque<(usize, u64)>>,
    /// Held and waited for at the end: thread, lock, since, site, waited for.
    pub left: Vec<Left>,
    /// Waits that have not ended so far, by their thread and begin. (A recording of parts has one again at the end of each.)
    waiting: BTreeMap<(Source, u64), Wait>,
    /// The threads that locks named as their holders, and when.
    named: BTreeMap<(Source, usize), (u64, HeldBody)>,
    /// The last event of each call that had not returned when a part of the recording ended.
    in_calls: FastMap<(Source, u32), u64>,
    /// On a recording of waits only: locks that a thread took while its table was full.
    pub without_room: u64,
    /// What the threads did at the end.
    pub last: LastState,
    gaps: GapTotals,
    pub unknown: u64,
    /// Operations on locks after the first [`LOCKS`].
    pub left_out: u64,
}

impl Facts {
    /// The facts of a tape; `None` if it has neither locks nor calls.
    pub fn of(r: &Recording) -> Result<Option<Facts>, InsightError> {
        let mut facts = Facts::default();
        events::each(r, |source, e| facts.event(source, e))?;
        facts.finished(r)
    }

    /// After all events of the tape.
    pub fn finished(mut self, r: &Recording) -> Result<Option<Facts>, InsightError> {
        if self.layout.is_none() && self.calls.is_none() {
            return Ok(None);
        }
        let lock_layout = if self.waits_only() { LAYOUT_WAITS } else { LAYOUT };
        for (what, found, known) in [("locks", self.layout, lock_layout), ("calls", self.calls, tape::call::LAYOUT)] {
            if let Some(found) = found.filter(|f| *f != known) {
                return Err(InsightError::Layout { path: r.path().into(), what, found, known });
            }
        }
        self.finish_waits();
        self.names.finish();
        self.threads.finish();
        Ok(Some(self))
    }

    /// The recording has waits for locks and the holds that they were for, not all operations (`record --locks=waits`).
    pub fn waits_only(&self) -> bool {
        self.layout == Some(LAYOUT_WAITS)
    }

    pub fn has_switches(&self) -> bool {
        self.switches.scope.as_ref().is_some_and(|(s, _)| *s != scope::REFUSED)
    }

    /// The tape has a later event of this unreturned call, whose event is of this time.
    pub fn is_superseded(&self, source: Source, number: u32, tsc: u64) -> bool {
        self.in_calls.get(&(source, number)).is_some_and(|last| *last != tsc)
    }

    /// The process of a lock. Threads that take it or wait for it are of that process, too.
    pub fn process(&self, lock: usize) -> u32 {
        self.locks.get(lock).map_or(0, |l| l.process)
    }

    pub fn event(&mut self, source: Source, e: &Event<'_>) {
        let process = source.process;
        self.last.event(source, e);
        match &e.body {
            Body::Locks(l) => self.layout = Some(l.layout),
            Body::Sched(s) => self.threads.add(source, e.head.tsc, s),
            Body::Mapping(m, path, id) => self.names.add(process, e.head.tsc, m, path, id),
            Body::Switches(s, text) => {
                self.switches.scope = Some((s.scope, String::from_utf8_lossy(text).into_owned()));
            }
            Body::Switch(_) => self.switches.count += 1,
            Body::SwitchesLost(l) => self.switches.lost = self.switches.lost.saturating_add(l.records),
            Body::FaultsWatched(w, text) => self.faults.watched(w, text),
            Body::FaultsLost(l) => self.faults.lost = Some(self.faults.lost.unwrap_or(0).saturating_add(l.records)),
            Body::Stolen(s) if self.faults.stolen.len() < STOLEN => {
                self.faults.stolen.insert(e.head.tsc, s.ns);
            }
            Body::Task(t) => self.threads.task(source, e.head.tsc, t),
            Body::Deadline(d) => self.threads.deadline(source, d),
            Body::Calls(c) => self.calls = Some(c.layout),
            Body::Call(c) | Body::InCall(c) => {
                if matches!(e.body, Body::InCall(_)) {
                    self.in_calls.insert((source, c.seq), e.head.tsc);
                } else if !self.in_calls.is_empty()
                    && let Some(last) = self.in_calls.get_mut(&(source, c.seq))
                {
                    *last = e.head.tsc;
                }
                self.callers.insert(source);
                let is_launch = call::function(e.head.flags).is_some_and(|f| f.class.is_guarded());
                *self.launched.entry(source.process).or_default() += u64::from(is_launch);
            }
            Body::Gap(g) => self.gaps.add(source, g),
            Body::Thread(_) => self.gaps.begins(source),
            _ => {}
        }
        if let Some(h) = Held::of(e) {
            self.held(source, &h);
        } else if let Body::Op(o) = &e.body {
            self.op(source, e, o);
        } else if let Body::Held(h) = &e.body {
            self.at_the_end(source, (e.head.flags >> 8) as u8, e.head.tsc, h);
        }
    }

    /// The lock that is used; `None` for one that is not kept.
    fn lock(&mut self, u: Use) -> Option<usize> {
        let Use { process, addr, class, op, attr, result, when, site } = u;
        let Some((i, new)) = self.addresses.lock(process, addr, class, op, result) else {
            self.left_out += 1;
            return None;
        };
        if new {
            self.locks.push(Lock {
                process,
                addr,
                class,
                attr: attr & !attr::DEPTH,
                made: (ops::makes(op) && result == 0).then_some((when, site)),
                used: (when, site),
                ops: Ops::default(),
                failed: 0,
                reacquired: 0,
                contended: 0,
                wait: 0,
                longest_wait: 0,
                waits: None,
                hold: 0,
                longest_hold: 0,
                longest_hold_at: (0, 0, 0),
                foreign_unlocks: 0,
                foreign: Vec::new(),
            });
        } else if let Some(l) = self.locks.get_mut(i) {
            // Events are in the order of releases, so the first thread that took it may have a later event.
            if when < l.used.0 && l.made.is_none() {
                l.used = (when, site);
            }
        }
        Some(i)
    }

    fn held(&mut self, source: Source, h: &Held) {
        let Source { process, tid } = source;
        let Some(class) = Class::of_hold(h.op) else {
            self.unknown += 1;
            return;
        };
        // In a wait for a condition: the thread does not hold the mutex.
        let suspended = h.ended == AT_THE_END && h.taken == 0;
        let when = if h.taken == 0 { h.released } else { h.taken };
        let Held { addr, op, attr, site, .. } = *h;
        let Some(i) = self.lock(Use { process, addr, class, op, attr, result: 0, when, site }) else { return };
        let Some(l) = self.locks.get_mut(i) else { return };
        l.attr |= h.attr & !attr::DEPTH;
        if suspended {
            return;
        }
        if ops::is_wait_for_condition(h.op) {
            l.reacquired += 1;
        } else {
            l.ops.add(h.op);
        }
        if matches!(h.ended, ended::UNLOCK | ended::CANCELLED_WAIT) {
            l.ops.add(class.unlock());
        }
        let cancelled = h.ended == ended::CANCELLED_WAIT;
        let hold = h.released.saturating_sub(h.taken);
        // (If another thread ended the hold, the time is not known.)
        if !cancelled && h.end_is_known() && h.open.is_none() {
            l.hold = l.hold.saturating_add(hold);
            if hold > l.longest_hold {
                l.longest_hold = hold;
                l.longest_hold_at = (h.site, h.taken, tid);
            }
        }
        if h.wait > 0 {
            let from = h.taken.saturating_sub(h.wait);
            let (ticks, site, op, result) = (h.wait, h.site, h.op, 0);
            self.waited(source, Wait { ticks, lock: i, from, tid, site, op, result, unfinished: false });
        }
        if h.ended == AT_THE_END {
            let held = self.at_end.entry(source).or_default();
            if held.len() == HELD {
                held.pop_front();
            }
            held.push_back((i, h.site));
            let open = h.open.is_some();
            self.left.push(Left { tid, lock: i, since: h.taken, site: h.site, waiting: false, open });
        }
        // (On a tape of waits only, a thread's other holds are missing unless another thread waited for them.)
        if !cancelled && h.end_is_known() && !self.waits_only() {
            let depth = (h.attr & attr::DEPTH) >> attr::DEPTH_SHIFT;
            let tried = ops::tries(h.op);
            let hold = Hold { lock: i, taken: h.taken, released: h.released, site: h.site, depth, tried };
            self.graph.held(source, hold);
        }
    }

    fn op(&mut self, source: Source, e: &Event<'_>, o: &tape::lock::OpBody) {
        let (op, attr) = ((e.head.flags >> 8) as u8, e.head.flags as u8);
        let Some(class) = Class::of(op) else {
            self.unknown += 1;
            return;
        };
        let Source { process, tid } = source;
        let tsc = e.head.tsc;
        let (addr, result, site) = (o.addr, o.result, o.site);
        let Some(i) = self.lock(Use { process, addr, class, op, attr, result, when: tsc, site }) else { return };
        let Some(l) = self.locks.get_mut(i) else { return };
        l.ops.add(op);
        if o.result != 0 {
            l.failed += 1;
        } else if ops::unlocks(op) {
            l.foreign_unlocks += 1;
            if l.foreign.len() < FOREIGN {
                l.foreign.push(tsc);
            }
        }
        self.without_room += u64::from(self.layout == Some(LAYOUT_WAITS) && ops::takes(op) && o.result == 0);
        if o.wait > 0 && ops::takes(op) {
            let from = tsc.saturating_sub(o.wait);
            let (ticks, site, result) = (o.wait, o.site, o.result);
            self.waited(source, Wait { ticks, lock: i, from, tid, site, op, result, unfinished: false });
        } else if o.wait > 0 {
            // For a condition or a semaphore: this is no wait for a lock.
            l.wait = l.wait.saturating_add(o.wait);
            l.longest_wait = l.longest_wait.max(o.wait);
        }
    }

    /// A wait that had not ended, or the thread that a lock named.
    fn at_the_end(&mut self, source: Source, op: u8, now: u64, h: &HeldBody) {
        let Some(class) = Class::of(op) else { return };
        let Source { process, tid } = source;
        let (addr, site) = (h.addr, h.site);
        let when = if h.since == 0 { now } else { h.since };
        let Some(i) = self.lock(Use { process, addr, class, op, attr: 0, result: 0, when, site }) else { return };
        if h.waiting == left::NAMED {
            self.named.insert((source, i), (now, *h));
        } else if ops::takes(op) {
            let ticks = now.saturating_sub(h.since);
            let wait = Wait { ticks, lock: i, from: h.since, tid, site, op, result: 0, unfinished: true };
            self.waiting.insert((source, h.since), wait);
        } else {
            self.left.push(Left { tid, lock: i, since: h.since, site, waiting: true, open: false });
        }
    }

    /// After all events: the waits that never ended, and the locks of threads that were named during them.
    fn finish_waits(&mut self) {
        let waits = std::mem::take(&mut self.waiting);
        for ((source, lock), (seen, h)) in std::mem::take(&mut self.named) {
            let tid = source.tid;
            let is_now = |w: &Wait| w.lock == lock && (w.from..=w.to()).contains(&seen);
            let is_known = |l: &Left| (l.tid, l.lock, l.waiting) == (tid, lock, false);
            if waits.values().any(is_now) && !self.left.iter().any(is_known) {
                let open = h.since == 0;
                let since = if open { seen } else { h.since };
                self.left.push(Left { tid, lock, since, site: h.site, waiting: false, open });
                self.at_end.entry(source).or_default().push_back((lock, h.site));
            }
        }
        for ((source, since), w) in waits {
            self.left.push(Left { tid: w.tid, lock: w.lock, since, site: w.site, waiting: true, open: false });
            // (A thread waits for one lock.)
            let held = self.at_end.remove(&source).into_iter().flatten();
            self.graph.waits(w.tid, held, w.lock, w.site, since);
            self.waited(source, w);
        }
    }

    fn waited(&mut self, source: Source, w: Wait) {
        if !self.waiting.is_empty() {
            self.waiting.remove(&(source, w.from));
        }
        if let Some(l) = self.locks.get_mut(w.lock) {
            l.contended += 1;
            l.wait = l.wait.saturating_add(w.ticks);
            l.longest_wait = l.longest_wait.max(w.ticks);
            l.waits.get_or_insert_default().add(w.ticks);
        }
        self.waits_seen += 1;
        if self.waits.len() < WAITS {
            self.waits.push(Reverse(w));
        } else if self.waits.peek().is_some_and(|Reverse(least)| *least < w) {
            self.waits.pop();
            self.waits.push(Reverse(w));
        }
    }

    /// The longest waits, out of the facts, the longest first.
    pub fn take_waits(&mut self) -> Vec<Wait> {
        let mut out: Vec<Wait> = std::mem::take(&mut self.waits).into_iter().map(|Reverse(w)| w).collect();
        out.sort_unstable_by_key(|w| Reverse(*w));
        out
    }

    pub fn gap_events(&self) -> u64 {
        self.gaps.at_least().events
    }
}
