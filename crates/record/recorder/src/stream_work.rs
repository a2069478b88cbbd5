//! What the streams of a process have to do, from its CUDA calls: kept while it is recorded, for `why --now`.
//!
//! Each call that gives a stream work adds it. A call that waits for work, or asks for it, and returns success takes away what was before
//! it. So the front of a stream is its oldest work that may not be done.
//!
//! Invariant: the memory is bounded, whatever a program does. What is forgotten is oldest, and said.

use crate::live::readers::{Job, run};
use crate::lock_word;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tape::call::{CallBody, Class, Effect, Function, Object, flag, function, number, of_thread};
use tape::event::{Body, Event, Head, kind};
use tape::live::{LiveChannel, LiveCollectives, LivePoll, LiveProcess, LiveStream, LiveWork, collective};
use tape::region::SLOTS;

/// Maximum number of a process's streams, of the calls of each, of threads and events, and of names of kernels.
const STREAMS: usize = 1 << 10;
const CALLS: usize = 1 << 8;
const THREADS: usize = 1 << 10;
const EVENTS: usize = 1 << 14;
const NAMES: usize = 1 << 12;
const LONGEST_NAME: usize = 256;
/// Maximum number of streams in an answer, and of those whose collectives are counted.
const SHOWN: usize = 64;
/// In a channel's USERD.
const GP_GET: u64 = 0x88;
/// `CUDA_ERROR_NOT_READY`
const NOT_READY: i32 = 600;

/// Several are looked up for each call. (The standard hash took half of the time.)
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

pub struct StreamWork {
    streams: Map<u64, Stream>,
    /// Of threads that are known to launch a kernel, or that ask again and again.
    threads: Map<i32, Thread>,
    /// Where each event was recorded last, and when.
    events: Map<u64, (u64, u64)>,
    /// Events that were recorded in a stream that is captured: the capture's first stream.
    captured: Map<u64, u64>,
    names: Map<u64, Box<str>>,
    collectives: Vec<LiveCollectives>,
    /// By channel the stream whose call rang last.
    rung: Vec<u64>,
    /// There were more streams.
    cut: bool,
}

/// As in [`LiveWork`].
#[derive(Clone, Copy)]
struct Work {
    function: u16,
    tid: i32,
    tsc: u64,
    object: u64,
    value: u64,
    how: u64,
}

#[derive(Default)]
struct Stream {
    work: VecDeque<Work>,
    cut: bool,
    /// While its calls become a graph instead of work: the capture's first stream.
    captured: Option<u64>,
}

#[derive(Default)]
struct Thread {
    tid: i32,
    /// The kernel that a call launches: the call's number, and the handle.
    kernel: (u32, u64),
    poll: Option<LivePoll>,
}

impl Default for StreamWork {
    fn default() -> StreamWork {
        let (streams, threads, events, captured, names, collectives) = Default::default();
        StreamWork { streams, threads, events, captured, names, collectives, rung: vec![0; SLOTS], cut: false }
    }
}

impl StreamWork {
    /// The stream whose call rang a channel last.
    pub fn stream_of(&self, channel: usize) -> u64 {
        self.rung.get(channel).copied().unwrap_or(0)
    }

    /// Takes events of a thread.
    pub fn pass(&mut self, tid: i32, mut events: &[u8]) {
        let mut t = self.threads.remove(&tid).unwrap_or_default();
        t.tid = tid;
        while let Some(head) = Head::parse(events) {
            let (one, later) = events.split_at(head.len as usize);
            events = later;
            // (Most events are others, which are not read.)
            if !matches!(head.kind, kind::RING | tape::call::kind::CALL | tape::call::kind::NAME) {
                continue;
            }
            match Event::parse(one).map(|(e, _)| e.body) {
                Some(Body::Call(c)) => self.call(&mut t, head.flags, head.tsc, &c),
                Some(Body::Ring(r)) => {
                    if let Some(of) = self.rung.get_mut(r.slot as usize) {
                        *of = r.stream;
                    }
                    if r.kernel != 0 && r.call != 0 {
                        t.kernel = (r.call, r.kernel);
                    }
                }
                Some(Body::Name(n, text)) => self.name(n.handle, text),
                _ => {}
            }
        }
        if t.kernel.1 != 0 || t.poll.is_some() {
            if self.threads.len() >= THREADS {
                self.threads.clear();
            }
            self.threads.insert(tid, t);
        }
    }

