//! Records threads' lock operations and CUDA calls in their rings.
//!
//! [`arrival`] decides whether a thread's operation is recorded. [`holds`] has a thread's locks and their events,
//! [`asked`] whether a thread waits for them, [`call`] the current CUDA call, [`batch`] the copies in it, [`python`] its Python frames, [`code`]
//! where each library is mapped. [`ranges`] records NVTX, whose texts [`texts`] reads.

pub mod arrival;
pub mod asked;
mod batch;
mod build_id;
pub mod call;
pub mod code;
pub mod holds;
pub mod python;
pub mod ranges;
pub mod texts;

use crate::process::renewal::Child;
use crate::process::restrictions::no_tsc;
use crate::process::wiped::{self, live};
use crate::process::{region, sys, thread};
use crate::record;
use tape::lock::{LAYOUT, LAYOUT_WAITS, LocksBody, kind};
use tape::region::{Control, contents, trouble};

/// True if the time can be read. Otherwise the recording states that it lacks locks and calls.
pub fn has_clock() -> bool {
    if no_tsc() {
        region::trouble(trouble::NO_TSC);
    }
    !no_tsc()
}

/// Begins, if the recorder requested locks.
pub fn begin(c: &'static Control) {
    if c.contents & contents::LOCKS == 0 || !has_clock() {
        return;
    }
    let waits = c.contents & contents::WAITS != 0;
    // (First, because the mode must be known before anything is recorded.)
    if waits {
        wiped::begin(live::WAITS);
    }
    wiped::begin(live::LOCKS);
    let t = thread::here();
    if record::ready(t) {
        holds::put(
            t,
            kind::LOCKS,
            0,
            LocksBody { layout: if waits { LAYOUT_WAITS } else { LAYOUT }, pid: sys::getpid() as u32 },
        );
        code::look(t, begin as *const () as usize);
    }
}

/// In a forked child.
pub fn renew(child: &Child) {
    code::renew();
    // (Without waits its table is not touched: a page that is written to is copied.)
    if wiped::was_begun(live::WAITS) {
        asked::renew();
    }
    let t = child.thread;
    t.call_stack.set(0);
    t.pauses.set(0);
}
