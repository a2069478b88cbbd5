//! Waits for the GPU whose kernels and copies are known, because the tapes are written here.

#[path = "../../decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use pushbuf::encode::Words;
use pushbuf::semaphore::Execute;
use schema::slow_calls::{Cause, PartRow, SlowCall, Why};
use slow_calls::Wanted;
use synthetic::{DEVICE_AT, GPU_ZERO, HOST_AT, QMD_AT, RINGS_AT, SLOTS_AT, Tape, copy, fill, stamped};
use tape::call::{self, CallBody, CallsBody, NameBody};
use tape::event::RingBody;
use tape::stamp::{self, ClockBody, EndsBody, StampsBody, state};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
/// Functions by their numbers on tapes.
const LAUNCH: u16 = 1;
const RECORD: u16 = 50;
const EVENT_SYNCHRONIZE: u16 = 60;
const STREAM_SYNCHRONIZE: u16 = 61;
const CONTEXT_SYNCHRONIZE: u16 = 62;
const COPY: u16 = 14;
const COPY_TO_DEVICE: u16 = 12;
const COPY_TO_DEVICE_ASYNC: u16 = 13;

const MIB: u32 = 1 << 20;

const GEMM: u64 = 0xf1;
const ADD: u64 = 0xf2;
const STREAM: u64 = 0x51;
const OTHER: u64 = 0x52;

/// A program of one thread. A tick is a nanosecond, of the CPU and of the GPU.
struct Program {
    t: Tape,
    numbers: u64,
    calls: u32,
    ends: Vec<u8>,
    /// Words to submit before the next launch.
    waits: Vec<u32>,
}

