//! A stand-in for libcuda: its memory is the heap, its kernels are Rust, and a stream does one piece of work whenever it is
//! asked whether it is done, all of it when it is waited for; with [`run_by_itself`] a thread of its own does it. Its clock
//! goes by the work: a copy takes 1,000 ns.

#![allow(dead_code)]

pub mod kernels;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
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
const GATE_NS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Device { ordinal: i32 },
    Managed,
    Pinned,
    Registered,
}

struct Block {
    kind: Kind,
    bytes: usize,
    /// CUDA's number of the allocation: never used twice.
    number: u64,
    /// What it is made of; nothing for memory that is the caller's.
    _keep: Keep,
}

/// Memory goes when this is dropped.
pub type Keep = Box<dyn Any + Send>;
pub type Source = Box<dyn FnMut(Kind, usize) -> (u64, Keep) + Send>;
/// Where device and pinned memory come from, if not from the heap.
pub static SOURCE: Mutex<Option<Source>> = Mutex::new(None);

/// Bytes of the mapping that small blocks are cut out of, and of the largest small block.
const CHUNK: u64 = 2 << 20;
pub const SMALL: u64 = 64 << 10;

/// Memory as CUDA has it: blocks of up to [`SMALL`] bytes of device memory share a mapping that is kept when they are freed, and
/// are given out again, the lowest first; larger ones, and host memory, are the driver's each.
pub fn blocks(of: &Arc<gpu::AddressSpace>) -> Source {
    let (of, chunk) = (of.clone(), of.alloc_video(CHUNK).unwrap());
    let free: Arc<Mutex<BTreeSet<u64>>> = Arc::new(Mutex::new((0..CHUNK / SMALL).map(|n| n * SMALL).collect()));
    Box::new(move |kind, bytes| {
        let device = matches!(kind, Kind::Device { .. });
        let small = if device && bytes as u64 <= SMALL { free.lock().unwrap().pop_first() } else { None };
        if let Some(offset) = small {
            let keep = Small { chunk: chunk.clone(), free: free.clone(), offset };
            return (chunk.va() + offset, Box::new(keep) as Keep);
        }
        let memory = if device { of.alloc_video(bytes as u64) } else { of.alloc_host(bytes as u64) }.unwrap();
        (memory.va(), Box::new(memory) as Keep)
    })
}

/// A small block; free again on drop, without a call of the driver.
struct Small {
    #[allow(dead_code, reason = "kept alive")]
    chunk: Arc<gpu::Memory>,
    free: Arc<Mutex<BTreeSet<u64>>>,
    offset: u64,
}

impl Drop for Small {
    fn drop(&mut self) {
        self.free.lock().unwrap().insert(self.offset);
    }
}

/// What may be captured into a graph.
#[derive(Clone, Debug)]
enum Work {
    Copy { to: u64, from: u64, len: usize },
    Fill { to: u64, word: u32, width: usize, count: usize },
    Kernel { function: u64, threads: u32, arguments: Vec<u64> },
}

enum Op {
    Work(Work),
    Gate {
        flag: u64,
    },
    /// A kernel that runs already, and is waited for.
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
    /// Every text that was loaded: the driver keeps what it has compiled.
    loaded: BTreeSet<String>,
}

static FAKE: Mutex<Option<Fake>> = Mutex::new(None);
/// Counts down to the copy whose last byte gets a wrong bit; 0: none.
pub static SPOIL_COPY: AtomicU64 = AtomicU64::new(0);
/// Not 0: the gate opens by itself.
pub static GATE_EXPIRES: AtomicU64 = AtomicU64::new(0);
/// Launches of the kernel that answers, and those that are running.
pub static ANSWER_LAUNCHES: AtomicU64 = AtomicU64::new(0);
pub static ANSWER_RUNS: AtomicU64 = AtomicU64::new(0);
/// Not 0: the kernel that answers ends by itself after so many nanoseconds, whatever its limit.
pub static ANSWER_LIMIT: AtomicU64 = AtomicU64::new(0);
/// Lines whose sum was not theirs, as the kernel of long messages read them.
pub static ANSWER_TORN: AtomicU64 = AtomicU64::new(0);
/// Not 0: the kernel that answers sees nothing.
pub static ANSWER_DEAF: AtomicU64 = AtomicU64::new(0);
/// Told of each free before it is made, with what it is of, as the exchanged functions of a real libcuda tell; none where they
/// could not be exchanged.
pub static FREES: Mutex<Option<Tell>> = Mutex::new(None);
pub type Tell = Box<dyn Fn(u64, u64) + Send>;
/// Counts down to the launch that is left out, by itself or in a graph; 0: none.
pub static LOSE_LAUNCH: AtomicU64 = AtomicU64::new(0);
/// Not 0: functions that only newer drivers have are missing.
pub static OLD: AtomicU64 = AtomicU64::new(0);
/// Not 0: streams write no words, as of older drivers that have the function; 900: not into graphs.
pub static NO_WRITES: AtomicU64 = AtomicU64::new(0);
/// Not 0: modules are loaded whole.
pub static EAGER: AtomicU64 = AtomicU64::new(0);
/// Modules that were loaded, and those of them whose text had been loaded before.
pub static LOADS: AtomicU64 = AtomicU64::new(0);
pub static CACHED: AtomicU64 = AtomicU64::new(0);
/// GPUs that there are.
pub static DEVICES: AtomicU64 = AtomicU64::new(1);
/// Not 0: GPUs reach one another's memory.
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
    /// Told when this thread enters a function of the stand-in's (true) and leaves it.
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
    FAKE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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

