//! What a tape says of locks: which there are, what they cost, who held them while others waited, in which order they
//! are taken, and where a low priority stood in the way of a high one.
//!
//! The tape is walked for the facts and the longest waits, for who held a lock during those, and, if it has context
//! switches or calls, for what those threads did meanwhile and for the calls themselves. Memory grows with the locks and
//! the waits that are kept, not with the operations.

pub mod calls;
pub mod diff;
mod facts;
mod graph;
mod happened;
mod holders;
mod looked;
mod names;
mod ops;
mod pattern;
mod rows;
mod spans;
mod threads;
mod uses;

use crate::merge::Step;
use crate::{InsightError, Recording};
use facts::{Facts, Lock};
pub use happened::{Happened, OneCall, OneSwitch, each_call};
use holders::{Holder, Holders};
use looked::{Found, Looked};
pub use ops::Class;
pub use rows::{
    BehindRow, Cycle, HolderRow, Inversion, LeftRow, LockRow, Locks, OffCpu, OrderRow, SwitchesRow, WaitRow,
};
use spans::Seen;
use std::collections::{BTreeMap, HashMap};
use tape::lock::{LAYOUT, attr};
use tape::switch::scope;
pub use threads::ThreadRow;
pub use uses::{UseRow, each_use};

/// Locks behind each other that are told of.
const BEHIND: usize = 4;

