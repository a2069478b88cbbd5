//! From facts to the rows of the schema.

use crate::facts::{Left, Lock};
use crate::holders::Holder;
use crate::labels::{Labels, function_name};
use crate::looked::{Found, Looked};
use crate::ops::{self, Class};
use crate::spans::Seen;
use decode::Source;
use decode::histogram::Sparse;
use schema::locks::{
    BehindRow, Cycle, HolderRow, Inversion, LeftRow, LockRow, Locks, OffCpu, OrderRow, SwitchesRow, WaitRow,
};
use std::collections::BTreeMap;
use tape::lock::attr;
use tape::switch::scope;

/// Maximum length of a reported chain of waits.
const BEHIND: usize = 4;

/// Fills the rows.
pub struct Rows<'a> {
    pub labels: &'a Labels<'a>,
}

impl Rows<'_> {
    pub fn all(&self, found: &Found<'_>, waits: usize) -> Locks {
        let f = self.labels.facts;
        let mut operations: BTreeMap<&'static str, u64> = BTreeMap::new();
        for l in f.locks.iter().filter(|_| !f.waits_only()) {
            add_operations(&mut operations, l);
        }
        let kept = || 0..found.waits.len();
        Locks {
            recorded: f.layout.is_some(),
            waits_only: f.waits_only(),
            complete: false,
            incomplete_because: Vec::new(),
            operations,
            contended: f.locks.iter().map(|l| l.contended).sum(),
            lost_events: self.labels.lost,
            locks: self.rows(found.seen),
            switches: self.switches(),
            waits: kept().take(waits).map(|i| self.wait(i, found)).collect(),
            waits_seen: f.waits_seen,
            cycles: f.graph.cycles().iter().map(|c| self.cycle(c)).collect(),
            order: self.order(),
            inversions: kept().filter_map(|i| self.inversion(i, found)).take(waits).collect(),
            real_time: f.threads.any_real_time(),
            left: f.left.iter().map(|l| self.left(l)).collect(),
            threads: f.threads.rows(|tsc| self.labels.seconds(tsc)),
            ..Locks::default()
        }
    }

    fn rows(&self, seen: &Looked) -> Vec<LockRow> {
        let waits_only = self.labels.facts.waits_only();
        let mut rows: BTreeMap<&str, LockRow> = BTreeMap::new();
        let mut waits: BTreeMap<&str, Sparse> = BTreeMap::new();
        for (l, (name, by)) in self.labels.facts.locks.iter().zip(&self.labels.names) {
            let row =
                rows.entry(name).or_insert_with(|| LockRow { name: name.clone(), named_by: by, ..LockRow::default() });
            row.instances += 1;
            for a in ops::attributes(l.class, l.attr) {
                if !row.attributes.contains(&a) {
                    row.attributes.push(a);
                }
            }
            if let Some(of) = &l.waits {
                waits.entry(name).or_default().add_all(of);
            }
            if !waits_only {
                add_operations(&mut row.operations, l);
            }
            row.failed += l.failed;
            row.reacquired += l.reacquired;
            row.contended += l.contended;
            row.wait_ns = row.wait_ns.saturating_add(self.labels.ns(l.wait));
            row.longest_wait_ns = row.longest_wait_ns.max(self.labels.ns(l.longest_wait));
            if !waits_only {
                row.hold_ns = Some(row.hold_ns.unwrap_or(0).saturating_add(self.labels.ns(l.hold)));
                row.longest_hold_ns = row.longest_hold_ns.or(Some(0));
            }
            row.foreign_unlocks += l.foreign_unlocks;
            let hold = self.labels.ns(l.longest_hold);
            if l.longest_hold > 0 && row.longest_hold_ns.is_some_and(|longest| hold >= longest) {
                row.longest_hold_ns = Some(hold);
                row.longest_hold_site =
                    Some(self.labels.facts.names.site(l.process, l.longest_hold_at.0, l.longest_hold_at.1));
                row.longest_hold_process = Some(l.process);
                row.longest_hold_tid = Some(l.longest_hold_at.2);
            }
        }
        let mut rows: Vec<LockRow> = rows.into_values().collect();
        for row in &mut rows {
            if let Some(waits) = waits.get(row.name.as_str()) {
                let percentile = |percent| Some(self.labels.ns(waits.percentile(percent)));
                (row.wait_p50_ns, row.wait_p99_ns) = (percentile(50.0), percentile(99.0));
                row.wait_histogram = waits.steps(|ticks| self.labels.ns(ticks));
            }
            let hold = seen.longest_hold(&row.name).filter(|_| !waits_only);
            (row.longest_hold_inside, row.longest_hold_off_cpu) = (inside(hold), self.off_cpu(hold));
        }
        let uses = |r: &LockRow| r.operations.values().sum::<u64>();
        // (A wait for a condition or semaphore is no contention.)
        let contention = |r: &LockRow| if r.contended > 0 { r.longest_wait_ns } else { 0 };
        rows.sort_by(|a, b| (contention(b), uses(b), &a.name).cmp(&(contention(a), uses(a), &b.name)));
        rows
    }

    fn switches(&self) -> SwitchesRow {
        let s = &self.labels.facts.switches;
        let (scope, reason) = match &s.scope {
            Some((scope::ALL_CPUS, _)) => ("all_cpus", String::new()),
            Some((scope::PROGRAM, _)) => ("program", String::new()),
            Some((_, why)) => ("none", why.clone()),
            None => ("none", "recorded by a version without them".into()),
        };
        SwitchesRow { scope, reason, count: s.count, lost: s.lost }
    }

    fn off_cpu(&self, seen: Option<&Seen>) -> Option<OffCpu> {
        let seen = seen.filter(|_| self.labels.facts.has_switches())?;
        let (tid, ticks) = seen.by().unwrap_or((-1, 0));
        Some(OffCpu {
            off_ns: self.labels.ns(seen.off),
            preempted_ns: self.labels.ns(seen.preempted),
            by_tid: (tid >= 0).then_some(tid),
            by: self.labels.other(seen.process, tid, seen.from),
            by_ns: self.labels.ns(ticks),
        })
    }

    fn wait(&self, i: usize, found: &Found<'_>) -> WaitRow {
        let (w, way) = (&found.waits[i], &found.ways[i]);
        let waiter = found.seen.waiter(i);
        WaitRow {
            at: self.labels.seconds(w.from),
            tsc: w.from,
            process: self.labels.facts.process(w.lock),
            tid: w.tid,
            thread: self.thread(w.lock, w.tid),
            lock: self.labels.name(w.lock),
            operation: ops::name(w.op),
            site: self.labels.site(w.lock, w.site, w.from),
            wait_ns: self.labels.ns(w.ticks),
            result: w.result,
            unfinished: w.unfinished,
            free_ns: self.labels.ns(w.ticks.saturating_sub(way.held)),
            off_cpu: self.off_cpu(waiter),
            // (Off minus held is a lower bound of the time off CPU while the lock was free.)
            ready_ns: waiter
                .filter(|_| self.labels.facts.has_switches())
                .map(|s| self.labels.ns(s.ready.max(s.off.saturating_sub(way.held)))),
            inside: inside(waiter),
            holds: way.holds,
            held_ns: self.labels.ns(way.held),
            overtaken: way.overtaken,
            overtaken_by_readers: way.overtaken_by_readers,
            holders: (0..way.holders.len()).map(|k| self.holder(i, k, found)).collect(),
            pattern: None,
        }
    }

    /// The row of a wait's holder, by its index.
    fn holder(&self, wait: usize, k: usize, found: &Found<'_>) -> HolderRow {
        let (w, h, seen) = (&found.waits[wait], &found.ways[wait].holders[k], found.seen.holder(wait, k));
        HolderRow {
            tid: h.tid,
            thread: self.thread(w.lock, h.tid),
            site: self.place(w.lock, h.site, h.taken),
            since: self.labels.seconds(h.taken),
            tsc: h.taken,
            hold_ns: self.labels.ns(h.released.saturating_sub(h.taken)),
            of_wait_ns: self.labels.ns(h.share),
            unfinished: h.unfinished,
            begin_unknown: h.open.is_some(),
            end_unknown: h.late,
            off_cpu: self.off_cpu(seen),
            inside: inside(seen),
            behind: self.behind(
                self.labels.facts.process(w.lock),
                h,
                (w.from.max(h.taken), w.to().min(h.released)),
                found,
            ),
        }
    }

    /// The waits of a holder in a time span, and of the holders that it waited for.
    fn behind(&self, process: u32, h: &Holder, (mut from, mut to): (u64, u64), found: &Found<'_>) -> Vec<BehindRow> {
        let (mut tid, mut out) = (h.tid, Vec::new());
        while let Some((i, share)) = found.longest(Source { process, tid }, from, to).filter(|_| out.len() < BEHIND) {
            let (w, first) = (&found.waits[i], found.ways[i].holders.first());
            out.push(BehindRow {
                lock: self.labels.name(w.lock),
                wait_ns: self.labels.ns(share),
                holder: first.map(|h| h.tid),
                holder_name: first.map_or_else(String::new, |h| self.thread(w.lock, h.tid)),
                inside: inside(found.seen.holder(i, 0)),
            });
            let Some(h) = first else { break };
            (tid, from, to) = (h.tid, w.from.max(h.taken).max(from), w.to().min(h.released).min(to));
        }
        out
    }

    fn edge(&self, from: usize, to: usize) -> OrderRow {
        let e = self.labels.facts.graph.edges.get(&(from, to)).cloned().unwrap_or_default();
        OrderRow {
            held: self.labels.name(from),
            taken: self.labels.name(to),
            count: e.count,
            held_site: self.place(from, e.sites.0, e.when),
            taken_site: self.labels.site(from, e.sites.1, e.when),
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
        for (&(a, b), e) in &self.labels.facts.graph.edges {
            let (Some((from, _)), Some((to, _))) = (self.labels.names.get(a), self.labels.names.get(b)) else {
                continue;
            };
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
        let threads = &self.labels.facts.threads;
        let lock = self.labels.facts.locks.get(w.lock)?;
        let process = lock.process;
        let waiter = threads.at(Source { process, tid: w.tid }, w.from)?;
        let (k, h, holder) = holders.iter().enumerate().find_map(|(k, h)| {
            let s = threads.at(Source { process, tid: h.tid }, w.from.max(h.taken))?;
            waiter.is_above(&s).then_some((k, h, s))
        })?;
        let off = found.seen.holder(i, k).filter(|_| self.labels.facts.has_switches());
        // A time that is short compared with the hold made no difference.
        let little = |ticks: u64| ticks.saturating_mul(20) < h.share;
        let by = off.and_then(Seen::by).and_then(|(tid, _)| threads.other_at(process, tid, w.from));
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
            at: self.labels.seconds(w.from),
            tsc: w.from,
            lock: self.labels.name(w.lock),
            wait_ns: self.labels.ns(w.ticks),
            process,
            tid: w.tid,
            thread: self.thread(w.lock, w.tid),
            sched: waiter.name(),
            site: self.labels.site(w.lock, w.site, w.from),
            holder: self.holder(i, k, found),
            holder_sched: holder.name(),
            by_sched: by.map(|b| b.name()),
            inheritance_helps,
            why,
        })
    }

    /// Where a lock was taken; empty if that was not recorded.
    fn place(&self, lock: usize, site: u64, when: u64) -> String {
        if site == 0 { String::new() } else { self.labels.site(lock, site, when) }
    }

    /// The name of a thread that took a lock or waited for it.
    fn thread(&self, lock: usize, tid: i32) -> String {
        self.labels.thread(Source { process: self.labels.facts.process(lock), tid })
    }

    fn left(&self, &Left { tid, lock, since, site, waiting, open }: &Left) -> LeftRow {
        LeftRow {
            process: self.labels.facts.process(lock),
            tid,
            thread: self.thread(lock, tid),
            lock: self.labels.name(lock),
            site: self.place(lock, site, since),
            since: self.labels.seconds(since),
            tsc: since,
            waiting,
            since_unknown: open,
        }
    }
}

/// The call that a thread was in: `cudaMemcpyAsync`.
fn inside(seen: Option<&Seen>) -> Option<String> {
    Some(function_name(seen?.call?.function))
}

fn add_operations(to: &mut BTreeMap<&'static str, u64>, l: &Lock) {
    for (op, n) in l.ops.iter() {
        *to.entry(ops::name(op)).or_default() += n;
    }
}
