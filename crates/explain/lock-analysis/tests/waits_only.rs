//! Tapes of waits only (`record --locks=waits`), written here: to which thread a wait is attributed, and when to none.

mod thread;

use schema::locks::{HolderRow, Locks};
use tape::call::{self, CallBody, CallsBody};
use tape::file::Header;
use tape::lock::{HeldBody, HoldBody, LAYOUT_WAITS, OpBody, ended, kind, left, op};
use thread::{Thread, told};

const HEAP: u64 = 0x7f00_0000;

impl Thread {
    fn begins(self) -> Thread {
        self.begins_with(LAYOUT_WAITS).add(call::kind::CALLS, 0, 1, &CallsBody { layout: call::LAYOUT, pid: 7 }, &[])
    }

    /// Held from an unknown time, `from` at the latest, to `to`; taken in the call with this number.
    fn open(self, how: u32, in_call: u64, from: u64, to: u64) -> Thread {
        let body =
            HoldBody { addr: HEAP, site: 0x2000, wait: in_call, hold: to - from, ended: how, ..Default::default() };
        self.add(kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, to, &body, &[])
    }

    /// Waited from `asked` to `from`, held to `to`.
    fn waited(self, asked: u64, from: u64, to: u64) -> Thread {
        let body = HoldBody { addr: HEAP, site: 0x2100, wait: from - asked, hold: to - from, ..Default::default() };
        self.add(kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, to, &body, &[])
    }

    /// Waited from `asked` to `to` in vain.
    fn gave_up(self, asked: u64, to: u64) -> Thread {
        let body = OpBody { addr: HEAP, site: 0x2200, wait: to - asked, result: 110, ..Default::default() };
        self.add(kind::OP, u16::from(op::MUTEX_TIMEDLOCK) << 8, to, &body, &[])
    }

    fn held(self, tsc: u64, waiting: u32, since: u64) -> Thread {
        let body = HeldBody { addr: HEAP, site: 0x2300, since, waiting, ..Default::default() };
        self.add(kind::HELD, u16::from(op::MUTEX_LOCK) << 8, tsc, &body, &[])
    }

    fn call(self, seq: u32, began: u64, to: u64) -> Thread {
        self.add(call::kind::CALL, 257, to, &CallBody { began, seq, site: 0x2800, ..Default::default() }, &[])
    }
}

fn locks_of(threads: Vec<(i32, Thread)>) -> Locks {
    told(Header { lock_waits: true, ..Header::default() }, threads.into_iter().map(|(tid, t)| (0, tid, t)))
}

/// The holders of the lock in a thread's wait, and their shares of it.
fn holders(l: &Locks, tid: i32) -> Vec<(i32, u64)> {
    let w = l.waits.iter().find(|w| w.tid == tid).unwrap();
    w.holders.iter().map(|h| (h.tid, h.of_wait_ns)).collect()
}

fn first(l: &Locks, tid: i32) -> &HolderRow {
    &l.waits.iter().find(|w| w.tid == tid).unwrap().holders[0]
}

#[test]
fn a_hold_of_unknown_begin_is_bounded_and_never_exact() {
    let l = locks_of(vec![
        (1, Thread::default().begins().open(ended::OPEN_UNLOCK, 0, 1000, 9000)),
        (2, Thread::default().waited(1000, 9100, 9500)),
        // It asked later, and holds it next.
        (3, Thread::default().waited(2000, 9600, 9900)),
    ]);
    assert!(l.waits_only && l.recorded && l.operations.is_empty());
    assert_eq!(holders(&l, 2), [(1, 8000)]);
    assert_eq!(holders(&l, 3), [(1, 7000), (2, 400)]);
    let h = first(&l, 2);
    assert!(h.begin_unknown && !h.end_unknown && !h.unfinished);
    assert_eq!((h.hold_ns, h.tsc), (8000, 1000));
    let exact = &l.waits.iter().find(|w| w.tid == 3).unwrap().holders[1];
    assert!(!exact.begin_unknown && exact.hold_ns == 400);
    // Unknown values are absent, not 0. An open hold does not count as overtaking.
    let row = &l.locks[0];
    assert_eq!((row.hold_ns, row.longest_hold_ns, row.operations.len()), (None, None, 0));
    assert!(row.longest_hold_site.is_none() && l.order.is_empty());
    assert_eq!((row.contended, row.longest_wait_ns), (2, 8100));
    assert!(row.wait_p50_ns.is_some_and(|p| (7400..=7600).contains(&p)), "{:?}", row.wait_p50_ns);
    assert!(l.waits.iter().all(|w| w.overtaken == 0 || w.tid == 3));
}

