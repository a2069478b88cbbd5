//! Tapes of calls that are slow for a known reason, because the tapes are written here.

use decode::Recording;
use decode::walk::Pattern;
use proptest::prelude::*;
use schema::rank::Steps;
use schema::slow_calls::{Cause, SlowCall, Why};
use slow_calls::Wanted;
use tape::call::{self, CallBody, CallsBody};
use tape::event::{ChannelBody, EntryBody, Head, IoctlBody, Plain, RingBody, bytes_of, file};
use tape::fault::{self, Fault, FaultsBody, StolenBody, WatchedBody};
use tape::file::{End, Header, Writer};
use tape::lock::{HeldBody, HoldBody, LAYOUT, LAYOUT_WAITS, LocksBody, MappingBody, OpBody, ended, left, op};
use tape::switch::{self, SwitchBody, SwitchesBody, switch_flags};

/// One tick is a nanosecond.
const HZ: f64 = 1e9;
/// Functions by their numbers on tapes.
const LAUNCH: u16 = 1;
const GRAPH_LAUNCH: u16 = 4;
const SYNCHRONIZE: u16 = 61;
const ALLOC: u16 = 70;
const REGISTER: u16 = 77;
const LOAD: u16 = 90;
const UPDATE: u16 = 95;

const US: u64 = 1000;

#[derive(Clone, Default)]
struct Thread {
    bytes: Vec<u8>,
    calls: u32,
    /// When its last call ended.
    now: u64,
}

impl Thread {
    fn add<B: Plain>(mut self, kind: u16, flags: u16, tsc: u64, body: &B) -> Thread {
        let len = (size_of::<Head>() + size_of::<B>()) as u32;
        self.bytes.extend_from_slice(bytes_of(&Head { kind, flags, len, tsc }));
        self.bytes.extend_from_slice(bytes_of(body));
        self
    }

    /// Bytes of the last event, which its body counts.
    fn tail(&mut self, bytes: &[u8]) {
        let mut at = 0;
        let len = |b: &[u8], at: usize| u32::from_ne_bytes(b[at + 4..at + 8].try_into().unwrap()) as usize;
        while at + len(&self.bytes, at) < self.bytes.len() {
            at += len(&self.bytes, at);
        }
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let whole = (self.bytes.len() - at) as u32;
        self.bytes[at + 4..at + 8].copy_from_slice(&whole.to_ne_bytes());
    }

    fn begins(self) -> Thread {
        self.add(tape::lock::kind::LOCKS, 0, 1, &LocksBody { layout: LAYOUT, pid: 7 }).add(
            call::kind::CALLS,
            0,
            1,
            &CallsBody { layout: call::LAYOUT, pid: 7 },
        )
    }

    /// A call of so many ticks, a microsecond after the last one.
    fn call(mut self, function: u16, object: u64, ticks: u64) -> Thread {
        let began = self.now + US;
        (self.calls, self.now) = (self.calls + 1, began + ticks);
        let body = CallBody { began, object, seq: self.calls, ..CallBody::default() };
        let now = self.now;
        self.add(call::kind::CALL, function, now, &body)
    }

    /// After the time in which a process begins: the same kernel again and again.
    fn started(self) -> Thread {
        (0..1100).fold(self, |t, i| t.call(LAUNCH, 0x10, 5 * US + i % 7 * 10))
    }

    /// Waits for a lock from `from` to `to`, and then holds it for `hold`.
    fn waits(self, addr: u64, from: u64, to: u64, hold: u64) -> Thread {
        let body = HoldBody { addr, wait: to - from, hold, ..HoldBody::default() };
        self.add(tape::lock::kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, to + hold, &body)
    }

    fn op(self, op: u8, addr: u64, wait: u64, tsc: u64) -> Thread {
        self.add(tape::lock::kind::OP, u16::from(op) << 8, tsc, &OpBody { addr, wait, ..OpBody::default() })
    }

    fn driver(self, from: u64, to: u64) -> Thread {
        // No driver has this request.
        let body = IoctlBody { request: 0x1234, file: file::CTL, tsc_end: to, ..IoctlBody::default() };
        self.add(tape::event::kind::IOCTL, 0, from, &body)
    }
}

fn switches() -> Thread {
    let body = SwitchesBody { layout: switch::LAYOUT, scope: switch::scope::PROGRAM, ..SwitchesBody::default() };
    Thread::default().add(switch::kind::SWITCHES, 0, 1, &body)
}

