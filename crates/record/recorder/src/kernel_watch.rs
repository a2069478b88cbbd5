//! Computes each kernel's duration while it is recorded with the GPU's times, for triggers.
//!
//! The GPU stored the end. The start is used where it is known within microseconds: after the doorbell on an idle stream, or after the previous kernels
//! (`decode::gpu_times` explains how these times were measured). A kernel has no known start if its channel waited for another one, or if it overlapped a
//! kernel of its own stream. It is counted and not judged.
//!
//! Invariants: the memory is bounded, whatever a program writes over its rings. No code here waits, and no time is guessed.

use pushbuf::qmd::end_time::{self, Found, Program};
use pushbuf::semaphore;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use tape::event::{Body, EntryBody, Event, RingBody, ends, entry_flags, lack, ring_flags, runs};
use tape::region::STAMPS_BYTES;
use tape::stamp::{AS_BEFORE, EndsBody, OWN_GPU, Run, STRIDE, number, state};

/// Nanoseconds from a doorbell to a kernel's start, and from one kernel's end to the start of the next, in a stream and in a graph.
const IDLE: u64 = 2_300;
const BUSY: u64 = 1_000;
const NODE: u64 = 300;

/// Maximum number of a process's kernels in progress at a time. Each takes 56 bytes.
const RUNS: usize = 1 << 15;
/// Numbers of kernels are below this one; others are wrong.
const MOST: u64 = 1 << 48;
/// Maximum numbers of a process's QMDs in graphs, names, streams and threads. Beyond that all are forgotten and learned
/// again.
const QMDS: usize = 1 << 16;
const NAMES: usize = 1 << 14;
const STREAMS: usize = 1 << 10;
const THREADS: usize = 1 << 10;
/// Maximum bytes of a segment that is recorded in several events.
const SEGMENT: usize = 1 << 20;

/// A kernel that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    pub process: u32,
    /// The address of its code, and the handle that launched it; 0 in a graph.
    pub code: u64,
    pub handle: u64,
    pub ns: u64,
}

/// Watches all processes.
pub struct KernelWatch {
    /// Nanoseconds of one tick.
    tick: f64,
    processes: BTreeMap<u32, Process>,
    /// The GPUs' clocks, as the recorder reads them.
    clocks: HashMap<u32, Clock>,
    /// Kernels with a known time, and those without a known start.
    pub timed: u64,
    pub not_timed: u64,
}

#[derive(Clone, Copy)]
struct Clock {
    tsc: u64,
    ns: u64,
}

#[derive(Default)]
struct Process {
    /// The GPU's address of the slots.
    area: Option<u64>,
    clock: Option<Clock>,
    threads: HashMap<i32, Thread>,
    /// Graphs that entries launch, by slot and number of the entry: the number of the first kernel, and the QMDs.
    launched: HashMap<(u32, u64), (u64, Vec<Run>)>,
    /// Kernels by their numbers, one number at each place. Empty until ends are recorded.
    kernels: Vec<Kernel>,
    streams: HashMap<(u32, u64), Stream>,
    /// Channels with an unknown state since their last kernel: they waited for another channel, or a kernel has no number.
    unsure: HashSet<u32>,
    /// The programs in graphs, by the address of the QMD.
    qmds: HashMap<u64, Program>,
    names: HashMap<u64, Box<str>>,
    /// The handle that last launched each code.
    handles: HashMap<u64, u64>,
    /// Missing ends with numbers below this one will never arrive.
    settled: u64,
}

/// A thread's latest doorbell, whose entries follow.
#[derive(Default)]
struct Thread {
    ring: Option<(u64, RingBody)>,
    /// The words of an unfinished entry.
    words: Vec<u8>,
}

/// One kernel.
#[derive(Clone, Copy, Default)]
struct Kernel {
    /// Its number plus one, or 0.
    number: u64,
    /// By the GPU's clock; 0 if not yet known.
    end: u64,
    code: u64,
    handle: u64,
    /// When its doorbell was rung, by the GPU's clock; 0 if its launch is not yet known.
    rung: u64,
    /// The first number of its launch, plus one; 0 if its start cannot be known.
    group: u64,
    /// The distances back to the numbers of the kernels that start it; 0 for none.
    after: [i32; 2],
}