/// Goes over all events.
fn walk(r: &Recording, mut f: impl FnMut(i32, &tape::event::Event<'_>)) -> Result<(), InsightError> {
    let mut merge = r.merge();
    loop {
        let submission = match merge.next_step()? {
            None => return Ok(()),
            Some(Step::Event(tid, e)) => {
                f(tid, &e);
                continue;
            }
            Some(Step::Submission(s)) => s,
        };
        merge.recycle(submission);
    }
}

impl Locks {
    /// Walks the tape. `waits`: how many of the longest waits are told of.
    pub fn of(r: &Recording, waits: usize) -> Result<Locks, InsightError> {
        let Some(mut facts) = Facts::of(r)? else { return Ok(Locks::default()) };
        let kept = facts.take_waits();
        let mut holders = Holders::new(&kept, &facts.locks);
        walk(r, |tid, e| holders.event(tid, e))?;
        let found = holders.found;
        let telling = Telling::new(r, &facts);
        let (seen, calls) = Looked::of(r, &telling, &kept, &found)?;
        Ok(Locks { calls, ..telling.all(&Found::new(&kept, &found, &seen), waits) })
    }
}

impl Facts {
    /// The facts of a tape; `None` if it has neither locks nor calls.
    fn of(r: &Recording) -> Result<Option<Facts>, InsightError> {
        let mut facts = Facts::default();
        walk(r, |tid, e| facts.event(tid, e))?;
        if facts.layout.is_none() && facts.calls.is_none() {
            return Ok(None);
        }
        for (what, found, known) in [("locks", facts.layout, LAYOUT), ("calls", facts.calls, tape::call::LAYOUT)] {
            if let Some(found) = found.filter(|f| *f != known) {
                return Err(InsightError::Layout { path: r.path().into(), what, found, known });
            }
        }
        facts.names.finish();
        Ok(Some(facts))
    }

    fn has_switches(&self) -> bool {
        self.switches.scope.as_ref().is_some_and(|(s, _)| *s != scope::REFUSED)
    }
}

/// Turns facts into rows.
struct Telling<'a> {
    facts: &'a Facts,
    first: u64,
    hz: f64,
    /// Of each lock: its name without number, and how it was found.
    names: Vec<(String, &'static str)>,
    /// Its number among those of its name, from 1; 0 if it is the only one.
    numbers: Vec<usize>,
    lost: u64,
}

impl<'a> Telling<'a> {
    fn new(r: &Recording, facts: &'a Facts) -> Telling<'a> {
        let hz = r.header().tsc_hz;
        let names: Vec<_> = facts.locks.iter().map(|l| name(facts, l)).collect();
        let mut count: HashMap<&str, usize> = HashMap::new();
        names.iter().for_each(|(n, _)| *count.entry(n).or_default() += 1);
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let numbers = names
            .iter()
            .map(|(n, _)| {
                let k = seen.entry(n).or_default();
                *k += 1;
                if count.get(n.as_str()) == Some(&1) { 0 } else { *k }
            })
            .collect();
        let lost = r.end().map_or_else(|| facts.gap_events(), |e| e.gap_events);
        let hz = if hz > 0.0 { hz } else { 1e9 };
        Telling { facts, first: r.first_tsc().unwrap_or(0), hz, names, numbers, lost }
    }

    fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 / self.hz * 1e9).round() as u64
    }

    fn seconds(&self, tsc: u64) -> f64 {
        tsc.saturating_sub(self.first) as f64 / self.hz
    }

    fn name(&self, lock: usize) -> String {
        match (self.names.get(lock), self.numbers.get(lock)) {
            (Some((n, _)), Some(0)) => n.clone(),
            (Some((n, _)), Some(k)) => format!("{n}#{k}"),
            _ => String::new(),
        }
    }

    fn all(&self, found: &Found<'_>, waits: usize) -> Locks {
        let f = self.facts;
        let mut operations: BTreeMap<&'static str, u64> = BTreeMap::new();
        for l in &f.locks {
            add_operations(&mut operations, l);
        }
        let kept = || 0..found.waits.len();
        Locks {
            recorded: f.layout.is_some(),
            operations,
            contended: f.locks.iter().map(|l| l.contended).sum(),
            lost_events: self.lost,
            locks: self.rows(found.seen),
            switches: self.switches(),
            waits: kept().take(waits).map(|i| self.wait(i, found)).collect(),
            waits_seen: f.waits_seen,
            cycles: f.graph.cycles().iter().map(|c| self.cycle(c)).collect(),
            order: self.order(),
            inversions: kept().filter_map(|i| self.inversion(i, found)).take(waits).collect(),
            real_time: f.threads.any_real_time(),
            left: f.left.iter().map(|l| self.left(l)).collect(),
            threads: f.threads.rows(|tsc| self.seconds(tsc)),
            calls: None,
        }
    }

    fn rows(&self, seen: &Looked) -> Vec<LockRow> {
        let mut rows: BTreeMap<&str, LockRow> = BTreeMap::new();
        for (l, (name, by)) in self.facts.locks.iter().zip(&self.names) {
            let row =
                rows.entry(name).or_insert_with(|| LockRow { name: name.clone(), named_by: by, ..LockRow::default() });
            row.instances += 1;
            for a in ops::attributes(l.class, l.attr) {
                if !row.attributes.contains(&a) {
                    row.attributes.push(a);
                }
            }
            add_operations(&mut row.operations, l);
            row.failed += l.failed;
            row.reacquired += l.reacquired;
            row.contended += l.contended;
            row.wait_ns = row.wait_ns.saturating_add(self.ns(l.wait));
            row.longest_wait_ns = row.longest_wait_ns.max(self.ns(l.longest_wait));
            row.hold_ns = row.hold_ns.saturating_add(self.ns(l.hold));
            row.foreign_unlocks += l.foreign_unlocks;
            let hold = self.ns(l.longest_hold);
            if l.longest_hold > 0 && hold >= row.longest_hold_ns {
                row.longest_hold_ns = hold;
                row.longest_hold_site = Some(self.facts.names.site(l.longest_hold_at.0));
                row.longest_hold_tid = Some(l.longest_hold_at.2);
            }
        }
        let mut rows: Vec<LockRow> = rows.into_values().collect();
        for row in &mut rows {
            let hold = seen.longest_hold(&row.name);
            (row.longest_hold_inside, row.longest_hold_off_cpu) = (inside(hold), self.off_cpu(hold));
        }
        let uses = |r: &LockRow| r.operations.values().sum::<u64>();
        // (What was waited for in a condition or semaphore is no lock that was not free.)
        let contention = |r: &LockRow| if r.contended > 0 { r.longest_wait_ns } else { 0 };
        rows.sort_by(|a, b| (contention(b), uses(b), &a.name).cmp(&(contention(a), uses(a), &b.name)));
        rows
    }

    fn thread(&self, tid: i32) -> String {
        self.facts.threads.name(tid).to_owned()
    }

    fn switches(&self) -> SwitchesRow {
        let s = &self.facts.switches;
        let (scope, reason) = match &s.scope {
            Some((scope::ALL_CPUS, _)) => ("all_cpus", String::new()),
            Some((scope::PROGRAM, _)) => ("program", String::new()),
            Some((_, why)) => ("none", why.clone()),
            None => ("none", "recorded by a version without them".into()),
        };
        SwitchesRow { scope, reason, count: s.count, lost: s.lost }
    }

    fn off_cpu(&self, seen: Option<&Seen>) -> Option<OffCpu> {
        let seen = seen.filter(|_| self.facts.has_switches())?;
        let (tid, ticks) = seen.by().unwrap_or((-1, 0));
        Some(OffCpu {
            off_ns: self.ns(seen.off),
            preempted_ns: self.ns(seen.preempted),
            by_tid: (tid >= 0).then_some(tid),
            by: self.thread(tid),
            by_ns: self.ns(ticks),
        })
    }

    fn wait(&self, i: usize, found: &Found<'_>) -> WaitRow {
        let (w, way) = (&found.waits[i], &found.ways[i]);
        let waiter = found.seen.waiter(i);
        WaitRow {
            at: self.seconds(w.from),
            tid: w.tid,
            thread: self.thread(w.tid),
            lock: self.name(w.lock),
            operation: ops::name(w.op),
            site: self.facts.names.site(w.site),
            wait_ns: self.ns(w.ticks),
            result: w.result,
            unfinished: w.unfinished,
            free_ns: self.ns(w.ticks.saturating_sub(way.held)),
            off_cpu: self.off_cpu(waiter),
            // (Off CPU, and not only while somebody held it: at least so much.)
            ready_ns: waiter
                .filter(|_| self.facts.has_switches())
                .map(|s| self.ns(s.ready.max(s.off.saturating_sub(way.held)))),
            inside: inside(waiter),
            holds: way.holds,
            held_ns: self.ns(way.held),
            holders: (0..way.holders.len()).map(|k| self.holder(i, k, found)).collect(),
        }
    }

    /// Of a wait, by its place among the holders.
    fn holder(&self, wait: usize, k: usize, found: &Found<'_>) -> HolderRow {
        let (w, h, seen) = (&found.waits[wait], &found.ways[wait].holders[k], found.seen.holder(wait, k));
        HolderRow {
            tid: h.tid,
            thread: self.thread(h.tid),
            site: self.facts.names.site(h.site),
            since: self.seconds(h.taken),
            hold_ns: self.ns(h.released.saturating_sub(h.taken)),
            of_wait_ns: self.ns(h.share),
            unfinished: h.unfinished,
            off_cpu: self.off_cpu(seen),
            inside: inside(seen),
            behind: self.behind(h, w.from.max(h.taken), w.to().min(h.released), found),
        }
    }

    /// What a holder waited for in a time, and those before it.
    fn behind(&self, h: &Holder, mut from: u64, mut to: u64, found: &Found<'_>) -> Vec<BehindRow> {
        let (mut tid, mut out) = (h.tid, Vec::new());
        while let Some((i, share)) = found.longest(tid, from, to).filter(|_| out.len() < BEHIND) {
            let (w, first) = (&found.waits[i], found.ways[i].holders.first());
            out.push(BehindRow {
                lock: self.name(w.lock),
                wait_ns: self.ns(share),
                holder: first.map(|h| h.tid),
                holder_name: first.map_or_else(String::new, |h| self.thread(h.tid)),
                inside: inside(found.seen.holder(i, 0)),
            });
            let Some(h) = first else { break };
            (tid, from, to) = (h.tid, w.from.max(h.taken).max(from), w.to().min(h.released).min(to));
        }
        out
    }

    fn edge(&self, from: usize, to: usize) -> OrderRow {
        let e = self.facts.graph.edges.get(&(from, to)).cloned().unwrap_or_default();
        OrderRow {
            held: self.name(from),
            taken: self.name(to),
            count: e.count,
            held_site: self.facts.names.site(e.sites.0),
            taken_site: self.facts.names.site(e.sites.1),
            tids: e.tids,
        }
    }

    fn cycle(&self, locks: &[usize]) -> Cycle {
        let next = locks.iter().cycle().skip(1);
        let edges: Vec<OrderRow> = locks.iter().zip(next).map(|(&a, &b)| self.edge(a, b)).collect();
        let first = edges.first().and_then(|e| e.tids.first());
        let one_thread = edges.iter().all(|e| e.tids.len() == 1 && e.tids.first() == first);
        Cycle { edges, one_thread }
    }

    /// The edges of the graph, those between the same two names as one.
    fn order(&self) -> Vec<OrderRow> {
        let mut rows: BTreeMap<(&str, &str), OrderRow> = BTreeMap::new();
        for (&(a, b), e) in &self.facts.graph.edges {
            let (Some((from, _)), Some((to, _))) = (self.names.get(a), self.names.get(b)) else { continue };
            let row = rows.entry((from, to)).or_insert_with(|| OrderRow {
                held: from.clone(),
                taken: to.clone(),
                count: 0,
                ..self.edge(a, b)
            });
            row.count += e.count;
            row.tids.extend(e.tids.iter().filter(|t| !row.tids.contains(t)).copied().collect::<Vec<_>>());
        }
        let mut rows: Vec<OrderRow> = rows.into_values().collect();
        rows.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.held.cmp(&b.held)));
        rows
    }

    fn inversion(&self, i: usize, found: &Found<'_>) -> Option<Inversion> {
        let (w, holders) = (&found.waits[i], &found.ways[i].holders);
        let threads = &self.facts.threads;
        let waiter = threads.at(w.tid, w.from)?;
        let lock = self.facts.locks.get(w.lock)?;
        let (k, h, holder) = holders.iter().enumerate().find_map(|(k, h)| {
            let s = threads.at(h.tid, w.from.max(h.taken))?;
            waiter.is_above(&s).then_some((k, h, s))
        })?;
        let off = found.seen.holder(i, k).filter(|_| self.facts.has_switches());
        // What is short beside the hold made no difference.
        let little = |ticks: u64| ticks.saturating_mul(20) < h.share;
        let by = off.and_then(Seen::by).and_then(|(tid, _)| threads.at(tid, w.from));
        let (inheritance_helps, why) = match off {
            _ if lock.class == Class::Rwlock => (false, "no: a rwlock has no priority inheritance"),
            _ if lock.attr & attr::INHERIT != 0 => (false, "the mutex has it"),
            _ if waiter.apart(&holder) => (false, "no: they run on different CPUs (partitioned)"),
            Some(s) if little(s.off) => (false, "no: the holder was on a CPU all the time"),
            Some(s) if little(s.preempted) => (false, "no: the holder slept or waited, it was not kept from a CPU"),
            Some(_) if by.is_some_and(|by| !waiter.is_above(&by)) => {
                (false, "no: who took the holder's CPU goes before the waiter, too")
            }
            _ => (true, "yes: the holder would have run at the waiter's priority"),
        };
        Some(Inversion {
            at: self.seconds(w.from),
            lock: self.name(w.lock),
            wait_ns: self.ns(w.ticks),
            tid: w.tid,
            thread: self.thread(w.tid),
            sched: waiter.name(),
            site: self.facts.names.site(w.site),
            holder: self.holder(i, k, found),
            holder_sched: holder.name(),
            by_sched: by.map(|b| b.name()),
            inheritance_helps,
            why,
        })
    }

    fn left(&self, &(tid, lock, since, site, waiting): &(i32, usize, u64, u64, bool)) -> LeftRow {
        LeftRow {
            tid,
            thread: self.thread(tid),
            lock: self.name(lock),
            site: self.facts.names.site(site),
            since: self.seconds(since),
            waiting,
        }
    }
}

/// The call that a thread was in: `cudaMemcpyAsync`.
fn inside(seen: Option<&Seen>) -> Option<String> {
    Some(calls::function_name(seen?.call?.function))
}

fn add_operations(to: &mut BTreeMap<&'static str, u64>, l: &Lock) {
    for (op, n) in l.ops.iter().enumerate().filter(|(_, n)| **n > 0) {
        *to.entry(ops::name(op as u8)).or_default() += n;
    }
}

fn name(f: &Facts, l: &Lock) -> (String, &'static str) {
    let (place, by) = match (f.names.of_static(l.addr), l.made) {
        (Some(place), _) => (place, "static"),
        (None, Some((_, site))) => (f.names.site(site), "made"),
        (None, None) => (f.names.site(l.used.1), "first_use"),
    };
    (format!("{place}/{}", l.class.name()), by)
}
