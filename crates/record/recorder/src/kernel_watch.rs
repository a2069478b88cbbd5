//! Computes each kernel's duration while it is recorded with the GPU's times, for triggers.
//!
//! The GPU stored the end, and `tape::kernel_clock` computes the start, as for the views. A kernel whose start has bounds only (its channel waited for
//! another one, or the kernel before it is not known) is counted and not judged.
//!
//! Invariants: the memory is bounded, whatever a program writes over its rings. No code here waits, and no time is guessed.

use pushbuf::qmd::end_time::{self, Found, Program};
use pushbuf::semaphore;
use std::collections::{BTreeMap, HashMap, VecDeque};
use tape::event::{Body, EntryBody, Event, RingBody, ends, entry_flags, lack, qmds, ring_flags};
use tape::kernel_clock::{Clock, Kernels, Launch, Node, Order, Start, Stream};
use tape::region::{SLOTS, STAMPS_BYTES};
use tape::stamp::{AS_BEFORE, EndsBody, OWN_GPU, number, state};

/// Maximum number of a process's kernels in progress at a time, and of remembered ends.
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
    /// Ticks per second.
    hz: f64,
    processes: BTreeMap<u32, Process>,
    /// The GPUs' latest clocks, as the recorder reads them.
    clocks: HashMap<u32, Clock>,
    /// Kernels with a known time, and those without a known start.
    pub timed: u64,
    pub not_timed: u64,
}

#[derive(Default)]
struct Process {
    number: u32,
    /// The GPU's address of the slots.
    area: Option<u64>,
    clock: Option<Clock>,
    threads: HashMap<i32, Thread>,
    /// Graphs that entries launch, by slot and number of the entry: the number of the first kernel, and the QMDs.
    launched: HashMap<(u32, u64), (u64, Vec<u64>)>,
    kernels: Kernels,
    /// Launches whose ends are awaited, in order, and the number of all their kernels.
    streams: HashMap<Stream, VecDeque<Awaited>>,
    awaited: usize,
    /// Numbers of kernels plus one and their ends, one number at each place. Empty until ends are recorded.
    ends: Vec<(u64, u64)>,
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
    ring: Option<RingBody>,
    /// When it was rung by the GPU's clock, and the maximum error.
    rung: Option<(u64, u64)>,
    /// The words of an unfinished entry.
    words: Vec<u8>,
}

struct Awaited {
    launch: Launch,
    /// The kernel's; 0: a graph.
    handle: u64,
    kernels: Vec<Kernel>,
}

struct Kernel {
    qmd: u64,
    number: u64,
    /// `None` if its QMD was not seen.
    program: Option<Program>,
}

impl KernelWatch {
    /// `hz`: ticks per second.
    pub fn new(hz: f64) -> KernelWatch {
        let (processes, clocks) = Default::default();
        KernelWatch { hz, processes, clocks, timed: 0, not_timed: 0 }
    }

