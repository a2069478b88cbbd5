//! Many threads open, pin, prepare, submit, launch, unpin and close at random next to a libcuda in software, while one thread after
//! the other is held at each of the named points. After a thread has unpinned or freed memory, that memory must stay unchanged.
//!
//! This file must not name the software GPU in process: it is preloaded.

#[path = "../../../testing/softcuda/tests/program/mod.rs"]
mod program;

use cuda::Argument::{U32, U64};
use cuda::{Context, Cuda, DeviceBuffer, Function, GraphExec, Module, PinnedBuffer, Stream};
use gpu::points::{self, Point};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use submit::{
    Buffer, ChainHow, ChainStep, Chooser, Copy, Direction, Error, Executor, Follow, Graph, InOrder, Kind, Options,
    Piece, Session,
};

const BYTES: usize = 4096;
const LIMIT: Duration = Duration::from_secs(30);
/// No call takes longer, even if a thread is held.
const DEADLOCK: Duration = Duration::from_secs(60);
/// Buffers that all threads share, and the number of those that stay until the session is closed.
const SHARED: usize = 24;
const STAY: usize = 12;

/// CPU stores and loads, then the command stream, then engines.
struct Mixed;

impl Chooser for Mixed {
    fn sizes(&self, direction: Direction) -> Vec<(u64, Executor)> {
        match direction {
            Direction::ToGpu => vec![(64, Executor::Stores), (512, Executor::Inline)],
            Direction::FromGpu => vec![(64, Executor::Loads)],
            Direction::WithinGpu | Direction::WithinHost => vec![],
        }
    }

    fn why(&self, _: Direction, _: u64) -> String {
        "mixed".into()
    }
}

fn options() -> Options {
    Options { kind: Kind::Cuda, lanes: 4, profile: Follow::Given(Arc::new(Mixed)), ..Options::default() }
}

/// The point at which the next thread is held (its number plus one, 0: none), for how many microseconds, and how often threads were
/// held at each point.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static HOLD: AtomicU64 = AtomicU64::new(0);
static HELD: [AtomicU64; Point::ALL.len()] = [const { AtomicU64::new(0) }; Point::ALL.len()];

thread_local!(static RANDOM: Cell<u64> = const { Cell::new(0) });

fn random(below: u64) -> u64 {
    let mut state = RANDOM.get();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    RANDOM.set(state);
    (state >> 11) % below
}

fn at(point: Point) {
    let wanted = point as usize + 1;
    if WANTED.load(Ordering::Relaxed) == wanted
        && WANTED.compare_exchange(wanted, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    {
        HELD[point as usize].fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(HOLD.load(Ordering::Relaxed)));
    }
}

struct Stress<'c> {
    session: Session,
    context: &'c Context,
    shared: [AtomicU64; SHARED],
    graph: AtomicU64,
    last: AtomicU64,
    stop: AtomicBool,
    /// A close is in progress: calls are closed, and pending copies may still write.
    closing: AtomicBool,
    /// When each thread began its current call; 0 outside of one.
    began: Vec<AtomicU64>,
    start: Instant,
    done: [AtomicU64; KINDS.len()],
}

const KINDS: [&str; 13] = [
    "copy", "prepare", "pin", "free", "allocate", "launch", "bytes", "behind", "mailbox", "ring", "stuck", "kill",
    "fork",
];
/// The last of these are faults.
const FAULTS: usize = 3;

