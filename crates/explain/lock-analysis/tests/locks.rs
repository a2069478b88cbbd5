//! Tapes with locks, written here: holders of locks, and bytes that no agent writes.

mod thread;

use decode::Recording;
use schema::locks::Locks;
use tape::call::{self, CallBody, CallsBody};
use tape::file::{End, Header, Writer};
use tape::lock::{
    HeldBody, HoldBody, LAYOUT, LocksBody, MappingBody, OpBody, PairBody, SchedBody, attr, ended, kind, op,
};
use tape::switch::{self, DeadlineBody, LostBody, SwitchBody, SwitchesBody, TaskBody, scope, switch_flags};
use thread::{Thread, told};

/// One tick is a nanosecond.
const HZ: f64 = 1e9;

impl Thread {
    fn begins(self) -> Thread {
        self.begins_with(LAYOUT)
    }

    fn pair(self, op: u8, depth: u8, addr: u64, site: u64, from: u64, to: u64) -> Thread {
        let body = PairBody { addr, site, hold: (to - from) as u32, release: 4 };
        self.add(kind::PAIR, flags(op, depth << attr::DEPTH_SHIFT), to, &body, &[])
    }

    fn hold(self, op: u8, addr: u64, site: u64, asked: u64, from: u64, to: u64) -> Thread {
        let body =
            HoldBody { addr, site, release_site: site, wait: from - asked, hold: to - from, ..Default::default() };
        self.add(kind::HOLD, flags(op, 0), to, &body, &[])
    }

    fn op(self, op: u8, attr: u8, addr: u64, site: u64, tsc: u64) -> Thread {
        self.add(kind::OP, flags(op, attr), tsc, &OpBody { addr, site, ..Default::default() }, &[])
    }

    fn switches(self, scope: u32) -> Thread {
        let body = SwitchesBody { layout: switch::LAYOUT, scope, ..Default::default() };
        self.add(switch::kind::SWITCHES, 0, 1, &body, &[])
    }

    fn switch(self, flags: u16, tid: i32, other: i32, tsc: u64) -> Thread {
        let body = SwitchBody { tid, other, other_pid: 7, cpu: 0 };
        self.add(switch::kind::SWITCH, flags, tsc, &body, &[])
    }

    fn calls(self) -> Thread {
        self.add(call::kind::CALLS, 0, 1, &CallsBody { layout: call::LAYOUT, pid: 7 }, &[])
    }

    fn call(self, function: u16, size: u64, began: u64, tsc: u64) -> Thread {
        let body = CallBody { began, size, site: 0x2800, ..Default::default() };
        self.add(call::kind::CALL, function, tsc, &body, &[])
    }

    fn sched(self, tid: i32, tsc: u64, policy: i32, priority: i32, cpus: u64) -> Thread {
        let body =
            SchedBody { tid, pthread: tid as u64, policy, priority, cpus: 1, mask: [cpus, 0], ..Default::default() };
        self.add(kind::SCHED, 0, tsc, &body, &[])
    }
}

fn flags(op: u8, attr: u8) -> u16 {
    u16::from(op) << 8 | u16::from(attr)
}

fn locks_of(threads: Vec<(i32, Thread)>) -> Locks {
    told(Header::default(), threads.into_iter().map(|(tid, t)| (0, tid, t)))
}

/// Two process images, one of which has another module at the same addresses.
fn told_of_two(first: Vec<(i32, Thread)>, second: Vec<(i32, Thread)>) -> Locks {
    let of = |process, threads: Vec<(i32, Thread)>| threads.into_iter().map(move |(tid, t)| (process, tid, t));
    told(Header::default(), of(0, first).chain(of(1, second)))
}

