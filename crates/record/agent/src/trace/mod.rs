//! Records what threads do with locks, and their calls of CUDA, on their rings.
//!
//! [`arrival`] says whether a thread's operation is to be recorded, [`holds`] what a thread holds and the events that come of
//! it, [`asked`] whether a thread waits for it, [`call`] the current CUDA call, [`python`] its Python frames, [`code`] where each library is mapped.
//! [`ranges`] records NVTX, whose texts [`texts`] reads.

pub mod arrival;
pub mod asked;
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
use tape::region::{Control, locks as wish, trouble};

/// True if the time can be read. Otherwise the recording says that it lacks locks and calls.
pub fn has_clock() -> bool {
    if no_tsc() {
        region::trouble(trouble::NO_TSC);
    }
    !no_tsc()
}

/// Begins, if the recorder asked for locks.
pub fn begin(c: &'static Control) {
    if c.locks & wish::RECORD == 0 || !has_clock() {
        return;
    }
    let waits = c.locks & wish::WAITS != 0;
    // (This first: nothing is recorded before it is known how.)
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
    // (Its table is left untouched where there is no use for it: a page that is touched is copied.)
    if wiped::was_begun(live::WAITS) {
        asked::renew();
    }
    let t = child.thread;
    t.call_stack.set(0);
    t.pauses.set(0);
}