fn off(t: Thread, tid: i32, preempted_by: Option<i32>, from: u64, to: u64) -> Thread {
    let out = switch_flags::OUT | if preempted_by.is_some() { switch_flags::PREEMPTED } else { 0 };
    let other = preempted_by.unwrap_or(0);
    t.add(switch::kind::SWITCH, out, from, &SwitchBody { tid, other, other_pid: 9, cpu: 0 }).add(
        switch::kind::SWITCH,
        0,
        to,
        &SwitchBody { tid, other, other_pid: 9, cpu: 0 },
    )
}

fn told_with(threads: &[(i32, Vec<u8>)], wanted: &Wanted) -> Option<Why> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    let mut w = Writer::create(&path, &Header { tsc_hz: HZ, locks: true, ..Default::default() }).unwrap();
    for (tid, bytes) in threads {
        w.events(0, *tid, bytes).unwrap();
    }
    w.end(&End::default()).unwrap();
    let r = Recording::open(&path).unwrap();
    // (An unknown layout is refused, and damaged bytes may have one.)
    if let Ok(rank) = slow_calls::rank(&r, decode::summary(&r).ok()?, &Pattern::new("nccl").unwrap()) {
        let events =
            |steps: &Steps| steps.list.iter().all(|step| step.ns.is_empty() || step.ns.len() == steps.of.len());
        assert!(rank.steps.iter().all(events), "{:?}", rank.steps);
    }
    let _ = slow_calls::late_kernels(&r);
    let why = slow_calls::why(&r, wanted).ok()??.0;
    assert_eq!(why.causes.iter().fold(0u64, |all, c| all.saturating_add(c.ns)), why.ns, "{why:?}");
    for call in &why.worst {
        assert_eq!(call.parts.iter().fold(0u64, |all, p| all.saturating_add(p.ns)), call.ns, "{call:?}");
    }
    Some(why)
}

fn told(threads: Vec<(i32, Thread)>) -> Why {
    let threads: Vec<(i32, Vec<u8>)> = threads.into_iter().map(|(tid, t)| (tid, t.bytes)).collect();
    told_with(&threads, &Wanted::default()).unwrap()
}

fn only(why: &Why) -> &SlowCall {
    assert_eq!((why.slow, why.worst.len()), (1, 1), "{why:?}");
    &why.worst[0]
}

#[test]
fn a_program_that_only_launches_and_waits_for_the_gpu_has_no_slow_call() {
    let mut t = Thread::default().begins().started();
    for i in 0..500 {
        t = t.call(LAUNCH, 0x10, 5 * US + i * 3).call(SYNCHRONIZE, 0, 900 * US);
    }
    let why = told(vec![(1, t)]);
    assert_eq!((why.slow, why.worst.len()), (0, 0), "{why:?}");
    let lost: u64 = why.causes.iter().filter(|c| !c.cause.is_by_design()).map(|c| c.ns).sum();
    assert_eq!(lost, 0, "{why:?}");
}

/// The waiter waits for a thread that waits for another lock, whose holder is in the driver.
#[test]
fn a_chain_of_holders_is_followed_to_its_end() {
    let a = Thread::default().begins().started();
    let at = a.now + US;
    let (ended, gil) = (at + 800 * US, 0x9000);
    // The first waits for 0x8000, which the second has while it waits for the third's lock.
    let a = a.waits(0x8000, at + US, ended - US, 10).call(LAUNCH, 0x10, 800 * US);
    let b =
        Thread::default().waits(gil, at - 5 * US, ended - 3 * US, US).waits(0x8000, at - 10 * US, at - 10 * US + 1, 0);
    // (Its hold of 0x8000 is recorded at its release.)
    let hold = HoldBody { addr: 0x8000, hold: ended - 2 * US - (at - 10 * US), ..HoldBody::default() };
    let b = b.add(tape::lock::kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, ended - 2 * US, &hold);
    let mut c = Thread::default().begins().driver(at - 20 * US, ended - 4 * US);
    let hold = HoldBody { addr: gil, hold: ended - 3 * US - (at - 30 * US), ..HoldBody::default() };
    c = c.add(tape::lock::kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, ended - 3 * US, &hold);
    c.now = at - 40 * US;
    let c = c.call(REGISTER, 0, ended - 2 * US - (at - 39 * US));
    let why = told(vec![(1, a), (2, b), (3, c)]);
    let call = why.worst.iter().find(|w| w.tid == 1).unwrap();
    assert_eq!(call.cause, Some(Cause::Lock), "{call:?}");
    let lock = &call.parts.iter().find(|p| p.cause == Cause::Lock).unwrap().of[0];
    assert!(lock.free_ns.unwrap() <= 2 * US, "{lock:?}");
    let links: Vec<_> = lock.because.iter().map(|l| (l.tid, l.how, l.doing, l.call.as_deref())).collect();
    assert_eq!(
        links,
        [(2, "held", Cause::Lock, None), (3, "held", Cause::DriverCall, Some("cuMemHostRegister"))],
        "{lock:?}"
    );
}