#[test]
fn the_locks_of_two_processes_are_not_mixed_where_their_addresses_are_the_same() {
    let path = b"/opt/other";
    let map = MappingBody { start: 0x1000, end: 0x9000, rights: 5, path: path.len() as u32, ..Default::default() };
    let other = Thread::default().add(kind::LOCKS, 0, 1, &LocksBody { layout: LAYOUT, pid: 8 }, &[]).add(
        kind::MAPPING,
        0,
        1,
        &map,
        path,
    );
    // Both hold HEAP at the same time; thread 2 of the first waits for thread 1 of the first.
    let one = Thread::default().begins().pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 900);
    let two = Thread::default().hold(op::MUTEX_LOCK, HEAP, 0x3000, 500, 910, 950);
    let l = told_of_two(vec![(1, one), (2, two)], vec![(3, other.pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 200, 800))]);
    let names: Vec<_> = l.locks.iter().map(|r| (&r.name[..], r.instances, r.contended)).collect();
    assert_eq!(names, [("app+0x1000/mutex", 1, 1), ("other+0x1000/mutex", 1, 0)]);
    assert_eq!(l.waits[0].holders.iter().map(|h| h.tid).collect::<Vec<_>>(), [1]);
}

/// PID namespaces have their own numbers, and a number is used again. So threads are distinguished by their process, too.
#[test]
fn threads_of_two_processes_with_the_same_numbers_are_not_mixed() {
    let named = |thread: Thread, tid: i32, policy: i32, priority: i32, name: &str| {
        let mut body = SchedBody { tid, pthread: 1, policy, priority, cpus: 1, mask: [1, 0], ..Default::default() };
        body.name[..name.len()].copy_from_slice(name.as_bytes());
        thread.add(kind::SCHED, 0, 50, &body, &[])
    };
    let began = |pid: u32| Thread::default().begins().add(kind::LOCKS, 0, 1, &LocksBody { layout: LAYOUT, pid }, &[]);
    let mut both = Vec::new();
    for (pid, waiter, holder, policy, priority) in [(7, "urgent", "idle", 1, 50), (8, "calm", "busy", 0, 0)] {
        // In each process thread 2 waits for HEAP, which thread 1 holds. Only in the second, thread 1 waits for HEAP + 64 at that
        // time.
        let first = named(began(pid), 1, 0, 0, holder);
        let first = match pid {
            7 => first,
            _ => first.hold(op::MUTEX_LOCK, HEAP + 64, 0x2400, 200, 900, 950),
        };
        let first = first.pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 1000);
        let second = named(Thread::default(), 2, policy, priority, waiter);
        let second = second.hold(op::MUTEX_LOCK, HEAP, 0x3000, 150 + pid as u64, 1010, 1020);
        let third = Thread::default().pair(op::MUTEX_LOCK, 0, HEAP + 64, 0x2500, 190, 890);
        both.push(vec![(1, first), (2, second), (3, third)]);
    }
    let second = both.pop().unwrap();
    let l = told_of_two(both.pop().unwrap(), second);
    let waits: Vec<_> = l.waits.iter().map(|w| (w.process, w.tid, &w.thread[..])).collect();
    assert_eq!(waits, [(0, 2, "urgent"), (1, 2, "calm"), (1, 1, "busy")]);
    let holder = |i: usize| (&l.waits[i].holders[0].thread[..], l.waits[i].holders[0].behind.len());
    assert_eq!((holder(0), holder(1)), (("idle", 0), ("busy", 1)));
    let inversions: Vec<_> = l.inversions.iter().map(|i| (i.process, &i.thread[..], &i.sched[..])).collect();
    assert_eq!(inversions, [(0, "urgent", "SCHED_FIFO 50")]);
    let threads: Vec<_> = l.threads.iter().map(|t| (t.process, t.tid, &t.name[..], &t.sched[..])).collect();
    let other = "SCHED_OTHER";
    let all = [(0, 1, "idle", other), (0, 2, "urgent", "SCHED_FIFO 50"), (1, 1, "busy", other), (1, 2, "calm", other)];
    assert_eq!(threads, all);
}

const HEAP: u64 = 0x7000_0000;

