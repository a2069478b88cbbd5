//! A stand-in for libcuda. Its memory is the heap and its kernels are Rust. A stream does one piece of work for each query and
//! all of it for a wait; with [`run_by_itself`] a separate thread does the work. Its clock counts the work: a copy takes 1,000
//! ns.

#![allow(dead_code, reason = "each test uses a part of it")]

mod calls;
pub mod kernels;
mod memory;
mod runtime;

#[allow(unused_imports, reason = "each test uses a part of it")]
pub use self::{
    calls::find,
    memory::{Keep, Kind, SMALL, SOURCE, Source, blocks},
    runtime::{RUNTIME_STARTS, find_runtime},
};

use memory::Block;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

type Status = c_int;
const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 1;
const INVALID_CONTEXT: Status = 201;
const INVALID_HANDLE: Status = 400;
const NOT_FOUND: Status = 500;
const NOT_READY: Status = 600;
const NOT_SUPPORTED: Status = 801;

pub const COPY_NS: u64 = 1_000;
const PRIMARY: usize = 0x10;

/// Work that may be captured into a graph.
#[derive(Clone, Debug)]
enum Work {
    Copy { to: u64, from: u64, len: usize },
    Fill { to: u64, word: u32, width: usize, count: usize },
    Kernel { function: u64, threads: u32, arguments: Vec<u64> },
}

enum Op {
    Work(Work),
    /// A kernel that runs already; the stream waits for it.
    Answer(std::thread::JoinHandle<()>),
    Record {
        event: u64,
    },
}

#[derive(Default)]
struct Fake {
    next: u64,
    numbers: u64,
    clock: u64,
    memory: BTreeMap<u64, Block>,
    objects: BTreeMap<u64, &'static str>,
    streams: BTreeMap<u64, VecDeque<Op>>,
    events: BTreeMap<u64, u64>,
    captures: BTreeMap<u64, Vec<Work>>,
    graphs: BTreeMap<u64, Vec<Work>>,
    /// The kernels that each module has.
    modules: BTreeMap<u64, BTreeSet<String>>,
    links: BTreeMap<u64, Vec<u8>>,
    /// Every text that was loaded: the driver keeps compiled code.
    loaded: BTreeSet<String>,
}

static FAKE: Mutex<Option<Fake>> = Mutex::new(None);
/// Counts down to the copy whose last byte gets a wrong bit (0: none).
pub static SPOIL_COPY: AtomicU64 = AtomicU64::new(0);
/// Launches of the kernel that answers, and those that run now.
pub static ANSWER_LAUNCHES: AtomicU64 = AtomicU64::new(0);
pub static ANSWER_RUNS: AtomicU64 = AtomicU64::new(0);
/// Not 0: the kernel that answers ends by itself after this many nanoseconds, instead of at its limit.
pub static ANSWER_LIMIT: AtomicU64 = AtomicU64::new(0);
/// Lines with a wrong sum that the kernel for messages read.
pub static ANSWER_TORN: AtomicU64 = AtomicU64::new(0);
/// If not 0, the kernel that answers sees no message.
pub static ANSWER_DEAF: AtomicU64 = AtomicU64::new(0);
/// Called with address and size before each free, like the replaced functions of a real libcuda. None where they could not be
/// replaced.
pub static FREES: Mutex<Option<Tell>> = Mutex::new(None);
pub type Tell = Box<dyn Fn(u64, u64) + Send>;
/// Counts down to the launch that is skipped, by itself or in a graph (0: none).
pub static LOSE_LAUNCH: AtomicU64 = AtomicU64::new(0);
/// Not 0: functions that only newer drivers have are missing.
pub static OLD: AtomicU64 = AtomicU64::new(0);
/// Not 0: streams write no words, like older drivers that have the function. 900: not into graphs.
pub static NO_WRITES: AtomicU64 = AtomicU64::new(0);
/// Not 0: modules are loaded whole.
pub static EAGER: AtomicU64 = AtomicU64::new(0);
/// Loaded modules, and those of them whose text had been loaded before.
pub static LOADS: AtomicU64 = AtomicU64::new(0);
pub static CACHED: AtomicU64 = AtomicU64::new(0);
/// Number of GPUs.
pub static DEVICES: AtomicU64 = AtomicU64::new(1);
/// Not 0: GPUs reach each other's memory.
pub static PEERS: AtomicU64 = AtomicU64::new(0);
/// Calls that let one GPU reach another's memory.
pub static PEERS_ENABLED: AtomicU64 = AtomicU64::new(0);
/// Copies from GPU to GPU.
pub static PEER_COPIES: AtomicU64 = AtomicU64::new(0);
/// Allocations of write-combined memory.
pub static WRITE_COMBINED: AtomicU64 = AtomicU64::new(0);
/// Calls of any function of the driver.
pub static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Called when this thread enters a function of the stand-in (true) and leaves it.
    pub static ENTERS: std::cell::Cell<Option<fn(bool)>> = const { std::cell::Cell::new(None) };
    static CURRENT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