/// A recording of waits only: the begin of a hold is not known, but the holder and its call are.
#[test]
fn a_holder_whose_hold_began_at_an_unknown_time_is_named_with_its_call() {
    let a = Thread::default()
        .add(tape::lock::kind::LOCKS, 0, 1, &LocksBody { layout: LAYOUT_WAITS, pid: 7 })
        .add(call::kind::CALLS, 0, 1, &CallsBody { layout: call::LAYOUT, pid: 7 })
        .started();
    let at = a.now + US;
    let end = at + 800 * US;
    let a = a.waits(0x8000, at + US, end - US, 10).call(LAUNCH, 0x10, 800 * US);
    let open = |how: u32| {
        let hold = HoldBody { addr: 0x8000, wait: 1, hold: 797 * US, ended: how, ..HoldBody::default() };
        let t = Thread { now: at - 40 * US, ..Thread::default() };
        t.driver(at - 20 * US, end - 4 * US)
            .add(tape::lock::kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, end - 2 * US, &hold)
            .call(REGISTER, 0, 839 * US)
    };
    let links = |threads: Vec<(i32, Thread)>| {
        let why = told(threads);
        let call = why.worst.iter().find(|w| w.tid == 1).unwrap();
        let lock = &call.parts.iter().find(|p| p.cause == Cause::Lock).unwrap().of[0];
        // (1 GiB of fresh pages, on an H200.)
        assert!(lock.because.iter().all(|l| l.holds_others.is_some_and(|h| h.p50_ns / 1_000_000 == 368)), "{lock:?}");
        lock.because.iter().map(|l| (l.tid, l.how, l.doing, l.call.clone())).collect::<Vec<_>>()
    };
    let named = |tid| vec![(tid, "held", Cause::DriverCall, Some("cuMemHostRegister".to_owned()))];
    assert_eq!(links(vec![(1, a.clone()), (2, open(ended::OPEN_UNLOCK))]), named(2));
    let late = || open(ended::OPEN_LATE);
    assert_eq!(links(vec![(1, a.clone()), (2, late())]), named(2), "nobody else can be meant");
    assert_eq!(links(vec![(1, a.clone()), (2, late()), (3, open(ended::OPEN_UNLOCK))]), named(3));
    assert_eq!(links(vec![(1, a), (2, late()), (3, late())]), [], "one of two");
}

#[test]
fn a_lock_that_changed_hands_is_put_down_to_who_had_it_the_longest_in_all() {
    let a = Thread::default().begins().started();
    let at = a.now + US;
    let a = a.waits(0x8000, at, at + 100 * US, 1).call(LAUNCH, 0x10, 110 * US);
    let mut b = Thread::default();
    for i in 0..10 {
        b = b.waits(0x8000, at + i * 10 * US, at + i * 10 * US, 6 * US);
    }
    let c = Thread::default().waits(0x8000, at + 7 * US, at + 7 * US, 2 * US);
    let why = told(vec![(1, a), (2, b), (3, c)]);
    let lock = &only(&why).parts[0].of[0];
    let first = &lock.because[0];
    assert_eq!((first.tid, first.times, first.ns), (2, 10, 60 * US), "{lock:?}");
    assert_eq!(lock.free_ns, Some(38 * US));
}

#[test]
fn a_call_in_which_more_happened_than_is_remembered_makes_the_answer_incomplete() {
    let during = |holds: u64| {
        let a = Thread::default().begins().started();
        let at = a.now + US;
        let a = a.waits(0x8000, at, at + 900 * US, 1).call(LAUNCH, 0x10, 910 * US);
        let b = (0..holds).fold(Thread::default(), |b, i| b.waits(0x8000, at + i * 10, at + i * 10, 5));
        told(vec![(1, a), (2, b)]).incomplete_because
    };
    assert!(!during(1000).iter().any(|why| why.contains("more happened")), "{:?}", during(1000));
    let why = during(40_000);
    assert!(why.iter().any(|why| why.starts_with("during 1 of the slow calls")), "{why:?}");
}