#[test]
fn who_held_a_lock_while_another_waited() {
    let l = locks_of(vec![
        (1, Thread::default().begins().pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 2000)),
        // A lock at another address that is held at the same time does not matter.
        (2, Thread::default().pair(op::MUTEX_LOCK, 0, HEAP + 64, 0x2100, 100, 3000)),
        (3, Thread::default().pair(op::MUTEX_LOCK, 0, HEAP, 0x2200, 2010, 2020)),
        (4, Thread::default().hold(op::MUTEX_LOCK, HEAP, 0x2300, 500, 2500, 2600)),
    ]);
    assert_eq!((l.contended, l.waits_seen, l.waits.len()), (1, 1, 1));
    let w = &l.waits[0];
    assert_eq!((w.tid, w.site.as_str(), w.lock.as_str(), w.wait_ns), (4, "app+0x1300", "app+0x1000/mutex", 2000));
    let holders: Vec<_> = w.holders.iter().map(|h| (h.tid, h.site.as_str(), h.of_wait_ns, h.hold_ns)).collect();
    assert_eq!(holders, [(1, "app+0x1000", 1500, 1900), (3, "app+0x1200", 10, 10)]);
    assert_eq!(w.free_ns, 490);
    assert_eq!(l.operations["mutex_lock"], 4);
    assert_eq!(l.operations["mutex_unlock"], 4);
}

#[test]
fn readers_are_not_in_each_others_way() {
    let l = locks_of(vec![
        (1, Thread::default().begins().pair(op::RWLOCK_RDLOCK, 0, HEAP, 0x2000, 100, 2000)),
        (2, Thread::default().pair(op::RWLOCK_WRLOCK, 0, HEAP, 0x2100, 2100, 2400)),
        (3, Thread::default().hold(op::RWLOCK_RDLOCK, HEAP, 0x2200, 1500, 2500, 2600)),
        (4, Thread::default().hold(op::RWLOCK_WRLOCK, HEAP, 0x2300, 1600, 2700, 2800)),
    ]);
    let of =
        |tid: i32| l.waits.iter().find(|w| w.tid == tid).unwrap().holders.iter().map(|h| h.tid).collect::<Vec<_>>();
    assert_eq!(of(3), [2]);
    assert_eq!(of(4), [1, 2, 3]);
}

#[test]
fn who_asked_later_and_got_it_first_is_counted_apart() {
    let mut readers = Thread::default();
    for n in 0..40 {
        // Each asks after the writer; the first was inside already.
        readers = readers.pair(op::RWLOCK_RDLOCK, 0, HEAP, 0x2000, 100 + 100 * n, 190 + 100 * n);
    }
    let l = locks_of(vec![
        (1, Thread::default().begins().pair(op::RWLOCK_RDLOCK, 0, HEAP, 0x2000, 100, 900)),
        (2, readers),
        // A writer that had asked before it is in its way, and did not overtake it.
        (3, Thread::default().hold(op::RWLOCK_WRLOCK, HEAP, 0x2100, 300, 4200, 4300)),
        (4, Thread::default().hold(op::RWLOCK_WRLOCK, HEAP, 0x2200, 950, 4400, 4500)),
    ]);
    let w = l.waits.iter().find(|w| w.tid == 4).unwrap();
    assert_eq!((w.holds, w.overtaken, w.overtaken_by_readers), (33, 31, 31), "{w:?}");
    assert!(lock_analysis::remedy::is_overtaken(w));
    use lock_analysis::remedy::{Policy, Remedy, remedy};
    let mut row = l.locks[0].clone();
    row.longest_wait_ns *= 1000;
    assert_eq!(remedy(&row, &l), Some(Remedy::Policy(Policy::PhaseFair)));
}

#[test]
fn an_address_that_is_used_again_is_another_lock() {
    let t = Thread::default()
        .begins()
        .op(op::MUTEX_INIT, 1, HEAP, 0x2000, 10)
        .pair(op::MUTEX_LOCK, 0, HEAP, 0x3000, 20, 30)
        .op(op::MUTEX_DESTROY, 1, HEAP, 0x2010, 40)
        .op(op::RWLOCK_INIT, 0, HEAP, 0x4000, 50)
        .pair(op::RWLOCK_RDLOCK, 0, HEAP, 0x5000, 60, 70);
    let l = locks_of(vec![(1, t)]);
    let names: Vec<_> = l.locks.iter().map(|r| (r.name.as_str(), r.named_by, r.operations.len())).collect();
    assert_eq!(names, [("app+0x1000/mutex", "made", 4), ("app+0x3000/rwlock", "made", 3)]);
    assert_eq!(l.locks[0].attributes, ["recursive"]);
}