/// Memory of a kind that the crate itself never allocates.
pub fn plant(kind: Kind, bytes: usize) -> u64 {
    with(|fake| fake.allocate(kind, bytes))
}

pub fn take_back(address: u64) {
    free(address);
}

/// Memory goes outside of the lock: what it is made of may wait for transfers.
fn free(address: u64) -> Status {
    let bytes = with(|fake| fake.memory.get(&address).map(|block| block.bytes as u64));
    if let (Some(bytes), Some(tell)) = (bytes, &*FREES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())) {
        tell(address, bytes);
    }
    let block = with(|fake| fake.memory.remove(&address));
    if block.is_some() { SUCCESS } else { INVALID_VALUE }
}

impl Fake {
    fn allocate(&mut self, kind: Kind, bytes: usize) -> u64 {
        let mut source = SOURCE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (address, keep) = match source.as_mut() {
            Some(source) => source(kind, bytes),
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

    /// Into the stream, or into the graph that is captured from it.
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

    /// Does the stream's next piece of work, or finds that it is under way; false when there is none.
    fn step(&mut self, stream: u64) -> bool {
        let Some(op) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front) else { return false };
        match op {
            Op::Work(work) => {
                self.clock += if let Work::Copy { .. } = work { COPY_NS } else { 0 };
                do_now(&work);
            }
            Op::Gate { flag } => {
                // SAFETY: two words of pinned memory of the caller's, which outlives the kernel.
                let [flag, seen] = unsafe { [0, 4].map(|at| AtomicU32::from_ptr((flag + at) as *mut u32)) };
                let open = flag.load(Ordering::Acquire) != 0 && GATE_EXPIRES.load(Ordering::SeqCst) == 0;
                self.clock += GATE_NS;
                // SAFETY: as above, two words behind them.
                unsafe { AtomicU64::from_ptr((seen.as_ptr() as u64 + 4) as *mut u64) }
                    .store(self.clock, Ordering::Release);
                seen.store(if open { 1 } else { 2 }, Ordering::Release);
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
const KERNELS: [(&str, u64, &[usize]); 12] = [
    ("answer_long", 0x105, &[8, 8, 8, 4, 8, 8]),
    ("copy_sm", COPY_SM, &[8, 8, 8, 8, 8, 4]),
    ("copy_elements", COPY_ELEMENTS, &[8, 8, 8, 8, 8, 4]),
    ("resident", kernels::RESIDENT, &[8, 8, 4, 8]),
    ("resident_clusters", kernels::RESIDENT_CLUSTERS, &[8, 8, 4, 8]),
    ("gate", 0x101, &[8, 8]),
    ("answer", 0x102, &[8, 8, 8, 4, 8, 8]),
    ("answer_line", 0x103, &[8, 8, 8, 4, 8, 8]),
    ("answer_mail", 0x104, &[8, 8, 8, 4, 8, 8]),
    ("count", COUNT, &[8]),
    ("count_and_tell", COUNT_AND_TELL, &[8, 8]),
    ("step", STEP, &[8, 4, 4]),
];
const COUNT: u64 = 0x110;
const COUNT_AND_TELL: u64 = 0x111;
const STEP: u64 = 0x112;
const COPY_SM: u64 = 0x120;
const COPY_ELEMENTS: u64 = 0x121;

fn do_now(work: &Work) {
    match work {
        Work::Copy { to, from, len } => copy_now(*to, *from, *len),
        Work::Fill { to, word, width, count } => {
            let bytes = word.to_le_bytes()[..*width].repeat(*count);
            match bytes.as_slice().try_into() {
                // A word that somebody may be looking at.
                // SAFETY: an aligned word of a live allocation.
                Ok(word) if to % 4 == 0 => unsafe {
                    AtomicU32::from_ptr(*to as *mut u32).store(u32::from_le_bytes(word), Ordering::Release);
                },
                // SAFETY: a live allocation that was checked by the call.
                _ => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, bytes.len()) },
            }
        }
        Work::Kernel { .. } if strikes(&LOSE_LAUNCH) => {}
        Work::Kernel { function, threads, arguments } => match (*function, arguments.as_slice()) {
            (COUNT | COUNT_AND_TELL, [cell, word @ ..]) => {
                // SAFETY: aligned words of live allocations of the caller's.
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
            (COPY_SM | COPY_ELEMENTS, &[to, from, bytes, told, count, number]) => {
                kernels::launched(*function == COPY_ELEMENTS, *threads, [to, from, bytes]);
                kernels::end([told, count], number as u32);
            }
            other => panic!("no such kernel: {other:x?}"),
        },
    }
}

/// Work is done by a thread while this lives, as on a GPU, and not when it is asked for.
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
    // SAFETY: one side is a live allocation of the stand-in's, checked by the call; the other is the caller's.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len) };
    if strikes(&SPOIL_COPY) {
        // SAFETY: the last byte of the target.
        unsafe { *((to as *mut u8).add(len - 1)) ^= 0x10 };
    }
}

/// What the kernel that answers does, on a thread: `kind` 0 the number alone, 1 the line, 2 the mail, 3 a long message.
fn answer(kind: u64, [flag, to, ended, data]: [u64; 4], mut seen: u32, limit: u64) {
    // SAFETY: words of memory of the caller's, which outlives the kernel.
    let word = |at: u64| unsafe { AtomicU32::from_ptr(at as *mut u32) };
    let (number, low, high) = match kind {
        0 => (flag, flag, flag),
        1 => (flag + 8, flag, flag + 4),
        3 => (flag + 56, flag, flag + 4),
        _ => (flag + 4, flag, flag + 8),
    };
    let (mut since, mut why) = (std::time::Instant::now(), 2);
    while (since.elapsed().as_nanos() as u64) < limit {
        let value = if ANSWER_DEAF.load(Ordering::SeqCst) == 0 { word(number).load(Ordering::Acquire) } else { seen };
        if value == u32::MAX {
            why = 1;
            break;
        }
        // A store of a line is not one here: the second number says that all of it has come.
        if value != seen && (kind != 2 || word(flag + 12).load(Ordering::Acquire) == value) {
            let bytes = [low, high].map(|at| word(at).load(Ordering::Acquire));
            let line: [u32; 16] = std::array::from_fn(|n| {
                word(if kind == 3 { flag + 4 * n as u64 } else { flag }).load(Ordering::Acquire)
            });
            let sum = (0..15).fold(0u32, |sum, n| {
                sum.wrapping_add(line[n].wrapping_mul(0x9e37_79b1u32.wrapping_mul(2 * n as u32 + 1)))
            });
            if kind == 3 && (sum != line[15] || line[14] != value) {
                ANSWER_TORN.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            match kind {
                0 => word(to).store(value, Ordering::Release),
                1 => {
                    for (i, part) in [bytes[0], bytes[1], value, value].into_iter().enumerate() {
                        word(to + 4 * i as u64).store(part, Ordering::Release);
                    }
                }
                3 => line.into_iter().enumerate().for_each(|(n, part)| {
                    word(to + 4 * n as u64).store(part, Ordering::Release);
                }),
                _ => {
                    word(data).store(bytes[0], Ordering::Release);
                    word(data + 4).store(bytes[1], Ordering::Release);
                    word(to).store(value, Ordering::Release);
                }
            }
            (seen, since) = (value, std::time::Instant::now());
        }
        std::thread::yield_now();
    }
    ANSWER_RUNS.fetch_sub(1, Ordering::SeqCst);
    word(ended).store(why, Ordering::Release);
}

fn devices() -> c_int {
    DEVICES.load(Ordering::SeqCst) as c_int
}

/// The GPU of the thread's context.
fn current() -> c_int {
    (CURRENT.get() as usize).saturating_sub(PRIMARY) as c_int
}

/// Whether the memory is not of another GPU than the thread's context: real calls let that pass, routes do not rely on it.
fn is_here(at: u64) -> bool {
    with(|fake| match fake.block(at) {
        Some((_, Block { kind: Kind::Device { ordinal }, .. })) => *ordinal == current(),
        _ => true,
    })
}

fn in_context() -> bool {
    CURRENT.get() != 0
}

fn give<T>(to: *mut T, value: T) -> Status {
    // SAFETY: the callers pass a pointer to a variable of their own.
    unsafe { to.write(value) };
    SUCCESS
}

fn handle(to: *mut *mut c_void, kind: &'static str) -> Status {
    if !in_context() {
        return INVALID_CONTEXT;
    }
    give(to, with(|fake| fake.create(kind)) as *mut c_void)
}

fn copy(device: u64, to: u64, from: u64, len: usize, stream: Option<*mut c_void>) -> Status {
    if !in_context() {
        return INVALID_CONTEXT;
    }
    with(|fake| {
        let Some((_, Block { kind: Kind::Device { .. }, .. })) = fake.block(device) else { return INVALID_VALUE };
        if !fake.holds(device, len) {
            return INVALID_VALUE;
        }
        match stream {
            Some(stream) => fake.submit(stream, Work::Copy { to, from, len }),
            None => {
                copy_now(to, from, len);
                SUCCESS
            }
        }
    })
}

fn fill(to: u64, word: u32, width: usize, count: usize, stream: *mut c_void) -> Status {
    with(|fake| {
        if !fake.holds(to, width * count) {
            return INVALID_VALUE;
        }
        fake.submit(stream, Work::Fill { to, word, width, count })
    })
}

macro_rules! driver {
    ($find:ident; $($name:ident($($argument:ident: $kind:ty),*) $body:block)*) => {
        /// The library's functions by name.
        pub fn $find(name: &CStr) -> Option<NonNull<c_void>> {
            $({
                #[allow(non_snake_case)]
                extern "C" fn $name($($argument: $kind),*) -> Status {
                    CALLS.fetch_add(1, Ordering::SeqCst);
                    let _inside = Inside::enter();
                    $body
                }
                if name.to_bytes() == stringify!($name).as_bytes() {
                    return NonNull::new($name as *mut c_void);
                }
            })*
            None
        }
    };
}

/// `cudaGetErrorName`: the one function of the runtime that answers with something else than a status.
extern "C" fn runtime_error_name(_status: Status) -> *const c_char {
    c"cudaErrorOfTheStandIn".as_ptr()
}

/// Not 0: what `cudaSetDevice` answers.
pub static RUNTIME_STARTS: AtomicU32 = AtomicU32::new(0);

/// The runtime's functions by name.
pub fn find_runtime(name: &CStr) -> Option<NonNull<c_void>> {
    if name == c"cudaGetErrorName" {
        return NonNull::new(runtime_error_name as *mut c_void);
    }
    find_runtime_call(name)
}

fn runtime_copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: Option<*mut c_void>,
) -> Status {
    let (to, from) = (to as u64, from as u64);
    match kind {
        1 => copy(to, to, from, bytes, stream),
        2 => copy(from, to, from, bytes, stream),
        _ => 21,
    }
}

driver! {
    find_runtime_call;
    cudaSetDevice(device: c_int) {
        if device == 0 { RUNTIME_STARTS.load(Ordering::SeqCst) as Status } else { 101 }
    }
    cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) {
        runtime_copy(to, from, bytes, kind, None)
    }
    cudaMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: *mut c_void) {
        runtime_copy(to, from, bytes, kind, Some(stream))
    }
    cudaMalloc(at: *mut *mut c_void, bytes: usize) {
        give(at, with(|fake| fake.allocate(Kind::Device { ordinal: 0 }, bytes)) as *mut c_void)
    }
    cudaFree(at: *mut c_void) { free(at as u64) }
    cudaMallocAsync(at: *mut *mut c_void, bytes: usize, _stream: *mut c_void) {
        give(at, with(|fake| fake.allocate(Kind::Device { ordinal: 0 }, bytes)) as *mut c_void)
    }
    cudaFreeAsync(at: *mut c_void, _stream: *mut c_void) { free(at as u64) }
    cudaStreamCreateWithFlags(stream: *mut *mut c_void, flags: c_uint) { create_stream(stream, flags) }
    cudaStreamSynchronize(stream: *mut c_void) { synchronize_stream(stream) }
    cudaStreamQuery(stream: *mut c_void) { with(|fake| if fake.step(stream as u64) { NOT_READY } else { SUCCESS }) }
    cudaStreamDestroy(stream: *mut c_void) { destroy_stream(stream) }
}

fn create_stream(stream: *mut *mut c_void, flags: c_uint) -> Status {
    if !in_context() {
        return INVALID_CONTEXT;
    }
    if flags != 1 {
        return INVALID_VALUE;
    }
    let new = with(|fake| {
        let new = fake.create("stream");
        fake.streams.insert(new, VecDeque::new());
        new
    });
    give(stream, new as *mut c_void)
}

fn synchronize_stream(stream: *mut c_void) -> Status {
    // The default stream's copies are done when they return.
    if stream.is_null() {
        return SUCCESS;
    }
    let is_there =
        |fake: &mut Fake| fake.streams.contains_key(&(stream as u64)) && !fake.captures.contains_key(&(stream as u64));
    if !with(is_there) {
        return INVALID_HANDLE;
    }
    // A kernel that is waited for keeps nobody else from the library.
    while with(|fake| fake.step(stream as u64)) {
        std::thread::yield_now();
    }
    SUCCESS
}

fn destroy_stream(stream: *mut c_void) -> Status {
    with(|fake| {
        fake.streams.remove(&(stream as u64));
        fake.destroy(stream, "stream")
    })
}

/// Functions that only newer drivers have.
const NEWER: [&CStr; 5] = [
    c"cuStreamWriteValue32_v2",
    c"cuMemcpyBatchAsync_v2",
    c"cuMemcpyBatchAsync",
    c"cuModuleGetLoadingMode",
    c"cuLinkCreate_v2",
];

/// The library's functions by name.
pub fn find(name: &CStr) -> Option<NonNull<c_void>> {
    if OLD.load(Ordering::SeqCst) != 0 && NEWER.contains(&name) {
        return None;
    }
    find_call(name)
}

driver! {
    find_call;
    cuInit(_flags: c_uint) { SUCCESS }
    cuDriverGetVersion(version: *mut c_int) { give(version, 13_000) }
    cuGetErrorName(_status: Status, name: *mut *const c_char) { give(name, c"CUDA_ERROR_OF_THE_STAND_IN".as_ptr()) }
    cuGetErrorString(_status: Status, text: *mut *const c_char) { give(text, c"of the stand-in".as_ptr()) }
    cuDeviceGetCount(count: *mut c_int) { give(count, devices()) }
    cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        if (0..devices()).contains(&ordinal) { give(device, ordinal) } else { 101 }
    }
    cuDeviceGetName(_name: *mut c_char, _length: c_int, _device: c_int) { NOT_SUPPORTED }
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) {
        // Compute capability 9; of all others, the number of the attribute is as good as any.
        give(value, if attribute == 75 { 9 } else { attribute })
    }
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _device: c_int) { give(uuid, *b"GPU-of-no-moment") }
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) {
        give(context, std::ptr::without_provenance_mut(PRIMARY + device as usize))
    }
    cuDevicePrimaryCtxRelease_v2(_device: c_int) { SUCCESS }
    cuCtxCreate_v2(_context: *mut *mut c_void, _flags: c_uint, _device: c_int) { NOT_SUPPORTED }
    cuCtxDestroy_v2(_context: *mut c_void) { NOT_SUPPORTED }
    cuDeviceCanAccessPeer(can: *mut c_int, _device: c_int, _peer: c_int) {
        give(can, PEERS.load(Ordering::SeqCst) as c_int)
    }
    // Enabled already.
    cuCtxEnablePeerAccess(peer: *mut c_void, _flags: c_uint) {
        if devices() > 1 && peer as u64 == CURRENT.get() { return INVALID_VALUE; }
        PEERS_ENABLED.fetch_add(1, Ordering::SeqCst);
        704
    }
    cuCtxSetCurrent(context: *mut c_void) {
        CURRENT.set(context as u64);
        SUCCESS
    }
    cuCtxSynchronize() {
        if !in_context() { return INVALID_CONTEXT; }
        with(|fake| {
            let streams: Vec<u64> = fake.streams.keys().copied().collect();
            for stream in streams {
                while fake.step(stream) {}
            }
        });
        SUCCESS
    }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        if !in_context() { return INVALID_CONTEXT; }
        give(address, with(|fake| fake.allocate(Kind::Device { ordinal: current() }, bytes)))
    }
    cuMemFree_v2(address: u64) { free(address) }
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) {
        // Portable and mapped; maybe write-combined.
        if flags != 3 && flags != 7 { return INVALID_VALUE; }
        WRITE_COMBINED.fetch_add(u64::from(flags == 7), Ordering::SeqCst);
        give(pointer, with(|fake| fake.allocate(Kind::Pinned, bytes)) as *mut c_void)
    }
    cuMemFreeHost(pointer: *mut c_void) { free(pointer as u64) }
    cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, _flags: c_uint) {
        match with(|fake| fake.block(pointer as u64).map(|(_, block)| block.kind)) {
            Some(Kind::Pinned | Kind::Registered) => give(address, pointer as u64),
            _ => INVALID_VALUE,
        }
    }
    cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) {
        if flags != 3 { return INVALID_VALUE; }
        let register = |fake: &mut Fake| {
            fake.numbers += 1;
            let (number, keep): (u64, Keep) = (fake.numbers, Box::new(()));
            fake.memory.insert(pointer as u64, Block { kind: Kind::Registered, bytes, number, _keep: keep })
        };
        with(register).map_or(SUCCESS, |_| INVALID_VALUE)
    }
    cuMemHostUnregister(pointer: *mut c_void) {
        with(|fake| match fake.memory.remove(&(pointer as u64)) {
            Some(Block { kind: Kind::Registered, .. }) => SUCCESS,
            _ => INVALID_VALUE,
        })
    }
    cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) {
        with(|fake| match fake.block(address) {
            Some((start, block)) if matches!(block.kind, Kind::Device { .. } | Kind::Managed) => {
                give(bytes, block.bytes);
                give(base, start)
            }
            _ => NOT_FOUND,
        })
    }
    cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: u64) {
        with(|fake| {
            let Some((base, block)) = fake.block(address) else { return INVALID_VALUE };
            let device = matches!(block.kind, Kind::Device { .. } | Kind::Managed);
            match attribute {
                2 => give(value.cast::<u32>(), if device { 2 } else { 1 }),
                7 => give(value.cast::<u64>(), block.number),
                8 => give(value.cast::<u32>(), u32::from(block.kind == Kind::Managed)),
                9 => give(value.cast::<i32>(), if let Kind::Device { ordinal } = block.kind { ordinal } else { 0 }),
                11 => give(value.cast::<u64>(), base),
                12 => give(value.cast::<usize>(), block.bytes),
                _ => INVALID_VALUE,
            }
        })
    }
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        if !is_here(to) { return INVALID_CONTEXT; }
        copy(to, to, from as u64, bytes, None)
    }
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        if !is_here(from) { return INVALID_CONTEXT; }
        copy(from, to as u64, from, bytes, None)
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) {
        copy(to, to, from as u64, bytes, Some(stream))
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) {
        copy(from, to as u64, from, bytes, Some(stream))
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        if !with(|fake| fake.holds(to, bytes)) { return INVALID_VALUE; }
        copy(from, to, from, bytes, Some(stream))
    }
    cuMemcpyPeerAsync(
        to: u64, to_context: *mut c_void, from: u64, from_context: *mut c_void, bytes: usize, stream: *mut c_void
    ) {
        if to_context.is_null() || from_context.is_null() || !with(|fake| fake.holds(to, bytes)) { return INVALID_VALUE; }
        PEER_COPIES.fetch_add(1, Ordering::SeqCst);
        copy(from, to, from, bytes, Some(stream))
    }
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: *mut c_void) { fill(to, value.into(), 1, count, stream) }
    cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: *mut c_void) { fill(to, value, 4, count, stream) }
    cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) { create_stream(stream, flags) }
    cuStreamDestroy_v2(stream: *mut c_void) { destroy_stream(stream) }
    cuStreamSynchronize(stream: *mut c_void) { synchronize_stream(stream) }
    cuStreamQuery(stream: *mut c_void) { with(|fake| if fake.step(stream as u64) { NOT_READY } else { SUCCESS }) }
    cuStreamBeginCapture_v2(stream: *mut c_void, _mode: c_int) {
        with(|fake| fake.captures.insert(stream as u64, Vec::new())).map_or(SUCCESS, |_| INVALID_VALUE)
    }
    cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) {
        with(|fake| {
            let Some(work) = fake.captures.remove(&(stream as u64)) else { return INVALID_VALUE };
            let new = fake.create("graph");
            fake.graphs.insert(new, work);
            give(graph, new as *mut c_void)
        })
    }
    cuEventCreate(event: *mut *mut c_void, _flags: c_uint) { handle(event, "event") }
    cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        with(|fake| fake.enqueue(stream, Op::Record { event: event as u64 }))
    }
    cuEventSynchronize(_event: *mut c_void) { NOT_SUPPORTED }
    cuEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) {
        with(|fake| match [start, end].map(|event| fake.events.get(&(event as u64)).copied()) {
            [Some(start), Some(end)] => give(milliseconds, (end - start) as f32 / 1e6),
            _ => NOT_READY,
        })
    }
    cuEventDestroy_v2(event: *mut c_void) { with(|fake| fake.destroy(event, "event")) }
    cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) {
        // SAFETY: zero-terminated text.
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
        let kernels = text.split(".entry ").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())).collect();
        if !text.contains(".version") { return INVALID_VALUE; }
        LOADS.fetch_add(1, Ordering::SeqCst);
        let new = with(|fake| {
            if !fake.loaded.insert(text.into_owned()) {
                CACHED.fetch_add(1, Ordering::SeqCst);
            }
            let new = fake.create("module");
            fake.modules.insert(new, kernels);
            new
        });
        give(module, new as *mut c_void)
    }
    cuModuleUnload(module: *mut c_void) {
        with(|fake| {
            fake.modules.remove(&(module as u64));
            fake.destroy(module, "module")
        })
    }
    cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
        // SAFETY: zero-terminated text.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        if !with(|fake| fake.modules.get(&(module as u64)).is_some_and(|all| all.contains(name.as_ref()))) {
            return NOT_FOUND;
        }
        // A kernel of any other name counts.
        let known = KERNELS.iter().find(|kernel| kernel.0 == name);
        give(function, known.map_or(COUNT, |kernel| kernel.1) as *mut c_void)
    }
    cuLaunchKernel(
        function: *mut c_void,
        gx: c_uint, _gy: c_uint, _gz: c_uint,
        bx: c_uint, _by: c_uint, _bz: c_uint,
        _shared: c_uint, stream: *mut c_void,
        arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) {
        let Some((_, kind, widths)) = KERNELS.iter().find(|kernel| kernel.1 == function as u64) else {
            return INVALID_HANDLE;
        };
        let given = widths.iter().enumerate().map(|(n, width)| {
            let mut value = [0; 8];
            // SAFETY: the caller passes a pointer for each argument of the kernel.
            unsafe { std::ptr::copy_nonoverlapping((*arguments.add(n)).cast(), value.as_mut_ptr(), *width) };
            u64::from_ne_bytes(value)
        });
        let given: Vec<u64> = given.collect();
        match (kind, given.as_slice()) {
            (&kernels::RESIDENT, &[mailbox, host, seen, limit]) if (gx, bx) == (1, 512) => {
                let kernel = kernels::resident([1, 1], [mailbox, host, limit], seen as u32);
                with(|fake| fake.enqueue(stream, Op::Answer(kernel)))
            }
            (0x101, [flag, ..]) => with(|fake| fake.enqueue(stream, Op::Gate { flag: *flag })),
            (0x102..=0x105, &[flag, to, ended, seen, limit, data]) => {
                let limit = match ANSWER_LIMIT.load(Ordering::SeqCst) {
                    0 => limit,
                    sooner => sooner,
                };
                ANSWER_LAUNCHES.fetch_add(1, Ordering::SeqCst);
                ANSWER_RUNS.fetch_add(1, Ordering::SeqCst);
                let kind = kind - 0x102;
                let kernel = std::thread::spawn(move || answer(kind, [flag, to, ended, data], seen as u32, limit));
                with(|fake| fake.enqueue(stream, Op::Answer(kernel)))
            }
            _ => with(|fake| {
                fake.submit(stream, Work::Kernel { function: *kind, threads: gx * bx, arguments: given })
            }),
        }
    }
    cuLaunchKernelEx(
        config: *const kernels::Config, function: *mut c_void, arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) {
        // SAFETY: the caller's configuration with its attributes, and a pointer for each argument of the kernel.
        let (config, size, given) = unsafe { (&*config, kernels::cluster(config), kernels::given(arguments)) };
        let Some(size) = size.filter(|size| config.grid[0].is_multiple_of(*size)) else { return INVALID_VALUE };
        if function as u64 != kernels::RESIDENT_CLUSTERS || config.block != [512, 1, 1] { return INVALID_HANDLE; }
        if u64::from(size) > kernels::LARGEST_CLUSTER.load(Ordering::SeqCst) { return INVALID_VALUE; }
        let [mailbox, host, seen, limit] = given;
        let kernel = kernels::resident([config.grid[0] / size, size], [mailbox, host, limit], seen as u32);
        with(|fake| fake.enqueue(config.stream, Op::Answer(kernel)))
    }
    cuFuncSetAttribute(_function: *mut c_void, attribute: c_int, _value: c_int) {
        if attribute == 8 || attribute == 14 { SUCCESS } else { INVALID_VALUE }
    }
    cuOccupancyMaxPotentialClusterSize(size: *mut c_int, _function: *mut c_void, _config: *const kernels::Config) {
        give(size, kernels::LARGEST_CLUSTER.load(Ordering::SeqCst) as c_int)
    }
    cuOccupancyMaxActiveClusters(clusters: *mut c_int, _function: *mut c_void, _config: *const kernels::Config) {
        give(clusters, kernels::CLUSTERS_AT_ONCE.load(Ordering::SeqCst) as c_int)
    }
    cuGraphInstantiateWithFlags(exec: *mut *mut c_void, graph: *mut c_void, _flags: u64) {
        with(|fake| {
            let Some(work) = fake.graphs.get(&(graph as u64)).cloned() else { return INVALID_HANDLE };
            let new = fake.create("exec");
            fake.graphs.insert(new, work);
            give(exec, new as *mut c_void)
        })
    }
    cuGraphLaunch(exec: *mut c_void, stream: *mut c_void) {
        with(|fake| {
            let Some(work) = fake.graphs.get(&(exec as u64)).cloned() else { return INVALID_HANDLE };
            work.into_iter().map(|one| fake.submit(stream, one)).find(|status| *status != SUCCESS).unwrap_or(SUCCESS)
        })
    }
    cuStreamWriteValue32_v2(stream: *mut c_void, at: u64, value: c_uint, flags: c_uint) {
        if flags != 0 || !at.is_multiple_of(4) { return INVALID_VALUE; }
        match NO_WRITES.load(Ordering::SeqCst) {
            0 => fill(at, value, 4, 1, stream),
            900 if !with(|fake| fake.captures.contains_key(&(stream as u64))) => fill(at, value, 4, 1, stream),
            why => why as Status,
        }
    }
    cuMemcpyBatchAsync_v2(
        to: *mut u64, from: *mut u64, bytes: *mut usize, count: usize,
        attributes: *mut c_int, of: *mut usize, attribute_count: usize, stream: *mut c_void
    ) {
        // SAFETY: one of each.
        let (order, of) = unsafe { (*attributes, *of) };
        if count == 0 || (attribute_count, order, of) != (1, 1, 0) || stream.is_null() { return INVALID_VALUE; }
        let device = |at: u64| with(|fake| matches!(fake.block(at), Some((_, Block { kind: Kind::Device { .. }, .. }))));
        for n in 0..count {
            // SAFETY: arrays of the length that is given.
            let (to, from, bytes) = unsafe { (*to.add(n), *from.add(n), *bytes.add(n)) };
            let status = copy(if device(to) { to } else { from }, to, from, bytes, Some(stream));
            if status != SUCCESS { return status; }
        }
        SUCCESS
    }
    cuModuleGetLoadingMode(mode: *mut c_int) { give(mode, if EAGER.load(Ordering::SeqCst) == 0 { 2 } else { 1 }) }
    cuLinkCreate_v2(options: c_uint, _names: *mut c_int, _values: *mut *mut c_void, link: *mut *mut c_void) {
        if options != 0 { return INVALID_VALUE; }
        handle(link, "link")
    }
    cuLinkAddData_v2(
        link: *mut c_void, kind: c_int, data: *mut c_void, bytes: usize, _name: *const c_char,
        options: c_uint, _names: *mut c_int, _values: *mut *mut c_void
    ) {
        if kind != 1 || options != 0 { return INVALID_VALUE; }
        // SAFETY: so many bytes of text.
        let text = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) }.to_vec();
        if text.last() != Some(&0) { return INVALID_VALUE; }
        with(|fake| fake.links.insert(link as u64, text));
        SUCCESS
    }
    cuLinkComplete(link: *mut c_void, image: *mut *mut c_void, bytes: *mut usize) {
        with(|fake| match fake.links.get(&(link as u64)) {
            Some(text) => {
                give(bytes, text.len());
                give(image, text.as_ptr().cast_mut().cast())
            }
            None => INVALID_HANDLE,
        })
    }
    cuLinkDestroy(link: *mut c_void) {
        with(|fake| {
            fake.links.remove(&(link as u64));
            fake.destroy(link, "link")
        })
    }
    cuGraphExecDestroy(exec: *mut c_void) { with(|fake| fake.destroy(exec, "exec")) }
    cuGraphDestroy(graph: *mut c_void) { with(|fake| fake.destroy(graph, "graph")) }
}