#[test]
fn a_condition_is_put_down_to_who_signalled_it() {
    let a = Thread::default().begins().started();
    let at = a.now + US;
    let a = a.op(op::COND_WAIT, 0x8000, 300 * US, at + 301 * US).call(LAUNCH, 0x10, 305 * US);
    let b = Thread::default().driver(at, at + 299 * US).op(op::COND_SIGNAL, 0x8000, 0, at + 300 * US);
    let why = told(vec![(1, a), (2, b)]);
    let call = only(&why);
    assert_eq!(call.cause, Some(Cause::Condition));
    let link = &call.parts[0].of[0].because[0];
    assert_eq!((link.tid, link.how, link.doing), (2, "signalled", Cause::DriverCall), "{link:?}");
}

#[test]
fn a_cpu_that_was_taken_away_is_told_from_one_that_was_given_up() {
    let t = Thread::default().begins().started();
    let at = t.now + US;
    let t = t.call(LAUNCH, 0x10, 400 * US);
    let next = t.now + US;
    let t = t.call(LAUNCH, 0x10, 300 * US);
    let s = off(switches(), 1, Some(99), at + 10 * US, at + 390 * US);
    let s = off(s, 1, None, next + 5 * US, next + 295 * US);
    let why = told(vec![(1, t), (switch::WRITER, s)]);
    let causes: Vec<_> = why.worst.iter().map(|c| (c.number, c.cause.unwrap())).collect();
    assert_eq!(causes, [(1101, Cause::Preempted), (1102, Cause::Asleep)]);
    assert_eq!(why.worst[0].parts[0].of[0].what, "thread 99");
}

/// Faults of a thread, one after the other: the time since the previous one, and its ticks.
fn faults(t: Thread, tid: i32, flags: u16, from: u64, all: &[(u64, u64)]) -> Thread {
    let bytes: Vec<u8> = all
        .iter()
        .flat_map(|(after, ticks)| bytes_of(&Fault { after: *after as u32, ticks: *ticks as u32 }).to_vec())
        .collect();
    let mut t = t.add(fault::kind::FAULTS, flags, from, &FaultsBody { tid, count: all.len() as u32 });
    t.tail(&bytes);
    t
}

fn watched(scope: u32, steal: u32, why: &str) -> Thread {
    let body = WatchedBody { layout: fault::LAYOUT, scope, steal, text: why.len() as u32 };
    let mut t = Thread::default().add(fault::kind::WATCHED, 0, 1, &body);
    t.tail(why.as_bytes());
    t
}

/// One event has faults of two calls and of the time between them. A major one is off CPU, too.
#[test]
fn page_faults_are_put_down_to_the_calls_that_they_were_in() {
    let t = Thread::default().begins().started();
    let at = t.now + US;
    let t = t.call(LAUNCH, 0x10, 200 * US);
    let second = t.now + US;
    let t = t.call(LAUNCH, 0x10, 300 * US);
    // 100 of 1 us in the first call, one between the calls, one of 80 us in the second.
    let mut all = vec![(0, US); 100];
    all.push((at + 200 * US + 200 - (at + 10 * US + 100 * US), 500));
    all.push((second + 20 * US - (at + 200 * US + 700), 80 * US));
    let f = watched(fault::scope::ALL, fault::steal::NONE, "");
    let f = faults(f, 1, 0, at + 10 * US, &all);
    let f = faults(f, 1, fault::MAJOR, second + 120 * US, &[(0, 150 * US)]);
    let s = off(switches(), 1, None, second + 125 * US, second + 265 * US);
    let why = told(vec![(1, t), (switch::WRITER, s), (fault::WRITER, f)]);
    let call = |number| why.worst.iter().find(|c| c.number == number).unwrap();
    let part = |number| call(number).parts.iter().find(|p| p.cause == Cause::PageFault).unwrap();
    assert_eq!((part(1101).ns, part(1102).ns), (100 * US, 230 * US), "{why:?}");
    let of = |number| part(number).of.iter().map(|o| (o.what.as_str(), o.times, o.ns)).collect::<Vec<_>>();
    assert_eq!(of(1101), [("minor", 100, 100 * US)]);
    assert_eq!(of(1102), [("major", 1, 150 * US), ("minor", 1, 80 * US)]);
    assert_eq!((call(1102).page_faults.minor, call(1102).page_faults.major), (1, 1));
    assert!(call(1102).parts.iter().all(|p| p.cause != Cause::Asleep), "{why:?}");
    assert_eq!(call(1102).cause, Some(Cause::PageFault));
    assert_eq!(why.stolen_ns, Some(0));
    assert!(!why.not_watched.iter().any(|w| w.contains("page faults") || w.contains("hypervisor")), "{why:?}");
}