#[test]
fn an_unlock_by_another_thread_ends_the_hold() {
    let by_another = HoldBody { addr: HEAP, site: 0x2000, hold: 8000, ended: ended::BY_ANOTHER, ..Default::default() };
    let l = locks_of(vec![
        // Taken at 1000, found gone at 9000.
        (1, Thread::default().begins().add(kind::HOLD, flags(op::MUTEX_LOCK, 0), 9000, &by_another, &[])),
        (2, Thread::default().op(op::MUTEX_UNLOCK, 0, HEAP, 0x2100, 3000)),
        (3, Thread::default().hold(op::MUTEX_LOCK, HEAP, 0x2200, 2000, 6000, 6100)),
    ]);
    assert_eq!(l.locks[0].foreign_unlocks, 1);
    let h = &l.waits[0].holders[0];
    assert_eq!((h.tid, h.of_wait_ns, h.hold_ns), (1, 1000, 2000));
    assert_eq!((l.operations["mutex_lock"], l.operations["mutex_unlock"]), (2, 2));
}

#[test]
fn whether_inheritance_helps_depends_on_policy_lock_and_cpus() {
    let tape = |op_: u8, attr: u8, waiter: (i32, i32, u64), holder: (i32, i32, u64)| {
        let t = Thread::default().begins().sched(1, 2, holder.0, holder.1, holder.2);
        let low = t.pair(op_, attr >> attr::DEPTH_SHIFT, HEAP, 0x2000, 100, 2000);
        let t = Thread::default().sched(2, 2, waiter.0, waiter.1, waiter.2);
        locks_of(vec![(1, low), (2, t.hold(op_, HEAP, 0x2100, 500, 2100, 2200))])
    };
    let (fifo, other) = (1, 0);
    let l = tape(op::MUTEX_LOCK, 0, (fifo, 50, 1), (other, 0, 1));
    assert!(l.real_time && l.inversions.len() == 1 && l.inversions[0].inheritance_helps);
    let i = &l.inversions[0];
    assert_eq!((i.tid, i.sched.as_str(), i.holder_sched.as_str()), (2, "SCHED_FIFO 50", "SCHED_OTHER"));
    let l = tape(op::MUTEX_LOCK, 0, (fifo, 50, 1), (fifo, 10, 2));
    assert!(!l.inversions[0].inheritance_helps && l.inversions[0].why.contains("partitioned"));
    let l = tape(op::RWLOCK_WRLOCK, 0, (fifo, 50, 1), (fifo, 10, 1));
    assert!(!l.inversions[0].inheritance_helps && l.inversions[0].why.contains("rwlock"));
    assert!(tape(op::MUTEX_LOCK, 0, (fifo, 10, 1), (fifo, 50, 1)).inversions.is_empty());
    let l = tape(op::MUTEX_LOCK, 0, (other, 0, 1), (other, 0, 1));
    assert!(!l.real_time && l.inversions.is_empty());
}

const OUT: u16 = switch_flags::OUT;
const PREEMPTED: u16 = OUT | switch_flags::PREEMPTED;