struct Inside;

impl Inside {
    fn enter() -> Inside {
        if let Some(tell) = ENTERS.get() {
            tell(true);
        }
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(tell) = ENTERS.get() {
            tell(false);
        }
    }
}

fn lock() -> MutexGuard<'static, Option<Fake>> {
    poison::ignore(FAKE.lock())
}

fn with<T>(f: impl FnOnce(&mut Fake) -> T) -> T {
    f(lock().get_or_insert_with(|| Fake { next: 0x1000, ..Fake::default() }))
}

/// What is still alive, by kind.
pub fn alive() -> Vec<String> {
    with(|fake| {
        let mut alive: Vec<_> = fake.objects.values().map(|kind| (*kind).to_owned()).collect();
        alive.extend(fake.memory.values().map(|block| format!("{:?}", block.kind)));
        alive
    })
}

/// Allocates memory of a kind that the crate itself never allocates.
pub fn plant(kind: Kind, bytes: usize) -> u64 {
    with(|fake| fake.allocate(kind, bytes))
}

pub fn take_back(address: u64) {
    free(address);
}

/// Drops the memory outside of the lock, because the drop may wait for transfers.
fn free(address: u64) -> Status {
    let bytes = with(|fake| fake.memory.get(&address).map(|block| block.bytes as u64));
    if let (Some(bytes), Some(tell)) = (bytes, &*poison::ignore(FREES.lock())) {
        tell(address, bytes);
    }
    let block = with(|fake| fake.memory.remove(&address));
    if block.is_some() { SUCCESS } else { INVALID_VALUE }
}

impl Fake {
    fn allocate(&mut self, kind: Kind, bytes: usize) -> u64 {
        let mut source = poison::ignore(SOURCE.lock());
        let (address, keep) = match source.as_mut() {
            Some(source) => source(kind, 0, bytes),
            None => {
                let words = vec![0xa5a5_a5a5_a5a5_a5a5_u64; bytes.div_ceil(8)];
                (words.as_ptr() as u64, Box::new(words) as Keep)
            }
        };
        self.numbers += 1;
        let number = self.numbers;
        self.memory.insert(address, Block { kind, bytes, number, _keep: keep });
        address
    }

    fn block(&self, address: u64) -> Option<(u64, &Block)> {
        let (base, block) = self.memory.range(..=address).next_back()?;
        (address - base < block.bytes as u64).then_some((*base, block))
    }

    fn holds(&self, address: u64, len: usize) -> bool {
        self.block(address).is_some_and(|(base, block)| address - base + len as u64 <= block.bytes as u64)
    }

    fn create(&mut self, kind: &'static str) -> u64 {
        self.next += 8;
        self.objects.insert(self.next, kind);
        self.next
    }

    fn destroy(&mut self, handle: *mut c_void, kind: &'static str) -> Status {
        match self.objects.get(&(handle as u64)) {
            Some(found) if *found == kind => {
                self.objects.remove(&(handle as u64));
                SUCCESS
            }
            _ => INVALID_HANDLE,
        }
    }

    /// Submits into the stream, or into the graph that is captured from it.
    fn submit(&mut self, stream: *mut c_void, work: Work) -> Status {
        match self.captures.get_mut(&(stream as u64)) {
            Some(graph) => {
                graph.push(work);
                SUCCESS
            }
            None => self.enqueue(stream, Op::Work(work)),
        }
    }

    fn enqueue(&mut self, stream: *mut c_void, op: Op) -> Status {
        match self.streams.get_mut(&(stream as u64)) {
            Some(queue) => {
                queue.push_back(op);
                SUCCESS
            }
            None => INVALID_HANDLE,
        }
    }

    /// Does the stream's next piece of work, or finds that it is pending; false when there is none.
    fn step(&mut self, stream: u64) -> bool {
        let Some(op) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front) else { return false };
        match op {
            Op::Work(work) => {
                self.clock += if let Work::Copy { .. } = work { COPY_NS } else { 0 };
                do_now(&work);
            }
            Op::Answer(kernel) if !kernel.is_finished() => {
                self.streams.entry(stream).or_default().push_front(Op::Answer(kernel));
            }
            Op::Answer(kernel) => drop(kernel.join()),
            Op::Record { event } => {
                self.events.insert(event, self.clock);
            }
        }
        true
    }
}

/// Whether the countdown ends with this call.
fn strikes(countdown: &AtomicU64) -> bool {
    countdown.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) == Ok(1)
}