/// Thread 1 waits for the GIL between two calls, 5 ms at a time: thread 2 has it in a call, then thread 3 outside of any.
#[test]
fn a_wait_for_pythons_lock_between_two_calls_is_named_with_who_had_it() {
    const GIL: u64 = 0x7000_2010;
    let path = "/usr/lib/libpython3.11.so.1.0";
    let map = MappingBody { start: 0x7000_0000, end: 0x7000_4000, offset: 0, rights: 3, path: path.len() as u32 };
    let mut a = Thread::default().begins().add(tape::lock::kind::MAPPING, 0, 1, &map);
    a.tail(path.as_bytes());
    let mut a = a.started();
    let at = a.now + 100 * US;
    for i in 1..=3 {
        a = a.op(op::COND_TIMEDWAIT, GIL, 5000 * US, at + i * 5000 * US);
    }
    // A wait for the program's own condition, and waits after the last call.
    a = a.op(op::COND_WAIT, 0x8000, 50 * US, at + 15_100 * US);
    a.now = at + 15_200 * US;
    let a = a.call(LAUNCH, 0x10, 5 * US);
    let later = a.now + 1000 * US;
    let a = a.op(op::COND_TIMEDWAIT, GIL, 900 * US, later);
    let mut b = Thread::default().begins();
    b.now = at - 500 * US;
    let b = b.call(SYNCHRONIZE, 0, 12_400 * US).op(op::COND_SIGNAL, GIL, 0, at + 12_000 * US);
    let c = Thread::default().begins().op(op::COND_SIGNAL, GIL, 0, at + 15_000 * US);
    let why = told(vec![(1, a), (2, b), (3, c)]);
    assert_eq!((why.slow, why.between.gaps, why.between.ns, why.between.longest_ns), (0, 1, 15_000 * US, 15_000 * US));
    let gap = &why.between.worst[0];
    assert_eq!((gap.tid, gap.number, gap.waits, gap.ns), (1, 1101, 3, 15_000 * US), "{gap:?}");
    assert_eq!(gap.lock, "libpython3.11+0x2010/cond");
    let who: Vec<_> = gap.because.iter().map(|l| (l.tid, l.how, l.ns, l.call.as_deref())).collect();
    let held = [(2, "held", 12_000 * US, Some("cuStreamSynchronize")), (3, "held", 3000 * US, None)];
    assert_eq!(who, held);
}

#[test]
fn what_was_not_watched_is_named_with_its_reason_and_what_was_lost_is_not_complete() {
    let t = Thread::default().begins().started();
    let says = |f: Option<Thread>| {
        let rest = f.map(|f| (fault::WRITER, f));
        told([Some((1, t.clone())), rest].into_iter().flatten().collect())
    };
    let older = says(None);
    assert!(older.not_watched.iter().any(|w| w == "page faults") && older.stolen_ns.is_none(), "{older:?}");
    let refused = says(Some(watched(fault::scope::REFUSED, fault::steal::NOT_KNOWN, "not today")));
    assert!(refused.not_watched.iter().any(|w| w == "page faults: not today"), "{refused:?}");
    assert!(refused.not_watched.iter().any(|w| w.starts_with("time that a hypervisor took")), "{refused:?}");
    let own = watched(fault::scope::PROGRAM, fault::steal::COUNTED, "");
    let own = own.add(fault::kind::STOLEN, 0, 500, &StolenBody { ns: 20_000_000 });
    let own = own.add(fault::kind::STOLEN, 0, 900, &StolenBody { ns: 10_000_000 });
    let own = says(Some(own.add(fault::kind::LOST, 0, 950, &switch::LostBody { records: 7 })));
    assert!(own.not_watched.iter().any(|w| w.contains("in system calls")), "{own:?}");
    assert_eq!(own.stolen_ns, Some(30_000_000));
    assert!(own.incomplete_because.iter().any(|w| w == "7 records of page faults were lost"), "{own:?}");
}