/// Kernels of a stream, in the order of their launches.
struct Stream {
    running: VecDeque<u64>,
    /// The latest end: 0 at first, `None` if the last kernel's end is not known.
    latest: Option<u64>,
    /// The present launch, and the latest end before it.
    group: u64,
    before: Option<u64>,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { running: VecDeque::new(), latest: Some(0), group: 0, before: None }
    }
}

impl KernelWatch {
    /// `hz`: ticks per second.
    pub fn new(hz: f64) -> KernelWatch {
        let (processes, clocks) = Default::default();
        KernelWatch { tick: 1e9 / hz, processes, clocks, timed: 0, not_timed: 0 }
    }

    /// Takes an event of a thread. `each` gets the kernels that are known to have ended by it.
    pub fn event(&mut self, process: u32, tid: i32, e: &Event<'_>, mut each: impl FnMut(Ran)) {
        let tsc = e.head.tsc;
        match &e.body {
            Body::Stamps(s) => {
                let p = self.processes.entry(process).or_default();
                if s.state == state::ON {
                    p.area = Some(s.area);
                    p.kernels.resize(RUNS, Kernel::default());
                }
                return;
            }
            Body::GpuClock(c) => {
                let clock = Clock { tsc, ns: c.gpu_ns };
                // (A process that reads the clock itself has one GPU.)
                if c.gpu == OWN_GPU {
                    self.processes.entry(process).or_default().clock = Some(clock);
                } else {
                    self.clocks.insert(c.gpu, clock);
                }
                return;
            }
            _ => {}
        }
        let Some(p) = self.processes.get_mut(&process).filter(|p| p.area.is_some()) else { return };
        match &e.body {
            Body::Name(n, name) => {
                if p.names.len() >= NAMES {
                    p.names.clear();
                }
                p.names.insert(n.handle, String::from_utf8_lossy(name).into());
            }
            Body::Ring(r) => {
                if p.threads.len() >= THREADS && !p.threads.contains_key(&tid) {
                    p.threads.clear();
                }
                if e.head.flags & ring_flags::AFTER_PAUSE != 0 {
                    p.unsure.insert(r.slot);
                }
                let thread = p.threads.entry(tid).or_default();
                thread.ring = Some((tsc, *r));
                thread.words.clear();
            }
            Body::Launched(l, _) if l.number == AS_BEFORE => _ = p.unsure.insert(l.slot),
            // (Which launches were lost is not known.)
            Body::Gap(_) => p.unsure.extend(p.streams.keys().map(|(slot, _)| *slot)),
            Body::Launched(l, bytes) if l.number < MOST => {
                // (The entries of that many graphs are lost.)
                if p.launched.len() >= STREAMS {
                    p.launched.clear();
                }
                p.launched.insert((l.slot, l.entry), (l.number, runs(bytes).collect()));
            }
            Body::Entry(b, bytes) => {
                // With several clocks, finding the right GPU would take the driver's objects.
                let clock = p.clock.or_else(|| self.clocks.values().next().filter(|_| self.clocks.len() == 1).copied());
                let at = |tsc: u64| {
                    let c = clock?;
                    Some(c.ns.saturating_add_signed((tsc.wrapping_sub(c.tsc) as i64 as f64 * self.tick) as i64))
                };
                if let Some(stream) = p.entry(tid, e.head.flags, b, bytes, at) {
                    let (timed, not) = p.judge(process, stream, &mut each);
                    (self.timed, self.not_timed) = (self.timed + timed, self.not_timed + not);
                }
            }
            Body::Ends(body, bytes) => {
                let (timed, not) = p.ended(process, body, bytes, &mut each);
                (self.timed, self.not_timed) = (self.timed + timed, self.not_timed + not);
            }
            _ => {}
        }
    }