/// The kernels by name, and the widths of their arguments.
const KERNELS: [(&str, u64, &[usize]); 10] = [
    ("copy_sm", COPY_SM, &[8, 8, 8, 8, 8, 4]),
    ("resident", kernels::RESIDENT, &[8, 8, 4, 8]),
    ("message_long", kernels::LONG, &[8, 8, 4, 8]),
    ("message_short", kernels::SHORT, &[8, 8, 4, 8]),
    ("consume", CONSUME, &[8, 8, 8, 8, 8, 8, 4]),
    ("count", COUNT, &[8]),
    ("count_and_tell", COUNT_AND_TELL, &[8, 8]),
    ("step", STEP, &[8, 4, 4]),
    ("stream_memory", STREAM_MEMORY, &[8, 4, 4]),
    ("copy", COPY, &[8, 8, 4]),
];
const COUNT: u64 = 0x110;
const COUNT_AND_TELL: u64 = 0x111;
const STEP: u64 = 0x112;
const STREAM_MEMORY: u64 = 0x113;
const COPY: u64 = 0x114;
const CONSUME: u64 = 0x124;
const COPY_SM: u64 = 0x120;

fn do_now(work: &Work) {
    match work {
        Work::Copy { to, from, len } => copy_now(*to, *from, *len),
        Work::Fill { to, word, width, count } => {
            let bytes = word.to_le_bytes()[..*width].repeat(*count);
            match bytes.as_slice().try_into() {
                // A word that another thread may be polling.
                // SAFETY: an aligned word of a live allocation.
                Ok(word) if to % 4 == 0 => unsafe {
                    AtomicU32::from_ptr(*to as *mut u32).store(u32::from_le_bytes(word), Ordering::Release);
                },
                // SAFETY: a live allocation that the call has checked.
                _ => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, bytes.len()) },
            }
        }
        Work::Kernel { .. } if strikes(&LOSE_LAUNCH) => {}
        Work::Kernel { function, threads, arguments } => match (*function, arguments.as_slice()) {
            (COUNT | COUNT_AND_TELL, [cell, word @ ..]) => {
                // SAFETY: aligned words of the caller's live allocations.
                let at = |at: u64| unsafe { AtomicU32::from_ptr(at as *mut u32) };
                let count = at(*cell).fetch_add(1, Ordering::AcqRel).wrapping_add(1);
                if let [word] = word {
                    at(*word).store(count, Ordering::Release);
                }
            }
            (STEP, [cells, n, value]) => {
                for i in 0..(*n as u32).min(*threads) {
                    let cell = (cells + u64::from(i) * 4) as *mut u32;
                    // SAFETY: the caller's allocation has that many words.
                    unsafe { *cell = (*cell).wrapping_mul(1_664_525).wrapping_add(*value as u32).wrapping_add(i) };
                }
            }
            (STREAM_MEMORY, [words, quads, value]) => {
                for i in 0..4 * quads {
                    let word = (words + i * 4) as *mut u32;
                    // SAFETY: the caller's allocation has that many words.
                    unsafe { *word = (*word).wrapping_add(*value as u32) };
                }
            }
            (COPY, &[to, from, bytes]) => copy_now(to, from, bytes as u32 as usize),
            (COPY_SM, &[to, from, bytes, told, count, number]) => {
                kernels::launched(*threads, [to, from, bytes]);
                kernels::end([told, count], number as u32);
            }
            (CONSUME, &[frame, pages, expected, ns, told, wrong, number]) => {
                kernels::consumed(
                    [frame, pages, expected],
                    std::time::Duration::from_nanos(ns),
                    [told, wrong],
                    number as u32,
                );
            }
            other => panic!("no such kernel: {other:x?}"),
        },
    }
}

/// While this lives, a thread does the work, as a GPU would, instead of each query.
pub struct Running {
    stop: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub fn run_by_itself() -> Running {
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = stop.clone();
    let thread = std::thread::spawn(move || {
        while !told.load(Ordering::Acquire) {
            with(|fake| {
                let streams: Vec<u64> = fake.streams.keys().copied().collect();
                for stream in streams {
                    fake.step(stream);
                }
            });
            std::thread::yield_now();
        }
    });
    Running { stop, thread: Some(thread) }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        drop(self.thread.take().map(std::thread::JoinHandle::join));
    }
}

fn copy_now(to: u64, from: u64, len: usize) {
    // SAFETY: one side is a live allocation of the stand-in, checked by the call; the other belongs to the caller.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
    if strikes(&SPOIL_COPY) {
        // SAFETY: the last byte of the target.
        unsafe { *((to as *mut u8).add(len - 1)) ^= 0x10 };
    }
}
