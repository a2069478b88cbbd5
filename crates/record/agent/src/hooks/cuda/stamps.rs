//! Makes CUDA map the slots of [`tape::stamp`] for the GPU, once per process. The first thread that launches or copies
//! makes these CUDA calls before that. doorbell has no thread that calls CUDA.

use crate::driver::confidential;
use crate::fix;
use crate::process::wiped::{goes_on, live};
use crate::process::{region, symbol, sys, thread};
use crate::record;
use crate::tap::stamps::{self, ask};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tape::region::{SEGMENTS_BYTES, STAMPS_AT, STAMPS_BYTES};
use tape::stamp::{LAYOUT, StampsBody, kind, state};

/// `CUresult cuMemHostRegister(void *, size_t, unsigned flags)`, `cuMemHostGetDevicePointer(CUdeviceptr *, void *, unsigned)` and
/// `cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *)`.
pub const SYMBOLS: [&[u8]; 4] =
    [b"cuMemHostRegister_v2", b"cuMemHostGetDevicePointer_v2", b"cuThreadExchangeStreamCaptureMode", b"cuCtxGetDevice"];
static FUNCTIONS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// CU_MEMHOSTREGISTER_PORTABLE and _DEVICEMAP: for all contexts of the process.
const PORTABLE_AND_MAPPED: u32 = 1 | 2;

/// Slots and segments.
const BYTES: usize = STAMPS_BYTES + SEGMENTS_BYTES;
/// Addresses that are tried: above those that CUDA reserves, and below 2^40.
const LOW: usize = 0xa0_0000_0000;
const LOW_STEP: usize = 1 << 30;
const LOW_TRIES: usize = 64;

/// CUDA's numbers of the devices that were looked at, and of those for which the area is mapped, as bits.
static LOOKED_AT: AtomicU64 = AtomicU64::new(0);
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// A library that defines CUDA's calls has these of [`SYMBOLS`]; 0 for one that it lacks.
pub fn found(at: [usize; 4]) {
    symbol::found(&FUNCTIONS, at);
}

/// A library was unloaded, which may have been CUDA's.
pub fn unloaded() {
    FUNCTIONS.iter().for_each(|f| f.store(0, Ordering::Relaxed));
}

/// The thread is about to launch a kernel, or to copy: it has a context.
#[inline(always)]
pub fn launches() {
    // (While CUPTI is active, the program's trace would contain a call that the program did not make.)
    if goes_on(live::GPU_TIMES) && stamps::asks() != ask::NOTHING && !stamps::steps_back() {
        ask();
    }
}

#[cold]
#[inline(never)]
fn ask() {
    let _keep = sys::Errno::keep();
    // (The program has not made these calls.)
    let inside = &thread::here().calls_inside;
    let of_the_program = inside.get();
    if stamps::asks_after(ask::AREA, ask::BUSY) {
        let (state, area, cpu, result) = map();
        answered(state, area, cpu, result);
        stamps::is_answered();
    } else if stamps::asks() == ask::BUSY {
        stamps::wait_for_answer();
        another_gpu();
    } else if stamps::asks_after(ask::DEVICE, ask::NOTHING) {
        another_gpu();
    }
    inside.set(of_the_program);
}

/// A device rang whose GPU is not known to have the area. Whether CUDA maps the area for the current context's GPU.
fn another_gpu() {
    let [_, pointer, capture, device] = FUNCTIONS.each_ref().map(|f| f.load(Ordering::Relaxed));
    if [pointer, capture, device].contains(&0) || stamps::area() == 0 {
        return;
    }
    // SAFETY: functions of these types, with places for the results.
    unsafe {
        let pointer: unsafe extern "C" fn(*mut u64, *mut c_void, u32) -> u32 = core::mem::transmute(pointer);
        let capture: unsafe extern "C" fn(*mut i32) -> i32 = core::mem::transmute(capture);
        let device: unsafe extern "C" fn(*mut i32) -> u32 = core::mem::transmute(device);
        let mut ordinal = -1;
        if device(&raw mut ordinal) != 0 || !(0..64).contains(&ordinal) {
            return;
        }
        if LOOKED_AT.fetch_or(1 << ordinal, Ordering::Relaxed) & 1 << ordinal == 0 {
            let mut area = 0;
            let result = fix::relaxed(capture, || pointer(&raw mut area, stamps::cpu() as *mut c_void, 0));
            if result == 0 && area == stamps::area() {
                MAPPED.fetch_or(1 << ordinal, Ordering::Relaxed);
            }
        }
        if MAPPED.load(Ordering::Relaxed) & 1 << ordinal != 0 {
            stamps::is_mapped();
        }
    }
}