    /// A kernel's name: the name of its symbol, otherwise its entry address.
    pub fn name(&self, ran: &Ran) -> String {
        let p = self.processes.get(&ran.process);
        let handle = if ran.handle != 0 { Some(ran.handle) } else { p.and_then(|p| p.handles.get(&ran.code).copied()) };
        let name = p.zip(handle).and_then(|(p, handle)| p.names.get(&handle));
        name.map_or_else(|| format!("the kernel at {:#x}", ran.code), |name| format!("kernel {name}"))
    }

    /// The process has ended.
    pub fn forget(&mut self, process: u32) {
        self.processes.remove(&process);
    }
}

impl Process {
    /// Takes an entry of a doorbell. Returns the stream in which it launches kernels, if it does. `at`: the GPU's time
    /// at a time stamp.
    fn entry(
        &mut self,
        tid: i32,
        flags: u16,
        b: &EntryBody,
        bytes: &[u8],
        at: impl Fn(u64) -> Option<u64>,
    ) -> Option<(u32, u64)> {
        let thread = self.threads.get_mut(&tid)?;
        let (tsc, ring) = thread.ring.filter(|(_, ring)| ring.slot == b.slot)?;
        let whole;
        let mut bytes = bytes;
        if flags & (entry_flags::MORE | entry_flags::CONTINUED) != 0 {
            if flags & entry_flags::CONTINUED == 0 {
                thread.words.clear();
            }
            if thread.words.len() + bytes.len() <= SEGMENT {
                thread.words.extend_from_slice(bytes);
            }
            if flags & entry_flags::MORE != 0 {
                return None;
            }
            whole = std::mem::take(&mut thread.words);
            bytes = &whole;
        }
        let word = |i: usize| bytes.get(4 * i..4 * i + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let length = bytes.len() / 4;
        let graph = self.launched.remove(&(b.slot, b.seq));
        let area = self.area?;
        let is_slot = |address: u64| address.wrapping_sub(area) < STAMPS_BYTES as u64;
        // (With a handle it is a kernel. Otherwise a graph is uploaded. Its first launch takes the time of the upload,
        // too.)
        let mut kernels: Vec<(u64, Kernel)> = Vec::new();
        let mut lacks = b.lack != lack::NONE;
        let is_upload = ring.kernel == 0;
        let rung = at(tsc).unwrap_or(0);
        end_time::find(length, word, |found| {
            let Found::Kernel(w) = found else { return };
            let program = end_time::program(w.at, word);
            if is_upload {
                if self.qmds.len() >= QMDS {
                    self.qmds.clear();
                }
                self.qmds.insert(w.address, program);
            }
            if let Some((_, payload)) = end_time::take(w.at, is_slot, word, |_, _| ()) {
                let number = number(payload);
                let group = if is_upload || program.is_early { 0 } else { number + 1 };
                let handle = ring.kernel;
                let kernel =
                    Kernel { number: number + 1, code: program.code, handle, rung, group, ..Kernel::default() };
                kernels.push((number, kernel));
            } else {
                lacks = true;
            }
        });
        if !is_upload && let [(_, kernel)] = kernels[..] {
            if self.handles.len() >= NAMES {
                self.handles.clear();
            }
            self.handles.insert(kernel.code, kernel.handle);
        }
        // The wait in a graph's launch is for the previous launch.
        if graph.is_none() && semaphore::acquires(length, word) {
            self.unsure.insert(ring.slot);
        }
        if let Some((first, runs)) = &graph {
            self.graph(*first, runs, rung, &mut kernels);
        }
        let is_unsure = !kernels.is_empty() && self.unsure.remove(&ring.slot);
        if lacks {
            self.unsure.insert(ring.slot);
        }
        if kernels.is_empty() {
            return None;
        }
        let key = (ring.slot, ring.stream);
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&key) {
            self.streams.clear();
        }
        let stream = self.streams.entry(key).or_default();
        for (number, kernel) in kernels {
            let Some(place) = self.kernels.get_mut(number as usize % RUNS) else { continue };
            // (Its end may have arrived earlier.)
            let end = if place.number == kernel.number { place.end } else { 0 };
            let group = if is_unsure || rung == 0 { 0 } else { kernel.group };
            *place = Kernel { end, group, ..kernel };
            if stream.running.len() < RUNS {
                stream.running.push_back(number);
            }
        }
        Some(key)
    }

