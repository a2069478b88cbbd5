//! A stand-in for libcuda: its memory is the heap, its streams run at once, its kernels are Rust. It tracks every live object, refuses the
//! calls that CUDA would refuse, and makes one mistake on request.

mod shapes;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

type Status = c_int;
const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 1;
const INVALID_CONTEXT: Status = 201;
const INVALID_HANDLE: Status = 400;
const NOT_FOUND: Status = 500;
const NOT_SUPPORTED: Status = 801;
const ILLEGAL_ADDRESS: Status = 700;
const UNSUPPORTED_IN_CAPTURE: Status = 900;

#[derive(Clone)]
enum Op {
    Copy {
        to: u64,
        from: u64,
        len: usize,
    },
    Fill {
        to: u64,
        word: u32,
        width: usize,
        count: usize,
    },
    Kernel {
        function: u64,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        cluster: u32,
        arguments: Vec<Vec<u8>>,
    },
    /// A host function, and its argument.
    Call {
        function: extern "C" fn(*mut c_void),
        data: u64,
    },
    Rows {
        to: shapes::Side,
        from: shapes::Side,
        width: usize,
        height: usize,
    },
    FillRows {
        to: u64,
        pitch: usize,
        word: u32,
        width: usize,
        count: usize,
        height: usize,
    },
}

#[derive(Default)]
struct Fake {
    next: u64,
    /// Memory by address: device memory and pinned host memory alike.
    memory: BTreeMap<u64, Vec<u64>>,
    /// Kind of every other live object.
    objects: BTreeMap<u64, &'static str>,
    captures: BTreeMap<u64, Vec<Op>>,
    /// Streams and events that belong to another stream's capture, and that stream.
    joined: BTreeMap<u64, u64>,
    /// Graphs that a stream captures into.
    into: BTreeMap<u64, u64>,
    graphs: BTreeMap<u64, Vec<Op>>,
}

static FAKE: Mutex<Option<Fake>> = Mutex::new(None);
/// Counts down to the launch that is left out, or the copy that gets a wrong bit (0: none).
pub static LOSE_LAUNCH: AtomicU64 = AtomicU64::new(0);
pub static SPOIL_COPY: AtomicU64 = AtomicU64::new(0);
pub static LAUNCHES: AtomicU64 = AtomicU64::new(0);
/// A thread that creates a stream waits until no thread has launched for a while, like a writer that readers always overtake.
pub static STARVE: AtomicBool = AtomicBool::new(false);

const PRIMARY: u64 = 1;
const STEP: u64 = 0x101;
const CELLS: u64 = 0x102;
const SPIN: u64 = 0x103;
/// One word from one address to another: the launch that an experiment times.
const WORD: u64 = 0x104;

thread_local! {
    static CURRENT: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn lock() -> MutexGuard<'static, Option<Fake>> {
    FAKE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn with<T>(f: impl FnOnce(&mut Fake) -> T) -> T {
    f(lock().get_or_insert_with(|| Fake { next: 0x1000, ..Fake::default() }))
}

/// The live objects, by kind.
pub fn alive() -> Vec<&'static str> {
    with(|fake| {
        let mut alive: Vec<_> = fake.objects.values().copied().collect();
        alive.extend(fake.memory.keys().map(|_| "memory"));
        alive
    })
}

fn in_context() -> bool {
    CURRENT.with_borrow(|stack| stack.last().is_some_and(|context| *context != 0))
}

impl Fake {
    fn create(&mut self, kind: &'static str) -> u64 {
        self.next += 8;
        self.objects.insert(self.next, kind);
        self.next
    }

    fn destroy(&mut self, handle: u64, kind: &'static str) -> Status {
        if self.objects.get(&handle) != Some(&kind) {
            return INVALID_HANDLE;
        }
        self.objects.remove(&handle);
        SUCCESS
    }

    fn holds(&self, address: u64, len: usize) -> bool {
        self.memory
            .range(..=address)
            .next_back()
            .is_some_and(|(start, memory)| address - start + len as u64 <= memory.len() as u64 * 8)
    }

    /// Puts the work into the capture of its stream, or returns it to be run.
    fn submit(&mut self, stream: u64, op: Op) -> Result<Option<Op>, Status> {
        if self.objects.get(&stream) != Some(&"stream") {
            return Err(INVALID_HANDLE);
        }
        let origin = self.joined.get(&stream).copied().unwrap_or(stream);
        match self.captures.get_mut(&origin) {
            Some(ops) => {
                ops.push(op);
                Ok(None)
            }
            None => Ok(Some(op)),
        }
    }
}

