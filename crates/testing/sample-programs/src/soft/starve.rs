//! The locks of libcuda without a GPU: a pthread rwlock that "launches" take for reading and the creation of a "stream" for
//! writing. It needs no driver, and shows the same starvation.

use crate::data::{to_bytes, words};
use crate::starving::{Turn, starve};
use crate::{Options, Report, Result};
use fastrand::Rng;
use std::cell::UnsafeCell;
use std::time::Duration;

/// A rwlock as glibc makes it: it prefers readers.
struct Lock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: a rwlock is for use by several threads.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));

/// How long a launch holds the lock.
const LAUNCH: Duration = Duration::from_millis(1);
const WORDS: usize = 32;

fn unlock() {
    // SAFETY: a static lock that this thread holds.
    unsafe { libc::pthread_rwlock_unlock(LOCK.0.get()) };
}

fn create() {
    // SAFETY: a static, initialised lock.
    unsafe { libc::pthread_rwlock_wrlock(LOCK.0.get()) };
    unlock();
}

fn launch() {
    // SAFETY: a static, initialised lock.
    unsafe { libc::pthread_rwlock_rdlock(LOCK.0.get()) };
    std::thread::sleep(LAUNCH);
    unlock();
}

pub(crate) fn run(options: &Options, report: &mut Report) -> Result<()> {
    let work = |n: u64, turn: &Turn<'_>| {
        turn.ready();
        launch();
        while turn.goes_on() {
            launch();
        }
        Ok(to_bytes(&words(&mut Rng::with_seed(options.seed ^ (n + 1) << 32), WORDS)))
    };
    let create = || {
        create();
        Ok(())
    };
    starve(options, report, create, work)
}