#[test]
fn what_a_call_does_for_the_first_time_and_what_it_makes_have_causes_of_their_own() {
    let t = Thread::default().begins().started();
    let t = t.call(LAUNCH, 0x20, 100 * US).call(LAUNCH, 0x20, 5 * US);
    let t = t.call(GRAPH_LAUNCH, 0x30, 200 * US).call(GRAPH_LAUNCH, 0x30, 8 * US);
    let t = t.call(UPDATE, 0x30, 90 * US).call(GRAPH_LAUNCH, 0x30, 150 * US);
    let t = t.call(ALLOC, 0, 300 * US).call(LOAD, 0, 400 * US);
    let why = told(vec![(1, t)]);
    let mut causes: Vec<_> = why.worst.iter().map(|c| (c.tsc, c.cause.unwrap())).collect();
    causes.sort_unstable();
    let causes: Vec<_> = causes.into_iter().map(|(_, cause)| cause).collect();
    let expected =
        [Cause::CodeLoading, Cause::GraphUpload, Cause::Making, Cause::GraphUpload, Cause::Memory, Cause::CodeLoading];
    assert_eq!(causes, expected, "{why:?}");
}

#[test]
fn what_nothing_explains_is_unknown_and_the_time_in_which_a_process_begins_is_left_out() {
    let t = Thread::default().begins().call(LAUNCH, 0x10, 5 * US).call(LAUNCH, 0x10, 700 * US).started();
    let t = t.call(LAUNCH, 0x10, 600 * US);
    let why = told(vec![(1, t.clone())]);
    let call = only(&why);
    assert_eq!((call.number, call.cause), (1103, Some(Cause::Unknown)));
    let all = told_with(&[(1, t.bytes.clone())], &Wanted { starting: true, ..Wanted::default() }).unwrap();
    assert_eq!(all.worst.iter().map(|c| c.number).collect::<Vec<_>>(), [2, 1103]);
    let other =
        told_with(&[(1, t.bytes.clone())], &Wanted { function: Some("cuMemAlloc".into()), ..Wanted::default() })
            .unwrap();
    assert!(other.worst.is_empty());
    let one = told_with(&[(1, t.bytes)], &Wanted { number: Some(7), worst: 100, ..Wanted::default() }).unwrap();
    assert_eq!((one.worst.len(), one.worst[0].number, one.worst[0].cause), (1, 7, None));
}

/// Each launch is an entry of a ring for 64. After 100 launches without a synchronisation, all are as slow as the GPU.
#[test]
fn launches_that_are_as_slow_as_the_gpu_behind_a_full_ring_are_put_down_to_it() {
    let channel = ChannelBody { slot: 0, class: 0xc86f, entries: 64, ..ChannelBody::default() };
    let t = Thread::default().begins().add(tape::event::kind::CHANNEL, 0, 2, &channel);
    let t = t.started().call(SYNCHRONIZE, 0, 10 * US);
    let mut t = t;
    for i in 0..400u32 {
        let call = t.calls + 1;
        let ring = RingBody {
            token: 5,
            seq: i.into(),
            put_from: i % 64,
            put_to: (i + 1) % 64,
            tid: 1,
            function: 1,
            call,
            ..RingBody::default()
        };
        let entry = EntryBody { gp: 0, seq: i.into(), slot: 0, index: i % 64, words: 0, lack: 0 };
        let at = t.now + 2 * US;
        t = t.add(tape::event::kind::RING, 0, at, &ring).add(tape::event::kind::ENTRY, 0, at, &entry);
        t = t.call(LAUNCH, 0x10, if i < 100 { 5 * US } else { 30 * US });
    }
    let why = told(vec![(1, t)]);
    let of = |cause| why.causes.iter().find(|c| c.cause == cause).map_or(0, |c| c.calls);
    assert!(of(Cause::FullRing) >= 290 && of(Cause::Unknown) <= 10, "{why:?}");
}