    fn name(&mut self, handle: u64, text: &[u8]) {
        if self.names.len() >= NAMES {
            // (Collectives are counted by their names, so these stay. A program has at most some hundred.)
            self.names.retain(|_, name| collective(name).is_some());
            if self.names.len() >= NAMES {
                self.names.clear();
            }
        }
        let text: Box<str> = String::from_utf8_lossy(text.get(..LONGEST_NAME).unwrap_or(text)).into();
        let is_new = self.names.insert(handle, text.clone()).is_none();
        if is_new && collective(&text).is_some() {
            // (Another thread's launches may have arrived before the name.)
            let work = self.streams.iter().flat_map(|(stream, s)| s.work.iter().map(|w| (*stream, w)));
            let is_its = |w: &Work| w.object == handle && launches(w.function);
            let early: Vec<_> = work.filter(|(_, w)| is_its(w)).map(|(stream, w)| (stream, w.tsc, w.tid)).collect();
            early.iter().for_each(|(stream, tsc, tid)| self.count(*stream, &text, *tsc, *tid));
        }
    }

    fn call(&mut self, t: &mut Thread, f: u16, ended: u64, c: &CallBody) {
        let Some(row) = function(f) else { return };
        let has_stream = row.stream != tape::call::Stream::None;
        let own = c.flags & flag::PER_THREAD != 0 && !has_stream;
        let stream = if own { of_thread(t.tid) } else { c.stream };
        t.poll(row.class, ended, f, c);
        if c.result != 0 {
            return;
        }
        match row.class {
            Class::Synchronize | Class::Query if row.object == Object::Event => {
                if let Some(&(stream, recorded)) = self.events.get(&c.object) {
                    self.done(stream, recorded);
                }
            }
            Class::Synchronize | Class::Query if has_stream => self.done(stream, c.began),
            // (Of all streams. A process with several GPUs may have more to do on the others.)
            Class::Synchronize => self.streams.values_mut().for_each(|s| s.done(c.began)),
            // It has waited for what was before it.
            Class::Copy => self.done(stream, c.began),
            Class::EventRecord => {
                match self.streams.get(&stream).and_then(|s| s.captured) {
                    Some(origin) => self.captured.insert(c.object, origin),
                    None => self.captured.remove(&c.object),
                };
                if self.events.len() >= EVENTS {
                    self.events.clear();
                }
                self.events.insert(c.object, (stream, ended));
                self.add(stream, row, f, ended, t, c);
            }
            Class::StreamWait if row.object == Object::Event => {
                if let Some(origin) = self.captured.get(&c.object).copied() {
                    self.capture(stream, origin);
                }
                self.add(stream, row, f, ended, t, c);
            }
            Class::Launch
            | Class::GraphLaunch
            | Class::CopyAsync
            | Class::Memset
            | Class::HostFunction
            | Class::StreamWait
            | Class::StreamWrite => self.add(stream, row, f, ended, t, c),
            Class::Destroy if row.object == Object::Event => {
                self.events.remove(&c.object);
                self.captured.remove(&c.object);
            }
            _ if f == const { number("cuStreamBatchMemOp") } => self.add(stream, row, f, ended, t, c),
            _ if [const { number("cuStreamBeginCapture") }, const { number("cuStreamBeginCaptureToGraph") }]
                .contains(&f) =>
            {
                self.capture(stream, stream);
            }
            _ if f == const { number("cuStreamEndCapture") } => {
                self.streams.values_mut().filter(|s| s.captured == Some(stream)).for_each(|s| s.captured = None);
            }
            Class::Destroy if has_stream => {
                self.streams.remove(&stream);
            }
            // (An old handle may have been given again.)
            Class::Create if row.effect == Effect::MakesStream => {
                self.streams.remove(&stream);
            }
            _ => {}
        }
    }