/// The bound may be a later waiter's: a thread that waited when the hold ended waited for it all the time.
#[test]
fn who_waited_to_the_end_of_a_hold_waited_for_it_from_the_start() {
    let l = locks_of(vec![
        (1, Thread::default().begins().open(ended::OPEN_UNLOCK, 0, 8000, 9000)),
        (2, Thread::default().waited(1000, 9100, 9500)),
        // Gave up before: the tape does not show that this thread had the lock by then.
        (3, Thread::default().gave_up(2000, 3000)),
        (4, Thread::default().gave_up(8100, 8600)),
    ]);
    assert_eq!(holders(&l, 2), [(1, 8000)]);
    assert_eq!(holders(&l, 3), []);
    assert_eq!(holders(&l, 4), [(1, 500)]);
}

#[test]
fn a_release_that_was_seen_late_names_its_thread_only_where_nobody_else_can_be_meant() {
    let late = |from: u64, to: u64| Thread::default().open(ended::OPEN_LATE, 0, from, to);
    let begins = || (9, Thread::default().begins());
    let alone = locks_of(vec![begins(), (1, late(1000, 9200)), (2, Thread::default().waited(1000, 9100, 9500))]);
    assert_eq!(holders(&alone, 2), [(1, 8100)]);
    assert!(first(&alone, 2).end_unknown && first(&alone, 2).begin_unknown);
    let two =
        vec![begins(), (1, late(1000, 9200)), (3, late(1000, 9300)), (2, Thread::default().waited(1000, 9100, 9500))];
    assert_eq!(holders(&locks_of(two), 2), [], "one of two");
    let certain = vec![
        begins(),
        (1, late(1000, 9200)),
        (3, Thread::default().open(ended::OPEN_UNLOCK, 0, 1000, 9000)),
        (2, Thread::default().waited(1000, 9100, 9500)),
    ];
    assert_eq!(holders(&locks_of(certain), 2), [(3, 8000)]);
}

#[test]
fn who_holds_it_at_the_end_is_named_to_those_who_wait_at_the_end_alone() {
    let threads = |foreign: bool| {
        let mut third = Thread::default().gave_up(2000, 3000);
        if foreign {
            let body = OpBody { addr: HEAP, site: 0x2400, ..Default::default() };
            third = third.add(kind::OP, u16::from(op::MUTEX_UNLOCK) << 8, 3500, &body, &[]);
        }
        vec![
            (1, Thread::default().begins().held(9000, left::OPEN, 0)),
            (2, Thread::default().held(9000, left::WAITING, 4000)),
            (3, third),
        ]
    };
    let l = locks_of(threads(false));
    assert_eq!((holders(&l, 2), holders(&l, 3)), (vec![(1, 5000)], vec![]));
    assert!(first(&l, 2).unfinished && first(&l, 2).begin_unknown);
    let held: Vec<_> = l.left.iter().map(|r| (r.tid, r.waiting, r.since_unknown)).collect();
    assert_eq!(held, [(1, false, true), (2, true, false)]);
    // Another thread has unlocked it, so the first one's table may be wrong.
    assert_eq!(holders(&locks_of(threads(true)), 2), []);
}

#[test]
fn the_holders_call_is_the_one_in_which_it_took_the_lock() {
    let of = |number: u64| {
        locks_of(vec![
            (1, Thread::default().begins().open(ended::OPEN_UNLOCK, number, 1000, 9000).call(5, 500, 9100)),
            (2, Thread::default().waited(1000, 9100, 9500)),
        ])
    };
    assert_eq!(first(&of(5), 2).inside.as_deref(), Some("cudaLaunchKernel"));
    assert_eq!(first(&of(4), 2).inside, None, "in an earlier one");
    assert_eq!(first(&of(0), 2).inside, None, "outside of any");
}

#[test]
fn a_lock_without_room_is_counted() {
    let body = OpBody { addr: HEAP, site: 0x2400, ..Default::default() };
    let l =
        locks_of(vec![(1, Thread::default().begins().add(kind::OP, u16::from(op::MUTEX_LOCK) << 8, 50, &body, &[]))]);
    let why = |text: &str| l.incomplete_because.iter().any(|why| why.starts_with(text));
    assert!(why("locks taken by a thread that held as many as are followed: 1;"), "{:?}", l.incomplete_because);
}
