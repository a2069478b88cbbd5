//! A recording in which launches lose time, and whose longest calls lose none.

use super::*;
use tape::call::{self, CallBody, CallsBody};
use tape::lock::{self, HoldBody, LocksBody, op};

const MS: u64 = 1_000_000;
const LAUNCH: u16 = 1;
const SYNCHRONIZE: u16 = 61;
const LOAD: u16 = 90;
const LOCK: u64 = 0x5000;

/// Thread 100 launches a thousand times and more. Then one of its launches waits 4 ms for a lock that thread 101 holds in cuStreamSynchronize, and a later
/// one 9 ms. Between them thread 101 waits 90 ms for the GPU. The first events are longer than a launch, too: driver calls.
pub fn slow_launches() -> Tape {
    slow_launches_after(0)
}

/// The same, after thread 100 loaded code for so many ns.
pub fn slow_launches_after(loads: u64) -> Tape {
    let mut t = Tape::new();
    for tid in [100, 101] {
        t.event(tid, lock::kind::LOCKS, 0, &LocksBody { layout: lock::LAYOUT, pid: 4242 }, &[], &[]);
        t.event(tid, call::kind::CALLS, 0, &CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
    }
    t.context(100);
    if loads > 0 {
        called(&mut t, 100, LOAD, 3_000, (20_000, loads));
    }
    for n in 0..1_100 {
        called(&mut t, 100, LAUNCH, n + 1, (100_000 + 10_000 * n as u64, 5_000));
    }
    for (n, (at, wait)) in (1..).zip([(300 * MS, 4 * MS), (700 * MS, 9 * MS)]) {
        hold(&mut t, 101, at + wait, 0, wait + 1_000);
        hold(&mut t, 100, at + wait + 500, wait, 500);
        called(&mut t, 101, SYNCHRONIZE, 10 * n, (at - 5_000, wait + 20_000));
        called(&mut t, 100, LAUNCH, 2_000 + n, (at - 1_000, wait + 6_000));
        called(&mut t, 101, SYNCHRONIZE, 10 * n + 1, (at + 100 * MS, 90 * MS));
    }
    t.tsc = 1_400 * MS;
    t
}

/// A call that takes so long from a time on.
fn called(t: &mut Tape, tid: i32, function: u16, seq: u32, (began, ns): (u64, u64)) {
    let body = CallBody { began, seq, object: 0x10, site: 0x2400, ..CallBody::default() };
    t.event_at(tid, began + ns, call::kind::CALL, function, &body, &[], &[]);
}

/// A lock that is released at a time, after it was waited for and held.
fn hold(t: &mut Tape, tid: i32, until: u64, wait: u64, hold: u64) {
    let body = HoldBody { addr: LOCK, site: 0x2000, wait, hold, ..HoldBody::default() };
    t.event_at(tid, until, lock::kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, &body, &[], &[]);
}

impl Tape {
    /// A thread waits for the GPU from a time on, until the recording ends.
    pub fn unreturned(&mut self, tid: i32, began: u64) {
        let body = CallBody { began, seq: 1, ..CallBody::default() };
        self.event_at(tid, self.tsc, call::kind::IN_CALL, SYNCHRONIZE, &body, &[], &[]);
    }
}