    /// Adds the kernels of a graph that is launched again.
    fn graph(&self, first: u64, runs: &[Run], rung: u64, kernels: &mut Vec<(u64, Kernel)>) {
        let each = runs.iter().flat_map(|run| (0..u64::from(run.count)).map(|i| run.qmd.saturating_add(STRIDE * i)));
        let numbers: HashMap<u64, u64> = each.clone().take(RUNS).zip(first..).collect();
        let from = kernels.len();
        for (qmd, number) in each.take(RUNS).zip(first..) {
            let Program { code, is_early, .. } =
                self.qmds.get(&qmd).copied().unwrap_or(Program { code: 0, starts: [0; 2], is_early: false });
            let group = if is_early || code == 0 { 0 } else { first + 1 };
            kernels.push((number, Kernel { number: number + 1, code, rung, group, ..Kernel::default() }));
        }
        for (qmd, number) in &numbers {
            for then in self.qmds.get(qmd).iter().flat_map(|program| program.starts) {
                let Some(then) = numbers.get(&then) else { continue };
                let Some((_, kernel)) = kernels.get_mut(from + (then - first) as usize) else { continue };
                match kernel.after.iter_mut().find(|after| **after == 0) {
                    Some(after) => *after = (*then as i64 - *number as i64) as i32,
                    // More than two kernels start it.
                    None => kernel.group = 0,
                }
            }
        }
    }

    fn ended(&mut self, process: u32, body: &EndsBody, bytes: &[u8], each: &mut impl FnMut(Ran)) -> (u64, u64) {
        for end in ends(bytes).filter(|end| end.number < MOST) {
            if let Some(place) = self.kernels.get_mut(end.number as usize % RUNS) {
                if place.number != end.number + 1 {
                    *place = Kernel { number: end.number + 1, ..Kernel::default() };
                }
                place.end = end.ns;
            }
        }
        let keys: Vec<_> = self.streams.iter().filter(|(_, s)| !s.running.is_empty()).map(|(key, _)| *key).collect();
        let mut all = (0, 0);
        for key in keys {
            let (timed, not) = self.judge(process, key, each);
            all = (all.0 + timed, all.1 + not);
        }
        // (The ends in this event may be below it, too.)
        self.settled = body.settled;
        all
    }

