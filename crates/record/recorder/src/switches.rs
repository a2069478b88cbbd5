//! Context switches and page faults of the program's threads, time that a hypervisor took, and how the threads are scheduled, as
//! events for the tape.
//!
//! The kernel's records are turned into events in batches. A batch has only records from before its latest clock reading, in
//! the order of time over all CPUs. So a thread that leaves one CPU and gets another does so in this order. A record's
//! time becomes a time stamp by the two clock readings around its batch.
//!
//! The kernel is also asked for policies, because a change by a raw system call or by another process passes no tap.

use crate::clock;
use crate::faults::{self, Faults, Over};
use crate::perf::{Buffers, Record};
use crate::sched;
use crate::steal::Steal;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};
use tape::event::{Head, Plain, bytes_of};
use tape::fault::{self, StolenBody, WatchedBody};
use tape::file::Clock;
use tape::lock::{self, SchedBody};
use tape::switch::{
    self, DeadlineBody, LAYOUT, LostBody, SwitchBody, SwitchesBody, TaskBody, kind, scope, switch_flags,
};

/// Records are taken this often.
const EVERY: Duration = Duration::from_millis(10);
/// Younger records wait for the next batch: another CPU may still be writing an older one.
const YOUNG_NS: u64 = 50_000;
/// Maximum number of threads that followed the program's on a CPU and are named.
const TASKS: usize = 4096;
/// Maximum number of faults that are kept of processes that are not yet followed.
const EARLY: usize = 1 << 16;
/// Policies are read this often, for this many threads at a time.
const ASK_EVERY: Duration = Duration::from_millis(100);
const ASKED: usize = 64;

pub struct Switches {
    buffers: Option<Buffers>,
    /// Why there are none, if so.
    faults: Result<Faults, String>,
    /// The latest faults, in ticks, of processes that are not followed, or not yet: a program may begin before it is
    /// known.
    early: VecDeque<Over>,
    steal: Steal,
    /// When everything was open, in ticks.
    opened: u64,
    /// [`scope`], and the reason if that is REFUSED: the beginning of each image's events.
    scope: u32,
    text: String,
    /// Names of threads may be recorded.
    names: bool,
    last: Clock,
    /// Records that were too young for the last batch.
    waiting: Vec<Record>,
    taken: Instant,
    /// False in a pause. The kernel then writes no records, which would cost the program some time at each switch.
    watches: bool,
    /// The followed processes.
    followed: Vec<Followed>,
}

/// A followed process.
struct Followed {
    pid: i32,
    /// If false, it is not watched: numbers in the kernel's records would name other threads.
    same_numbers: bool,
    /// Events for its tape.
    out: Vec<u8>,
    /// Events of page faults, and the faults that are not yet written.
    faults: Vec<u8>,
    rows: faults::Rows,
    known_tasks: HashSet<i32>,
    /// The program's own threads among them: they may have no recorded events.
    own: Vec<i32>,
    asked: Instant,
    /// The place in the list of threads at which the next reading continues.
    next: usize,
    told: HashMap<i32, SchedBody>,
}

impl Switches {
    /// To be called before the program starts.
    pub fn open(wanted: bool, names: bool) -> Switches {
        const UNWANTED: &str = "not asked for (--no-switches)";
        let (buffers, scope, text) = match wanted.then(Buffers::open) {
            None => (None, scope::REFUSED, UNWANTED.into()),
            Some(Err(e)) => (None, scope::REFUSED, e.to_string()),
            Some(Ok(b)) if b.whole_machine => (Some(b), scope::ALL_CPUS, String::new()),
            Some(Ok(b)) => (Some(b), scope::PROGRAM, String::new()),
        };
        // After the buffers of switches: if memory is short, the faults are given up.
        let faults = if wanted { Faults::open() } else { Err(UNWANTED.into()) };
        let (last, taken) = (clock::near(), Instant::now());
        let steal = Steal::watch();
        let early = VecDeque::new();
        let opened = last.tsc;
        Switches {
            opened,
            early,
            buffers,
            faults,
            steal,
            scope,
            text,
            names,
            last,
            waiting: Vec::new(),
            taken,
            watches: true,
            followed: Vec::new(),
        }
    }