fn submit(stream: *mut c_void, op: Op) -> Status {
    if !in_context() {
        return INVALID_CONTEXT;
    }
    match with(|fake| fake.submit(stream as u64, op)) {
        Ok(Some(op)) => execute(&op),
        Ok(None) => SUCCESS,
        Err(status) => status,
    }
}

/// Whether the countdown ends with this call.
fn strikes(countdown: &AtomicU64) -> bool {
    countdown.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) == Ok(1)
}

fn execute(op: &Op) -> Status {
    match op {
        Op::Copy { to, from, len } => {
            // SAFETY: one side is a live allocation (checked by the call), the other the caller's own.
            unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *len) };
            if strikes(&SPOIL_COPY) {
                // SAFETY: the last byte of the target.
                unsafe { *((*to as *mut u8).add(len - 1)) ^= 0x10 };
            }
            SUCCESS
        }
        Op::Fill { to, word, width, count } => {
            if !with(|fake| fake.holds(*to, width * count)) {
                return ILLEGAL_ADDRESS;
            }
            let bytes = word.to_le_bytes()[..*width].repeat(*count);
            // SAFETY: inside the allocation.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, bytes.len()) };
            SUCCESS
        }
        Op::Call { function, data } => {
            function(*data as *mut c_void);
            SUCCESS
        }
        Op::Rows { to, from, width, height } => shapes::copy_rows(to, from, *width, *height),
        Op::FillRows { to, pitch, word, width, count, height } => {
            let rows = (0..*height).map(|row| Op::Fill {
                to: to + (row * pitch) as u64,
                word: *word,
                width: *width,
                count: *count,
            });
            rows.map(|row| execute(&row)).find(|status| *status != SUCCESS).unwrap_or(SUCCESS)
        }
        Op::Kernel { function, grid, block, shared, cluster, arguments } => {
            if strikes(&LOSE_LAUNCH) {
                return SUCCESS;
            }
            LAUNCHES.fetch_add(1, Ordering::SeqCst);
            let numbers: Vec<u64> = arguments.iter().map(|bytes| number(bytes)).collect();
            match (*function, numbers.as_slice()) {
                (shapes::FIRST.., _) => shapes::kernel(*function, *grid, *block, *cluster, arguments),
                (STEP, [cells, n, value]) => step(*cells, *n as u32, *value as u32, grid[0] * block[0]),
                (CELLS, [out, key, exchange]) => {
                    cells(*out, *key as u32, *exchange as u32 != 0, *grid, *block, *shared)
                }
                (SPIN, [flag]) => {
                    // SAFETY: pinned memory of the caller, which outlives the kernel.
                    let [flag, seen] = unsafe { [0, 4].map(|at| AtomicU32::from_ptr((*flag + at) as *mut u32)) };
                    while flag.load(Ordering::Acquire) == 0 {
                        std::thread::yield_now();
                    }
                    seen.store(flag.load(Ordering::Acquire), Ordering::Release);
                    SUCCESS
                }
                (WORD, [to, from]) => {
                    if !with(|fake| fake.holds(*to, 4) && fake.holds(*from, 4)) {
                        return ILLEGAL_ADDRESS;
                    }
                    // SAFETY: inside the allocations, aligned.
                    unsafe { *(*to as *mut u32) = *(*from as *const u32) };
                    SUCCESS
                }
                _ => INVALID_HANDLE,
            }
        }
    }
}

/// The first eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn step(cells: u64, n: u32, value: u32, threads: u32) -> Status {
    if !with(|fake| fake.holds(cells, n as usize * 4)) {
        return ILLEGAL_ADDRESS;
    }
    for i in 0..n.min(threads) {
        let cell = (cells + u64::from(i) * 4) as *mut u32;
        // SAFETY: inside the allocation, aligned.
        unsafe { *cell = (*cell).wrapping_mul(1_664_525).wrapping_add(value).wrapping_add(i) };
    }
    SUCCESS
}