#[test]
fn who_was_off_cpu_and_who_had_it_instead() {
    let task =
        TaskBody { tid: 9, pid: 9, policy: 1, priority: 30, name: *b"stranger\0\0\0\0\0\0\0\0", ..Default::default() };
    let kernel = Thread::default()
        .switches(scope::ALL_CPUS)
        .switch(OUT, 2, 0, 520)
        .add(switch::kind::TASK, 0, 600, &task, &[])
        .switch(PREEMPTED, 1, 9, 600)
        .switch(0, 1, 9, 1600)
        .switch(0, 2, 1, 2090);
    let of = |high: i32| {
        let low = Thread::default().begins().sched(1, 2, 1, 10, 1);
        locks_of(vec![
            (switch::WRITER, Thread(kernel.0.clone())),
            (1, low.pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 2000)),
            (2, Thread::default().sched(2, 2, 1, high, 1).hold(op::MUTEX_LOCK, HEAP, 0x2300, 500, 2100, 2200)),
        ])
    };
    let l = of(50);
    assert_eq!((l.switches.scope, l.switches.count, l.switches.lost), ("all_cpus", 4, 0));
    let w = &l.waits[0];
    let h = w.holders[0].off_cpu.as_ref().unwrap();
    assert_eq!((h.off_ns, h.preempted_ns, h.by_tid, h.by.as_str(), h.by_ns), (1000, 1000, Some(9), "stranger", 1000));
    // Asleep from 520 to 2090; free from 2000.
    assert_eq!((w.off_cpu.as_ref().unwrap().off_ns, w.ready_ns), (1570, Some(90)));
    let i = &l.inversions[0];
    assert!(i.inheritance_helps && i.by_sched.as_deref() == Some("SCHED_FIFO 30"), "{i:?}");
    // The stranger has precedence over the waiter, too.
    let l = of(20);
    assert!(!l.inversions[0].inheritance_helps && l.inversions[0].why.contains("who took"), "{}", l.inversions[0].why);
}

#[test]
fn a_holder_that_slept_or_ran_is_no_case_for_inheritance() {
    let of = |kernel: Thread| {
        let low = Thread::default().begins().sched(1, 2, 0, 0, 1);
        let l = locks_of(vec![
            (switch::WRITER, kernel),
            (1, low.pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 2000)),
            (2, Thread::default().sched(2, 2, 1, 50, 1).hold(op::MUTEX_LOCK, HEAP, 0x2300, 500, 2100, 2200)),
        ]);
        let i = &l.inversions[0];
        (i.inheritance_helps, i.why)
    };
    let begin = || Thread::default().switches(scope::ALL_CPUS);
    assert!(of(begin()).1.contains("was on a CPU"));
    assert!(of(begin().switch(OUT, 1, 0, 600).switch(0, 1, 0, 1800)).1.contains("slept"));
    assert!(of(begin().switch(PREEMPTED, 1, 9, 600).switch(0, 1, 9, 1800)).0);
    // Not known.
    assert!(of(Thread::default().switches(scope::REFUSED)).0);
    assert!(of(begin().switch(PREEMPTED, 1, -1, 600).switch(0, 1, -1, 1800)).0);
}

#[test]
fn deadlines_go_before_priorities_and_short_ones_before_long_ones() {
    let of = |waiter: (i32, i32, u64), holder: (i32, i32, u64)| {
        let sched = |tid: i32, s: (i32, i32, u64)| {
            let d = DeadlineBody { tid, deadline: s.2, ..Default::default() };
            let t = Thread::default().sched(tid, 2, s.0, s.1, 1);
            if s.2 == 0 { t } else { t.add(switch::kind::DEADLINE, 0, 2, &d, &[]) }
        };
        let begin = Thread::default().begins().0;
        let low = Thread([begin, sched(1, holder).0].concat());
        let high = sched(2, waiter);
        locks_of(vec![
            (1, low.pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 2000)),
            (2, high.hold(op::MUTEX_LOCK, HEAP, 0x2100, 500, 2100, 2200)),
        ])
    };
    let l = of((6, 0, 5_000_000), (1, 99, 0));
    assert!(l.real_time && l.inversions[0].inheritance_helps);
    assert_eq!(l.inversions[0].sched, "SCHED_DEADLINE 5000 us");
    assert_eq!(of((6, 0, 5_000_000), (6, 0, 9_000_000)).inversions.len(), 1);
    assert!(of((6, 0, 9_000_000), (6, 0, 5_000_000)).inversions.is_empty());
    assert!(of((1, 99, 0), (6, 0, 5_000_000)).inversions.is_empty());
}