    /// Follows this process, too, from now on. `same_numbers`: it knows its threads by the same numbers as the
    /// recorder.
    pub fn follow(&mut self, pid: i32, same_numbers: bool) {
        const OTHER_NUMBERS: &str = "the process is in a pid namespace of its own";
        let mut out = Vec::new();
        let (scope, text) = match (self.scope, same_numbers) {
            (scope::REFUSED, _) | (_, true) => (self.scope, self.text.as_str()),
            (_, false) => (scope::REFUSED, OTHER_NUMBERS),
        };
        let body = SwitchesBody { layout: LAYOUT, scope, text: text.len() as u32, pad: 0 };
        add(&mut out, kind::SWITCHES, 0, self.opened, &body, text.as_bytes());
        let (scope, text) = match &self.faults {
            Err(why) => (fault::scope::REFUSED, why.as_str()),
            Ok(_) if !same_numbers => (fault::scope::REFUSED, OTHER_NUMBERS),
            Ok(f) if f.in_the_kernel => (fault::scope::ALL, ""),
            Ok(_) => (fault::scope::PROGRAM, ""),
        };
        let mut rows = faults::Rows::default();
        if same_numbers {
            self.early.retain(|e| {
                if e.pid == pid {
                    rows.add(e.tid, e.major, e.from, e.to);
                }
                e.pid != pid
            });
        }
        let mut faults = Vec::new();
        let body = WatchedBody { layout: fault::LAYOUT, scope, steal: self.steal.known, text: text.len() as u32 };
        // The faults are watched since then. The present time would be wrong: a reader takes one writer's events in their order, and the
        // following faults may have been before this process was known.
        add(&mut faults, fault::kind::WATCHED, 0, self.opened, &body, text.as_bytes());
        self.followed.push(Followed {
            pid,
            same_numbers,
            out,
            faults,
            rows,
            known_tasks: HashSet::new(),
            own: Vec::new(),
            asked: Instant::now(),
            next: 0,
            told: HashMap::new(),
        });
    }

    /// Stops following a process. To be called when its last events were taken.
    pub fn forget(&mut self, pid: i32) {
        self.followed.retain(|f| f.pid != pid);
    }

    /// The events for a process's tape since the last call, by the number of their writer.
    pub fn take(&mut self, pid: i32) -> [(i32, Vec<u8>); 2] {
        let followed = self.followed.iter_mut().find(|f| f.pid == pid);
        let (switches, faults) =
            followed.map(|f| (std::mem::take(&mut f.out), std::mem::take(&mut f.faults))).unwrap_or_default();
        [(switch::WRITER, switches), (fault::WRITER, faults)]
    }

    /// Begins or stops watching. A thread that was off its CPU when watching stopped may be on one when it begins again. So readers get a
    /// loss event with zero records.
    pub fn watch(&mut self, on: bool) {
        if on == self.watches {
            return;
        }
        if !on {
            self.look(true);
        }
        self.watches = on;
        self.waiting.clear();
        if let Some(b) = &mut self.buffers {
            b.watch(on);
        }
        if let Ok(faults) = &mut self.faults {
            faults.watch(on);
        }
        if on {
            self.last = clock::near();
            // (The time taken in the pause belongs to no process.)
            let _ = self.steal.taken(true);
            let tsc = self.last.tsc;
            let all = self.followed.iter_mut().filter(|_| self.buffers.is_some());
            all.for_each(|f| add(&mut f.out, kind::LOST, 0, tsc, &LostBody { records: 0 }, &[]));
        }
    }