/// Thread by thread, as the PTX text does it.
fn cells(out: u64, key: u32, exchange: bool, grid: [u32; 3], block: [u32; 3], shared: u32) -> Status {
    let threads = block[0] * block[1] * block[2];
    let blocks = grid[0] * grid[1] * grid[2];
    if !with(|fake| fake.holds(out, blocks as usize * threads as usize * 4)) || exchange && shared < threads * 4 {
        return ILLEGAL_ADDRESS;
    }
    for b in 0..blocks {
        let mut words: Vec<u32> = (0..threads)
            .map(|t| (b.wrapping_mul(0x9e37_79b1) ^ key).wrapping_add(t.wrapping_mul(0x85eb_ca6b)))
            .collect();
        if exchange {
            words.rotate_left(1);
            words.iter_mut().enumerate().for_each(|(t, word)| *word ^= t as u32);
        }
        for (t, word) in (0..).zip(words) {
            // SAFETY: inside the allocation, aligned.
            unsafe { *((out + 4 * (u64::from(b) * u64::from(threads) + t)) as *mut u32) = word };
        }
    }
    SUCCESS
}

/// Writes a result through the pointer that CUDA's convention puts first.
fn give<T>(to: *mut T, value: T) -> Status {
    // SAFETY: the callers pass a pointer to their own variable.
    unsafe { to.write(value) };
    SUCCESS
}

fn starve() {
    while STARVE.load(Ordering::SeqCst) {
        let before = LAUNCHES.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        if LAUNCHES.load(Ordering::SeqCst) == before {
            return;
        }
    }
}

fn handle(to: *mut *mut c_void, kind: &'static str) -> Status {
    if !in_context() {
        return INVALID_CONTEXT;
    }
    // (CUDA refuses calls that may wait during a capture.)
    if matches!(kind, "module" | "stream") && with(|fake| !fake.captures.is_empty()) {
        return UNSUPPORTED_IN_CAPTURE;
    }
    give(to, with(|fake| fake.create(kind)) as *mut c_void)
}

fn gone(object: *mut c_void, kind: &'static str) -> Status {
    with(|fake| fake.destroy(object as u64, kind))
}

fn allocate(bytes: usize) -> Option<u64> {
    if !in_context() || bytes == 0 {
        return None;
    }
    // Words, so that it is aligned for whatever the kernels do.
    let memory = vec![0xa5a5_a5a5_a5a5_a5a5; bytes.div_ceil(8)];
    let address = memory.as_ptr() as u64;
    with(|fake| fake.memory.insert(address, memory));
    Some(address)
}

fn free(address: u64) -> Status {
    if !in_context() {
        return INVALID_CONTEXT;
    }
    with(|fake| fake.memory.remove(&address)).map_or(INVALID_VALUE, |_| SUCCESS)
}

fn copy(to: u64, from: u64, len: usize, device: &[u64], stream: Option<*mut c_void>) -> Status {
    if !with(|fake| device.iter().all(|address| fake.holds(*address, len))) {
        return INVALID_VALUE;
    }
    let op = Op::Copy { to, from, len };
    match stream {
        Some(stream) => submit(stream, op),
        None if in_context() => execute(&op),
        None => INVALID_CONTEXT,
    }
}

/// Bytes of the arguments, as the kernels declare them.
fn arguments_of(function: u64, arguments: *mut *mut c_void) -> Option<Vec<Vec<u8>>> {
    let widths: &[usize] = match function {
        STEP | CELLS => &[8, 4, 4],
        SPIN => &[8],
        WORD => &[8, 8],
        other => shapes::widths(other)?,
    };
    let bytes = widths.iter().enumerate().map(|(n, width)| {
        // SAFETY: the caller passes a pointer for each argument of the kernel.
        unsafe { std::slice::from_raw_parts((*arguments.add(n)).cast::<u8>(), *width) }.to_vec()
    });
    Some(bytes.collect())
}

fn launch(
    function: *mut c_void,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    cluster: u32,
    stream: *mut c_void,
    arguments: *mut *mut c_void,
) -> Status {
    let Some(arguments) = arguments_of(function as u64, arguments) else { return INVALID_HANDLE };
    submit(stream, Op::Kernel { function: function as u64, grid, block, shared, cluster, arguments })
}

