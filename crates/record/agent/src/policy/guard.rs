//! The guard: one real-time mutex around the launches and copies of all threads, so that CUDA's own locks are not
//! contended.
//!
//! Invariant: no thread waits for it longer than [`PATIENCE_MS`]. A call that holds it may wait for the GPU, and the GPU
//! for a launch of another thread. That thread then continues without the guard.

use super::state::{self, Me};
use crate::process::wiped::{self, live};
use core::sync::atomic::Ordering;
use core::time::Duration;
use locks::guard::{Entered, Guard};
use locks::{Clock, Tid};
use tape::policy::Board;

const PATIENCE_MS: u64 = 1000;

static GUARD: Guard = Guard::new();

/// True if calls are guarded in this process. Includes a forked child, where policies stay active.
pub fn on() -> bool {
    wiped::was_begun(live::GUARD)
}

/// Begins. Called by the constructor, after policies were switched on.
pub fn begin() {
    wiped::begin(live::GUARD);
}

/// A thread's outermost call of a guarded class. `None`: the call continues without the guard.
#[inline(never)]
pub fn enter() -> Option<Me> {
    let me = state::on()?;
    let board = state::board()?;
    board.guarded.fetch_add(1, Ordering::Relaxed);
    match GUARD.try_enter(me.tid) {
        Some(Entered::Nested) => {
            // This call is the thread's outermost: it left an earlier one by a jump.
            let _ = GUARD.leave(me.tid);
            Some(me)
        }
        Some(_) => Some(me),
        None => wait(me, board),
    }
}

#[cold]
fn wait(me: Me, board: &Board) -> Option<Me> {
    board.guard_waited.fetch_add(1, Ordering::Relaxed);
    let from = now();
    let entered = GUARD.enter_within(me.tid, Duration::from_millis(PATIENCE_MS));
    let waited = now().saturating_sub(from);
    board.guard_wait_ns.fetch_add(waited, Ordering::Relaxed);
    board.guard_longest_ns.fetch_max(waited, Ordering::Relaxed);
    match entered {
        Entered::TimedOut | Entered::Refused(_) => {
            board.guard_gave_up.fetch_add(1, Ordering::Relaxed);
            None
        }
        _ => Some(me),
    }
}

#[inline(never)]
pub fn leave(me: Me) {
    // (A guard that this thread no longer holds was left by a forked child.)
    let _ = GUARD.leave(me.tid);
}

fn now() -> u64 {
    let t = Clock::Monotonic.now();
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// In a forked child, in its only thread.
pub fn after_fork_in_child(before: Tid, me: Tid) {
    if on() {
        // SAFETY: the caller's.
        unsafe { GUARD.after_fork_in_child(before, me) };
    }
}
