//! A session without CUDA, on its own software GPU.

#![allow(dead_code, reason = "each test file uses some of it")]

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};
use submit::{Buffer, Options, Piece, Session};

pub const LIMIT: Duration = Duration::from_secs(30);
/// On a busy machine; shorter than any wait for work that does not end.
pub const SOON: Duration = Duration::from_secs(5);

pub fn alone(options: &Options) -> (Session, SoftDriver) {
    let driver = SoftDriver::new(Mode::Strict);
    let session = Session::new();
    open(&session, driver, options);
    (session, driver)
}

pub fn open(session: &Session, driver: SoftDriver, options: &Options) {
    let device = Device::open(Arc::new(driver), 0).unwrap();
    session.open_in(AddressSpace::new(&device).unwrap(), None, options).unwrap();
}

/// The first word of memory that stays until the test's end.
pub fn word(session: &Session, buffer: Buffer) -> &'static AtomicU32 {
    let (at, _) = session.place(buffer).unwrap();
    // SAFETY: as above.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

pub fn piece(to: Buffer, from: Buffer) -> [Piece; 1] {
    [Piece { to, to_at: 0, from, from_at: 0, bytes: 64 }]
}

/// How long it takes.
pub fn timed<T>(make: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (make(), start.elapsed())
}

/// CPU time of this thread so far.
pub fn cpu_time() -> Duration {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec of this function.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut at) };
    Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
}