    /// Judges a stream's ended kernels, in order. Returns the number of kernels with and without a time.
    fn judge(&mut self, process: u32, key: (u32, u64), each: &mut impl FnMut(Ran)) -> (u64, u64) {
        let Some(stream) = self.streams.get_mut(&key) else { return (0, 0) };
        let place = |number: u64| self.kernels.get(number as usize % RUNS).filter(|k| k.number == number + 1);
        let (mut timed, mut not_timed) = (0, 0);
        while let Some(&number) = stream.running.front() {
            let Some(k) = place(number) else {
                // A younger kernel has its place.
                (stream.latest, not_timed) = (None, not_timed + 1);
                stream.running.pop_front();
                continue;
            };
            if k.end == 0 {
                if number >= self.settled {
                    break;
                }
                (stream.latest, not_timed) = (None, not_timed + 1);
                stream.running.pop_front();
                continue;
            }
            stream.running.pop_front();
            if k.group == 0 || stream.group != k.group {
                (stream.group, stream.before) = (k.group, stream.latest);
            }
            let after = |after: i32| place(number.wrapping_add_signed(-i64::from(after))).map_or(0, |k| k.end);
            let start = match k.after.map(|a| if a == 0 { None } else { Some(after(a)) }) {
                [None, None] => {
                    stream.before.map(|before| k.rung.saturating_add(IDLE).max(before.saturating_add(BUSY)))
                }
                [Some(0), _] | [_, Some(0)] => None,
                [a, b] => a.max(b).map(|ns| ns.saturating_add(NODE)),
            };
            stream.latest = Some(stream.latest.unwrap_or(0).max(k.end));
            match start.filter(|start| k.group != 0 && *start <= k.end.saturating_add(BUSY)) {
                Some(start) => {
                    timed += 1;
                    each(Ran { process, code: k.code, handle: k.handle, ns: k.end.saturating_sub(start) });
                }
                None => not_timed += 1,
            }
        }
        (timed, not_timed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::*;
    use pushbuf::encode::Words;
    use pushbuf::semaphore::Execute;
    use tape::event::Events;
    use tape::stamp::{self, ClockBody, LaunchedBody, StampsBody};

    /// A recording of a program with a channel, and the kernels that the watch reported.
    struct Recorded {
        tape: Tape,
        watch: KernelWatch,
        seen: Vec<Ran>,
    }

    impl Recorded {
        fn begin() -> Recorded {
            let mut t = Tape::new();
            let body = StampsBody { state: state::ON, area: SLOTS_AT, ..StampsBody::default() };
            t.event(100, stamp::kind::STAMPS, 0, &body, &[], &[]);
            let clock = ClockBody { after: 1100, gpu_ns: GPU_ZERO + 1000, gpu: OWN_GPU, pad: 0 };
            t.event_at(100, 1000, stamp::kind::CLOCK, 0, &clock, &[], &[]);
            t.context(100);
            t.channel(100, 0, 0x5c00_1000, 1, 1024);
            let name = tape::call::NameBody { handle: 0xf1, name: 8, pad: 0 };
            t.event(100, tape::call::kind::NAME, 0, &name, b"_Z3addPi", &[]);
            let mut r = Recorded { tape: t, watch: KernelWatch::new(1e9), seen: Vec::new() };
            r.pass();
            r
        }

        /// Passes the events so far to the watch.
        fn pass(&mut self) {
            for ((process, tid), bytes) in self.tape.take_open() {
                Events::new(&bytes).for_each(|e| self.watch.event(process, tid, &e, |ran| self.seen.push(ran)));
            }
        }

        fn launch(&mut self, tsc: u64, words: &[u32], kernel: u64) {
            self.tape.call = RingBody { function: 1, stream: 0x51, kernel, ..RingBody::default() };
            self.tape.submit_at(100, tsc, 0, &[words], 0, 1 << 12);
        }

        fn end(&mut self, ends: &[(u64, u64)], settled: u64) {
            let all: Vec<u8> =
                ends.iter().flat_map(|(n, ns)| [*n, GPU_ZERO.wrapping_add(*ns)]).flat_map(u64::to_le_bytes).collect();
            let body = EndsBody { count: ends.len() as u32, pad: 0, settled };
            let tsc = self.tape.tsc;
            self.tape.event_at(stamp::WRITER, tsc, stamp::kind::ENDS, 0, &body, &all, &[]);
        }

        /// The times so far, and the number of kernels without one.
        fn times(&mut self) -> (Vec<u64>, u64) {
            self.pass();
            (self.seen.drain(..).map(|ran| ran.ns).collect(), self.watch.not_timed)
        }
    }

    /// (The writer's events arrive first here, as they may.)
    #[test]
    fn a_kernel_begins_after_its_doorbell_or_after_the_one_before_it() {
        let mut r = Recorded::begin();
        for (number, tsc) in [(0, 100_000), (1, 101_000), (2, 500_000)] {
            r.launch(tsc, &stamped(QMD_AT, number, &[]), 0xf1);
        }
        r.end(&[(0, 150_000), (1, 180_000), (2, 510_000)], 3);
        assert_eq!(r.times(), (vec![150_000 - 100_000 - IDLE, 30_000 - BUSY, 10_000 - IDLE], 0));
        // Its end arrives later than its launch.
        r.launch(600_000, &stamped(QMD_AT, 3, &[]), 0xf1);
        assert_eq!(r.times(), (vec![], 0));
        r.end(&[(3, 700_000)], 4);
        r.pass();
        let ran = r.seen[0];
        assert_eq!((r.watch.name(&ran), ran.ns), ("kernel _Z3addPi".into(), 100_000 - IDLE));
        assert_eq!(r.watch.name(&Ran { code: 0x1230, handle: 0, ..ran }), "the kernel at 0x1230");
    }

    #[test]
    fn a_kernel_after_a_wait_or_after_one_that_is_not_known_has_no_time() {
        let mut r = Recorded::begin();
        let mut buffer = vec![0; 100];
        let mut w = Words::new(&mut buffer);
        w.host_semaphore(0, RINGS_AT + 0x10, 0x17, Execute::WAIT).unwrap();
        let waits = [w.as_slice(), &stamped(QMD_AT, 0, &[])].concat();
        r.launch(100_000, &waits, 0xf1);
        r.launch(101_000, &stamped(QMD_AT, 1, &[]), 0xf1);
        r.end(&[(0, 900_000), (1, 950_000)], 2);
        assert_eq!(r.times(), (vec![50_000 - BUSY], 1));
        // Number 2 ends, but its launch is not on the tape. Number 3's end is lost.
        r.tape.gap(100, 1, 1, 400);
        r.launch(1_002_000, &stamped(QMD_AT, 3, &[]), 0xf1);
        r.launch(1_003_000, &stamped(QMD_AT, 4, &[]), 0xf1);
        r.launch(1_004_000, &stamped(QMD_AT, 5, &[]), 0xf1);
        r.end(&[(2, 1_500_000), (4, 2_000_000), (5, 2_100_000)], 6);
        assert_eq!(r.times(), (vec![100_000 - BUSY], 3));
    }

    /// A root, which starts two others.
    #[test]
    fn a_graphs_kernel_begins_after_those_that_start_it_and_the_upload_has_no_times() {
        let mut r = Recorded::begin();
        let at = |n: u64| QMD_AT + STRIDE * n;
        let upload: Vec<u32> = [(0, vec![at(1), at(2)]), (1, vec![]), (2, vec![])]
            .iter()
            .flat_map(|(n, then)| stamped(at(*n), *n, then))
            .collect();
        r.launch(100_000, &upload, 0);
        r.end(&[(0, 200_000), (1, 210_000), (2, 220_000)], 3);
        assert_eq!(r.times(), (vec![], 3));
        let body = LaunchedBody { entry: 1, number: 3, slot: 0, runs: 1 };
        let run = Run { qmd: at(0), count: 3, pad: 0 };
        let tsc = 500_000;
        r.tape.event_at(100, tsc, stamp::kind::LAUNCHED, 0, &body, tape::event::bytes_of(&run), &[]);
        r.launch(tsc, &launch(at(0), [1, 1, 1]), 0);
        r.end(&[(3, 550_000), (4, 650_000), (5, 600_000)], 6);
        assert_eq!(r.times(), (vec![50_000 - IDLE, 100_000 - NODE, 50_000 - NODE], 3));
    }

    #[test]
    fn no_bytes_make_it_panic_or_grow() {
        let mut watch = KernelWatch::new(1e9);
        let mut r = Recorded::begin();
        let mut random = 1u64;
        let mut next = move |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        for number in 0..2000 {
            r.launch(1000 * number, &stamped(QMD_AT, next(1 << 20), &[]), next(3));
            r.end(&[(next(1 << 20), next(1 << 40)), (u64::MAX, u64::MAX)], next(1 << 20));
        }
        for ((process, tid), mut bytes) in r.tape.take_open() {
            for _ in 0..bytes.len() / 100 {
                let at = next(bytes.len() as u64) as usize;
                bytes[at] = next(256) as u8;
            }
            Events::new(&bytes).for_each(|e| watch.event(process, tid, &e, |_| ()));
        }
        let p = watch.processes.values().next().map(|p| (p.kernels.len(), p.streams.len(), p.qmds.len()));
        assert!(
            p.is_none_or(|(kernels, streams, qmds)| kernels <= RUNS && streams <= STREAMS && qmds <= QMDS),
            "{p:?}"
        );
    }
}
