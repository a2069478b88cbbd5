//! The functions of libcuda.

use super::memory::{Block, SOURCE};
use super::{
    CACHED, CALLS, COUNT, CURRENT, DEVICES, EAGER, Fake, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, Inside,
    KERNELS, Kind, LOADS, NO_WRITES, NOT_FOUND, NOT_READY, NOT_SUPPORTED, OLD, Op, PEER_COPIES, PEERS, PEERS_ENABLED,
    PRIMARY, SUCCESS, Status, WRITE_COMBINED, Work, copy_now, free, kernels, with,
};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

fn devices() -> c_int {
    DEVICES.load(Ordering::SeqCst) as c_int
}

/// The GPU of the thread's context.
fn current() -> c_int {
    (CURRENT.get() as usize).saturating_sub(PRIMARY) as c_int
}

/// False if the memory is on another GPU than the thread's context. Real calls allow that, but routes must not rely on
/// it.
fn is_here(at: u64) -> bool {
    with(|fake| match fake.block(at) {
        Some((_, Block { kind: Kind::Device { ordinal }, .. })) => *ordinal == current(),
        _ => true,
    })
}

fn in_context() -> bool {
    CURRENT.get() != 0
}

pub fn give<T>(to: *mut T, value: T) -> Status {
    // SAFETY: the callers pass a pointer to their own variable.
    unsafe { to.write(value) };
    SUCCESS
}

fn handle(to: *mut *mut c_void, kind: &'static str) -> Status {
    if !in_context() {
        return INVALID_CONTEXT;
    }
    give(to, with(|fake| fake.create(kind)) as *mut c_void)
}

pub fn copy(device: u64, to: u64, from: u64, len: usize, stream: Option<*mut c_void>) -> Status {
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
pub(super) use driver;

pub fn create_stream(stream: *mut *mut c_void, flags: c_uint) -> Status {
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

pub fn synchronize_stream(stream: *mut c_void) -> Status {
    // The default stream's copies are done when they return.
    if stream.is_null() {
        return SUCCESS;
    }
    let is_there =
        |fake: &mut Fake| fake.streams.contains_key(&(stream as u64)) && !fake.captures.contains_key(&(stream as u64));
    if !with(is_there) {
        return INVALID_HANDLE;
    }
    // A wait for a kernel must not lock other threads out of the library.
    while with(|fake| fake.step(stream as u64)) {
        std::thread::yield_now();
    }
    SUCCESS
}

pub fn destroy_stream(stream: *mut c_void) -> Status {
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
        // Compute capability 9; for all others, the attribute's number serves as a value.
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
        // Portable and mapped; possibly write-combined.
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
            let mut source = poison::ignore(SOURCE.lock());
            // (Parts of pages are the tests' own affair.)
            let whole = (pointer as usize | bytes).is_multiple_of(4096);
            let mapped = source.as_mut().filter(|_| whole).map(|source| source(Kind::Registered, pointer as u64, bytes).1);
            let (number, keep) = (fake.numbers, mapped.unwrap_or_else(|| Box::new(())));
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
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        match give(least, 0) { SUCCESS => give(greatest, -5), wrong => wrong }
    }
    cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, priority: c_int) {
        if !(-5..=0).contains(&priority) { return INVALID_VALUE; }
        create_stream(stream, flags)
    }
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
        // A kernel with any other name counts.
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
            (&kernels::RESIDENT, &[mailbox, host, seen, limit]) if bx == 512 => {
                let kernel = kernels::resident(gx, [mailbox, host, limit], seen as u32);
                with(|fake| fake.enqueue(stream, Op::Answer(kernel)))
            }
            (&(kernels::LONG | kernels::SHORT), &[mailbox, host, seen, limit]) if (gx, bx) == (1, 1) => {
                let kernel = kernels::answer(*kind == kernels::LONG, [mailbox, host, limit], seen as u32);
                with(|fake| fake.enqueue(stream, Op::Answer(kernel)))
            }
            _ => with(|fake| {
                fake.submit(stream, Work::Kernel { function: *kind, threads: gx * bx, arguments: given })
            }),
        }
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
        // SAFETY: one element each.
        let (order, of) = unsafe { (*attributes, *of) };
        if count == 0 || (attribute_count, order, of) != (1, 1, 0) || stream.is_null() { return INVALID_VALUE; }
        let device = |at: u64| with(|fake| matches!(fake.block(at), Some((_, Block { kind: Kind::Device { .. }, .. }))));
        for n in 0..count {
            // SAFETY: arrays of the given length.
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
        // SAFETY: `bytes` bytes of text.
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