    /// Takes the events since the last look, if it is time to. `end`: all events until now.
    pub fn look(&mut self, end: bool) {
        if !self.watches || !end && self.taken.elapsed() < EVERY {
            return;
        }
        self.taken = Instant::now();
        let before = clock::near();
        // Events that happen while the buffers are read, one CPU after the other, are incomplete and wait.
        let old = if end { before.monotonic_ns } else { before.monotonic_ns.saturating_sub(YOUNG_NS) };
        let to = Between(self.last, before);
        self.look_at_switches(old, &to);
        self.look_at_faults(old, &to);
        if let Some(ns) = self.steal.taken(end) {
            let all = self.followed.iter_mut();
            let tsc = to.tsc(old);
            all.for_each(|f| add(&mut f.faults, fault::kind::STOLEN, 0, tsc, &StolenBody { ns }, &[]));
        }
        self.last = before;
    }

    fn look_at_switches(&mut self, old: u64, to: &Between) {
        let Some(b) = &mut self.buffers else { return };
        let mut records = std::mem::take(&mut self.waiting);
        let followed = |pid| self.followed.iter().any(|f| f.pid == pid && f.same_numbers);
        b.take(|r| {
            let ours = match r {
                // (A thread that is ending has no number any more.)
                Record::Switch(s) => s.tid > 0 && followed(s.pid),
                Record::Name { pid, .. } => followed(pid),
                Record::Lost { .. } => true,
            };
            if ours {
                records.push(r);
            }
        });
        records.sort_by_key(Record::time);
        let n = records.partition_point(|r| r.time() < old);
        self.waiting = records.split_off(n);
        for r in &records {
            let tsc = to.tsc(r.time());
            let of = match *r {
                // The lost records may belong to any process.
                Record::Lost { records, .. } => {
                    let all = self.followed.iter_mut();
                    all.for_each(|f| add(&mut f.out, kind::LOST, 0, tsc, &LostBody { records }, &[]));
                    continue;
                }
                Record::Name { pid, .. } => pid,
                Record::Switch(s) => s.pid,
            };
            if let Some(f) = self.followed.iter_mut().find(|f| f.pid == of) {
                f.add(r, tsc, self.names);
            }
        }
    }

    fn look_at_faults(&mut self, old: u64, to: &Between) {
        let Ok(faults) = &mut self.faults else { return };
        let mut over = Vec::new();
        let lost = faults.take(old, |o| over.push(o));
        for o in over {
            let o = Over { from: to.tsc(o.from), to: to.tsc(o.to), ..o };
            match self.followed.iter_mut().find(|f| f.pid == o.pid) {
                Some(f) if f.same_numbers => f.rows.add(o.tid, o.major, o.from, o.to),
                Some(_) => {}
                None => {
                    if self.early.len() >= EARLY {
                        self.early.pop_front();
                    }
                    self.early.push_back(o);
                }
            }
        }
        for f in &mut self.followed {
            let out = &mut f.faults;
            f.rows.write(|kind, flags, tsc, body, faults| add(out, kind, flags, tsc, body, faults));
            // The lost records may belong to any process.
            if let Some(records) = lost.filter(|_| f.same_numbers) {
                add(out, fault::kind::LOST, 0, to.tsc(old), &LostBody { records }, &[]);
            }
        }
    }

    /// Records changes in how a process's threads are scheduled, if it is time to.
    pub fn policies(&mut self, pid: i32, tids: impl FnOnce() -> Vec<i32>) {
        if !self.watches {
            return;
        }
        if let Some(f) = self.followed.iter_mut().find(|f| f.pid == pid) {
            f.policies(tids, self.names);
        }
    }
}

impl Followed {
    fn add(&mut self, r: &Record, tsc: u64, names: bool) {
        match *r {
            Record::Name { pid, tid, name, .. } if names => {
                let body = TaskBody { tid, pid, policy: -1, name, ..TaskBody::default() };
                add(&mut self.out, kind::TASK, 0, tsc, &body, &[]);
            }
            Record::Name { .. } | Record::Lost { .. } => {}
            Record::Switch(s) => {
                let mut flags = if s.out { switch_flags::OUT } else { 0 };
                flags |= if s.preempted { switch_flags::PREEMPTED } else { 0 };
                let (other_pid, other) = s.other.unwrap_or((-1, -1));
                let body = SwitchBody { tid: s.tid, other, other_pid, cpu: s.cpu };
                if s.out {
                    self.task(tsc, other_pid, other, names);
                }
                add(&mut self.out, kind::SWITCH, flags, tsc, &body, &[]);
            }
        }
    }

