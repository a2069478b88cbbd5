//! A stand-in for libcuda whose memory is the software GPU's, allocated by another client whose driver calls are watched.

#![allow(dead_code, reason = "each test file uses some of it")]

#[path = "../../../machine/tests/fake/mod.rs"]
mod fake;

use cuda::{Context, Cuda, DeviceBuffer};
use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device, Entry, Watched, Watching};
use machine::Machine;
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use submit::{Options, Session};

pub const LIMIT: Duration = Duration::from_secs(20);
pub const BYTES: usize = 4096;
/// One stand-in for the process.
static ONE: Mutex<()> = Mutex::new(());

/// Operations queued in streams: (stream, address, value, whether it is a wait).
pub static QUEUED: Mutex<Vec<(u64, u64, u32, bool)>> = Mutex::new(Vec::new());
/// The result of the next write into a stream.
pub static ANSWER: AtomicU32 = AtomicU32::new(0);

thread_local!(pub static CURRENT: Cell<u64> = const { Cell::new(0) });

fn queue(stream: *mut c_void, at: u64, value: u32, wait: bool) -> c_int {
    let answer = ANSWER.swap(0, Ordering::SeqCst) as c_int;
    if answer == 0 {
        QUEUED.lock().unwrap().push((stream as u64, at, value, wait));
    }
    answer
}

unsafe extern "C" fn write_value(stream: *mut c_void, at: u64, value: c_uint, _flags: c_uint) -> c_int {
    queue(stream, at, value, false)
}

/// Whether streams are idle.
pub static IDLE: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn query(_stream: *mut c_void) -> c_int {
    if IDLE.load(Ordering::SeqCst) { 0 } else { 600 }
}

unsafe extern "C" fn wait_value(stream: *mut c_void, at: u64, value: c_uint, _flags: c_uint) -> c_int {
    queue(stream, at, value, true)
}

unsafe extern "C" fn get_current(to: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's place for the result.
    unsafe { *to = CURRENT.get() as *mut c_void };
    0
}

unsafe extern "C" fn set_current(context: *mut c_void) -> c_int {
    CURRENT.set(context as u64);
    let theirs = fake::find(c"cuCtxSetCurrent").unwrap();
    // SAFETY: the stand-in's function of that name.
    unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void) -> c_int>(theirs)(context) }
}

fn find(name: &CStr) -> Option<NonNull<c_void>> {
    NonNull::new(match name.to_bytes() {
        b"cuStreamWriteValue32_v2" => write_value as *mut c_void,
        b"cuStreamWaitValue32_v2" => wait_value as *mut c_void,
        b"cuStreamQuery" => query as *mut c_void,
        b"cuCtxGetCurrent" => get_current as *mut c_void,
        b"cuCtxSetCurrent" => set_current as *mut c_void,
        _ => return fake::find(name),
    })
}

pub struct Rig {
    pub session: Session,
    /// The program's own.
    pub context: Context,
    pub cuda: Cuda,
    pub driver: SoftDriver,
    pub watched: &'static Watched,
    _theirs: Arc<AddressSpace>,
    _one: MutexGuard<'static, ()>,
}

/// `told`: frees are reported, as by a libcuda whose functions are intercepted.
pub fn rig(told: bool, options: &Options) -> Rig {
    let one = poison::ignore(ONE.lock());
    QUEUED.lock().unwrap().clear();
    IDLE.store(false, Ordering::SeqCst);
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    *poison::ignore(fake::SOURCE.lock()) = Some(fake::blocks(&theirs));
    *poison::ignore(fake::FREES.lock()) = told.then(|| Box::new(|base, length| watched.frees(base, length)) as _);
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(find) }.unwrap();
    let of_the_session = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), theirs.device().uuid(), Entry::OwnClient).unwrap();
    let session = Session::new();
    session.open_in(ours.clone(), Some(Machine::beside(of_the_session, ours)), options).unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    Rig { session, context, cuda, driver, watched, _theirs: theirs, _one: one }
}

pub fn one_lane() -> Options {
    Options { lanes: 1, ..Options::default() }
}

pub fn found(block: &DeviceBuffer<'_>) -> Vec<u8> {
    let mut found = vec![0; BYTES];
    block.read(&mut found).unwrap();
    found
}

/// The stream executes a queued write.
pub fn run_stream(at: u64, value: u32) {
    // SAFETY: a word of the session's memory, as it was queued.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }.store(value, Ordering::SeqCst);
}
