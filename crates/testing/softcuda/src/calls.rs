//! The functions of the CUDA driver API that it has. Those that it only has by name answer `CUDA_ERROR_NOT_SUPPORTED`.

use crate::context::{self, CURRENT, PUSHED};
use crate::event::Event;
use crate::green;
use crate::jit;
use crate::kernels;
use crate::library;
use crate::lock::{launching, on_device, pinning, staging};
use crate::memory::{self, allocate, copy, find, free, register, soft};
use crate::node::Node;
use crate::status::*;
use crate::stream::{Kind, Stream};
use crate::virtual_memory;
use crate::wait::Ended;
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// `CU_LIMIT_STACK_SIZE`, which no kernel here needs.
static STACK_SIZE: AtomicUsize = AtomicUsize::new(1024);

fn in_context(then: impl FnOnce() -> c_int) -> c_int {
    if CURRENT.get().is_null() { INVALID_CONTEXT } else { then() }
}

fn on(stream: *mut c_void, then: impl FnOnce(&Stream) -> c_int) -> c_int {
    Stream::find(stream as u64).map_or(INVALID_HANDLE, |stream| then(&stream))
}

fn node(stream: *mut c_void, node: Node) -> c_int {
    on(stream, |stream| stream.node(node))
}

/// Copies between addresses, one after the other.
///
/// # Safety
/// Arrays of `count` elements.
unsafe fn batch((to, from, bytes): (*const u64, *const u64, *const usize), count: usize, stream: *mut c_void) -> c_int {
    if count == 0 || to.is_null() || from.is_null() || bytes.is_null() {
        return INVALID_VALUE;
    }
    let copies = (0..count).map(|i| {
        // SAFETY: the caller's.
        let (to, from, bytes) = unsafe { (*to.add(i), *from.add(i), *bytes.add(i)) };
        node(stream, Node::Copy { to, from, bytes })
    });
    copies.max().unwrap_or(SUCCESS)
}

/// Copies of `CUDA_MEMCPY3D_BATCH_OP`, 112 bytes each: two operands of 40 (a type, which is 1 for an address, the address, a row's bytes, a layer's rows), three
/// lengths. Of rows, one after the other.
unsafe fn batch_3d(count: usize, operations: *const u64, stream: *mut c_void) -> c_int {
    if count == 0 || operations.is_null() {
        return INVALID_VALUE;
    }
    let mut result = SUCCESS;
    for n in 0..count {
        // SAFETY: the caller's.
        let of = unsafe { std::slice::from_raw_parts(operations.add(n * 14), 14) };
        let [width, height, depth] = [of[10], of[11], of[12]];
        if of[0] as u32 != 1 || of[5] as u32 != 1 {
            return INVALID_VALUE;
        }
        for (layer, row) in (0..depth).flat_map(|layer| (0..height).map(move |row| (layer, row))) {
            let at = |operand: usize| {
                let or = |given: u64, own: u64| if given == 0 { own } else { given };
                of[operand + 1] + (layer * or(of[operand + 3], height) + row) * or(of[operand + 2], width)
            };
            result = result.max(node(stream, Node::Copy { to: at(5), from: at(0), bytes: width as usize }));
        }
    }
    result
}

fn host_alloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    in_context(|| {
        if flags > 7 {
            return INVALID_VALUE;
        }
        if bytes == 0 {
            return give(pointer, std::ptr::null_mut());
        }
        // More than any machine has.
        if bytes >> 42 != 0 {
            return OUT_OF_MEMORY;
        }
        pinning(bytes, || allocate(bytes, false)).map_or(OUT_OF_MEMORY, |at| {
            // (Mapped, as CUDA adds.)
            memory::set_flags(at, flags | 2);
            give(pointer, at as *mut c_void)
        })
    })
}