    /// A thread that followed one of the program's threads on a CPU: records its identity once.
    fn task(&mut self, tsc: u64, pid: i32, tid: i32, names: bool) {
        if tid <= 0 || self.known_tasks.len() >= TASKS || !self.known_tasks.insert(tid) {
            return;
        }
        if pid == self.pid {
            self.own.push(tid);
        }
        let a = sched::of(tid);
        let (policy, priority, nice) = a.map_or((-1, 0, 0), |a| (a.policy, a.priority, a.nice));
        let name = if names { sched::name(tid, tid) } else { [0; 16] };
        add(&mut self.out, kind::TASK, 0, tsc, &TaskBody { tid, pid, policy, priority, nice, pad: 0, name }, &[]);
    }

    fn policies(&mut self, tids: impl FnOnce() -> Vec<i32>, names: bool) {
        if self.asked.elapsed() < ASK_EVERY {
            return;
        }
        self.asked = Instant::now();
        let mut tids = tids();
        let strange = self.own.iter().filter(|t| !tids.contains(t)).copied().collect::<Vec<_>>();
        tids.extend(strange);
        // (Most threads end without a look at them.)
        if self.told.len() > 2 * (tids.len() + ASKED) {
            let alive: HashSet<i32> = tids.iter().copied().collect();
            self.told.retain(|tid, _| alive.contains(tid));
        }
        let from = if self.next < tids.len() { self.next } else { 0 };
        let some = tids.get(from..).unwrap_or_default();
        self.next = from + some.len().min(ASKED);
        for &tid in some.iter().take(ASKED) {
            let Some(body) = sched::body(self.pid, tid, names) else {
                self.told.remove(&tid);
                continue;
            };
            if self.told.insert(tid, body) == Some(body) {
                continue;
            }
            let tsc = clock::tsc();
            add(&mut self.out, lock::kind::SCHED, 0, tsc, &body, &[]);
            if body.policy == sched::DEADLINE
                && let Some(a) = sched::of(tid)
            {
                let body = DeadlineBody { tid, pad: 0, runtime: a.runtime, deadline: a.deadline, period: a.period };
                add(&mut self.out, kind::DEADLINE, 0, tsc, &body, &[]);
            }
        }
    }
}

/// Two readings of both clocks.
struct Between(Clock, Clock);

impl Between {
    /// The time stamp counter at a time of CLOCK_MONOTONIC, which may be a little outside.
    fn tsc(&self, ns: u64) -> u64 {
        let (a, b) = (&self.0, &self.1);
        let ticks = b.tsc.saturating_sub(a.tsc) as f64;
        let span = b.monotonic_ns.saturating_sub(a.monotonic_ns).max(1) as f64;
        let from_end = (ns as f64 - b.monotonic_ns as f64).clamp(-1e15, 1e15);
        b.tsc.saturating_add_signed((from_end * (ticks / span)) as i64)
    }
}