impl Stress<'_> {
    fn buffer(&self) -> Buffer {
        Buffer::from_raw(self.shared[random(SHARED as u64) as usize].load(Ordering::SeqCst))
    }

    fn publish(&self, buffer: Buffer) {
        let place = STAY + random((SHARED - STAY) as u64) as usize;
        self.shared[place].store(buffer.raw(), Ordering::SeqCst);
    }

    fn pieces(&self) -> Vec<Piece> {
        let bytes = [8, 64, 300, 2000][random(4) as usize];
        let piece = |_| Piece { to: self.buffer(), to_at: 0, from: self.buffer(), from_at: 1024, bytes };
        (0..1 + random(3)).map(piece).collect()
    }

    fn over(&self, copy: Copy) -> Result<(), Error> {
        self.last.store(copy.raw(), Ordering::SeqCst);
        if random(2) == 0 { self.session.wait(copy, LIMIT) } else { Ok(()) }
    }

    /// CUDA's memory that other threads copy into. After it was unpinned, or freed and allocated again, no copy may write there.
    fn pinned(&self, freed: bool) -> Result<(), Error> {
        let mut block = DeviceBuffer::new(self.context, BYTES).map_err(Error::Cuda)?;
        let pinned = self.session.pin(block.address(), BYTES as u64)?;
        self.publish(pinned);
        if random(2) == 0 {
            let copy = self.session.copy_async((pinned, 0), (self.buffer(), 0), 64);
            copy.and_then(|copy| self.over(copy)).or_else(known)?;
        }
        std::thread::sleep(Duration::from_micros(random(500)));
        if freed {
            drop(block);
            block = DeviceBuffer::new(self.context, BYTES).map_err(Error::Cuda)?;
        } else {
            match self.session.unpin(pinned) {
                // A close ends it, and has when it returns.
                Err(Error::Closed | Error::Handle(_)) => {
                    while self.closing.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                ended => ended?,
            }
        }
        // (After a free, other threads' copies may rightly name this memory: only unpinned memory is checked there.)
        let mark = random(200) as u8 + 50;
        block.write(&[mark; BYTES]).map_err(Error::Cuda)?;
        std::thread::sleep(Duration::from_micros(random(3000)));
        let mut found = [0; BYTES];
        block.read(&mut found).map_err(Error::Cuda)?;
        let other = found.iter().position(|byte| *byte != mark);
        assert!(other.is_none(), "written at {other:?} after it was {}", if freed { "freed" } else { "unpinned" });
        match self.session.unpin(pinned) {
            Ok(()) | Err(Error::Closed | Error::Handle(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A copy that waits for a word that is written late, or not before its memory has ended.
    fn stuck(&self) -> Result<(), Error> {
        let gate = self.session.allocate(BYTES as u64, false)?;
        let block = DeviceBuffer::new(self.context, BYTES).map_err(Error::Cuda)?;
        let pinned = self.session.pin(block.address(), BYTES as u64)?;
        let piece = [Piece { to: pinned, to_at: 0, from: gate, from_at: 64, bytes: 64 }];
        let copy = self.session.copy_in(&piece, &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() })?;
        self.last.store(copy.raw(), Ordering::SeqCst);
        // It waits a second, then the lane is stopped.
        let ended = self.session.unpin(pinned);
        block.write(&[0x77; BYTES]).map_err(Error::Cuda)?;
        if ended.is_ok() {
            assert!(!matches!(self.session.query(copy), Ok(1..)), "it was stopped");
        }
        self.session.unpin(gate)
    }

    fn once(&self, kind: &str) -> Result<(), Error> {
        let s = &self.session;
        match kind {
            "copy" => self.over(s.copy_batch(&self.pieces())?),
            "prepare" => {
                let bytes = [8, 64, 300, 2000][random(4) as usize];
                let transfer = s.prepare((self.buffer(), 0), (self.buffer(), 512), bytes)?;
                for _ in 0..4 {
                    s.submit(transfer).and_then(|copy| self.over(copy)).or_else(known)?;
                }
                s.release(transfer)
            }
            "pin" => self.pinned(false),
            "free" => self.pinned(true),
            "allocate" => {
                let buffer = s.allocate(BYTES as u64, random(2) == 0)?;
                self.publish(buffer);
                std::thread::sleep(Duration::from_micros(random(1000)));
                s.unpin(buffer)
            }
            "launch" => {
                let graph = Graph::from_raw(self.graph.load(Ordering::SeqCst));
                s.set_parameter(graph, 0, 8, &(random(9) as u32).to_le_bytes())?;
                self.over(s.launch(graph)?)
            }
            "bytes" => {
                let transfer = s.prepare_bytes((self.buffer(), 128), 56)?;
                s.submit_bytes(transfer, &[1; 56]).and_then(|copy| self.over(copy)).or_else(known)?;
                s.release(transfer)
            }
            "behind" => {
                let last = Copy::from_raw(self.last.load(Ordering::SeqCst));
                match random(3) {
                    0 => self.over(s.copy_in(&self.pieces(), &InOrder::after(&[last]))?),
                    1 => self.over(
                        s.launch_in(Graph::from_raw(self.graph.load(Ordering::SeqCst)), &InOrder::after(&[last]))?,
                    ),
                    _ => {
                        let transfer = s.prepare((self.buffer(), 0), (self.buffer(), 512), 300)?;
                        s.submit_in(transfer, None, &InOrder::after(&[last]))
                            .and_then(|copy| self.over(copy))
                            .or_else(known)?;
                        s.release(transfer)
                    }
                }
            }
            "mailbox" => {
                let message = s.message((self.buffer(), 2048), (self.buffer(), 2048))?;
                s.send(message, b"at random").map(drop).or_else(known)?;
                s.message_release(message)
            }
            "ring" => {
                let ring = s.ring((self.buffer(), 0), (self.buffer(), 0), 256, 3)?;
                s.ring_next(ring).and_then(|_| s.ring_submit(ring)).and_then(|copy| self.over(copy)).or_else(known)?;
                s.ring_release(ring)
            }
            "kill" => self.kill(),
            "fork" => {
                self.fork();
                Ok(())
            }
            _ => self.stuck(),
        }
    }

    /// A kernel that stores through a pointer to no memory: the GPU kills the channel of launches, which stays dead until the session is opened again.
    fn kill(&self) -> Result<(), Error> {
        let graph = Graph::from_raw(self.graph.load(Ordering::SeqCst));
        self.session.set_parameter(graph, 0, 0, &0x7ead_0000_0000_u64.to_le_bytes())?;
        let launch = self.session.launch(graph)?;
        match self.session.wait(launch, LIMIT) {
            Ok(()) => panic!("a kernel stored to no memory"),
            ended => ended,
        }
    }

    /// A child of this process, in which other threads are in the middle of calls, gets an error from each call.
    fn fork(&self) {
        let s = &self.session;
        let pieces = self.pieces();
        // SAFETY: the child makes the calls that are documented for one, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let answers = [
                s.copy_batch(&pieces).map(drop),
                s.launch(Graph::from_raw(self.graph.load(Ordering::SeqCst))).map(drop),
                s.query(Copy::from_raw(self.last.load(Ordering::SeqCst))).map(drop),
                s.close(),
                s.open(&options()),
            ];
            // (A handle of which there is none is one in the child, too.)
            let of_a_child = |error: &Error| matches!(error, Error::Forked | Error::Closed | Error::Handle(_));
            let are_right = answers.iter().all(|answer| answer.as_ref().is_err_and(of_a_child));
            // SAFETY: only ends the process.
            unsafe { libc::_exit(if are_right { 0 } else { 9 }) };
        }
        let mut status = 0;
        // SAFETY: the child is this thread's.
        let ended = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((ended, status), (child, 0), "a child's calls are errors");
    }

    fn thread(&self, number: usize) {
        let _ended = Ended(self, number);
        RANDOM.set(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1) << 20);
        self.context.make_current().unwrap();
        while !self.stop.load(Ordering::Relaxed) {
            self.began[number].store(self.start.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
            // Calls that hang for a second are rare.
            let usual = KINDS.len() - FAULTS;
            let kind =
                if random(500) == 0 { usual + random(FAULTS as u64) as usize } else { random(usual as u64) as usize };
            match self.once(KINDS[kind]) {
                Ok(()) | Err(Error::Killed(_)) => drop(self.done[kind].fetch_add(1, Ordering::Relaxed)),
                Err(error) => known(error).unwrap_or_else(|error| {
                    eprintln!("{}: {error}", KINDS[kind]);
                    std::process::exit(8);
                }),
            }
            if random(4) == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Ends the process if a thread does not return from a call.
    fn watch(&self) {
        while !self.stop.load(Ordering::Relaxed) || self.began.iter().any(|began| began.load(Ordering::Relaxed) != 0) {
            let now = self.start.elapsed();
            for (number, began) in self.began.iter().enumerate() {
                let began = began.load(Ordering::Relaxed);
                if began != 0 && now.saturating_sub(Duration::from_millis(began)) > DEADLOCK {
                    eprintln!("thread {number} does not come back");
                    std::process::exit(7);
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A thread that is over, perhaps by a panic: then all end.
struct Ended<'s, 'c>(&'s Stress<'c>, usize);

impl Drop for Ended<'_, '_> {
    fn drop(&mut self) {
        self.0.stop.fetch_or(std::thread::panicking(), Ordering::Relaxed);
        self.0.began[self.1].store(0, Ordering::Relaxed);
    }
}

/// Errors that other threads' unpins, frees and closes may cause in a call.
fn known(error: Error) -> Result<(), Error> {
    match error {
        Error::Closed | Error::Handle(_) | Error::Busy | Error::Full(_) | Error::Freed => Ok(()),
        // The lane, or the channel of launches, is dead by a fault of another thread's.
        Error::Stopped | Error::Killed(_) => Ok(()),
        // Two buffers of the wrong kinds or lengths for the call.
        Error::Argument(_) | Error::Overrun | Error::Limit(_) | Error::Pin(_) | Error::Outside { .. } => Ok(()),
        error => Err(error),
    }
}

/// A kernel that stores a number in a word, and one that adds 1 to it.
fn graph<'c>(stream: &Stream<'c>, [store, add]: [&Function<'_>; 2], word: u64) -> GraphExec<'c> {
    let one = |function: &Function<'_>, arguments: &[cuda::Argument]| {
        // SAFETY: the arguments are the kernels', and the word outlives the stream's work.
        unsafe { function.launch([1; 3], [1; 3], 0, stream, arguments) }
    };
    let captured = cuda::Graph::capture(stream, || {
        one(store, &[U64(word), U32(100)])?;
        one(add, &[U64(word)])
    });
    captured.unwrap().instantiate().unwrap()
}

fn count(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

fn stress(threads: usize, span: Duration, longest: Duration) {
    Session::watch().unwrap();
    let context = Cuda::load().unwrap().device(0).unwrap().primary_context().unwrap();
    context.make_current().unwrap();
    let module = Module::from_ptx(&context, ".version 8.0\n").unwrap();
    let [store, add] = ["store", "add1"].map(|name| module.function(name).unwrap());
    let stream = Stream::new(&context).unwrap();
    let memory = PinnedBuffer::new(&context, BYTES).unwrap();
    let word = memory.device_address().unwrap();
    let stress = Stress {
        session: Session::new(),
        context: &context,
        shared: [const { AtomicU64::new(0) }; SHARED],
        graph: AtomicU64::new(0),
        last: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        closing: AtomicBool::new(false),
        began: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        start: Instant::now(),
        done: Default::default(),
    };
    let s = &stress.session;
    let opened = || {
        s.open(&options()).unwrap();
        let exec = graph(&stream, [&store, &add], word);
        // SAFETY: module and memory stay until the end.
        let made = unsafe { s.prepare_graph(exec.handle(), stream.handle()) }.unwrap();
        let [host, video] = [false, true].map(|video| s.allocate(4096, video).unwrap());
        let copy = |to, from| ChainStep::Copy { to: (to, 0), from: (from, 0), bytes: 64, by: None };
        let steps = [copy(video, host), ChainStep::Launch(made), copy(host, video)];
        for (n, shared) in stress.shared[..STAY].iter().enumerate() {
            shared.store(s.allocate(BYTES as u64, n % 2 == 0).unwrap().raw(), Ordering::SeqCst);
        }
        let beside = random(2) == 0;
        let chain = s.prepare_chain(&steps, ChainHow { beside, ..ChainHow::default() }).unwrap();
        stress.graph.store(if random(2) == 0 { made } else { chain }.raw(), Ordering::SeqCst);
    };
    RANDOM.set(77);
    // Objects that only the first opening makes, and that the driver keeps, are made before the count.
    opened();
    s.close().unwrap();
    let before = (count("/proc/self/fd"), mappings());
    assert!(points::hold(at), "this build has no points");
    std::thread::scope(|scope| {
        scope.spawn(|| stress.watch());
        (0..threads).for_each(|number| {
            drop(scope.spawn({
                let stress = &stress;
                move || stress.thread(number)
            }))
        });
        let mut openings = 0;
        let mut wanted = 0;
        let mut first = 0;
        while stress.start.elapsed() < span && !stress.stop.load(Ordering::Relaxed) {
            opened();
            openings += 1;
            if openings % 4 == 1 {
                WANTED.store(Point::BeforeStop as usize + 1, Ordering::SeqCst);
                stress.stuck().or_else(known).unwrap();
            }
            let until = Instant::now() + Duration::from_millis(100 + random(700));
            while Instant::now() < until {
                // One point after the other, and the next one if no thread reached it.
                let hold = random(longest.as_micros() as u64);
                HOLD.store(if random(10) == 0 { hold } else { hold / 20 }, Ordering::Relaxed);
                WANTED.store(wanted % Point::ALL.len() + 1, Ordering::SeqCst);
                wanted += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            // (A close reaches its own point.)
            WANTED.store(Point::AfterClose as usize + 1, Ordering::SeqCst);
            stress.closing.store(true, Ordering::SeqCst);
            s.close().unwrap();
            stress.closing.store(false, Ordering::SeqCst);
            if first == 0 && stress.start.elapsed() > span / 4 {
                first = resident();
            }
        }
        stress.stop.store(true, Ordering::Relaxed);
        WANTED.store(0, Ordering::SeqCst);
        println!("{openings} openings, resident {} MiB at a quarter, {} MiB at the end", first >> 20, resident() >> 20);
        assert!(resident() < first + (64 << 20), "it grows");
    });
    // (Threads that were in a call during the close have released their resources.)
    let after = (count("/proc/self/fd"), mappings());
    println!("descriptors {} -> {}, mappings {} -> {}", before.0, after.0, before.1, after.1);
    for (kind, done) in KINDS.iter().zip(&stress.done) {
        println!("{kind}: {}", done.load(Ordering::Relaxed));
    }
    for (point, held) in Point::ALL.iter().zip(&HELD) {
        let held = held.load(Ordering::Relaxed);
        println!("held {point:?}: {held}");
        assert!(held > 0, "nobody was held {point:?}");
    }
    assert_eq!(after.0, before.0, "descriptors");
    // Stacks and arenas of threads.
    assert!(after.1 < before.1 + 2 * threads + 64, "mappings");
}

#[test]
fn threads_held_anywhere_neither_block_others_nor_write_to_memory_that_went() {
    if program::inside("threads_held_anywhere_neither_block_others_nor_write_to_memory_that_went") {
        stress(16, Duration::from_secs(4), Duration::from_millis(200));
    }
}

/// With 64 threads, for as many seconds as `STRESS_SECONDS` says: 10 minutes in `.ci/run --long`.
#[test]
#[ignore = "10 minutes; run by .ci/run --long"]
fn long_many_threads_held_anywhere() {
    let seconds = std::env::var("STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let span = Duration::from_secs(seconds);
    if program::inside_for("long_many_threads_held_anywhere", span + Duration::from_secs(120)) {
        stress(64, span, Duration::from_millis(1500));
    }
}