#[test]
fn a_holder_that_waits_itself_is_told_with_whom_it_waits_for() {
    let other = HEAP + 64;
    let l = locks_of(vec![
        (1, Thread::default().begins().pair(op::MUTEX_LOCK, 0, other, 0x2000, 100, 1500)),
        // Holds the lock that 3 waits for, and waits for the one that 1 holds.
        (2, {
            let t = Thread::default().hold(op::MUTEX_LOCK, other, 0x2100, 600, 1600, 1700);
            t.pair(op::MUTEX_LOCK, 0, HEAP, 0x2110, 300, 1800)
        }),
        (3, Thread::default().hold(op::MUTEX_LOCK, HEAP, 0x2200, 500, 1900, 1950)),
    ]);
    let w = l.waits.iter().find(|w| w.tid == 3).unwrap();
    assert_eq!((w.holds, w.held_ns, w.holders[0].tid), (1, 1300, 2));
    let behind: Vec<_> = w.holders[0].behind.iter().map(|b| (b.lock.as_str(), b.wait_ns, b.holder)).collect();
    assert_eq!(behind, [("app+0x1000/mutex", 1000, Some(1))]);
    assert!(l.waits.iter().find(|w| w.tid == 2).unwrap().holders[0].behind.is_empty());
}

#[test]
fn a_circle_of_waits_has_an_end() {
    let waiting = |tid: i32, has: u64, wants: u64, t: Thread| {
        let held = HeldBody { addr: has, site: 0x2000, since: 100, ..Default::default() };
        let waits = HeldBody { addr: wants, site: 0x2100, since: 200, waiting: 1, ..Default::default() };
        let flags = flags(op::MUTEX_LOCK, 0);
        (tid, t.add(kind::HELD, flags, 9000, &held, &[]).add(kind::HELD, flags, 9000, &waits, &[]))
    };
    let l = locks_of(vec![
        waiting(1, HEAP, HEAP + 64, Thread::default().begins()),
        waiting(2, HEAP + 64, HEAP, Thread::default()),
    ]);
    assert_eq!((l.waits.len(), l.cycles.len()), (2, 1));
    assert!(l.waits.iter().all(|w| w.unfinished && w.holders[0].behind.len() == 4), "{:?}", l.waits);
}

#[test]
fn a_wait_is_told_with_the_calls_around_it() {
    let (launch, copy) = (257, 267);
    let l = locks_of(vec![
        (
            1,
            Thread::default()
                .begins()
                .calls()
                .pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 2000)
                .call(copy, 4096, 90, 2010),
        ),
        (2, Thread::default().hold(op::MUTEX_LOCK, HEAP, 0x2300, 500, 2100, 2200).call(launch, 1, 400, 2300)),
    ]);
    let w = &l.waits[0];
    assert_eq!(w.inside.as_deref(), Some("cudaLaunchKernel"));
    assert_eq!(w.holders[0].inside.as_deref(), Some("cudaMemcpyAsync"));
    assert!(w.off_cpu.is_none() && w.ready_ns.is_none());
    assert_eq!(l.locks[0].longest_hold_inside.as_deref(), Some("cudaMemcpyAsync"));
}

#[test]
fn another_layout_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    let mut w = Writer::create(&path, &Header::default()).unwrap();
    let t = Thread::default().add(kind::LOCKS, 0, 1, &LocksBody { layout: LAYOUT + 1, pid: 7 }, &[]);
    w.events(0, 1, &t.0).unwrap();
    w.end(&End::default()).unwrap();
    let e = lock_analysis::locks(&Recording::open(&path).unwrap(), 1).unwrap_err().to_string();
    assert!(e.contains(&format!("layout {}", LAYOUT + 1)) && e.contains("t.doorbell"), "{e}");
}