fn add<B: Plain>(out: &mut Vec<u8>, kind: u16, flags: u16, tsc: u64, body: &B, tail: &[u8]) {
    let len = (size_of::<Head>() + size_of::<B>() + tail.len()).next_multiple_of(8);
    out.extend_from_slice(bytes_of(&Head { kind, flags, len: len as u32, tsc }));
    out.extend_from_slice(bytes_of(body));
    out.extend_from_slice(tail);
    out.resize(out.len().next_multiple_of(8), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::event::{Body, Events};

    fn switches(s: &mut Switches, pid: i32) -> Vec<u8> {
        let [(_, switches), _] = s.take(pid);
        switches
    }

    #[test]
    fn a_time_becomes_a_time_stamp() {
        let at = |tsc, monotonic_ns| Clock { tsc, monotonic_ns, ..Clock::default() };
        let m = 1u64 << 60;
        let b = Between(at(5_000_000, m), at(5_030_000, m + 10_000));
        assert_eq!(b.tsc(m + 10_000), 5_030_000);
        // (A float of this size counts in 256.)
        assert!(b.tsc(m + 5_120).abs_diff(5_015_360) < 1000);
        assert!(Between(at(7, 3), at(7, 3)).tsc(0) <= 7);
        assert_eq!(Between(at(0, 0), at(9, u64::MAX)).tsc(0), 9);
    }

    #[test]
    fn a_refusal_is_on_each_tape() {
        let mut s = Switches::open(false, true);
        for pid in [5, 6] {
            s.follow(pid, true);
            let [(_, first), (_, faults)] = s.take(pid);
            let events: Vec<_> = Events::new(&first).collect();
            assert!(matches!(events[..], [tape::event::Event { body: Body::Switches(b, t), .. }]
                if b.scope == scope::REFUSED && t.starts_with(b"not asked for")));
            let events: Vec<_> = Events::new(&faults).collect();
            assert!(matches!(events[..], [tape::event::Event { body: Body::FaultsWatched(b, t), .. }]
                if b.scope == scope::REFUSED && t.starts_with(b"not asked for")));
        }
        s.look(true);
        assert!(switches(&mut s, 5).is_empty());
    }

    #[test]
    fn own_switches_become_events_with_times_of_this_machine() {
        // SAFETY: no arguments.
        let me = unsafe { libc::syscall(libc::SYS_gettid) as i32 };
        let pid = std::process::id() as i32;
        for _ in 0..20 {
            let from = clock::tsc();
            let mut s = Switches::open(true, true);
            s.follow(pid, true);
            let mut bytes = switches(&mut s, pid);
            let scope = match Events::new(&bytes).next().map(|e| e.body) {
                Some(Body::Switches(b, text)) if b.scope == scope::REFUSED => {
                    test_support::skip!("{}", String::from_utf8_lossy(text));
                }
                Some(Body::Switches(b, _)) => b.scope,
                other => panic!("{other:?}"),
            };
            s.follow(i32::MAX, true);
            let mut mine = Vec::new();
            while mine.len() < 10 {
                assert!(clock::tsc() - from < 1 << 38, "about a minute: {mine:?}");
                std::thread::sleep(Duration::from_millis(2));
                s.look(true);
                bytes.extend(switches(&mut s, pid));
                let event = |e: tape::event::Event<'_>| match e.body {
                    Body::Switch(b) if b.tid == me => {
                        Some((e.head.tsc, e.head.flags & switch_flags::OUT != 0, b.other))
                    }
                    _ => None,
                };
                mine = Events::new(&bytes).filter_map(event).collect();
            }
            let to = clock::tsc();
            assert!(
                !Events::new(&switches(&mut s, i32::MAX)).any(|e| matches!(e.body, Body::Switch(_))),
                "no one else's"
            );
            if Events::new(&bytes).any(|e| matches!(e.body, Body::SwitchesLost(_))) {
                // A busy machine may fill the buffers, and the missing records may belong to any thread.
                continue;
            }
            assert!(mine.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 != w[1].1), "out and in take turns: {mine:?}");
            let slack = (to - from) / 10;
            assert!(mine.iter().all(|m| m.0 + slack > from && m.0 < to + slack), "{from} {to} {mine:?}");
            // The other thread has no number if it is ending.
            let known = mine.iter().filter(|m| m.2 >= 0).count();
            assert!(mine.iter().all(|m| m.2 >= -1) && (scope == scope::PROGRAM || known > 0), "{mine:?}");
            return;
        }
        panic!("records were lost each time");
    }

    #[test]
    fn own_page_faults_become_events_with_times_of_this_machine() {
        // SAFETY: no arguments.
        let me = unsafe { libc::syscall(libc::SYS_gettid) as i32 };
        let pid = std::process::id() as i32;
        let mut s = Switches::open(true, true);
        if let Err(why) = &s.faults {
            test_support::skip!("{why}");
        }
        let from = clock::tsc();
        let mut fresh = vec![0u8; 4 << 20];
        (0..fresh.len()).step_by(4096).for_each(|i| fresh[i] = 1);
        std::hint::black_box(&fresh);
        // Their process becomes known only now, and some were already taken.
        s.look(true);
        fresh.resize(8 << 20, 2);
        std::hint::black_box(&fresh);
        s.follow(pid, true);
        s.look(true);
        let to = clock::tsc();
        let [_, (writer, bytes)] = s.take(pid);
        assert_eq!(writer, fault::WRITER);
        let (mut mine, mut lost, mut last) = (0, false, 0);
        for e in Events::new(&bytes) {
            assert!(e.head.tsc >= last, "what says that they are watched does not hold them up");
            last = e.head.tsc;
            match e.body {
                Body::Faults(b, faults) if b.tid == me => {
                    mine += b.count;
                    assert_eq!(tape::event::faults(e.head.tsc, faults).count(), b.count as usize);
                    let slack = (to - from) / 10 + 1_000_000;
                    let of = |(begin, end)| begin + slack > from && end < to + slack && end >= begin;
                    assert!(tape::event::faults(e.head.tsc, faults).all(of));
                }
                Body::FaultsLost(_) => lost = true,
                _ => {}
            }
        }
        // (Huge pages make one fault of 512.)
        assert!(mine >= 2 || lost, "{mine}");
    }

    #[test]
    fn nothing_is_watched_in_a_pause_and_what_comes_after_it_says_so() {
        let pid = std::process::id() as i32;
        let mut s = Switches::open(true, true);
        if s.buffers.is_none() {
            test_support::skip!("{}", s.text);
        }
        s.follow(pid, true);
        s.watch(false);
        switches(&mut s, pid);
        // (And the earlier switches of other tests' threads.)
        s.buffers.as_mut().unwrap().take(|_| ());
        (0..10).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        s.look(true);
        assert!(switches(&mut s, pid).is_empty());
        let mut raw = 0;
        s.buffers.as_mut().unwrap().take(|_| raw += 1);
        assert_eq!(raw, 0, "the kernel wrote none");
        s.watch(true);
        let again = clock::tsc();
        let begun = Instant::now();
        let mut bytes = Vec::new();
        let is_switch = |e: &tape::event::Event<'_>| matches!(e.body, Body::Switch(_));
        while !Events::new(&bytes).any(|e| is_switch(&e)) {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(2));
            s.look(true);
            bytes.extend(switches(&mut s, pid));
        }
        assert!(
            matches!(Events::new(&bytes).next(), Some(e) if matches!(e.body, Body::SwitchesLost(l) if l.records == 0))
        );
        let slack = (clock::tsc() - again) / 10 + 1_000_000;
        assert!(Events::new(&bytes).filter(is_switch).all(|e| e.head.tsc + slack > again));
    }

    #[test]
    fn a_threads_policy_is_told_once() {
        let mut s = Switches::open(false, false);
        let pid = std::process::id() as i32;
        s.follow(pid, true);
        s.take(pid);
        // SAFETY: no arguments.
        let me = unsafe { libc::syscall(libc::SYS_gettid) as i32 };
        s.followed[0].asked -= ASK_EVERY * 2;
        s.policies(pid, || vec![me, i32::MAX]);
        let bytes = switches(&mut s, pid);
        let all: Vec<_> = Events::new(&bytes).map(|e| e.body).collect();
        let [Body::Sched(b)] = all[..] else { panic!("{all:?}") };
        assert!(b.tid == me && b.cpus > 0 && b.mask != [0; 2] && b.name == [0; 16], "{b:?}");
        s.followed[0].asked -= ASK_EVERY * 2;
        s.policies(pid, || vec![me]);
        assert!(switches(&mut s, pid).is_empty());
        // Threads that have ended without another look.
        let of_me = s.followed[0].told[&me];
        s.followed[0].told.extend((0..1000).map(|n| (i32::MAX - n, of_me)));
        s.followed[0].asked -= ASK_EVERY * 2;
        s.policies(pid, || vec![me]);
        assert_eq!((s.followed[0].told.len(), switches(&mut s, pid).len()), (1, 0));
    }
}
