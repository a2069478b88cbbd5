//! What the modules above do when the process attaches to a recorder, and in a forked child.
//!
//! The list belongs to the constructor, so that this module does not depend on the modules above.

use super::thread::{self, Thread};
use super::wiped;
use core::sync::atomic::{AtomicPtr, Ordering};
use tape::region::Control;

/// The only thread of a process that was just forked.
pub struct Child {
    pub thread: &'static Thread,
    /// Its number in the parent, if that was looked up there, and its number now.
    pub before: i32,
    pub now: i32,
}

pub type Attached = fn(&'static Control);
pub type Renewed = fn(&Child);

pub struct Steps {
    /// In this order, once the process has attached.
    pub attached: &'static [Attached],
    /// In this order, in a forked child: each step makes a module forget its state from the parent. Only the steps whose
    /// bits ([`wiped::live`]) had begun there.
    pub renewed: &'static [(u32, Renewed)],
}

static STEPS: AtomicPtr<Steps> = AtomicPtr::new(core::ptr::null_mut());

/// Called by the constructor.
pub fn set_steps(steps: &'static Steps) {
    STEPS.store(core::ptr::from_ref(steps).cast_mut(), Ordering::Release);
}

fn steps() -> Option<&'static Steps> {
    // SAFETY: null or what the constructor handed in, which is static.
    unsafe { STEPS.load(Ordering::Acquire).as_ref() }
}

/// The process has attached.
pub fn attached(c: &'static Control) {
    for step in steps().map_or(&[][..], |s| s.attached) {
        step(c);
    }
}

/// Runs in a forked child's only thread before the agent does anything else there: every module forgets the parent. The
/// child may attach afterwards ([`super::region::attach`]).
#[cold]
#[inline(never)]
pub fn renew_after_fork() {
    let thread = thread::here();
    let (before, now) = thread.renew_id();
    let child = Child { thread, before, now };
    for (what, step) in steps().map_or(&[][..], |s| s.renewed) {
        if wiped::was_begun(*what) {
            step(&child);
        }
    }
}