fn answered(state: u32, area: u64, cpu: u64, result: u32) {
    let body = StampsBody { layout: LAYOUT, state, area, result, pad: 0 };
    record::event(kind::STAMPS, 0, sys::tsc(), &body, &[], &[]);
    if state == state::ON {
        stamps::begin(area, cpu);
    }
}

/// The state and the result of [`StampsBody`], and slot 0's addresses for the GPU and the CPU.
fn map() -> (u32, u64, u64, u32) {
    if stamps::is_divided() {
        return (state::DIVIDED, 0, 0, 0);
    }
    if confidential::is_on() {
        return (state::CONFIDENTIAL, 0, 0, 0);
    }
    let [register, pointer, capture, device] = FUNCTIONS.each_ref().map(|f| f.load(Ordering::Relaxed));
    if [register, pointer, capture].contains(&0) {
        return (state::NO_FUNCTION, 0, 0, 0);
    }
    let Some(at) = place() else { return (state::REFUSED, 0, 0, 0) };
    // SAFETY: functions of these types, called as a program may, with memory that stays mapped.
    unsafe {
        let register: unsafe extern "C" fn(*mut c_void, usize, u32) -> u32 = core::mem::transmute(register);
        let pointer: unsafe extern "C" fn(*mut u64, *mut c_void, u32) -> u32 = core::mem::transmute(pointer);
        let capture: unsafe extern "C" fn(*mut i32) -> i32 = core::mem::transmute(capture);
        let mut area = 0;
        let result = fix::relaxed(capture, || match register(at as *mut c_void, BYTES, PORTABLE_AND_MAPPED) {
            0 => pointer(&raw mut area, at as *mut c_void, 0),
            failed => failed,
        });
        let mut ordinal = -1;
        if device != 0 {
            core::mem::transmute::<usize, unsafe extern "C" fn(*mut i32) -> u32>(device)(&raw mut ordinal);
        }
        let own = if result == 0 && (0..64).contains(&ordinal) { 1 << ordinal } else { 0 };
        [&LOOKED_AT, &MAPPED].into_iter().for_each(|all| all.store(own, Ordering::Relaxed));
        if result == 0 { (state::ON, area, at as u64, 0) } else { (state::REFUSED, 0, 0, result) }
    }
}

/// Maps the area in this process, below 2^40: a GPFIFO entry has 40 bits of an address.
fn place() -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let try_at = |i: usize| {
        // SAFETY: MAP_FIXED_NOREPLACE: only an address range without a mapping is taken.
        unsafe { sys::mmap(LOW + i * LOW_STEP, BYTES, libc::PROT_NONE, flags, -1, 0) }
    };
    let at = (0..LOW_TRIES).find_map(try_at)?;
    // SAFETY: the range was just mapped for this.
    unsafe { region::map_piece(STAMPS_AT, BYTES, at) }.then_some(at)
}

/// Maps the area for a program that makes it reachable for the GPU without CUDA, if times are requested. Returns its
/// address, or 0.
pub fn for_measuring() -> usize {
    if !goes_on(live::GPU_TIMES) || !stamps::asks_after(ask::AREA, ask::NOTHING) {
        return 0;
    }
    place().unwrap_or(0)
}

/// The GPU now reaches the area at the same address.
pub fn is_reached(area: u64) {
    answered(state::ON, area, area, 0);
}