/// A small tape with all kinds of events, as the bytes of its threads.
fn everything() -> Vec<(i32, Vec<u8>)> {
    let task = TaskBody { tid: 9, pid: 9, policy: 1, priority: 30, name: [b'x'; 16], ..Default::default() };
    let deadline = DeadlineBody { tid: 2, deadline: 5_000_000, ..Default::default() };
    let why = b"perf_event_open: EACCES";
    let refused = SwitchesBody { layout: switch::LAYOUT, text: why.len() as u32, ..Default::default() };
    let kernel = Thread::default()
        .add(switch::kind::SWITCHES, 0, 1, &refused, why)
        .switches(scope::ALL_CPUS)
        .switch(OUT, 2, 0, 520)
        .add(switch::kind::TASK, 0, 600, &task, &[])
        .add(switch::kind::DEADLINE, 0, 600, &deadline, &[])
        .switch(PREEMPTED, 1, 9, 600)
        .add(switch::kind::LOST, 0, 700, &LostBody { records: 5 }, &[])
        .switch(0, 1, 9, 1600)
        .switch(0, 2, 1, 2090);
    let one = Thread::default().begins().calls().sched(1, 2, 1, 10, 1);
    let one = one.pair(op::MUTEX_LOCK, 1, HEAP + 64, 0x2010, 200, 300).pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 2000);
    let two = Thread::default().sched(2, 2, 6, 0, 1).hold(op::MUTEX_LOCK, HEAP, 0x2300, 500, 2100, 2200);
    let two = two.op(op::MUTEX_TRYLOCK, 0, HEAP, 0x2400, 2210).call(257, 1, 400, 2300);
    let unfinished = CallBody { began: 2400, size: 7, ..Default::default() };
    let two = two.add(call::kind::IN_CALL, 13, 2500, &unfinished, &[]);
    vec![(switch::WRITER, kernel.0), (1, one.call(267, 4096, 90, 2010).0), (2, two.0)]
}

fn written(path: &std::path::Path, threads: &[(i32, Vec<u8>)]) {
    let mut w = Writer::replace(path, &Header { tsc_hz: HZ, locks: true, ..Default::default() }).unwrap();
    threads.iter().filter(|t| !t.1.is_empty()).for_each(|(tid, b)| w.events(0, *tid, b).unwrap());
    w.end(&End::default()).unwrap();
}

/// Everything that reads such events.
fn read_all(path: &std::path::Path) -> Option<Locks> {
    let r = Recording::open(path).ok()?;
    let l = lock_analysis::locks(&r, 100).ok()?;
    let (mut uses, mut happened) = (0u64, 0u64);
    let count = |n: &mut u64| -> Result<(), decode::InsightError> {
        *n += 1;
        Ok(())
    };
    lock_analysis::each_use(&r, |_| count(&mut uses)).unwrap();
    lock_analysis::each_call(&r, |_| count(&mut happened)).unwrap();
    decode::summary(&r).unwrap();
    let tolerance = schema::diff::Tolerance { percent: 0.0, floor: 0 };
    assert!(lock_analysis::diff(&l, &l, tolerance).equal);
    Some(l)
}

#[test]
fn a_tape_with_calls_and_switches_cut_anywhere_gives_what_lies_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    written(&path, &everything());
    let whole = read_all(&path).unwrap();
    let calls = whole.calls.as_ref().unwrap();
    assert_eq!((calls.totals["launch"].calls, calls.totals["async copy"].mutex_locks, calls.unfinished), (1, 2, 1));
    assert_eq!((whole.switches.count, whole.switches.lost, whole.waits.len()), (4, 5, 1));
    let bytes = std::fs::read(&path).unwrap();
    for n in (0..bytes.len()).step_by(3) {
        std::fs::write(&path, &bytes[..n]).unwrap();
        if let Some(l) = read_all(&path) {
            assert!(l.switches.count <= 4 && l.waits.len() <= 1 && l.calls.is_none_or(|c| c.calls.len() <= 2));
        }
    }
    // The threads' bytes, cut where no event ends. The checksums are valid.
    let threads = everything();
    for (i, (_, b)) in threads.iter().enumerate() {
        for n in (0..b.len()).step_by(5) {
            let mut cut = threads.clone();
            cut[i].1.truncate(n);
            written(&path, &cut);
            read_all(&path);
        }
    }
}

#[test]
fn bits_that_are_flipped_make_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let threads = everything();
    for (i, (_, b)) in threads.iter().enumerate() {
        for bit in (i..b.len() * 8).step_by(7) {
            let mut flipped = threads.clone();
            flipped[i].1[bit / 8] ^= 1 << (bit % 8);
            written(&path, &flipped);
            read_all(&path);
        }
    }
}

