//! Taps of locks: every operation of mutexes, rwlocks, conditions and semaphores on the thread's ring.
//!
//! The names that a program finds instead of libc's stand in [`mutex`], [`rwlock`], [`cond`], [`semaphore`] and [`c11`]; each
//! hands its caller's address to a function that calls the real one ([`real`]) and writes down what came of it
//! ([`held`]). A lock is tried first: what was free costs one clock read, what was not is waited for in the real
//! function. Policies have their place between tap and real function.
//!
//! Invariant: the program gets the result that the real function gives for this call, and errno as that leaves it; where
//! nothing is recorded (no `--locks`, a forked child) a tap passes on. Nothing here allocates, takes a lock of its own
//! or makes a system call, but for a thread's first event, new code of callers, and a full ring that is waited for.

/// Makes the names that a program finds. `$register` is that of the argument after the last: the caller's address goes
/// there, which only code without a frame of its own can read off the stack.
macro_rules! tap {
    ($($name:ident, $register:literal => $to:path;)*) => {$(
        /// As the C function of that name, with the caller's address as one more argument for what it jumps to.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {
            core::arch::naked_asm!(concat!("mov ", $register, ", qword ptr [rsp]"), "jmp {to}", to = sym $to)
        }
    )*};
}
mod c11;
mod cond;
mod held;
mod maps;
mod mutex;
pub mod real;
mod rwlock;
mod sched;
mod semaphore;
pub mod symbol;

use crate::record;
use crate::thread::{self, Thread};
use core::sync::atomic::{AtomicPtr, Ordering};
use tape::lock::{LAYOUT, LocksBody, kind};
use tape::region::{Control, locks as wish};
use tape::ring::Writer;

/// The page that fork wipes ([`record::active`]), if locks are recorded; null if not.
static LIVE: AtomicPtr<u32> = AtomicPtr::new(core::ptr::null_mut());

/// Begins, if the recorder asked for it. From the constructor, once recording is on.
pub fn begin(c: &Control, live: *mut u32) {
    real::look_up();
    if c.locks & wish::RECORD == 0 {
        return;
    }
    LIVE.store(live, Ordering::Release);
    let t = thread::here();
    if ready(t) {
        held::put(t, kind::LOCKS, 0, LocksBody { layout: LAYOUT, pid: crate::sys::getpid() as u32 });
        maps::look(t, begin as *const () as usize);
    }
}

/// True while locks are recorded in this process.
#[inline(always)]
pub fn live() -> bool {
    let p = LIVE.load(Ordering::Relaxed);
    // SAFETY: null or a page that is never unmapped.
    !p.is_null() && unsafe { p.read_volatile() } == 1
}

/// This thread, if what it does is to be recorded; `site` is where the call came from.
#[inline(always)]
fn enter(site: usize) -> Option<&'static Thread> {
    if !live() {
        return None;
    }
    at_home(site).or_else(|| arrive(thread::here(), site))
}

/// This thread, if it has called from around `site` before. ([`live`] is the caller's question.)
#[inline(always)]
fn at_home(site: usize) -> Option<&'static Thread> {
    let t = thread::here();
    // (A thread without a ring knows no code.)
    t.code.iter().any(|c| site.wrapping_sub(c.get().0) < c.get().1).then_some(t)
}

/// A thread's first call, or the first from this code.
#[cold]
#[inline(never)]
fn arrive(t: &'static Thread, site: usize) -> Option<&'static Thread> {
    if t.writer.get().is_null() && !ready(t) {
        return None;
    }
    maps::look(t, site);
    Some(t)
}

/// Makes sure that the code at `site` is on the tape, and says where it begins and how long it is. `None`: not now.
pub fn code_at(t: &Thread, site: usize) -> Option<(usize, usize)> {
    maps::code_at(t, site)
}

/// Gets a thread its ring. False if it goes on without.
#[cold]
pub fn ready(t: &Thread) -> bool {
    if t.busy.replace(true) {
        // A signal handler, while the thread was writing or getting its ring.
        record::count(|c| &c.ringless);
        return false;
    }
    let w = if t.writer.get().is_null() { record::first(t) } else { t.writer.get() };
    t.busy.set(false);
    !w.is_null()
}

/// A thread has got its ring: says who it is.
pub fn thread_begins(t: &Thread, w: &mut Writer) {
    if live() || crate::calls::live() {
        let body = sched::of_this_thread(t.id());
        record::push(w, kind::SCHED, 0, crate::sys::tsc(), &body, &[], &[]);
        w.publish();
    }
}

/// True if names may be on the tape.
fn names() -> bool {
    record::control().is_some_and(|c| c.locks & wish::NO_NAMES == 0)
}