    /// The stream; `None` if too many others have something to do.
    fn stream(&mut self, stream: u64) -> Option<&mut Stream> {
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&stream) {
            self.streams.retain(|_, s| !s.work.is_empty() || s.captured.is_some());
            if self.streams.len() >= STREAMS {
                self.cut = true;
                return None;
            }
        }
        Some(self.streams.entry(stream).or_default())
    }

    fn capture(&mut self, stream: u64, origin: u64) {
        if let Some(s) = self.stream(stream) {
            s.captured = Some(origin);
        }
    }

    fn done(&mut self, stream: u64, until: u64) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.done(until);
        }
    }

    fn add(&mut self, stream: u64, row: &Function, function: u16, ended: u64, t: &Thread, c: &CallBody) {
        let is_launch = t.kernel.1 != 0 && t.kernel.0 == c.seq;
        let object = if is_launch { t.kernel.1 } else { c.object };
        let (value, how) = match (row.class, row.object) {
            (Class::StreamWait, Object::Event) => {
                self.events.get(&c.object).map_or((0, 0), |&(stream, at)| (at, stream))
            }
            (Class::StreamWait | Class::StreamWrite, _) => (c.source, c.size),
            _ => (0, 0),
        };
        let Some(s) = self.stream(stream).filter(|s| s.captured.is_none()) else { return };
        if s.work.len() == CALLS {
            s.work.pop_front();
            s.cut = true;
        }
        let work = Work { function, tsc: ended, tid: t.tid, object, value, how };
        // (Two threads' events may arrive in another order.)
        let later = s.work.iter().rev().take_while(|w| w.tsc > ended).count();
        match later {
            0 => s.work.push_back(work),
            _ => s.work.insert(s.work.len() - later, work),
        }
        let name = if row.class == Class::Launch { self.names.get(&object) } else { None };
        if let Some(name) = name.filter(|name| collective(name).is_some()).cloned() {
            self.count(stream, &name, ended, t.tid);
        }
    }

    /// A collective was launched.
    fn count(&mut self, stream: u64, name: &str, tsc: u64, tid: i32) {
        let n = self.collectives.iter().position(|c| c.stream == stream).unwrap_or(self.collectives.len());
        if n == self.collectives.len() && n < SHOWN {
            self.collectives.push(LiveCollectives { stream, ..LiveCollectives::default() });
        }
        if let Some(c) = self.collectives.get_mut(n) {
            c.launched += 1;
            if tsc >= c.tsc {
                (c.name, c.tid, c.tsc) = (name.into(), tid, tsc);
            }
        }
    }

    /// By stream what was launched of collectives.
    pub fn collectives(&self, names: bool) -> Vec<LiveCollectives> {
        let mut all = self.collectives.clone();
        all.iter_mut().filter(|_| !names).for_each(|c| c.name.clear());
        all
    }

    /// The streams that have something to do, the one first that has had it longest. `names`: kernels' names may be said.
    pub fn live(&self, names: bool) -> (Vec<LiveStream>, Vec<LivePoll>) {
        let mut all: Vec<_> = self.streams.iter().filter(|(_, s)| !s.work.is_empty()).collect();
        all.sort_by_key(|(stream, s)| (s.work.front().map(|w| w.tsc), **stream));
        let shown = |(stream, s): (&u64, &Stream)| {
            let named = |&Work { function, tid, tsc, object, value, how }: &Work| {
                let name = self.names.get(&object).filter(|_| names).map(|n| String::from(&**n)).unwrap_or_default();
                LiveWork { function, tsc, tid, object, value, how, there: None, name }
            };
            LiveStream { stream: *stream, work: s.work.iter().map(named).collect(), cut: s.cut || self.cut }
        };
        let streams = all.into_iter().take(SHOWN).map(shown).collect();
        (streams, self.threads.values().filter_map(|t| t.poll.clone()).collect())
    }
}

fn launches(function: u16) -> bool {
    tape::call::function(function).is_some_and(|f| f.class == Class::Launch)
}

impl Thread {
    /// A thread that asks again for what was not ready continues to wait.
    fn poll(&mut self, class: Class, ended: u64, function: u16, c: &CallBody) {
        if class != Class::Query || c.result != NOT_READY {
            self.poll = None;
            return;
        }
        let (tid, stream, object) = (self.tid, c.stream, c.object);
        match &mut self.poll {
            Some(p) if (p.function, p.stream, p.object) == (function, stream, object) => p.last = ended,
            poll => *poll = Some(LivePoll { tid, function, stream, object, since: c.began, last: ended }),
        }
    }
}

impl Stream {
    /// What was given to it before this time is done.
    fn done(&mut self, until: u64) {
        while self.work.front().is_some_and(|w| w.tsc <= until) {
            self.work.pop_front();
            // (What was forgotten before it is done, too.)
            self.cut = false;
        }
    }
}

/// What was read of a process: a word for which a stream waits, by the call, or GP_GET of a channel.
enum Read {
    Word(u64, u16, u64),
    Get(u32, u32),
}