macro_rules! driver {
    ($($name:ident($($argument:ident: $kind:ty),*) $body:block)*) => {
        /// The driver's functions by name.
        pub fn find(name: &CStr) -> Option<NonNull<c_void>> {
            $({
                #[allow(non_snake_case)]
                extern "C" fn $name($($argument: $kind),*) -> Status $body
                if name.to_bytes() == stringify!($name).as_bytes() {
                    return NonNull::new($name as *mut c_void);
                }
            })*
            None
        }
    };
}

driver! {
    cuInit(flags: c_uint) { if flags == 0 { SUCCESS } else { INVALID_VALUE } }
    cuDriverGetVersion(version: *mut c_int) { give(version, 13_000) }
    cuGetErrorName(status: Status, name: *mut *const c_char) {
        let text = match status {
            INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
            INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
            INVALID_HANDLE => c"CUDA_ERROR_INVALID_HANDLE",
            NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
            ILLEGAL_ADDRESS => c"CUDA_ERROR_ILLEGAL_ADDRESS",
            _ => return INVALID_VALUE,
        };
        give(name, text.as_ptr())
    }
    cuGetErrorString(_status: Status, text: *mut *const c_char) { give(text, c"of the stand-in".as_ptr()) }
    cuDeviceGetCount(count: *mut c_int) { give(count, 1) }
    cuDeviceGet(device: *mut c_int, ordinal: c_int) { if ordinal == 0 { give(device, 0) } else { 101 } }
    cuDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) {
        let text = c"a stand-in".to_bytes_with_nul();
        if (length as usize) < text.len() { return INVALID_VALUE; }
        // SAFETY: the buffer has `length` bytes.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), text.len()) };
        SUCCESS
    }
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) { give(value, attribute) }
    // Not called by any sample.
    cuDeviceGetUuid_v2(_uuid: *mut [u8; 16], _device: c_int) { NOT_SUPPORTED }
    cuMemHostRegister_v2(_pointer: *mut c_void, _bytes: usize, _flags: c_uint) { NOT_SUPPORTED }
    cuMemHostUnregister(_pointer: *mut c_void) { NOT_SUPPORTED }
    cuMemGetAddressRange_v2(_base: *mut u64, _bytes: *mut usize, _address: u64) { NOT_SUPPORTED }
    cuPointerGetAttribute(_value: *mut c_void, _attribute: c_int, _address: u64) { NOT_SUPPORTED }
    cuStreamQuery(_stream: *mut c_void) { NOT_SUPPORTED }
    cuEventElapsedTime(_milliseconds: *mut f32, _start: *mut c_void, _end: *mut c_void) { NOT_SUPPORTED }
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) { give(context, PRIMARY as *mut c_void) }
    cuDevicePrimaryCtxRelease_v2(_device: c_int) { SUCCESS }
    cuCtxCreate_v2(context: *mut *mut c_void, _flags: c_uint, _device: c_int) {
        let new = with(|fake| fake.create("context"));
        CURRENT.with_borrow_mut(|stack| stack.push(new));
        give(context, new as *mut c_void)
    }
    cuCtxDestroy_v2(context: *mut c_void) {
        CURRENT.with_borrow_mut(|stack| if stack.last() == Some(&(context as u64)) { stack.pop(); });
        gone(context, "context")
    }
    cuDeviceCanAccessPeer(can: *mut c_int, _device: c_int, _peer: c_int) { give(can, 0) }
    cuCtxEnablePeerAccess(_peer: *mut c_void, _flags: c_uint) { NOT_SUPPORTED }
    cuCtxSetCurrent(context: *mut c_void) {
        CURRENT.with_borrow_mut(|stack| { stack.pop(); stack.push(context as u64) });
        SUCCESS
    }
    cuCtxSynchronize() { if in_context() { SUCCESS } else { INVALID_CONTEXT } }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        allocate(bytes).map_or(INVALID_VALUE, |found| give(address, found))
    }
    cuMemFree_v2(address: u64) { free(address) }
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) {
        if flags != 3 { return INVALID_VALUE; }
        allocate(bytes).map_or(INVALID_VALUE, |found| give(pointer, found as *mut c_void))
    }
    cuMemFreeHost(pointer: *mut c_void) { free(pointer as u64) }
    cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, flags: c_uint) {
        if flags != 0 || !with(|fake| fake.holds(pointer as u64, 1)) { return INVALID_VALUE; }
        give(address, pointer as u64)
    }
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) { copy(to, from as u64, bytes, &[to], None) }
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) { copy(to as u64, from, bytes, &[from], None) }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) {
        copy(to, from as u64, bytes, &[to], Some(stream))
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) {
        copy(to as u64, from, bytes, &[from], Some(stream))
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        copy(to, from, bytes, &[to, from], Some(stream))
    }
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: *mut c_void) {
        submit(stream, Op::Fill { to, word: u32::from(value), width: 1, count })
    }
    cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: *mut c_void) {
        submit(stream, Op::Fill { to, word: value, width: 4, count })
    }
    cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) { starve(); handle(stream, "stream") }
    cuStreamDestroy_v2(stream: *mut c_void) { gone(stream, "stream") }
    cuStreamSynchronize(stream: *mut c_void) {
        // The default stream: work that was put there without a wait is complete.
        if stream.is_null() { return SUCCESS; }
        // A capturing stream cannot be waited for.
        with(|fake| match fake.objects.get(&(stream as u64)) {
            Some(&"stream") if !fake.captures.contains_key(&(stream as u64)) => SUCCESS,
            _ => INVALID_HANDLE,
        })
    }
    cuStreamBeginCapture_v2(stream: *mut c_void, _mode: c_int) {
        with(|fake| fake.captures.insert(stream as u64, Vec::new())).map_or(SUCCESS, |_| INVALID_VALUE)
    }
    cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) {
        with(|fake| {
            let Some(ops) = fake.captures.remove(&(stream as u64)) else { return INVALID_VALUE };
            fake.joined.retain(|_, origin| *origin != stream as u64);
            let new = fake.into.remove(&(stream as u64)).unwrap_or_else(|| fake.create("graph"));
            fake.graphs.insert(new, ops);
            give(graph, new as *mut c_void)
        })
    }
    cuEventCreate(event: *mut *mut c_void, _flags: c_uint) { handle(event, "event") }
    cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        with(|fake| {
            let origin = fake.joined.get(&(stream as u64)).copied().unwrap_or(stream as u64);
            if fake.captures.contains_key(&origin) {
                fake.joined.insert(event as u64, origin);
            }
        });
        SUCCESS
    }
    cuEventSynchronize(_event: *mut c_void) { SUCCESS }
    cuEventDestroy_v2(event: *mut c_void) { gone(event, "event") }
    cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) {
        // SAFETY: zero-terminated text.
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_bytes();
        if !text.windows(8).any(|word| word == b".version") { return INVALID_VALUE; }
        handle(module, "module")
    }
    cuModuleUnload(module: *mut c_void) { gone(module, "module") }
    cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
        if !with(|fake| fake.objects.contains_key(&(module as u64))) { return INVALID_HANDLE; }
        // SAFETY: zero-terminated text.
        let found = match unsafe { CStr::from_ptr(name) }.to_bytes() {
            b"step" => STEP,
            b"cells" => CELLS,
            b"spin" => SPIN,
            b"word" => WORD,
            other => match shapes::find(other) {
                Some(found) => found,
                None => return NOT_FOUND,
            },
        };
        give(function, found as *mut c_void)
    }
    cuLaunchKernel(
        function: *mut c_void,
        gx: c_uint, gy: c_uint, gz: c_uint,
        bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: *mut c_void,
        arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) {
        let (grid, block) = ([gx, gy, gz], [bx, by, bz]);
        launch(function, grid, block, shared, 1, stream, arguments)
    }
    cuLaunchKernelEx(
        config: *const shapes::Config, function: *mut c_void, arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) {
        // SAFETY: the caller's configuration, with as many attributes as it states.
        let config = unsafe { &*config };
        let cluster = shapes::cluster(config);
        launch(function, config.grid, config.block, config.shared, cluster, config.stream, arguments)
    }
    cuFuncSetAttribute(_function: *mut c_void, _attribute: c_int, _value: c_int) { SUCCESS }
    cuLaunchHostFunc(stream: *mut c_void, function: extern "C" fn(*mut c_void), data: *mut c_void) {
        submit(stream, Op::Call { function, data: data as u64 })
    }
    cuMemsetD16Async(to: u64, value: u16, count: usize, stream: *mut c_void) {
        submit(stream, Op::Fill { to, word: u32::from(value), width: 2, count })
    }
    cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, count: usize, height: usize, stream: *mut c_void) {
        submit(stream, Op::FillRows { to, pitch, word: u32::from(value), width: 1, count, height })
    }
    cuMemsetD2D32Async(to: u64, pitch: usize, value: c_uint, count: usize, height: usize, stream: *mut c_void) {
        submit(stream, Op::FillRows { to, pitch, word: value, width: 4, count, height })
    }
    cuMemcpy2DAsync_v2(copy: *const shapes::Copy, stream: *mut c_void) {
        // SAFETY: the caller's.
        let copy = unsafe { &*copy };
        let (to, from) = (copy.to.clone(), copy.from.clone());
        submit(stream, Op::Rows { to, from, width: copy.width, height: copy.height })
    }
    cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: c_uint) {
        with(|fake| if let Some(origin) = fake.joined.get(&(event as u64)).copied()
            && flags == 0 && origin != stream as u64
        {
            fake.joined.insert(stream as u64, origin);
        });
        SUCCESS
    }
    cuEventRecordWithFlags(_event: *mut c_void, _stream: *mut c_void, _flags: c_uint) { SUCCESS }
    cuGraphUpload(exec: *mut c_void, _stream: *mut c_void) {
        with(|fake| if fake.graphs.contains_key(&(exec as u64)) { SUCCESS } else { INVALID_HANDLE })
    }
    cuGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) {
        let Some(all) = with(|fake| fake.graphs.get(&(graph as u64)).map(Vec::len)) else { return INVALID_HANDLE };
        // Nodes are numbered from 1. SAFETY: the caller has room for as many as it states.
        (0..all).filter(|_| !nodes.is_null()).for_each(|n| unsafe { *nodes.add(n) = (n + 1) as *mut c_void });
        give(count, all)
    }
    cuGraphExecKernelNodeSetParams(exec: *mut c_void, node: *mut c_void, parameters: *const shapes::Node) {
        // SAFETY: the caller's.
        let of = unsafe { &*parameters };
        let Some(arguments) = arguments_of(of.function as u64, of.arguments) else { return INVALID_VALUE };
        let (function, grid, block, shared) = (of.function as u64, of.grid, of.block, of.shared);
        let op = Op::Kernel { function, grid, block, shared, cluster: 1, arguments };
        with(|fake| {
            let ops = fake.graphs.get_mut(&(exec as u64));
            match ops.and_then(|ops| ops.get_mut((node as usize).wrapping_sub(1))) {
                Some(place) => { *place = op; SUCCESS }
                None => INVALID_VALUE,
            }
        })
    }
    cuGraphAddChildGraphNode(
        node: *mut *mut c_void, graph: *mut c_void, _after: *const *mut c_void, _count: usize, child: *mut c_void
    ) {
        with(|fake| {
            let Some(inner) = fake.graphs.get(&(child as u64)).cloned() else { return INVALID_VALUE };
            let Some(ops) = fake.graphs.get_mut(&(graph as u64)) else { return INVALID_VALUE };
            ops.extend(inner);
            give(node, ops.len() as *mut c_void)
        })
    }
    cuStreamBeginCaptureToGraph(
        stream: *mut c_void, graph: *mut c_void, _after: *const *mut c_void, _edges: *const c_void, _count: usize, _mode: c_int
    ) {
        with(|fake| {
            let Some(ops) = fake.graphs.get(&(graph as u64)).cloned() else { return INVALID_VALUE };
            fake.captures.insert(stream as u64, ops);
            fake.into.insert(stream as u64, graph as u64);
            SUCCESS
        })
    }
    cuGraphInstantiateWithFlags(exec: *mut *mut c_void, graph: *mut c_void, _flags: u64) {
        with(|fake| {
            let Some(ops) = fake.graphs.get(&(graph as u64)).cloned() else { return INVALID_HANDLE };
            let new = fake.create("exec");
            fake.graphs.insert(new, ops);
            give(exec, new as *mut c_void)
        })
    }
    cuGraphLaunch(exec: *mut c_void, _stream: *mut c_void) {
        let Some(ops) = with(|fake| fake.graphs.get(&(exec as u64)).cloned()) else { return INVALID_HANDLE };
        ops.iter().map(execute).find(|status| *status != SUCCESS).unwrap_or(SUCCESS)
    }
    cuGraphExecDestroy(exec: *mut c_void) { gone(exec, "exec") }
    cuGraphDestroy(graph: *mut c_void) { gone(graph, "graph") }
}