#[test]
fn a_call_in_which_its_thread_ended_is_named() {
    let t = Thread::default().begins().call(LAUNCH, 0x10, 5 * US);
    let body = CallBody { began: 50 * US, seq: 2, ..CallBody::default() };
    let t = t.add(call::kind::IN_CALL, SYNCHRONIZE, 900 * US, &body);
    // Also in a thread that has made no other call.
    let other = Thread::default().add(call::kind::IN_CALL, LAUNCH, 800 * US, &CallBody { seq: 1, ..body });
    let why = told(vec![(1, t), (2, other)]);
    assert_eq!((why.unfinished, why.calls), (2, 3));
    let rows: Vec<_> = why.first_unfinished.iter().map(|u| (u.tid, u.call.as_str(), u.ns)).collect();
    assert_eq!(rows, [(2, "cuLaunchKernel", 750 * US), (1, "cuStreamSynchronize", 850 * US)]);
}

#[test]
fn a_recording_without_calls_has_nothing_to_tell() {
    let t = Thread::default().add(tape::lock::kind::LOCKS, 0, 1, &LocksBody { layout: LAYOUT, pid: 7 });
    assert!(told_with(&[(1, t.bytes)], &Wanted::default()).is_none());
}

/// What threads did when they or the recording ended. (A second is 1,000,000 us.)
#[test]
fn the_end_of_a_recording_has_the_cycles_and_calls_that_lasted() {
    let left = |t: Thread, at: u64, addr: u64, since: u64, waiting: u32| {
        let body = HeldBody { addr, site: 0x2000, since: since * US, waiting, ..HeldBody::default() };
        t.add(tape::lock::kind::HELD, u16::from(op::MUTEX_LOCK) << 8, at * US, &body)
    };
    let call = |t: Thread, at: u64, began: u64| {
        let body = CallBody { began: began * US, seq: 9, stream: 0x51, ..CallBody::default() };
        t.add(call::kind::IN_CALL, SYNCHRONIZE, at * US, &body)
    };
    let begins = || Thread::default().begins().call(LAUNCH, 0x10, 5 * US);
    let end = 5_000_000;
    // Thread 3 ended long before with a lock for which thread 4 waits. Thread 5 was in a call when a pause began, and returned.
    let stuck = |since: u64| {
        vec![
            (1, left(left(begins(), end, 0xa0, 100, left::HELD), end, 0xb0, since, left::WAITING)),
            (2, left(left(Thread::default(), end, 0xb0, 100, left::HELD), end, 0xa0, since, left::WAITING)),
            (3, left(Thread::default(), 1_000_000, 0xc0, 100, left::HELD)),
            (4, left(Thread::default(), end, 0xc0, since, left::WAITING)),
            (5, call(Thread::default(), 500_000, 100).call(LAUNCH, 0x10, 600_000 * US)),
            (6, call(Thread::default(), end, since)),
        ]
    };
    let moment = told(stuck(2_000_000)).moment.unwrap();
    assert_eq!(moment.when, "when the recording ended");
    let of = |tid| moment.now.threads.iter().find(|t| t.tid == tid);
    assert_eq!((moment.now.cycles.len(), moment.now.chains[0].end), (1, "ended"), "{:?}", moment.now);
    assert!(of(5).is_none() && of(6).unwrap().call.as_ref().is_some_and(|c| c.ns == 3_000_000 * US));
    assert!(told(stuck(end - 50_000)).moment.is_none(), "all of it had begun just before");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// For any bytes: no panic, and the parts add up.
    #[test]
    fn damaged_events_are_told_without_panic(at in proptest::collection::vec((0..20_000usize, any::<u8>()), 1..60)) {
        let t = Thread::default().begins();
        let t = (0..100).fold(t, |t, i| {
            let from = t.now + US;
            t.waits(0x8000 + i % 3, from, from + 60 * US, 5).driver(from, from + 10 * US).call(LAUNCH, i % 5, 100 * US)
        });
        let s = (0..100).fold(switches(), |s, i| off(s, 1, Some(9), i * 100 * US, i * 100 * US + 40 * US));
        let f = (0..100).fold(watched(fault::scope::ALL, 1, ""), |f, i| faults(f, 1, i as u16 % 2, i * 9000, &[(0, 5); 9]));
        let mut all =
            vec![(1, t.bytes.clone()), (2, t.bytes), (switch::WRITER, s.bytes), (fault::WRITER, f.bytes)];
        for (at, value) in at {
            let bytes = &mut all[at % 4].1;
            let n = bytes.len();
            bytes[at % n] = value;
        }
        told_with(&all, &Wanted { starting: true, ..Wanted::default() });
    }
}