/// Reads the words for which streams wait, and what the GPU has read of channels. (Words in the GPU's memory cannot be read from here.)
pub fn read_words(processes: &mut [LiveProcess], patience: Duration) {
    let (number_64, number_32) = const { (number("cuStreamWaitValue64"), number("cuStreamWaitValue32")) };
    let mut jobs = Vec::new();
    for (n, p) in processes.iter().enumerate().filter(|(_, p)| p.pid > 0) {
        let work = p.streams.iter().flat_map(|s| &s.work);
        let words = work.filter(|w| [number_64, number_32].contains(&w.function)).map(|w| (w.object, w.function));
        let (words, channels, pid): (BTreeSet<_>, _, _) = (words.collect(), p.channels.clone(), p.pid);
        if words.is_empty() && channels.is_empty() {
            continue;
        }
        let read = move |to: &Sender<(usize, Read)>| {
            let word = |address: u64, function: u16| match function == number_64 {
                true => {
                    lock_word::read(pid, address).map(|[low, high]: [u32; 2]| u64::from(low) | u64::from(high) << 32)
                }
                false => lock_word::read(pid, address).map(|[word]: [u32; 1]| word.into()),
            };
            let there = |(address, function)| Some(Read::Word(address, function, word(address, function)?));
            words.into_iter().filter_map(there).for_each(|read| drop(to.send((n, read))));
            let get = |c: &LiveChannel| {
                let [get]: [u32; 1] = lock_word::read(pid, c.userd + GP_GET)?;
                Some(Read::Get(c.channel, get))
            };
            channels.iter().filter_map(get).for_each(|read| drop(to.send((n, read))));
        };
        jobs.push(Job { pid, read: Box::new(read) });
    }
    // (A channel of which nothing is known is not said to wait.)
    processes.iter_mut().flat_map(|p| &mut p.channels).for_each(|c| c.get = c.put);
    run(jobs, Instant::now() + patience, |(n, read)| {
        let Some(p) = processes.get_mut(n) else { return };
        match read {
            Read::Word(address, function, there) => {
                let work = p.streams.iter_mut().flat_map(|s| &mut s.work);
                work.filter(|w| (w.object, w.function) == (address, function)).for_each(|w| w.there = Some(there));
            }
            Read::Get(channel, get) => {
                p.channels.iter_mut().filter(|c| c.channel == channel).for_each(|c| c.get = get);
            }
        }
    });
    processes.iter_mut().for_each(|p| p.channels.retain(|c| c.get != c.put));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::event::{Plain, bytes_of};

    fn event<B: Plain>(kind: u16, flags: u16, tsc: u64, body: &B) -> Vec<u8> {
        let len = (size_of::<Head>() + size_of::<B>()) as u32;
        [bytes_of(&Head { kind, flags, len, tsc }), bytes_of(body)].concat()
    }

    #[derive(Default)]
    struct Made {
        work: StreamWork,
        now: u64,
    }

    impl Made {
        /// A call that returns at once, in thread `tid`.
        fn call(&mut self, tid: i32, name: &str, stream: u64, object: u64, result: i32) {
            self.now += 10;
            let c = CallBody { began: self.now - 5, stream, object, result, source: 7, size: 1, ..CallBody::default() };
            self.work.pass(tid, &event(tape::call::kind::CALL, number(name), self.now, &c));
        }

        fn ok(&mut self, name: &str, stream: u64, object: u64) {
            self.call(1, name, stream, object, 0);
        }

        fn names(&self, stream: u64) -> Vec<(&'static str, u64)> {
            let all = self.work.live(true).0;
            let of = all.into_iter().find(|s| s.stream == stream).unwrap_or_default();
            of.work.iter().map(|w| (function(w.function).unwrap().name, w.object)).collect()
        }
    }

    #[test]
    fn work_stays_until_a_call_shows_that_it_is_done() {
        let mut m = Made::default();
        m.ok("cuLaunchKernel", 8, 1);
        m.ok("cuEventRecord", 8, 100);
        m.ok("cuLaunchKernel", 8, 2);
        m.ok("cuStreamWaitEvent", 9, 100);
        m.ok("cuStreamWaitValue32", 9, 0x1000);
        m.call(1, "cuLaunchKernel", 9, 3, 1);
        assert_eq!(m.names(8).len(), 3);
        assert_eq!(
            m.names(9),
            [("cuStreamWaitEvent", 100), ("cuStreamWaitValue32", 0x1000)],
            "without the call that failed"
        );
        let wait = m.work.live(true).0.into_iter().find(|s| s.stream == 9).unwrap().work[1].clone();
        assert_eq!((wait.value, wait.how), (7, 1));
        m.call(2, "cuEventQuery", 0, 100, NOT_READY);
        assert_eq!(m.names(8).len(), 3);
        m.call(2, "cuEventQuery", 0, 100, 0);
        assert_eq!(m.names(8), [("cuLaunchKernel", 2)], "what was before the event");
        m.ok("cuStreamSynchronize", 9, 0);
        assert!(m.names(9).is_empty());
        m.ok("cuLaunchKernel", 0, 4);
        m.ok("cuMemcpyDtoH", 0, 0x2000);
        assert!(m.names(0).is_empty());
        m.ok("cuCtxSynchronize", 0, 0);
        assert!(m.work.live(true).0.is_empty());
    }

    #[test]
    fn a_stream_that_is_captured_has_nothing_to_do() {
        let mut m = Made::default();
        m.ok("cuStreamBeginCapture", 8, 0);
        m.ok("cuLaunchKernel", 8, 1);
        m.ok("cuEventRecord", 8, 100);
        m.ok("cuStreamWaitEvent", 9, 100);
        m.ok("cuLaunchKernel", 9, 2);
        m.ok("cuLaunchKernel", 10, 3);
        m.ok("cuStreamEndCapture", 8, 0);
        m.ok("cuGraphLaunch", 9, 5);
        assert_eq!((m.names(8), m.names(10)), (vec![], vec![("cuLaunchKernel", 3)]));
        assert_eq!(m.names(9), [("cuGraphLaunch", 5)]);
    }

    #[test]
    fn a_thread_that_asks_again_and_again_waits() {
        let mut m = Made::default();
        (0..3).for_each(|_| m.call(5, "cuEventQuery", 0, 100, NOT_READY));
        let polls = m.work.live(true).1;
        assert_eq!(polls.iter().map(|p| (p.tid, p.object, p.since, p.last)).collect::<Vec<_>>(), [(5, 100, 5, 30)]);
        m.call(5, "cuEventQuery", 0, 101, NOT_READY);
        assert_eq!(m.work.live(true).1[0].since, 35);
        m.call(5, "cuEventQuery", 0, 101, 0);
        assert!(m.work.live(true).1.is_empty());
    }

    #[test]
    fn kernels_have_names_and_order_and_the_memory_has_an_end() {
        let mut m = Made::default();
        let ring = tape::event::RingBody { call: 4, kernel: 0x77, ..Default::default() };
        let name = tape::call::NameBody { handle: 0x77, name: 0, pad: 0 };
        m.work.pass(1, &event(tape::call::kind::NAME, 0, 1, &name));
        m.work.name(0x77, b"gate");
        m.work.pass(1, &event(kind::RING, 0, 1, &ring));
        let launch = |tsc: u64| CallBody { began: tsc - 1, stream: 8, object: 0x400, seq: 4, ..CallBody::default() };
        let cuda_launch = number("cudaLaunchKernel");
        m.work.pass(1, &event(tape::call::kind::CALL, cuda_launch, 50, &launch(50)));
        m.work.pass(2, &event(tape::call::kind::CALL, cuda_launch, 40, &launch(40)));
        let work = &m.work.live(true).0[0].work;
        assert_eq!(work.iter().map(|w| (w.tsc, w.name.as_str())).collect::<Vec<_>>(), [(40, ""), (50, "gate")]);
        assert_eq!(m.work.live(false).0[0].work[1].name, "");
        m.now = 100;
        (0..2 * CALLS as u64).for_each(|n| m.ok("cuLaunchKernel", 8, n));
        let s = &m.work.live(true).0[0];
        assert_eq!((s.work.len(), s.cut, s.work[0].object), (CALLS, true, CALLS as u64));
        (0..3 * STREAMS as u64).for_each(|n| m.ok("cuLaunchKernel", 1000 + n, n));
        assert_eq!((m.work.streams.len(), m.work.live(true).0.len(), m.names(8).len()), (STREAMS, SHOWN, CALLS));
        assert!(m.work.live(true).0[1].cut);
        m.ok("cuCtxSynchronize", 0, 0);
        m.ok("cuLaunchKernel", 9, 1);
        assert_eq!(m.names(9), [("cuLaunchKernel", 1)]);
    }

    /// `cargo test --release -p recorder work_costs -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn work_costs() {
        // (8 streams with so many calls each, before a wait for all.)
        const CALLS: u64 = 200;
        let call = |name: &str, n: u64| {
            let (stream, object) = (0x7000 + n % 8 * 64, 0x9000 + n % 16 * 64);
            let c = CallBody { began: n, stream, object, seq: n as u32, ..CallBody::default() };
            event(tape::call::kind::CALL, number(name), n + 1, &c)
        };
        let rung = |n: u64| {
            let ring = tape::event::RingBody { call: n as u32, kernel: 0x77, ..Default::default() };
            [event(kind::RING, 0, n, &ring), call("cuLaunchKernel", n)].concat()
        };
        const MIX: [&str; 4] = ["cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery"];
        let one_stream = |n| call("cuLaunchKernel", n * 8);
        let mix = |n: u64| call(MIX[(n % 4) as usize], n / 4);
        type Made<'a> = (&'a str, &'a dyn Fn(u64) -> Vec<u8>);
        let in_all = |n| call("cuLaunchKernel", n);
        let all: [Made<'_>; 4] = [
            ("launches in a stream", &one_stream),
            ("launches in 8", &in_all),
            ("with doorbells", &rung),
            ("mix", &mix),
        ];
        for (name, of) in all {
            let mut chunk: Vec<u8> = (1..=CALLS * 8).flat_map(of).collect();
            chunk.extend(call("cuCtxSynchronize", CALLS * 64 + 2));
            let ns = |begun: std::time::Instant, n: u64| begun.elapsed().as_secs_f64() * 1e9 / (n * CALLS * 8) as f64;
            let mut work = StreamWork::default();
            let pass = |work: &mut StreamWork| {
                let begun = std::time::Instant::now();
                (0..50).for_each(|_| work.pass(1, std::hint::black_box(&chunk)));
                ns(begun, 50)
            };
            let took = (0..20).map(|_| pass(&mut work)).fold(f64::MAX, f64::min);
            let mut packer = tape::file::Packer::default();
            let begun = std::time::Instant::now();
            (0..20).for_each(|_| assert!(packer.pack(&chunk).is_some()));
            println!("{name}: {took:.1} ns a call; packing takes {:.0} ns", ns(begun, 20));
        }
    }

    #[test]
    fn collectives_are_counted_by_stream() {
        let mut m = Made::default();
        m.work.name(0x40, b"_Z23ncclDevKernel_AllReduce4args");
        m.work.name(0x41, b"ncclDevKernel_SendRecv");
        m.ok("cuLaunchKernel", 9, 0x50);
        for (stream, kernel) in [(8, 0x40), (8, 0x41), (8, 0x1), (9, 0x40), (8, 0x40), (8, 0x50)] {
            m.ok("cuLaunchKernel", stream, kernel);
        }
        m.call(1, "cuLaunchKernel", 8, 0x40, 1);
        m.ok("cuLaunchHostFunc", 8, 0x40);
        // Its first launches arrived before it.
        m.work.name(0x50, b"ncclKernel_Broadcast");
        let of = |m: &Made, names| {
            let all = m.work.collectives(names);
            all.into_iter().map(|c| (c.stream, c.launched, c.tsc, c.name)).collect::<Vec<_>>()
        };
        let (reduce, broadcast) = ("_Z23ncclDevKernel_AllReduce4args".to_owned(), "ncclKernel_Broadcast".to_owned());
        assert_eq!(of(&m, true), [(8, 3, 70, broadcast), (9, 2, 50, reduce)]);
        m.ok("cuCtxSynchronize", 0, 0);
        assert_eq!(of(&m, false), [(8, 3, 70, String::new()), (9, 2, 50, String::new())]);
        for n in 0..2 * NAMES as u64 {
            m.work.name(0x1000 + n, b"gemm");
            m.ok("cuLaunchKernel", 100 + n % 200, 0x40);
        }
        assert_eq!((m.work.collectives(true).len(), m.work.names.contains_key(&0x40)), (SHOWN, true));
    }

    #[test]
    fn no_bytes_panic() {
        let mut m = Made::default();
        m.ok("cuStreamWaitValue32", 8, 1);
        let mut bytes = event(tape::call::kind::CALL, number("cuEventRecord"), 9, &CallBody::default());
        for i in 0..bytes.len() {
            for b in [0, 1, 0x7f, 0xff] {
                let kept = std::mem::replace(&mut bytes[i], b);
                m.work.pass(1, &bytes);
                m.work.pass(1, &bytes[..i]);
                bytes[i] = kept;
            }
        }
    }
}