#[test]
fn no_numbers_make_it_panic() {
    let mut x = 0x1234_5678_9abc_def1u64;
    // Small numbers, so that addresses and times meet, and the largest.
    let mut next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        match x % 5 {
            0 => u64::MAX - x % 7,
            1 => x,
            _ => x % 40,
        }
    };
    for _ in 0..300 {
        let threads = (1..4)
            .map(|tid| {
                let scope = [scope::REFUSED, scope::ALL_CPUS, scope::PROGRAM, 77][next() as usize % 4];
                let mut t = Thread::default().begins().switches(scope).calls();
                for _ in 0..60 {
                    let (flags, tsc) = ((next() % 40) as u16 * 256 + next() as u8 as u16, next());
                    let mut w = || next();
                    t = match w() % 12 {
                        0 => {
                            let b = PairBody { addr: w(), site: w(), hold: w() as u32, release: w() as i32 };
                            t.add(kind::PAIR, flags, tsc, &b, &[])
                        }
                        1 => {
                            let (addr, site, release_site, wait, hold) = (w(), w(), w(), w(), w());
                            let (result, ended) = (w() as i32, w() as u32 % 5);
                            let b = HoldBody { addr, site, release_site, wait, hold, result, ended };
                            t.add(kind::HOLD, flags, tsc, &b, &[])
                        }
                        2 => {
                            let (addr, site, wait, other) = (w(), w(), w(), w());
                            let b = OpBody { addr, site, wait, other, result: w() as i32 % 3, pad: 0 };
                            t.add(kind::OP, flags, tsc, &b, &[])
                        }
                        3 => {
                            let (addr, site, since, wait) = (w(), w(), w(), w());
                            let b = HeldBody { addr, site, since, wait, result: 0, waiting: w() as u32 % 2 };
                            t.add(kind::HELD, flags, tsc, &b, &[])
                        }
                        4 => {
                            let b = MappingBody { start: w(), end: w(), offset: w(), rights: w() as u32, path: 0 };
                            let tail: &[u8] = if w() % 2 == 0 { b"/a/b.so" } else { b"" };
                            t.add(kind::MAPPING, flags, tsc, &MappingBody { path: tail.len() as u32, ..b }, tail)
                        }
                        5 => {
                            let (tid, other, other_pid) = (w() as i32 % 4, w() as i32, w() as i32);
                            let b = SwitchBody { tid, other, other_pid, cpu: w() as u32 };
                            t.add(switch::kind::SWITCH, flags % 5, tsc, &b, &[])
                        }
                        6 => t.add(switch::kind::LOST, flags, tsc, &LostBody { records: w() }, &[]),
                        7 => {
                            let (tid, pid, policy, priority) = (w() as i32 % 4, w() as i32, w() as i32, w() as i32);
                            let b = TaskBody { tid, pid, policy, priority, nice: w() as i32, name: [200; 16], pad: 0 };
                            t.add(switch::kind::TASK, flags, tsc, &b, &[])
                        }
                        8 => {
                            let (tid, runtime, deadline, period) = (w() as i32 % 4, w(), w(), w());
                            let b = DeadlineBody { tid, pad: 0, runtime, deadline, period };
                            t.add(switch::kind::DEADLINE, flags, tsc, &b, &[])
                        }
                        9 | 10 => {
                            let (began, site, stream, object, size) = (w(), w(), w(), w(), w());
                            let (result, flags_, inner) = (w() as i32, w() as u16, w() as u16);
                            let b = CallBody {
                                began,
                                site,
                                stream,
                                object,
                                size,
                                result,
                                flags: flags_,
                                inner,
                                ..CallBody::default()
                            };
                            let k = if w() % 4 == 0 { call::kind::IN_CALL } else { call::kind::CALL };
                            t.add(k, [257, 267, 1, 13, flags][w() as usize % 5], tsc, &b, &[])
                        }
                        _ => {
                            let (pthread, tid, policy) = (w(), w() as i32, w() as i32);
                            let (priority, nice, cpus) = (w() as i32, w() as i32, w() as u32);
                            let b = SchedBody { pthread, tid, policy, priority, nice, cpus, ..Default::default() };
                            t.add(kind::SCHED, flags, tsc, &b, &[])
                        }
                    };
                }
                (tid, t)
            })
            .collect();
        let l = locks_of(threads);
        assert!(l.recorded && l.waits.windows(2).all(|w| w[0].wait_ns >= w[1].wait_ns));
    }
}