impl Program {
    fn new(gpu_times: bool) -> Program {
        let mut t = Tape::new();
        t.header.gpu_times = gpu_times;
        t.event(100, call::kind::CALLS, 0, &CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
        let stamps = StampsBody { layout: stamp::LAYOUT, state: state::ON, area: SLOTS_AT, ..StampsBody::default() };
        t.event(100, stamp::kind::STAMPS, 0, &stamps, &[], &[]);
        t.context(100);
        t.channel(100, 0, 0x5c00_1000, 1, 1 << 14);
        t.channel(100, 1, 0x5c00_1001, 11, 1 << 14);
        for (handle, name) in [(GEMM, b"_Z4gemmi"), (ADD, b"_Z4add_i")] {
            let body = NameBody { handle, name: name.len() as u32, pad: 0 };
            t.event(100, call::kind::NAME, 0, &body, name, &[]);
        }
        for tsc in [100_000, 1000 * MS] {
            let body = ClockBody { after: tsc + 100, gpu_ns: GPU_ZERO + tsc + 50, gpu: stamp::OWN_GPU, pad: 0 };
            t.event_at(stamp::WRITER, tsc, stamp::kind::CLOCK, 0, &body, &[], &[]);
        }
        Program { t, numbers: 0, calls: 0, ends: Vec::new(), waits: Vec::new() }
    }

    /// A kernel, submitted at `at`; it ends at `end`, if that is known.
    fn launch(&mut self, stream: u64, kernel: u64, at: u64, end: Option<u64>) {
        let call = self.calls + 1;
        self.t.call = RingBody { function: LAUNCH.into(), call, stream, object: kernel, kernel, ..RingBody::default() };
        let launch = stamped(QMD_AT + 0x200 * (self.numbers % 64), self.numbers, &[]);
        let words = [std::mem::take(&mut self.waits), launch].concat();
        self.t.submit_at(100, at, 0, &[&words], 0, 1 << 14);
        self.t.call = RingBody::default();
        self.call(LAUNCH, stream, kernel, at - 200, at + 200);
        if let Some(end) = end {
            self.ends.extend(self.numbers.to_le_bytes());
            self.ends.extend((GPU_ZERO + end).to_le_bytes());
        }
        self.numbers += 1;
    }

    /// Makes the next kernel's channel wait for the copies' release.
    fn wait_for_copies(&mut self) {
        let mut buffer = vec![0; 100];
        let mut w = Words::new(&mut buffer);
        w.host_semaphore(0, RINGS_AT + 0x10, 0x17, Execute::WAIT).unwrap();
        self.waits = w.as_slice().to_vec();
    }

    /// A copy engine's work for the next call, with its begin and end if they are known.
    fn engine(&mut self, function: u16, stream: u64, words: &[u32], at: u64, ran: Option<(u64, u64)>) {
        let call = self.calls + 1;
        self.t.call = RingBody { function: function.into(), call, stream, ..RingBody::default() };
        self.t.submit_timed(100, at, 1, words, self.numbers);
        self.t.call = RingBody::default();
        if let Some((from, to)) = ran {
            for (number, ns) in [(self.numbers, from), (self.numbers + 1, to)] {
                self.ends.extend(number.to_le_bytes());
                self.ends.extend((GPU_ZERO + ns).to_le_bytes());
            }
        }
        self.numbers += 2;
    }

    /// A copy of pinned memory to the device, submitted at `at`; the call does not wait for it.
    fn copy(&mut self, stream: u64, mib: u32, at: u64, ran: Option<(u64, u64)>) {
        let words = copy(HOST_AT, DEVICE_AT, mib * MIB);
        self.engine(COPY_TO_DEVICE_ASYNC, stream, &words, at, ran);
        self.copying(COPY_TO_DEVICE_ASYNC, stream, (HOST_AT, u64::from(mib * MIB)), at - 200, at + 200);
    }

    fn copying(&mut self, function: u16, stream: u64, (source, size): (u64, u64), began: u64, ended: u64) {
        self.calls += 1;
        let body = CallBody { began, stream, object: DEVICE_AT, source, size, seq: self.calls, ..CallBody::default() };
        self.t.event_at(100, ended, call::kind::CALL, function, &body, &[], &[]);
    }

    fn call(&mut self, function: u16, stream: u64, object: u64, began: u64, ended: u64) {
        self.calls += 1;
        let body = CallBody { began, stream, object, seq: self.calls, ..CallBody::default() };
        self.t.event_at(100, ended, call::kind::CALL, function, &body, &[], &[]);
    }

    /// All ends that were given are on the tape.
    fn end(&mut self) {
        let body = EndsBody { count: (self.ends.len() / 16) as u32, pad: 0, settled: 0 };
        self.t.event_at(stamp::WRITER, 1001 * MS, stamp::kind::ENDS, 0, &body, &self.ends, &[]);
        self.t.tsc = 1002 * MS;
    }

    fn why_with(mut self, number: Option<u32>) -> Why {
        self.end();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.doorbell");
        self.t.write(&path);
        let wanted = Wanted { worst: 10, number, function: None, thread: None, slow_from_ns: 50 * US, starting: true };
        let why = slow_calls::why(&Recording::open(&path).unwrap(), &wanted).unwrap().unwrap().0;
        assert_eq!(why.causes.iter().map(|c| c.ns).sum::<u64>(), why.ns, "{why:?}");
        for call in why.worst.iter().chain(&why.waits) {
            assert_eq!(call.parts.iter().map(|p| p.ns).sum::<u64>(), call.ns, "{call:?}");
        }
        why
    }

    fn why(self) -> Why {
        self.why_with(None)
    }
}

fn only(why: &Why) -> &SlowCall {
    assert_eq!((why.long_waits, why.waits.len()), (1, 1), "{why:?}");
    &why.waits[0]
}

fn part(call: &SlowCall, cause: Cause) -> Option<&PartRow> {
    call.parts.iter().find(|p| p.cause == cause)
}

fn ns(call: &SlowCall, cause: Cause) -> u64 {
    part(call, cause).map_or(0, |p| p.ns)
}

/// Times are converted between two clocks: within 100 ns.
fn near(ns: u64, expected: u64) -> bool {
    ns.abs_diff(expected) < 100
}

#[test]
fn a_long_kernel_is_named() {
    let mut p = Program::new(true);
    p.launch(STREAM, ADD, 999 * US, Some(1005 * US));
    p.launch(STREAM, GEMM, 1000 * US, Some(11_000 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1010 * US, 11_005 * US);
    let why = p.why();
    assert_eq!(why.slow, 0, "it is there to wait: {why:?}");
    let call = only(&why);
    assert_eq!(call.cause, Some(Cause::Engine));
    assert!(near(ns(call, Cause::Engine), 9990 * US) && near(ns(call, Cause::Gpu), 5 * US), "{call:?}");
    let engine = part(call, Cause::Engine).unwrap();
    assert_eq!((engine.of.len(), engine.of[0].what.as_str(), engine.of[0].at_most), (1, "gemm(int)", false));
    let after = &part(call, Cause::Gpu).unwrap().of[0].what;
    assert!(after.starts_with("after the last kernel"), "{after}");
    assert_eq!(call.advice.as_deref(), Some("the longest kernel that it waits for is gemm(int)"));
    assert!(near(call.saves_ns.unwrap(), 9990 * US), "{call:?}");
}

/// Each runs for 0.5 us, and the next one begins 1 us later.
#[test]
fn many_short_kernels_stand_in_the_queue() {
    let mut p = Program::new(true);
    for i in 0..1000 {
        p.launch(STREAM, ADD, 1000 * US + i * US, Some(2000 * US + (i + 1) * 1500));
    }
    // In another stream, which the call does not wait for.
    p.launch(OTHER, GEMM, 2000 * US, Some(5000 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 2003 * US, 3500 * US);
    let why = p.why();
    let call = only(&why);
    assert_eq!((why.slow, call.cause), (1, Some(Cause::Queue)), "{why:?}");
    let (queue, engine) = (ns(call, Cause::Queue), ns(call, Cause::Engine));
    assert!(queue.abs_diff(998 * US) < 2 * US && engine.abs_diff(499 * US) < 2 * US, "{queue} {engine}");
    assert_eq!(part(call, Cause::Queue).unwrap().of[0].what, "while gemm(int) ran");
    assert_eq!(part(call, Cause::Engine).unwrap().of[0].what, "add_(int)");
    assert_eq!(part(call, Cause::Engine).unwrap().of.len(), 1);
    assert!(call.advice.as_ref().unwrap().contains("998 kernels ran"), "{call:?}");
    assert_eq!(call.saves_ns, Some(queue));
    assert_eq!(why.worst[0].cause, Some(Cause::Queue));
}

#[test]
fn a_late_launch_is_named_with_how_long_the_stream_ran_nothing() {
    let mut p = Program::new(true);
    p.launch(STREAM, ADD, 1000 * US, Some(1100 * US));
    p.launch(STREAM, GEMM, 2000 * US, Some(2100 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 2005 * US, 2103 * US);
    let why = p.why();
    let call = only(&why);
    assert_eq!(
        call.advice.as_deref(),
        Some("launches are late: the stream ran nothing for 900 us before gemm(int) was submitted")
    );
    assert!(near(call.saves_ns.unwrap(), 95 * US), "no more than it waited: {call:?}");
}

#[test]
fn a_wait_in_which_the_gpu_does_nothing_is_named_so() {
    let mut p = Program::new(true);
    p.launch(STREAM, ADD, 1000 * US, Some(1100 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 2000 * US, 3000 * US);
    let why = p.why();
    let call = only(&why);
    assert_eq!((call.cause, ns(call, Cause::Gpu), call.advice.as_ref()), (Some(Cause::Gpu), 1000 * US, None));
    assert!(part(call, Cause::Gpu).unwrap().of[0].what.starts_with("nothing that it waits for has a time"), "{call:?}");
}

#[test]
fn a_clean_program_has_no_long_wait() {
    let mut p = Program::new(true);
    for i in 0..200 {
        let at = 1000 * US + i * 100 * US;
        p.launch(STREAM, ADD, at, Some(at + 20 * US));
        p.call(STREAM_SYNCHRONIZE, STREAM, 0, at + 2 * US, at + 24 * US);
    }
    let why = p.why();
    assert_eq!((why.slow, why.long_waits, why.waits.len()), (0, 0, 0), "{why:?}");
    let of = |cause| why.causes.iter().find(|c| c.cause == cause).map_or(0, |c| c.ns);
    assert!(of(Cause::Engine) > 3000 * US && of(Cause::Queue) < 200 * US, "{why:?}");
}

/// A thread without a CPU loses time after the kernel has ended, not before.
#[test]
fn a_cpu_that_was_taken_away_counts_from_the_end_of_the_last_kernel() {
    use tape::switch::{self, SwitchBody, SwitchesBody, WRITER, switch_flags};
    let mut p = Program::new(true);
    let scope = switch::scope::ALL_CPUS;
    let switches = SwitchesBody { layout: switch::LAYOUT, scope, ..SwitchesBody::default() };
    p.t.event_at(WRITER, 100, switch::kind::SWITCHES, 0, &switches, &[], &[]);
    p.launch(STREAM, GEMM, 1000 * US, Some(2000 * US));
    for (tsc, flags) in [(1200 * US, switch_flags::OUT | switch_flags::PREEMPTED), (2300 * US, 0)] {
        let body = SwitchBody { tid: 100, other: 9, other_pid: 9, cpu: 0 };
        p.t.event_at(WRITER, tsc, switch::kind::SWITCH, flags, &body, &[], &[]);
    }
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1010 * US, 2305 * US);
    let why = p.why();
    let call = &why.worst[0];
    assert_eq!((why.slow, call.cause), (1, Some(Cause::Preempted)), "{why:?}");
    assert!(near(ns(call, Cause::Preempted), 300 * US) && near(ns(call, Cause::Engine), 990 * US), "{call:?}");
}

/// The kernel before it in its stream has no end, so this one may have begun much later than at its doorbell.
#[test]
fn a_kernel_with_bounds_alone_counts_as_at_most() {
    let mut p = Program::new(true);
    p.launch(STREAM, ADD, 1000 * US, None);
    p.launch(STREAM, GEMM, 1001 * US, Some(3000 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1002 * US, 3001 * US);
    let why = p.why();
    let engine = part(only(&why), Cause::Engine).unwrap();
    assert!(engine.of[0].at_most && near(engine.ns, 1998 * US), "{engine:?}");
    assert!(why.not_watched.iter().any(|w| w.starts_with("when 1 of 2 kernels ran")), "{why:?}");
}

#[test]
fn each_way_to_wait_has_its_kernels() {
    // Two streams, with an event in the first after its first kernel.
    let with = |function, stream, object, ended: u64| {
        let mut p = Program::new(true);
        p.launch(STREAM, ADD, 1000 * US, Some(2000 * US));
        p.call(RECORD, STREAM, 0x77, 1001 * US, 1002 * US);
        p.launch(STREAM, GEMM, 1003 * US, Some(4000 * US));
        p.launch(OTHER, GEMM, 1004 * US, Some(6000 * US));
        p.call(function, stream, object, 1010 * US, ended + 2 * US);
        let why = p.why();
        let call = only(&why);
        let engine = part(call, Cause::Engine).unwrap();
        assert!(engine.ns.abs_diff(ended - 1010 * US) < 2 * US, "{function}: {engine:?}");
        engine.of.iter().map(|row| row.what.clone()).collect::<Vec<_>>()
    };
    assert_eq!(with(EVENT_SYNCHRONIZE, 0, 0x77, 2000 * US), ["add_(int)"]);
    assert_eq!(with(STREAM_SYNCHRONIZE, STREAM, 0, 4000 * US), ["gemm(int)", "add_(int)"]);
    for function in [CONTEXT_SYNCHRONIZE, COPY] {
        assert_eq!(with(function, 0, 0, 6000 * US)[0], "gemm(int)");
    }
}

#[test]
fn a_long_copy_is_named_with_its_bytes_and_direction() {
    let mut p = Program::new(true);
    p.copy(STREAM, 64, 1000 * US, Some((1005 * US, 6000 * US)));
    // In another stream, which the call does not wait for.
    p.copy(OTHER, 1, 1001 * US, Some((1005 * US, 9000 * US)));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1010 * US, 6003 * US);
    let why = p.why();
    let call = only(&why);
    assert_eq!((why.slow, call.cause), (0, Some(Cause::Engine)), "{why:?}");
    let engine = part(call, Cause::Engine).unwrap();
    assert!(near(engine.ns, 4990 * US) && near(ns(call, Cause::Gpu), 3 * US), "{call:?}");
    assert_eq!(engine.of.len(), 1);
    assert_eq!((engine.of[0].what.as_str(), engine.of[0].at_most), ("copy 64 MiB host to device", false));
    assert_eq!(call.advice.as_deref(), Some("the longest that it waits for is the copy 64 MiB host to device"));
    assert!(part(call, Cause::Gpu).unwrap().of[0].what.starts_with("outside of the copies"), "{call:?}");
}

#[test]
fn a_kernel_that_waits_behind_a_copy_is_told() {
    let mut p = Program::new(true);
    p.copy(STREAM, 64, 1000 * US, Some((1005 * US, 6000 * US)));
    p.wait_for_copies();
    p.launch(STREAM, GEMM, 1004 * US, Some(6500 * US));
    p.launch(STREAM, ADD, 1005 * US, Some(6600 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1010 * US, 6603 * US);
    let why = p.why();
    let call = only(&why);
    let copy = "copy 64 MiB host to device: gemm(int) waited behind it in its stream";
    assert_eq!(call.advice.as_deref(), Some(&*format!("the longest that it waits for is the {copy}")));
    let engine: Vec<&str> = part(call, Cause::Engine).unwrap().of.iter().map(|row| row.what.as_str()).collect();
    assert!(engine.contains(&copy) && engine.contains(&"gemm(int)"), "{engine:?}");
}

/// The CPU copies into CUDA's own memory, from which the engine copies 2 MiB at a time.
#[test]
fn a_call_that_copies_pageable_memory_has_its_own_copies() {
    let mut p = Program::new(true);
    for i in 0..4 {
        let at = 1100 * US + i * 400 * US;
        p.engine(COPY_TO_DEVICE, 0, &copy(HOST_AT, DEVICE_AT, 2 * MIB), at, Some((at + 3 * US, at + 103 * US)));
    }
    p.copying(COPY_TO_DEVICE, 0, (0x5555_0000, 8 << 20), 1000 * US, 2405 * US);
    let why = p.why_with(Some(1));
    let call = &why.worst[0];
    assert_eq!(call.cause, Some(Cause::Pageable), "{call:?}");
    let engine = part(call, Cause::Engine).unwrap();
    assert_eq!(engine.of[0].what, "copy 2 MiB host to device, pageable");
    assert!(engine.of[0].times == 4 && near(engine.ns, 400 * US), "{engine:?}");
    let queue = part(call, Cause::Queue).unwrap();
    assert!(near(queue.ns, 12 * US), "from its doorbell, not from the call: {queue:?}");
    assert!(near(ns(call, Cause::Pageable), 993 * US), "{call:?}");
}

#[test]
fn a_copy_in_the_way_and_copies_in_the_queue_are_told() {
    let mut p = Program::new(true);
    p.copy(OTHER, 16, 900 * US, Some((905 * US, 2000 * US)));
    for i in 0..10 {
        let begin = 2000 * US + i * 200 * US;
        p.copy(STREAM, 1, 1000 * US + i * US, Some((begin, begin + 50 * US)));
    }
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1020 * US, 3853 * US);
    let why = p.why();
    let call = only(&why);
    assert_eq!(call.cause, Some(Cause::Queue), "{call:?}");
    let queue = &part(call, Cause::Queue).unwrap().of;
    assert_eq!(queue[0].what, "while no kernel and no copy of the process ran");
    assert_eq!(queue[1].what, "while copy 16 MiB host to device ran");
    assert!(near(queue[1].ns, 980 * US), "{queue:?}");
    let advice = call.advice.as_deref().unwrap();
    assert!(advice.starts_with("10 copies ran, and none for ") && advice.ends_with("fewer, larger copies"), "{advice}");
}

#[test]
fn a_fill_is_named_and_copies_without_a_time_are_counted() {
    let mut p = Program::new(true);
    p.copy(STREAM, 1, 900 * US, None);
    p.engine(31, STREAM, &fill(DEVICE_AT, 0, 1 << 20), 1000 * US, Some((1005 * US, 1200 * US)));
    p.call(31, STREAM, 0, 999 * US, 1001 * US);
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1010 * US, 1203 * US);
    let why = p.why();
    assert_eq!(part(only(&why), Cause::Engine).unwrap().of[0].what, "fill 4 MiB of device");
    assert!(why.not_watched.iter().any(|w| w.starts_with("when 1 of 2 copies ran")), "{why:?}");
}

#[test]
fn copies_of_very_many_sizes_leave_room_for_the_names_of_kernels() {
    let mut p = Program::new(true);
    for i in 0..2000 {
        let at = i * 10 * US + 1000 * US;
        let words = copy(HOST_AT, DEVICE_AT, (1025.0 * 1.004f64.powi(i as i32)) as u32);
        p.engine(COPY_TO_DEVICE_ASYNC, STREAM, &words, at, Some((at + US, at + 2 * US)));
        p.call(COPY_TO_DEVICE_ASYNC, STREAM, 0, at - 200, at + 200);
    }
    let at = 40_000 * US;
    p.engine(COPY_TO_DEVICE_ASYNC, STREAM, &copy(HOST_AT, DEVICE_AT, 77 * MIB), at, Some((at + US, at + 500 * US)));
    p.call(COPY_TO_DEVICE_ASYNC, STREAM, 0, at - 200, at + 200);
    p.wait_for_copies();
    p.launch(STREAM, GEMM, at + US, Some(at + 1000 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, at + 2 * US, at + 1003 * US);
    let why = p.why();
    let engine: Vec<&str> = part(only(&why), Cause::Engine).unwrap().of.iter().map(|row| row.what.as_str()).collect();
    let copies = "copies host to device: gemm(int) waited behind it in its stream";
    assert!(engine.contains(&"gemm(int)") && engine.contains(&copies), "{engine:?}");
}

#[test]
fn one_call_by_its_number_is_split_too() {
    let mut p = Program::new(true);
    p.launch(STREAM, GEMM, 1000 * US, Some(1040 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1002 * US, 1043 * US);
    let why = p.why_with(Some(2));
    assert_eq!((why.worst.len(), why.waits.len()), (1, 0));
    assert!(ns(&why.worst[0], Cause::Engine) > 30 * US, "{why:?}");
}

#[test]
fn without_the_gpus_times_nothing_changes() {
    let mut p = Program::new(false);
    p.launch(STREAM, GEMM, 1000 * US, Some(11_000 * US));
    p.call(STREAM_SYNCHRONIZE, STREAM, 0, 1010 * US, 11_005 * US);
    let why = p.why_with(Some(2));
    assert_eq!((why.long_waits, why.waits.len(), why.worst.len()), (0, 0, 1));
    let parts: Vec<_> = why.worst[0].parts.iter().map(|p| (p.cause, p.ns, p.of.len())).collect();
    assert_eq!(parts, [(Cause::Gpu, 9995 * US, 0)]);
    assert!(!why.not_watched.iter().any(|w| w.contains("kernels ran")), "{why:?}");
}

/// For any bytes: no panic, and the parts add up.
#[test]
fn damaged_kernels_are_told_without_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % n
    };
    let dir = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let mut p = Program::new(true);
        for i in 0..20 {
            let at = 1000 * US + i * 100 * US;
            p.launch([STREAM, OTHER][i as usize % 2], ADD, at, Some(at + 70 * US));
            p.copy([OTHER, STREAM][i as usize % 2], 1, at + US, Some((at + 5 * US, at + 60 * US)));
            p.call(RECORD, STREAM, 0x77, at + US, at + 2 * US);
            let ways = [(EVENT_SYNCHRONIZE, 0x77), (STREAM_SYNCHRONIZE, 0), (CONTEXT_SYNCHRONIZE, 0), (COPY, 0)];
            let (function, object) = ways[i as usize % 4];
            p.call(function, STREAM, object, at + 3 * US, at + 80 * US);
        }
        p.end();
        p.t.flip(2 + round * 3, &mut random);
        let path = dir.path().join(format!("{round}.doorbell"));
        p.t.write(&path);
        let wanted = Wanted { worst: 10, number: None, function: None, thread: None, slow_from_ns: 1, starting: true };
        // (An unknown layout is refused.)
        let Ok(Some((why, _))) = slow_calls::why(&Recording::open(&path).unwrap(), &wanted) else { continue };
        assert_eq!(why.causes.iter().fold(0u64, |all, c| all.saturating_add(c.ns)), why.ns, "{why:?}");
        for call in why.worst.iter().chain(&why.waits) {
            assert_eq!(call.parts.iter().fold(0u64, |all, p| all.saturating_add(p.ns)), call.ns, "{call:?}");
        }
    }
}