/// Whether a copy between these addresses, the first of which is the host's, is of pageable memory; an error if all of it is not
/// memory of the GPU's.
fn is_pageable(host: u64, gpu: u64, bytes: usize) -> Result<bool, c_int> {
    /// Nothing is mapped below (vm.mmap_min_addr).
    const LOWEST: u64 = 64 << 10;
    match find(gpu, |base, block| base + block.bytes - gpu) {
        Some(room) if bytes as u64 <= room => Ok(find(host, |_, _| ()).is_none()),
        // Memory that others have mapped for the GPU.
        None if gpu >= LOWEST => Ok(false),
        _ => Err(INVALID_VALUE),
    }
}

/// The addresses of a copy: the host's, and the GPU's.
fn ends(to: u64, from: u64) -> (u64, u64) {
    if find(to, |_, block| block.video) == Some(true) { (from, to) } else { (to, from) }
}

/// A synchronous copy, in the default stream.
///
/// # Safety
/// `bytes` of memory at both.
unsafe fn copy_now(to: u64, from: u64, bytes: usize, (host, gpu): (u64, u64)) -> c_int {
    let is_pageable = match is_pageable(host, gpu, bytes) {
        Ok(it) => it,
        Err(wrong) => return wrong,
    };
    on(std::ptr::null_mut(), |stream| {
        stream.unless_captured(|stream| {
            stream.synchronize();
            // SAFETY: the caller's.
            let copied = || unsafe { copy(to, from, bytes) };
            if is_pageable {
                staging(bytes, copied)
            } else {
                copied()
            }
            unless_failed(SUCCESS)
        })
    })
}

/// A copy in a stream. One of pageable memory waits for it, as CUDA's does if it is large.
///
/// # Safety
/// `bytes` of memory at both, until the stream has done it.
unsafe fn copy_in(stream: *mut c_void, as_node: Node, (host, gpu, bytes): (u64, u64, usize)) -> c_int {
    match is_pageable(host, gpu, bytes) {
        Err(wrong) => wrong,
        Ok(true) => on(stream, |its| match its.capture_status() {
            0 => {
                its.synchronize();
                staging(bytes, || {
                    its.put(move |ended| as_node.run(ended));
                    its.synchronize();
                });
                unless_failed(SUCCESS)
            }
            _ => its.node(as_node),
        }),
        Ok(false) => node(stream, as_node),
    }
}

/// Work of a stream that no graph can contain.
fn work(stream: *mut c_void, work: impl FnOnce(&Ended) + Send + 'static) -> c_int {
    on(stream, |stream| {
        stream.unless_captured(|stream| {
            stream.put(work);
            SUCCESS
        })
    })
}

/// An error of the GPU is the answer of every call that waits, as CUDA has it.
fn unless_failed(otherwise: c_int) -> c_int {
    if soft().is_some_and(|soft| soft.channel.has_failed()) { LAUNCH_FAILED } else { otherwise }
}

fn create(stream: *mut *mut c_void, kind: Kind) -> c_int {
    in_context(|| give(stream, Stream::create(kind) as *mut c_void))
}

/// A stream belongs to the green context that is current.
fn current_kind() -> Kind {
    let current = CURRENT.get() as usize;
    Kind { green: if green::sms(current).is_some() { current } else { 0 }, ..Kind::default() }
}

macro_rules! refused {
    ($($name:ident)*) => {$(
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            NOT_SUPPORTED
        }
    )*};
}

refused! {
    cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxEnablePeerAccess cuMemcpyPeerAsync
    cuEventElapsedTime cuMemFreeAsync
}

