//! Tapes with locks, written here: who held what, and bytes that no agent writes.

use insight::Recording;
use insight::locks::Locks;
use tape::event::{Head, Plain, bytes_of};
use tape::file::{End, Header, Writer};
use tape::lock::{
    HeldBody, HoldBody, LAYOUT, LocksBody, MappingBody, OpBody, PairBody, SchedBody, attr, ended, kind, op,
};

/// One tick is a nanosecond.
const HZ: f64 = 1e9;

#[derive(Default)]
struct Thread(Vec<u8>);

impl Thread {
    fn add<B: Plain>(mut self, kind: u16, flags: u16, tsc: u64, body: &B, tail: &[u8]) -> Thread {
        let len = (size_of::<Head>() + size_of::<B>() + tail.len()).next_multiple_of(8);
        self.0.extend_from_slice(bytes_of(&Head { kind, flags, len: len as u32, tsc }));
        self.0.extend_from_slice(bytes_of(body));
        self.0.extend_from_slice(tail);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self
    }

    fn begins(self) -> Thread {
        let path = b"/opt/app";
        let map = MappingBody { start: 0x1000, end: 0x9000, rights: 5, path: path.len() as u32, ..Default::default() };
        self.add(kind::LOCKS, 0, 1, &LocksBody { layout: LAYOUT, pid: 7 }, &[]).add(kind::MAPPING, 0, 1, &map, path)
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

    fn sched(self, tid: i32, tsc: u64, policy: i32, priority: i32, cpus: u64) -> Thread {
        let body =
            SchedBody { tid, pthread: tid as u64, policy, priority, cpus: 1, mask: [cpus, 0], ..Default::default() };
        self.add(kind::SCHED, 0, tsc, &body, &[])
    }
}

fn flags(op: u8, attr: u8) -> u16 {
    u16::from(op) << 8 | u16::from(attr)
}

fn told(threads: Vec<(i32, Thread)>) -> Locks {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    let mut w = Writer::create(&path, &Header { tsc_hz: HZ, locks: true, ..Default::default() }).unwrap();
    for (tid, t) in threads {
        w.events(tid, 1, &t.0).unwrap();
    }
    w.end(&End::default()).unwrap();
    Locks::of(&Recording::open(&path).unwrap(), 100).unwrap()
}

const HEAP: u64 = 0x7000_0000;

#[test]
fn who_held_a_lock_while_another_waited() {
    let l = told(vec![
        (1, Thread::default().begins().pair(op::MUTEX_LOCK, 0, HEAP, 0x2000, 100, 2000)),
        // The lock of another address held at the same time is nobody's business.
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
    let l = told(vec![
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
fn an_address_that_is_used_again_is_another_lock() {
    let t = Thread::default()
        .begins()
        .op(op::MUTEX_INIT, 1, HEAP, 0x2000, 10)
        .pair(op::MUTEX_LOCK, 0, HEAP, 0x3000, 20, 30)
        .op(op::MUTEX_DESTROY, 1, HEAP, 0x2010, 40)
        .op(op::RWLOCK_INIT, 0, HEAP, 0x4000, 50)
        .pair(op::RWLOCK_RDLOCK, 0, HEAP, 0x5000, 60, 70);
    let l = told(vec![(1, t)]);
    let names: Vec<_> = l.locks.iter().map(|r| (r.name.as_str(), r.named_by, r.operations.len())).collect();
    assert_eq!(names, [("app+0x1000/mutex", "made", 4), ("app+0x3000/rwlock", "made", 3)]);
    assert_eq!(l.locks[0].attributes, ["recursive"]);
}

#[test]
fn an_unlock_by_another_thread_ends_the_hold() {
    let by_another = HoldBody { addr: HEAP, site: 0x2000, hold: 8000, ended: ended::BY_ANOTHER, ..Default::default() };
    let l = told(vec![
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
        told(vec![(1, low), (2, t.hold(op_, HEAP, 0x2100, 500, 2100, 2200))])
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

#[test]
fn another_layout_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    let mut w = Writer::create(&path, &Header::default()).unwrap();
    let t = Thread::default().add(kind::LOCKS, 0, 1, &LocksBody { layout: LAYOUT + 1, pid: 7 }, &[]);
    w.events(1, 1, &t.0).unwrap();
    w.end(&End::default()).unwrap();
    let e = Locks::of(&Recording::open(&path).unwrap(), 1).unwrap_err().to_string();
    assert!(e.contains(&format!("layout {}", LAYOUT + 1)) && e.contains("t.doorbell"), "{e}");
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
                let mut t = Thread::default().begins();
                for _ in 0..60 {
                    let (flags, tsc) = ((next() % 40) as u16 * 256 + next() as u8 as u16, next());
                    let mut w = || next();
                    t = match w() % 6 {
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
        let l = told(threads);
        assert!(l.recorded && l.waits.windows(2).all(|w| w[0].wait_ns >= w[1].wait_ns));
    }
}
