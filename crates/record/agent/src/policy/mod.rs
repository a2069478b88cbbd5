//! Other protocols for the program's locks: the code between a tap and the real function while nothing is recorded.
//!
//! The [`tape::policy::Board`] decides once for each lock, at its initialisation or first operation: by a rule of the
//! plan that names it, otherwise by the policy for its class. The decision is a mark in bytes of the lock that libc does
//! not use ([`mark`]), so no table is searched and none can be full.
//!
//! Gates are before the real lock and are left **before** it is unlocked. The unlock of the real lock is the last access,
//! because a program may destroy a lock as soon as it has got it.
//!
//! Invariant: the real lock always excludes (under `pi` its own word), and every result is the real function's. Nothing
//! here allocates or calls a function that takes a lock.

pub mod boost;
pub mod cond;
pub mod guard;
mod mark;
pub mod mutex;
mod place;
pub mod rwlock;
pub mod sched;
mod state;

use crate::process::renewal::Child;
use crate::process::symbol;
use crate::process::wiped::{self, live};
use crate::process::{clock, cores, sys, thread};
use core::ffi::CStr;
use core::sync::atomic::Ordering;
use locks::Tid;
pub use state::{Me, board};
use state::{mutexes, refused, rwlocks};
use tape::policy::{Board, MAGIC, VERSION, class, protocol, why};
use tape::starts::Starts;

/// Begins, if the board can be mapped and the user has not switched policies off. Called by the constructor. If there is
/// a board, returns its count of started programs.
pub fn attach(path: &CStr, off: bool) -> Option<&'static Starts> {
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path.
    let fd =
        unsafe { sys::syscall6(libc::SYS_openat, libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0) };
    if fd < 0 {
        return None;
    }
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of the board's file.
    let board = unsafe {
        let board = sys::mmap(0, size_of::<Board>(), rw, libc::MAP_SHARED, fd as i32, 0);
        sys::syscall6(libc::SYS_close, fd as usize, 0, 0, 0, 0, 0);
        board?
    };
    cores::leave_out(board, size_of::<Board>());
    // SAFETY: just mapped, and as long as a Board: `run` made it so.
    let b: &'static Board = unsafe { &*(board as *const Board) };
    if b.magic != MAGIC || b.version != VERSION {
        return None;
    }
    b.starts.arrive();
    state::set_board(board as *mut Board);
    if off {
        b.state.store(2, Ordering::Release);
        return Some(&b.starts);
    }
    if !wiped::prepare() {
        return None;
    }
    place::look_up();
    clock::look_up();
    let me = Tid::from_raw(thread::number() as u32);
    // ThreadSanitizer reports a race if it does not see a lock taken, and waits only for locks that it has seen taken.
    let watched = symbol::is_defined(c"__tsan_init");
    let no = if watched { why::SANITIZER } else { why::LAYOUT };
    if !watched {
        // SAFETY: the constructor: no thread reads them yet.
        unsafe { state::set_proofs(mark::prove_mutexes(me), mark::prove_rwlocks(me)) };
    }
    b.state.store(1, Ordering::Release);
    for (class, policy, is_known) in
        [(class::MUTEX, b.mutex, mutexes().is_some()), (class::RWLOCK, b.rwlock, rwlocks().is_some())]
    {
        let rule = b.rules().iter().find(|r| [0, class].contains(&r.class) && r.policy != protocol::STOCK);
        let wanted = if policy == protocol::STOCK { rule.map_or(policy, |r| r.policy) } else { policy };
        if !is_known && wanted != protocol::STOCK {
            refused(no, wanted, class, me, 0, 0);
        }
    }
    let boosts =
        [b.mutex, b.rwlock].contains(&protocol::BOOST) || b.rules().iter().any(|r| r.policy == protocol::BOOST);
    if boosts && !watched {
        boost::begin();
    }
    wiped::begin(live::POLICIES);
    if b.guard != 0 {
        guard::begin();
    }
    Some(&b.starts)
}

/// In a forked child, in its only thread, before anything else here.
pub fn renew(child: &Child) {
    let (before, now) = (Tid::from_raw(child.before as u32), Tid::from_raw(child.now as u32));
    locks::fork::after_fork_in_child(now);
    guard::after_fork_in_child(before, now);
    boost::after_fork_in_child(child.thread, now);
    wiped::begin(live::POLICIES);
}
