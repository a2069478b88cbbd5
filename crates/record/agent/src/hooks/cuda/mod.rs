//! Taps of CUDA's calls: launches, copies, graphs, events, waits, allocations.
//!
//! No name of CUDA's is exported, or a program that asks whether CUDA is there would be told that it is. Instead the
//! libraries that define the calls are found when they are there ([`find`]), and their symbol tables are made to name
//! *entries* of ours ([`entry`]): whatever is bound or looked up from then on, in whichever way and scope, gets those,
//! and what was bound before is bound anew. `cuGetProcAddress` has an entry that puts entries into its answers
//! ([`proc_address`]). The moments to look are the program's start and its own calls of dlsym ([`lookups`]), without
//! which nobody reaches a library that came later.
//!
//! An entry calls the real function with the caller's arguments and writes down one event when it returns ([`call`]).
//! Only a thread's outermost call counts. Under `run` it goes through the guard ([`crate::policy::guard`]) instead.
//!
//! Invariant: the program gets the real function's result, and errno as that leaves it. Where calls are not recorded and
//! not guarded nothing is changed in any library. Nothing here allocates; the hot path takes no lock and makes no system
//! call, but for a thread's first event and new code of callers.

mod call;
mod cupti;
mod entry;
mod find;
mod lookups;
mod names;
mod proc_address;
mod slots;
pub mod stamps;

use crate::policy::guard;
use crate::process::wiped::{self, live};
use crate::process::{sys, thread};
use crate::record;
use crate::tap::stamps as tap_stamps;
use crate::trace::call as trace;
use crate::trace::{has_clock, python};
use tape::call::{CallsBody, LAYOUT, kind};
use tape::region::{Control, locks as wish};

/// The process has attached: begins, if the recorder asked for calls. (They are looked for since the start.)
pub fn begin(c: &'static Control) {
    if c.locks & wish::CALLS == 0 || !has_clock() {
        return;
    }
    wiped::begin(live::CALLS);
    let t = thread::here();
    if record::ready(t) {
        let body = CallsBody { layout: LAYOUT, pid: sys::getpid() as u32 };
        record::event(kind::CALLS, 0, sys::tsc(), &body, &[], &[]);
    }
    if c.locks & wish::GPU_TIMES != 0 {
        wiped::begin(live::GPU_TIMES);
        tap_stamps::asked_for();
    }
    python::begin(c);
}

/// An entry for a function of the caller's own, as if it were the function of CUDA's with this number
/// ([`tape::call::Function::number`]); 0 where calls are neither recorded nor guarded. For `selfbench calls`.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_entry_of_call(number: u32, real: usize) -> usize {
    if real == 0 || !(trace::are_followed() || guard::on()) {
        return 0;
    }
    u16::try_from(number).map_or(0, |number| find::for_measuring(number, real))
}

/// Where the area for stamps and its segments begin, mapped, if times are asked for; 0 otherwise. For `selfbench tap`, whose channels are not CUDA's.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_area_of_stamps() -> usize {
    stamps::for_measuring()
}

/// The area at this address can be reached by the GPU at the same one: the calling thread's launches are stamped from now on.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_stamp_at(area: usize) {
    stamps::is_reached(area as u64);
}

/// From now on, libraries of CUDA's are looked for.
pub fn look_for_cuda() {
    entry::place();
    lookups::begin();
}