    /// Takes an event of a thread. `each` gets the kernels that are known to have ended by it.
    pub fn event(&mut self, process: u32, tid: i32, e: &Event<'_>, mut each: impl FnMut(Ran)) {
        let tsc = e.head.tsc;
        let new = || Process { number: process, ..Process::default() };
        match &e.body {
            Body::Stamps(s) => {
                let p = self.processes.entry(process).or_insert_with(new);
                if s.state == state::ON {
                    p.area = Some(s.area);
                    p.ends.resize(RUNS, (0, 0));
                }
                return;
            }
            Body::GpuClock(c) => {
                let mut clock = Clock::new(self.hz, c.gpu_ns);
                clock.add(tsc, c.after, c.gpu_ns);
                // (A process that reads the clock itself has one GPU.)
                if c.gpu == OWN_GPU {
                    self.processes.entry(process).or_insert_with(new).clock = Some(clock);
                } else {
                    self.clocks.insert(c.gpu, clock);
                }
                return;
            }
            _ => {}
        }
        let Some(p) = self.processes.get_mut(&process).filter(|p| p.area.is_some()) else { return };
        let (timed, not_timed) = (&mut self.timed, &mut self.not_timed);
        let mut each = |ran: Option<Ran>| match ran {
            Some(ran) => {
                *timed += 1;
                each(ran);
            }
            None => *not_timed += 1,
        };
        match &e.body {
            Body::Name(n, name) => {
                if p.names.len() >= NAMES {
                    p.names.clear();
                }
                p.names.insert(n.handle, String::from_utf8_lossy(name).into());
            }
            Body::Ring(r) if (r.slot as usize) < SLOTS => {
                if p.threads.len() >= THREADS && !p.threads.contains_key(&tid) {
                    p.threads.clear();
                }
                if e.head.flags & ring_flags::AFTER_PAUSE != 0 {
                    p.kernels.waits(r.slot as usize);
                }
                // With several clocks, finding the right GPU would take the driver's objects.
                let is_only = self.clocks.len() == 1;
                let clock = p.clock.as_mut().or_else(|| self.clocks.values_mut().next().filter(|_| is_only));
                let thread = p.threads.entry(tid).or_default();
                (thread.ring, thread.rung) = (Some(*r), clock.and_then(|clock| clock.gpu_ns(tsc)));
                thread.words.clear();
            }
            Body::Launched(l, _) if l.slot as usize >= SLOTS => {}
            Body::Launched(l, _) if l.number == AS_BEFORE => p.kernels.waits(l.slot as usize),
            // (Which launches were lost is not known.)
            Body::Gap(_) => p.streams.keys().for_each(|(channel, _)| p.kernels.waits(*channel)),
            Body::Launched(l, bytes) if l.number < MOST => {
                // (The entries of that many graphs are lost.)
                if p.launched.len() >= STREAMS {
                    p.launched.clear();
                }
                p.launched.insert((l.slot, l.entry), (l.number, qmds(bytes).collect()));
            }
            Body::Entry(b, bytes) => {
                if let Some(stream) = p.entry(tid, e.head.flags, b, bytes, &mut each) {
                    p.judge(stream, &mut each);
                }
            }
            Body::Ends(body, bytes) => p.ended(body, bytes, &mut each),
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
    /// Takes an entry of a doorbell. Returns its stream.
    fn entry(
        &mut self,
        tid: i32,
        flags: u16,
        b: &EntryBody,
        bytes: &[u8],
        each: &mut impl FnMut(Option<Ran>),
    ) -> Option<Stream> {
        let thread = self.threads.get_mut(&tid)?;
        let ring = thread.ring.filter(|ring| ring.slot == b.slot)?;
        let rung = thread.rung;
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
        let (handle, stream) = (ring.kernel, (ring.slot as usize, ring.stream));
        // (With a handle they are kernels. Otherwise a graph is uploaded.)
        let mut written: Vec<Kernel> = Vec::new();
        let mut lacks = b.lack != lack::NONE;
        end_time::find(length, word, |found| {
            let Found::Kernel(w) = found else { return };
            let program = end_time::program(w.at, word);
            if handle == 0 {
                if self.qmds.len() >= QMDS {
                    self.qmds.clear();
                }
                self.qmds.insert(w.address, program);
            }
            match end_time::take(w.at, is_slot, word, |_, _| ()) {
                Some((_, payload)) => {
                    written.push(Kernel { qmd: w.address, number: number(payload), program: Some(program) });
                }
                None => lacks = true,
            }
        });
        // The wait in a graph's launch is for the previous launch.
        if graph.is_none() && semaphore::acquires(length, word) {
            self.kernels.waits(stream.0);
        }
        if graph.is_none() && written.is_empty() && !lacks && end_time::writes_inline(length, word) {
            self.kernels.writes(stream.0);
        }
        if handle != 0 {
            if let [Kernel { program: Some(program), .. }] = written[..] {
                if self.handles.len() >= NAMES {
                    self.handles.clear();
                }
                self.handles.insert(program.code, handle);
            }
            written.drain(..).for_each(|kernel| self.launch(stream, rung, handle, vec![kernel], each));
        } else if !written.is_empty() {
            // How long the upload took is not known.
            self.kernels.waits(stream.0);
        }
        if let Some((first, qmds)) = graph {
            let kernel = |(qmd, number)| Kernel { qmd, number, program: self.qmds.get(&qmd).copied() };
            written.extend(qmds.into_iter().zip(first..).map(kernel));
        }
        if !written.is_empty() {
            self.launch(stream, rung, 0, written, each);
        }
        if lacks {
            self.kernels.waits(stream.0);
        }
        Some(stream)
    }

    fn launch(
        &mut self,
        stream: Stream,
        rung: Option<(u64, u64)>,
        handle: u64,
        kernels: Vec<Kernel>,
        each: &mut impl FnMut(Option<Ran>),
    ) {
        if self.awaited + kernels.len() > RUNS {
            self.kernels.waits(stream.0);
            return kernels.iter().for_each(|_| each(None));
        }
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&stream) {
            self.streams.clear();
            (self.kernels, self.awaited) = (Kernels::default(), 0);
        }
        let is_early = handle != 0 && kernels.iter().any(|k| k.program.is_some_and(|program| program.is_early));
        // (The clocks of a process with several GPUs are not used.)
        let launch = self.kernels.launch(stream, None, rung, is_early);
        self.awaited += kernels.len();
        self.streams.entry(stream).or_default().push_back(Awaited { launch, handle, kernels });
    }

    fn ended(&mut self, body: &EndsBody, bytes: &[u8], each: &mut impl FnMut(Option<Ran>)) {
        for end in ends(bytes).filter(|end| end.number < MOST) {
            if let Some(place) = self.ends.get_mut(end.number as usize % RUNS) {
                *place = (end.number + 1, end.ns);
            }
        }
        let streams: Vec<_> =
            self.streams.iter().filter(|(_, all)| !all.is_empty()).map(|(stream, _)| *stream).collect();
        streams.into_iter().for_each(|stream| self.judge(stream, each));
        // (The ends in this event may be below it, too.)
        self.settled = body.settled;
    }

    /// When a kernel ended: not yet, never known, or then.
    fn end(&self, number: u64) -> Option<Option<u64>> {
        match self.ends.get(number as usize % RUNS) {
            Some((of, ns)) if *of == number + 1 => Some(Some(*ns)),
            // A younger kernel has its place.
            Some((of, _)) if *of > number + 1 => Some(None),
            _ => (number < self.settled).then_some(None),
        }
    }

    /// Judges a stream's ended kernels, in order.
    fn judge(&mut self, stream: Stream, each: &mut impl FnMut(Option<Ran>)) {
        while let Some(next) = self.streams.get(&stream).and_then(VecDeque::front) {
            let node = |k: &Kernel| {
                let order = k.program.map(|p| Order { starts: p.starts, early: p.is_early }).unwrap_or_default();
                Some(Node { qmd: k.qmd, order, end: self.end(k.number)? })
            };
            let Some(nodes) = next.kernels.iter().map(node).collect::<Option<Vec<Node>>>() else { return };
            let Some(next) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front) else { return };
            self.awaited = self.awaited.saturating_sub(next.kernels.len());
            let runs = match nodes[..] {
                [Node { end, .. }] if next.handle != 0 => {
                    self.kernels.kernel(&next.launch, end).map(|run| (0, run)).into_iter().collect()
                }
                _ => self.kernels.graph(&next.launch, &nodes),
            };
            let mut not_timed = next.kernels.len();
            for (i, run) in runs {
                let program = next.kernels.get(i).and_then(|k| k.program);
                // (If it ended before its doorbell, the clocks do not agree.)
                if let Some(Program { code, .. }) = program
                    && run.from != Start::Bounded
                    && run.earliest < run.end
                {
                    not_timed -= 1;
                    each(Some(Ran { process: self.number, code, handle: next.handle, ns: run.end - run.start }));
                }
            }
            (0..not_timed).for_each(|_| each(None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::*;
    use pushbuf::encode::{Words, inline_dma};
    use pushbuf::semaphore::Execute;
    use tape::event::Events;
    use tape::kernel_clock::{AFTER_A_WRITE, BUSY, IDLE, NODE};
    use tape::stamp::{self, ClockBody, LaunchedBody, Run, STRIDE, StampsBody};

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
            let clock = ClockBody { after: 1000, gpu_ns: GPU_ZERO + 1000, gpu: OWN_GPU, pad: 0 };
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
        assert_eq!(r.times(), (vec![150_000 - 100_000 - IDLE, 30_000 - BUSY.1, 10_000 - IDLE], 0));
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
        assert_eq!(r.times(), (vec![50_000 - BUSY.1], 1));
        // Number 2 ends, but its launch is not on the tape. Number 3's end is lost.
        r.tape.gap(100, 1, 1, 400);
        r.launch(1_002_000, &stamped(QMD_AT, 3, &[]), 0xf1);
        r.launch(1_003_000, &stamped(QMD_AT, 4, &[]), 0xf1);
        r.launch(1_004_000, &stamped(QMD_AT, 5, &[]), 0xf1);
        r.end(&[(2, 1_500_000), (4, 2_000_000), (5, 2_100_000)], 6);
        assert_eq!(r.times(), (vec![100_000 - BUSY.1], 3));
    }

    #[test]
    fn a_kernel_after_a_write_begins_later() {
        let mut r = Recorded::begin();
        r.launch(100_000, &stamped(QMD_AT, 0, &[]), 0xf1);
        let mut buffer = vec![0; 100];
        let mut w = Words::new(&mut buffer);
        w.inline(1, QMD_AT + 0x1000, &[7; 16], inline_dma::PITCH).unwrap();
        r.launch(101_000, w.as_slice(), 0);
        r.launch(102_000, &stamped(QMD_AT, 1, &[]), 0xf1);
        r.end(&[(0, 200_000), (1, 300_000)], 2);
        assert_eq!(r.times(), (vec![100_000 - IDLE, 100_000 - AFTER_A_WRITE.1], 0));
    }

    /// More launches than are awaited: the others have no time, and neither has the first one after them.
    #[test]
    fn launches_that_are_too_many_are_counted() {
        let mut r = Recorded::begin();
        let all = RUNS as u64 + 10;
        (0..all).for_each(|number| r.launch(100_000 + number, &stamped(QMD_AT, number, &[]), 0xf1));
        r.pass();
        r.end(&(0..RUNS as u64).map(|number| (number, 200_000 + 2000 * number)).collect::<Vec<_>>(), all);
        assert_eq!((r.times().0.len(), r.watch.not_timed), (RUNS, 10));
        let late = 300_000_000;
        (0..2).for_each(|n| r.launch(late + n, &stamped(QMD_AT, all + n, &[]), 0xf1));
        r.end(&[(all, late + 50_000), (all + 1, late + 60_000)], all + 2);
        assert_eq!(r.times(), (vec![10_000 - BUSY.1], 11));
    }

    /// A root, which starts two others.
    #[test]
    fn a_graphs_kernel_begins_after_those_that_start_it_and_the_root_of_an_upload_has_no_time() {
        let mut r = Recorded::begin();
        let at = |n: u64| QMD_AT + STRIDE * n;
        let upload: Vec<u32> = [(0, vec![at(1), at(2)]), (1, vec![]), (2, vec![])]
            .iter()
            .flat_map(|(n, then)| stamped(at(*n), *n, then))
            .collect();
        r.launch(100_000, &upload, 0);
        r.end(&[(0, 200_000), (1, 210_000), (2, 220_000)], 3);
        assert_eq!(r.times(), (vec![10_000 - NODE, 20_000 - NODE], 1));
        let body = LaunchedBody { entry: 1, number: 3, slot: 0, runs: 1 };
        let run = Run { qmd: at(0), count: 3, slot_at: 28 };
        let tsc = 500_000;
        r.tape.event_at(100, tsc, stamp::kind::LAUNCHED, 0, &body, tape::event::bytes_of(&run), &[]);
        r.launch(tsc, &launch(at(0), [1, 1, 1]), 0);
        r.end(&[(3, 550_000), (4, 650_000), (5, 600_000)], 6);
        assert_eq!(r.times(), (vec![50_000 - IDLE, 50_000 - NODE, 100_000 - NODE], 1));
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
        let p = watch.processes.values().next().map(|p| (p.awaited, p.streams.len(), p.qmds.len()));
        assert!(
            p.is_none_or(|(awaited, streams, qmds)| awaited <= RUNS && streams <= STREAMS && qmds <= QMDS),
            "{p:?}"
        );
    }
}
