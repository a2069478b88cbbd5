//! Alternate stacks that are too small for a trap.
//!
//! A program may give a thread a stack of 2,048 bytes for handlers that never run. A trapped doorbell would run there. On
//! CPUs with AVX-512 the kernel's frame alone is longer, and the process would be killed. Such a thread gets a stack from
//! doorbell instead. The program does not notice: it reads back the stack that it set. Its own handlers also run on
//! doorbell's stack, with more room.

use crate::process::wiped::Place;
use crate::process::{real, session, sys, thread};
use crate::signals::masks;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tape::region::tap;

/// Stack that the handler needs in addition to the kernel's frame.
const HANDLER: usize = 4096;
const BYTES: usize = 64 << 10;
/// Maximum number of threads with doorbell's stacks at a time. Others keep their own.
const STACKS: usize = 64;
const SS_AUTODISARM: c_int = 1 << 31;

struct Stack {
    /// The thread that has it, and in the upper half its process; 0 if it is free. A forked child's only thread may have
    /// a stack that it got in its parent.
    owner: AtomicU64,
    /// Address of its mapping; 0 until first used.
    at: AtomicUsize,
    /// The stack that the program set.
    theirs: AtomicUsize,
    size: AtomicUsize,
}

static OURS: [Stack; STACKS] = [const {
    Stack { owner: AtomicU64::new(0), at: AtomicUsize::new(0), theirs: AtomicUsize::new(0), size: AtomicUsize::new(0) }
}; STACKS];

fn of(stack: &libc::stack_t) -> Option<&'static Stack> {
    let at = stack.ss_sp as usize;
    OURS.iter().find(|s| at != 0 && s.at.load(Ordering::Relaxed) == at)
}

/// The kernel's sigaltstack.
fn kernels(new: Option<&libc::stack_t>) -> Option<libc::stack_t> {
    // SAFETY: all zero is a stack.
    let mut old: libc::stack_t = unsafe { core::mem::zeroed() };
    let new = new.map_or(0, |n| core::ptr::from_ref(n) as usize);
    // SAFETY: null or a stack, and room for one.
    let r = unsafe { sys::syscall6(libc::SYS_sigaltstack, new, &raw mut old as usize, 0, 0, 0, 0) };
    (r == 0).then_some(old)
}

/// sigaltstack as the program calls it.
///
/// # Safety
/// As sigaltstack.
pub unsafe fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    let traps = session::get().is_some_and(|s| s.tap != tap::OFF);
    if !traps || masks::place() == Place::VforkChild {
        // SAFETY: the caller's.
        return unsafe { real::sigaltstack(new, old) };
    }
    // SAFETY: the caller's. Reads and writes only what the kernel has been given; both pointers may be the same.
    unsafe {
        let same = core::ptr::eq(new, old) && !new.is_null();
        let before = if same { Some(new.read()) } else { None };
        let had = of(&kernels(None).unwrap_or(core::mem::zeroed()));
        let r = real::sigaltstack(new, old);
        if r != 0 {
            return r;
        }
        if let (Some(had), false) = (had, old.is_null()) {
            (*old).ss_sp = had.theirs.load(Ordering::Relaxed) as *mut _;
            (*old).ss_size = had.size.load(Ordering::Relaxed);
        }
        if !new.is_null() {
            replace(&before.unwrap_or_else(|| new.read()), had);
        }
    }
    0
}

/// The thread now has the stack `asked`: replaces it by one of doorbell's if it is too small.
fn replace(asked: &libc::stack_t, had: Option<&'static Stack>) {
    // SAFETY: reads a number of this process.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    let is_small = asked.ss_flags & libc::SS_DISABLE == 0 && asked.ss_size < frame.max(2048) + HANDLER;
    let me = thread::here().id();
    let Some(s) = had.filter(|_| is_small).or_else(|| if is_small { claim(me) } else { None }) else {
        if let Some(had) = had {
            had.owner.store(0, Ordering::Release);
        }
        return;
    };
    s.theirs.store(asked.ss_sp as usize, Ordering::Relaxed);
    s.size.store(asked.ss_size, Ordering::Relaxed);
    let at = s.at.load(Ordering::Relaxed) as *mut _;
    let ours = libc::stack_t { ss_sp: at, ss_flags: asked.ss_flags & SS_AUTODISARM, ss_size: BYTES };
    if kernels(Some(&ours)).is_none() {
        s.owner.store(0, Ordering::Release);
    }
}

/// A stack for this thread: one that was never used, or one whose thread of this process has ended.
fn claim(tid: i32) -> Option<&'static Stack> {
    let process = sys::getpid();
    let owned = |tid: i32| (process as u64) << 32 | u64::from(tid as u32);
    OURS.iter().find_map(|s| {
        let owner = s.owner.load(Ordering::Relaxed);
        let of = owner as u32 as i32;
        // SAFETY: signal 0 only checks whether there is such a thread.
        let gone = || unsafe {
            sys::syscall6(libc::SYS_tgkill, process as usize, of as usize, 0, 0, 0, 0) == -(libc::ESRCH as isize)
        };
        if owner != 0 && (owner != owned(of) || (of != tid && !gone())) {
            return None;
        }
        s.owner.compare_exchange(owner, owned(tid), Ordering::AcqRel, Ordering::Relaxed).ok()?;
        if s.at.load(Ordering::Relaxed) == 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a fresh mapping.
            let at = unsafe { sys::mmap(sys::AWAY, BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            s.at.store(at.unwrap_or(0), Ordering::Relaxed);
        }
        if s.at.load(Ordering::Relaxed) == 0 {
            s.owner.store(0, Ordering::Release);
            return None;
        }
        Some(s)
    })
}