calls! {
    cuInit(flags: c_uint) {
        if flags != 0 { return INVALID_VALUE; }
        let found = status(soft().is_some(), NO_DEVICE);
        crate::injection::load();
        found
    }
    cuDriverGetVersion(version: *mut c_int) { give(version, 13_000) }
    cuGetErrorName(_status: c_int, name: *mut *const c_char) { give(name, c"CUDA_ERROR_OF_SOFTCUDA".as_ptr()) }
    cuGetErrorString(_status: c_int, text: *mut *const c_char) { give(text, c"of a libcuda in software".as_ptr()) }
    cuDeviceGetCount(count: *mut c_int) { give(count, 1) }
    cuDeviceGet(device: *mut c_int, ordinal: c_int) { if ordinal == 0 { give(device, 0) } else { 101 } }
    cuDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) {
        if length < 16 { INVALID_VALUE } else { give(name.cast(), *b"softcuda\0") }
    }
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) {
        // Compute capability 9.0, memory of the driver's on a node of the host; 0 for other attributes.
        give(value, match attribute { 75 => 9, 141 => 1, _ => 0 })
    }
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _device: c_int) {
        soft().map_or(NO_DEVICE, |soft| give(uuid, soft.device.uuid()))
    }
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) {
        give(context, context::retain())
    }
    cuDevicePrimaryCtxRelease_v2(_device: c_int) { SUCCESS }
    cuDevicePrimaryCtxReset_v2(_device: c_int) {
        context::reset();
        SUCCESS
    }
    cuCtxGetId(context: *mut c_void, id: *mut u64) {
        match (context as usize, context::id()) {
            (0 | context::HANDLE, Some(it)) => give(id, it),
            _ => CONTEXT_IS_DESTROYED,
        }
    }
    cuCtxSetCurrent(context: *mut c_void) {
        CURRENT.set(context);
        SUCCESS
    }
    cuCtxGetCurrent(context: *mut *mut c_void) { give(context, CURRENT.get()) }
    cuCtxGetDevice(device: *mut c_int) { in_context(|| give(device, 0)) }
    cuCtxPushCurrent_v2(context: *mut c_void) {
        PUSHED.with_borrow_mut(|pushed| pushed.push(CURRENT.replace(context)));
        SUCCESS
    }
    cuCtxPopCurrent_v2(context: *mut *mut c_void) {
        match PUSHED.with_borrow_mut(Vec::pop) {
            Some(before) => give(context, CURRENT.replace(before)),
            None => INVALID_CONTEXT,
        }
    }
    cuCtxGetLimit(value: *mut usize, limit: c_int) {
        if limit == 0 { give(value, STACK_SIZE.load(Ordering::SeqCst)) } else { NOT_SUPPORTED }
    }
    cuCtxSetLimit(limit: c_int, value: usize) {
        if limit != 0 { return NOT_SUPPORTED; }
        STACK_SIZE.store(value, Ordering::SeqCst);
        SUCCESS
    }
    cuCtxSynchronize() {
        Stream::all().iter().for_each(|stream| stream.synchronize());
        unless_failed(SUCCESS)
    }
    cuDeviceCanAccessPeer(can: *mut c_int, _device: c_int, _peer: c_int) { give(can, 0) }

    cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        in_context(|| match bytes {
            0 => INVALID_VALUE,
            // More than any GPU has.
            _ if bytes >> 42 != 0 => OUT_OF_MEMORY,
            _ => on_device(bytes as u64, || allocate(bytes, true)).map_or(OUT_OF_MEMORY, |at| give(address, at)),
        })
    }
    cuMemFree_v2(address: u64) {
        if context::id().is_none() { return CONTEXT_IS_DESTROYED; }
        match find(address, |base, block| (base, block.bytes, block.video)) {
            Some((base, bytes, true)) if base == address => {
                // It waits for all work of the context.
                Stream::all().iter().for_each(|stream| stream.synchronize());
                status(on_device(bytes, || free(address, true)), INVALID_VALUE)
            }
            _ => INVALID_VALUE,
        }
    }
    cuMemGetInfo_v2(left: *mut usize, all: *mut usize) {
        in_context(|| give(all, memory::VIDEO).max(give(left, memory::VIDEO - memory::used())))
    }
    cuIpcGetMemHandle(handle: *mut [u8; 64], address: u64) {
        match find(address, |base, block| (base, block.outlives)) {
            Some((base, false)) => {
                let mut bytes = [0; 64];
                bytes[..8].copy_from_slice(&base.to_le_bytes());
                give(handle, bytes)
            }
            _ => INVALID_VALUE,
        }
    }
    cuPointerSetAttribute(_value: *const c_uint, attribute: c_int, address: u64) {
        match find(address, |_, block| block.outlives) {
            None => INVALID_VALUE,
            Some(is_virtual) => status(attribute == 6 && !is_virtual, NOT_SUPPORTED),
        }
    }
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) { host_alloc(pointer, bytes, flags) }
    cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) { host_alloc(pointer, bytes, 0) }
    cuMemFreeHost(pointer: *mut c_void) {
        if pointer.is_null() { return SUCCESS; }
        if context::id().is_none() { return CONTEXT_IS_DESTROYED; }
        status(free(pointer as u64, false), INVALID_VALUE)
    }
    cuMemAddressReserve(at: *mut u64, bytes: usize, _alignment: usize, _wanted: u64, _flags: u64) {
        if bytes >> 42 != 0 { return OUT_OF_MEMORY; }
        virtual_memory::reserve(bytes).map_or(OUT_OF_MEMORY, |to| give(at, to))
    }
    cuMemAddressFree(at: u64, bytes: usize) { status(virtual_memory::unreserve(at, bytes), INVALID_VALUE) }
    cuMemCreate(handle: *mut u64, bytes: usize, wanted: *const [c_uint; 4], _flags: u64) {
        // SAFETY: null or the caller's `CUmemAllocationProp`, which begins with these words.
        let Some(wanted) = (unsafe { wanted.as_ref() }) else { return INVALID_VALUE };
        // Pinned memory on the device, or on node 0 of the host.
        let is_known = [[1, 1, 0], [1, 3, 0]].contains(&[wanted[0], wanted[2], wanted[3]]);
        if !is_known || !bytes.is_multiple_of(2 << 20) { return INVALID_VALUE; }
        if bytes >> 42 != 0 { return OUT_OF_MEMORY; }
        give(handle, virtual_memory::create(bytes, wanted[2] == 1))
    }
    cuMemRelease(handle: u64) { status(virtual_memory::release(handle), INVALID_VALUE) }
    cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) {
        status(offset == 0 && virtual_memory::map(at, bytes, handle), INVALID_VALUE)
    }
    cuMemUnmap(at: u64, bytes: usize) { status(virtual_memory::unmap(at, bytes), INVALID_VALUE) }
    cuMemSetAccess(at: u64, bytes: usize, wanted: *const c_void, count: usize) {
        status(!wanted.is_null() && count != 0 && virtual_memory::give_access(at, bytes), INVALID_VALUE)
    }
    cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, _flags: c_uint) {
        // SAFETY: the caller's: its memory, which stays until it is unregistered.
        in_context(|| status(pinning(bytes, || unsafe { register(pointer.cast(), bytes) }), INVALID_VALUE))
    }
    cuMemHostUnregister(pointer: *mut c_void) { status(free(pointer as u64, false), INVALID_VALUE) }
    cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, _flags: c_uint) {
        give(address, pointer as u64)
    }
    cuMemHostGetFlags(to: *mut c_uint, pointer: *mut c_void) {
        memory::flags(pointer as u64).map_or(INVALID_VALUE, |flags| give(to, flags))
    }
    cuMemRetainAllocationHandle(handle: *mut u64, pointer: *mut c_void) {
        let is_virtual = find(pointer as u64, |_, block| block.outlives) == Some(true);
        if is_virtual { give(handle, 1) } else { INVALID_VALUE }
    }
    cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) {
        // (Of virtual memory on the host, an H200 gives no address.)
        find(address, |at, block| (if block.outlives { 0 } else { at }, block.bytes as usize))
            .map_or(NOT_FOUND, |(at, length)| give(base, at).max(give(bytes, length)))
    }
    cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: u64) {
        memory::attribute(value, attribute, address).unwrap_or(INVALID_VALUE)
    }
    cuPointerGetAttributes(count: c_uint, asked: *const c_int, to: *const *mut c_void, address: u64) {
        for i in 0..count as usize {
            // SAFETY: the caller's: as many attributes and places.
            let (attribute, to) = unsafe { (*asked.add(i), *to.add(i)) };
            if memory::attribute(to, attribute, address) != Some(SUCCESS) {
                give(to.cast(), 0u32);
            }
        }
        SUCCESS
    }

    cuMemcpy(to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { copy_now(to, from, bytes, ends(to, from)) }
    }
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        let (host, gpu) = ends(to, from);
        // SAFETY: the caller's.
        unsafe { copy_in(stream, Node::Copy { to, from, bytes }, (host, gpu, bytes)) }
    }
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { copy_now(to, from as u64, bytes, (from as u64, to)) }
    }
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        // SAFETY: the caller's.
        unsafe { copy_now(to as u64, from, bytes, (to as u64, from)) }
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) {
        // SAFETY: the caller's.
        unsafe { copy_in(stream, Node::Copy { to, from: from as u64, bytes }, (from as u64, to, bytes)) }
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) {
        // SAFETY: the caller's.
        unsafe { copy_in(stream, Node::Copy { to: to as u64, from, bytes }, (to as u64, from, bytes)) }
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        node(stream, Node::Copy { to, from, bytes })
    }
    cuMemcpyBatchAsync(
        to: *const u64, from: *const u64, bytes: *const usize, count: usize,
        _attributes: *const c_void, _of: *const usize, _attributes_n: usize, _failed: *mut usize, stream: *mut c_void
    ) {
        // SAFETY: the caller's.
        unsafe { batch((to, from, bytes), count, stream) }
    }
    cuMemcpyBatchAsync_v2(
        to: *const u64, from: *const u64, bytes: *const usize, count: usize,
        _attributes: *const c_void, _of: *const usize, _attributes_n: usize, stream: *mut c_void
    ) {
        // SAFETY: the caller's.
        unsafe { batch((to, from, bytes), count, stream) }
    }
    cuMemcpy3DBatchAsync(count: usize, operations: *const u64, _failed: *mut usize, _flags: u64, stream: *mut c_void) {
        // SAFETY: the caller's.
        unsafe { batch_3d(count, operations, stream) }
    }
    cuMemcpy3DBatchAsync_v2(count: usize, operations: *const u64, _flags: u64, stream: *mut c_void) {
        // SAFETY: the caller's.
        unsafe { batch_3d(count, operations, stream) }
    }
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: *mut c_void) {
        node(stream, Node::Fill { to, value: value.into(), size: 1, count })
    }
    cuMemsetD16Async(to: u64, value: u16, count: usize, stream: *mut c_void) {
        node(stream, Node::Fill { to, value: value.into(), size: 2, count })
    }
    cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: *mut c_void) {
        node(stream, Node::Fill { to, value, size: 4, count })
    }

    cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) { create(stream, Kind { flags, ..current_kind() }) }
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        in_context(|| match give(least, 0) { SUCCESS => give(greatest, -5), wrong => wrong })
    }
    cuStreamGetFlags(stream: *mut c_void, flags: *mut c_uint) { on(stream, |its| give(flags, its.kind().flags)) }
    cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, priority: c_int) {
        if !(-5..=0).contains(&priority) { return INVALID_VALUE; }
        create(stream, Kind { flags, priority, ..current_kind() })
    }
    cuStreamGetPriority(stream: *mut c_void, priority: *mut c_int) {
        on(stream, |its| give(priority, its.kind().priority))
    }
    cuStreamGetGreenCtx(stream: *mut c_void, green: *mut usize) { on(stream, |its| give(green, its.kind().green)) }
    cuDeviceGetDevResource(_device: c_int, resource: *mut green::Resource, kind: c_int) {
        if kind == green::SM { give(resource, green::Resource::of(green::ALL)) } else { INVALID_VALUE }
    }
    cuDevSmResourceSplitByCount(
        result: *mut green::Resource, groups: *mut c_uint, _input: *const c_void, _rest: *mut c_void,
        _flags: c_uint, sms: c_uint
    ) {
        give(result, green::Resource::of(sms)).max(give(groups, 1))
    }
    cuDevResourceGenerateDesc(description: *mut usize, resources: *const green::Resource, count: c_uint) {
        // SAFETY: null or the caller's resource.
        match unsafe { resources.as_ref() } {
            Some(it) if count == 1 => give(description, green::handle(it.sms())),
            _ => INVALID_VALUE,
        }
    }
    cuGreenCtxCreate(green: *mut usize, description: usize, _device: c_int, flags: c_uint) {
        if flags == 1 && green::sms(description).is_some() { give(green, description) } else { INVALID_VALUE }
    }
    cuCtxFromGreenCtx(context: *mut usize, green: usize) {
        if green::sms(green).is_some() { give(context, green) } else { INVALID_CONTEXT }
    }
    cuGreenCtxGetDevResource(green: usize, resource: *mut green::Resource, kind: c_int) {
        match green::sms(green) {
            Some(sms) if kind == green::SM => give(resource, green::Resource::of(sms)),
            _ => INVALID_VALUE,
        }
    }
    cuGreenCtxStreamCreate(stream: *mut *mut c_void, green: usize, flags: c_uint, priority: c_int) {
        if green::sms(green).is_none() || !(-5..=0).contains(&priority) { return INVALID_VALUE; }
        create(stream, Kind { flags, priority, green })
    }
    cuStreamDestroy_v2(stream: *mut c_void) { status(Stream::destroy(stream as u64), INVALID_HANDLE) }
    cuStreamSynchronize(stream: *mut c_void) {
        on(stream, |stream| {
            stream.unless_captured(|stream| {
                stream.synchronize();
                unless_failed(SUCCESS)
            })
        })
    }
    cuEventCreate(event: *mut *mut c_void, _flags: c_uint) {
        in_context(|| give(event, Event::create() as *mut c_void))
    }
    cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        Event::find(event as u64).map_or(INVALID_HANDLE, |event| work(stream, event.record()))
    }
    cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) {
        Event::find(event as u64).map_or(INVALID_HANDLE, |event| work(stream, event.wait()))
    }
    cuEventQuery(event: *mut c_void) {
        Event::find(event as u64).map_or(INVALID_HANDLE, |event| status(event.is_done(), NOT_READY))
    }
    cuEventSynchronize(event: *mut c_void) {
        Event::find(event as u64).map_or(INVALID_HANDLE, |event| { event.synchronize(); unless_failed(SUCCESS) })
    }
    cuEventDestroy_v2(event: *mut c_void) { status(Event::destroy(event as u64), INVALID_HANDLE) }
    cuThreadExchangeStreamCaptureMode(mode: *mut c_int) { status(!mode.is_null(), INVALID_VALUE) }
    cuStreamQuery(stream: *mut c_void) {
        on(stream, |stream| {
            stream.unless_captured(|stream| unless_failed(status(stream.is_idle(), NOT_READY)))
        })
    }
    cuStreamWriteValue32_v2(stream: *mut c_void, at: u64, value: c_uint, flags: c_uint) {
        let Some(memory) = find(at, |_, block| block.memory()) else { return INVALID_VALUE };
        if flags != 0 || !at.is_multiple_of(4) { return INVALID_VALUE; }
        work(stream, move |_| {
            let _kept = memory;
            // SAFETY: a word of an allocation, whose memory is kept.
            unsafe { AtomicU32::from_ptr(at as *mut u32) }.store(value, Ordering::SeqCst);
        })
    }
    cuStreamWaitValue32_v2(stream: *mut c_void, at: u64, value: c_uint, flags: c_uint) {
        let Some(memory) = find(at, |_, block| block.memory()) else { return INVALID_VALUE };
        if flags != 0 || !at.is_multiple_of(4) { return INVALID_VALUE; }
        work(stream, move |stream| {
            let _kept = memory;
            // SAFETY: as above.
            unsafe { stream.wait_for(at, value) }
        })
    }

    cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) {
        if image.is_null() { return INVALID_VALUE; }
        // SAFETY: the caller's code.
        if unsafe { jit::load(image.cast(), &[]) } { give(module, image.cast_mut()) } else { INVALID_PTX }
    }
    cuModuleLoadDataEx(
        module: *mut *mut c_void, image: *const c_void,
        count: c_uint, options: *const c_int, values: *const *mut c_void
    ) {
        if image.is_null() || count > 0 && (options.is_null() || values.is_null()) { return INVALID_VALUE; }
        // SAFETY: the caller's code and options.
        let is_right = unsafe {
            let settings: Vec<u64> =
                (0..count as usize).flat_map(|i| [*options.add(i) as u64, *values.add(i) as u64]).collect();
            jit::load(image.cast(), &settings)
        };
        if is_right { give(module, image.cast_mut()) } else { INVALID_PTX }
    }
    cuModuleLoadFatBinary(module: *mut *mut c_void, image: *const c_void) {
        // SAFETY: the caller's.
        unsafe { cuModuleLoadData(module, image) }
    }
    cuModuleLoad(module: *mut *mut c_void, path: *const c_char) {
        if path.is_null() { return INVALID_VALUE; }
        // SAFETY: the caller's name.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
        let Ok(mut code) = std::fs::read(path) else { return FILE_NOT_FOUND };
        code.resize(code.len() + 4, 0);
        // SAFETY: code with zeros after it.
        if unsafe { jit::load(code.as_ptr().cast(), &[]) } { give(module, module.cast()) } else { INVALID_PTX }
    }
    cuModuleUnload(_module: *mut c_void) { SUCCESS }
    cuModuleGetFunction(function: *mut *mut c_void, _module: *mut c_void, name: *const c_char) {
        // SAFETY: the caller's text.
        let name = unsafe { CStr::from_ptr(name) };
        kernels::named(name).map_or(NOT_FOUND, |(found, _)| give(function, found as *mut c_void))
    }
    cuLibraryLoadData(
        to: *mut u64, image: *const c_void,
        _options: *const c_int, _values: *const *mut c_void, _count: c_uint,
        _library_options: *const c_int, _library_values: *const *mut c_void, _library_count: c_uint
    ) {
        // SAFETY: the caller's code.
        let is_right = !image.is_null() && unsafe { jit::load(image.cast(), &[]) };
        if is_right { give(to, library::create()) } else { INVALID_PTX }
    }
    cuLibraryUnload(_library: u64) { SUCCESS }
    cuLibraryGetKernel(kernel: *mut u64, of: u64, name: *const c_char) {
        // SAFETY: the caller's text.
        library::kernel(of, unsafe { CStr::from_ptr(name) }).map_or(NOT_FOUND, |found| give(kernel, found))
    }
    cuKernelGetFunction(function: *mut u64, kernel: u64) { in_context(|| give(function, kernel)) }
    cuKernelGetName(name: *mut *const c_char, kernel: u64) {
        library::name(kernel).map_or(INVALID_HANDLE, |text| give(name, text.as_ptr()))
    }
    cuLaunchHostFunc(stream: *mut c_void, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void) {
        let Some(function) = function else { return INVALID_VALUE };
        let data = data as usize;
        on(stream, |stream| stream.unless_captured(|stream| {
            stream.put(move |_| function(data as *mut c_void));
            SUCCESS
        }))
    }
    cuFuncGetName(name: *mut *const c_char, function: u64) {
        kernels::name(function).map_or(INVALID_HANDLE, |text| give(name, text.as_ptr()))
    }
    cuFuncLoad(function: u64) { in_context(|| library::load(function).err().unwrap_or(SUCCESS)) }
    cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        _shared: c_uint, stream: *mut c_void, arguments: *mut *mut c_void, _extra: *mut *mut c_void
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        if grid.contains(&0) || block.contains(&0) { return INVALID_VALUE; }
        // SAFETY: the caller's.
        match unsafe { kernels::launch(library::function(function as u64), (grid, block), arguments) } {
            Some(launch) => launching(|| node(stream, Node::Kernel(launch))),
            None => INVALID_HANDLE,
        }
    }
}
