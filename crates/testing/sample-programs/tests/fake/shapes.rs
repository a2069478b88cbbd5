//! The kernels of the shapes of `graphs`, thread by thread as their PTX text has them, and structures of calls that only these use.

use super::{ILLEGAL_ADDRESS, INVALID_HANDLE, SUCCESS, Status, number, with};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// Functions from here on are these.
pub const FIRST: u64 = 0x200;

/// Each with the bytes of its parameters.
const KERNELS: [(&str, &[usize]); 12] = [
    ("log", &[8, 4]),
    ("log_early", &[8, 4]),
    ("copy", &[8, 8, 4]),
    ("store", &[8, 4]),
    ("frame_256", &[8, 4, 4]),
    ("frame_4096", &[8, 4, 4]),
    ("turn", &[8, 4]),
    ("reach", &[8, 4, 4]),
    ("small", &[4]),
    ("small_out", &[8]),
    ("wide", &[4096]),
    ("cluster", &[8, 4]),
];

/// The word of the module of `small`.
static SMALL: AtomicU32 = AtomicU32::new(0);

pub fn find(name: &[u8]) -> Option<u64> {
    if name == b"small" {
        // The module has just been loaded.
        SMALL.store(0, Ordering::SeqCst);
    }
    KERNELS.iter().position(|(known, _)| known.as_bytes() == name).map(|at| FIRST + at as u64)
}

pub fn widths(function: u64) -> Option<&'static [usize]> {
    Some(KERNELS.get(function.checked_sub(FIRST)? as usize)?.1)
}

fn word(at: u64) -> u32 {
    // SAFETY: checked by `kernel`.
    unsafe { *(at as *const u32) }
}

fn set(at: u64, value: u32) {
    // SAFETY: as above.
    unsafe { *(at as *mut u32) = value };
}

fn on(cell: u32, value: u32) -> u32 {
    cell.wrapping_mul(1_664_525).wrapping_add(value)
}

pub fn kernel(function: u64, grid: [u32; 3], block: [u32; 3], cluster: u32, arguments: &[Vec<u8>]) -> Status {
    let Some((name, _)) = function.checked_sub(FIRST).and_then(|n| KERNELS.get(n as usize)) else {
        return INVALID_HANDLE;
    };
    let of = |n: usize| number(&arguments[n]);
    let (threads, at) = (u64::from(grid[0] * block[0]), of(0));
    let holds = |at: u64, words: u64| with(|fake| fake.holds(at, 4 * words as usize));
    let cells = |n: u64, next: &dyn Fn(u64, u32) -> u32| {
        if !holds(at, n) {
            return ILLEGAL_ADDRESS;
        }
        let all: Vec<u32> = (0..n.min(threads)).map(|i| next(i, word(at + 4 * i))).collect();
        (0..).zip(all).for_each(|(i, value)| set(at + 4 * i, value));
        SUCCESS
    };
    let value = || of(1) as u32;
    match *name {
        "log" | "log_early" => {
            if !holds(at, 1) || !holds(at, 2 + u64::from(word(at))) {
                return ILLEGAL_ADDRESS;
            }
            let n = word(at);
            set(at + 4 + 4 * u64::from(n), value());
            set(at, n + 1);
            SUCCESS
        }
        "copy" => {
            let (from, words) = (of(1), of(2) / 4);
            if !holds(at, words) || !holds(from, words) {
                return ILLEGAL_ADDRESS;
            }
            (0..words).for_each(|i| set(at + 4 * i, word(from + 4 * i)));
            SUCCESS
        }
        "store" => cells(1, &|_, _| value()),
        "frame_256" | "frame_4096" => {
            let mask = if *name == "frame_256" { 255 } else { 4095 };
            cells(value().into(), &|_, x| x.wrapping_mul(x >> 3 & mask | 1).wrapping_add(of(2) as u32))
        }
        "turn" | "reach" => {
            let neighbour = |i: u64| i / 256 * 256 + (i + 1) % 256;
            if !holds(at, threads) {
                return ILLEGAL_ADDRESS;
            }
            cells(threads, &|i, _| on(word(at + 4 * neighbour(i)), value()))
        }
        "small" => {
            SMALL.store(on(SMALL.load(Ordering::SeqCst), at as u32), Ordering::SeqCst);
            SUCCESS
        }
        "small_out" => cells(1, &|_, _| SMALL.load(Ordering::SeqCst)),
        "wide" => {
            let all = &arguments[0];
            let words = |i: u64| number(&all[12 + 4 * i as usize..][..4]) as u32;
            cells(number(&all[8..12]), &|i, x| on(x, words(i)))
        }
        "cluster" => {
            let rank = |i: u64| i as u32 / block[0] % cluster;
            cells(threads, &|i, x| on(x, value()).wrapping_add(rank(i)))
        }
        _ => INVALID_HANDLE,
    }
}

/// `CUlaunchConfig`, and an attribute of it.
#[repr(C)]
pub struct Config {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub stream: *mut c_void,
    attributes: *const Attribute,
    count: u32,
}

#[repr(C)]
struct Attribute {
    number: i32,
    padding: i32,
    value: [u32; 16],
}

/// Blocks of a cluster in x.
pub fn cluster(config: &Config) -> u32 {
    // SAFETY: the caller's attributes, as many as it states.
    let attributes = unsafe { std::slice::from_raw_parts(config.attributes, config.count as usize) };
    attributes.iter().find(|a| a.number == 4).map_or(1, |a| a.value[0])
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
pub struct Node {
    pub function: *mut c_void,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub arguments: *mut *mut c_void,
    extra: *mut c_void,
}

/// `CUDA_MEMCPY2D_v2`, and a side of it.
#[repr(C)]
pub struct Copy {
    pub from: Side,
    pub to: Side,
    pub width: usize,
    pub height: usize,
}

#[derive(Clone)]
#[repr(C)]
pub struct Side {
    x: usize,
    y: usize,
    kind: i32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

pub fn copy_rows(to: &Side, from: &Side, width: usize, height: usize) -> Status {
    let at = |side: &Side, row: usize| {
        match side.kind {
            2 => with(|fake| fake.holds(side.device, side.pitch * height)).then_some(side.device),
            1 => Some(side.host),
            _ => None,
        }
        .map(|base| base + (side.x + (side.y + row) * side.pitch) as u64)
    };
    for row in 0..height {
        let (Some(to), Some(from)) = (at(to, row), at(from, row)) else { return ILLEGAL_ADDRESS };
        // SAFETY: the GPU's is checked, the host's the caller's.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, width) };
    }
    SUCCESS
}
