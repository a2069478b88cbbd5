//! The GPU: one thread that runs every scheduled channel in turn.
//!
//! Channels run in slices: some GPFIFO entries, then the next channel. So a long queue on one cannot starve another, and a blocked acquire blocks
//! only its own channel.

mod channel;
mod compute;
mod constants;
mod copy;
mod host;
mod inline;
mod limits;
mod mme;
mod pbdma;
mod release;
mod semaphore;
mod sked;
mod sm;

pub use channel::{Channel, Engine, Setup, Work};
pub use pbdma::Pbdma;

use crate::counters::Counters;
use crate::doorbell::{Bell, TIME_0};
use crate::fault::Fault;
use crate::memory::Memory;
use crate::planted::Plot;
use crate::sys;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What a method did to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    /// An acquire that does not hold yet, or kernels that are waited for: the same method again later.
    Blocked,
}

/// The result of a channel's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Idle,
    /// It has more to do.
    Ready,
    /// It waits for a semaphore.
    Blocked,
    /// Its kernels are active, and its entries wait or are all done.
    Active,
}

/// The channels that are scheduled, and the thread that runs them.
#[derive(Debug)]
pub struct Runlists {
    channels: Mutex<Vec<Arc<Channel>>>,
    started: AtomicBool,
    stop: AtomicBool,
    bell: &'static Bell,
    pub counters: &'static Counters,
    /// Run up to USERD's GP_PUT without waiting for a ring.
    pub poll: bool,
    /// Report on standard error which channel was killed and why.
    pub log: bool,
    /// Without traps: the usermode page whose clock this thread updates.
    clock: Mutex<Option<Arc<Memory>>>,
    /// The planted faults of this GPU.
    pub(crate) plot: Plot,
    sked: sked::Sked,
}

/// A blocked acquire is tried again at least this often: the CPU may release it with a plain store.
const ACQUIRE_POLL_NS: u64 = 20_000;
/// How long a turn takes in which only kernels are active, and how many of these in a row pass without sleep.
const TURN_NS: u64 = 1_000;
const PATIENT_TURNS: u64 = 50_000;
/// An idle GPU wakes up by itself only to check whether it should stop.
const IDLE_NS: u64 = 500_000_000;

impl Runlists {
    pub fn new(bell: &'static Bell, counters: &'static Counters, poll: bool) -> Arc<Runlists> {
        Arc::new(Runlists {
            channels: Mutex::new(Vec::new()),
            started: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            bell,
            counters,
            poll,
            log: std::env::var_os("DOORBELL_SOFTGPU_LOG").is_some(),
            clock: Mutex::new(None),
            plot: Plot::default(),
            sked: sked::Sked::default(),
        })
    }

    /// If pages are not trapped, this thread must write the time into them.
    pub fn show_clock(&self, page: Arc<Memory>) {
        let _ = page.write_u64(TIME_0, sys::gpu_clock());
        *poison::ignore(self.clock.lock()) = Some(page);
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Channel>>> {
        poison::ignore(self.channels.lock())
    }

    /// Puts a channel on its runlist; starts the GPU with the first one.
    pub fn add(self: &Arc<Self>, channel: &Arc<Channel>) {
        {
            let mut list = self.list();
            if !list.iter().any(|c| Arc::ptr_eq(c, channel)) {
                list.push(channel.clone());
            }
        }
        if !self.started.swap(true, Ordering::AcqRel) {
            let runlists = self.clone();
            let before = block_signals();
            // Without its thread the GPU does no work, which tests see as unfinished work.
            let _ = std::thread::Builder::new().name("softgpu".into()).spawn(move || runlists.run());
            restore_signals(&before);
        }
        self.bell.wake();
    }

    /// Takes a channel off; it may still be in its last slice, see [`Channel::stop`].
    pub fn remove(&self, channel: &Arc<Channel>) {
        self.list().retain(|c| !Arc::ptr_eq(c, channel));
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bell.wake();
    }

    fn run(&self) {
        let mut snapshot: Vec<Arc<Channel>> = Vec::new();
        // Turns in which only time has passed since the last QMD was started.
        let (mut waiting, mut started) = (0u64, 0);
        while !self.stop.load(Ordering::Acquire) {
            let seen = self.bell.events();
            snapshot.clear();
            snapshot.extend(self.list().iter().cloned());
            let (mut ready, mut blocked, mut active) = (false, false, false);
            for channel in &snapshot {
                match channel.turn(self) {
                    Turn::Ready => ready = true,
                    Turn::Blocked => blocked = true,
                    Turn::Active => active = true,
                    Turn::Idle => {}
                }
            }
            snapshot.clear();
            if let Some(page) = &*poison::ignore(self.clock.lock()) {
                let _ = page.write_u64(TIME_0, sys::gpu_clock());
            }
            let now = self.counters.launches.load(Ordering::Relaxed);
            if ready || !active || now != started {
                (waiting, started) = (0, now);
            }
            match () {
                () if ready => {}
                // Kernels count turns. This thread keeps its CPU between them, because on a busy machine it would wait for all others after each.
                // But a kernel that never ends must not occupy a CPU forever.
                () if active => {
                    waiting += 1;
                    if waiting > PATIENT_TURNS {
                        self.bell.sleep(seen, ACQUIRE_POLL_NS);
                    } else {
                        pass(TURN_NS);
                    }
                }
                () if blocked => self.bell.sleep(seen, ACQUIRE_POLL_NS),
                () if self.poll => std::thread::yield_now(),
                () => self.bell.sleep(seen, IDLE_NS),
            }
        }
    }
}

/// Lets time pass on this CPU.
fn pass(nanoseconds: u64) {
    let start = sys::gpu_clock();
    while sys::gpu_clock().saturating_sub(start) < nanoseconds {
        std::hint::spin_loop();
    }
}

/// The GPU's thread must never run the program's signal handlers: it inherits a full mask.
fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are local; sigfillset initialises the first, the call writes the second.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that pthread_sigmask returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}
