//! Taps of CUDA's calls: launches, copies, graphs, events, waits, allocations.
//!
//! The agent exports none of CUDA's names: otherwise a program that checks for CUDA would always find it. Instead,
//! [`find`] finds the libraries that define the calls after they are loaded. It makes their symbol tables name doorbell's
//! *entries* ([`entry`]). Code that is bound or looked up later, in any way and scope, gets the entries; existing
//! bindings are replaced. `cuGetProcAddress` has an entry that puts entries into its results ([`proc_address`]).
//! `cuGetExportTable` has one that only counts ([`export_table`]).
//! Libraries are examined at the program's start and at its own calls of dlsym ([`lookups`]), without which a program
//! cannot reach a library that was loaded later.
//!
//! An entry calls the real function with the caller's arguments and records one event when it returns ([`call`]). Only a
//! thread's outermost call counts. Under `run` it passes through the guard ([`crate::policy::guard`]) instead.
//!
//! Invariant: the program gets the real function's result and errno. If calls are neither recorded nor guarded, no
//! library is changed. Nothing here allocates. The hot path takes no lock and makes no system call, except for a thread's
//! first event and for callers' code that was not seen before.

mod call;
mod cupti;
mod entry;
mod export_table;
mod find;
mod lookups;
mod names;
mod origins;
mod others;
mod proc_address;
mod slots;
pub mod stamps;
mod streams;

use crate::policy::guard;
use crate::process::wiped::{self, live};
use crate::process::{sys, thread};
use crate::record;
use crate::tap::stamps as tap_stamps;
use crate::trace::call as trace;
use crate::trace::{has_clock, python};
use tape::call::{CallsBody, LAYOUT, kind};
use tape::region::{Control, contents};

/// The process has attached: begins, if the recorder requested calls. (The agent looks for them from the start.)
pub fn begin(c: &'static Control) {
    if c.contents & contents::CALLS == 0 || !has_clock() {
        return;
    }
    wiped::begin(live::CALLS);
    let t = thread::here();
    if record::ready(t) {
        let body = CallsBody { layout: LAYOUT, pid: sys::getpid() as u32 };
        record::event(kind::CALLS, 0, sys::tsc(), &body, &[], &[]);
    }
    if c.contents & contents::GPU_TIMES != 0 {
        wiped::begin(live::GPU_TIMES);
        tap_stamps::asked_for();
    }
    python::begin(c);
}

/// An entry for one of the caller's own functions, as if it were CUDA's function with this number
/// ([`tape::call::Function::number`]); 0 if calls are neither recorded nor guarded. For `selfbench calls`.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_entry_of_call(number: u32, real: usize) -> usize {
    if real == 0 || !(trace::are_followed() || guard::on()) {
        return 0;
    }
    u16::try_from(number).map_or(0, |number| find::for_measuring(number, real))
}

/// Address of the area for stamps and segments, mapped, if times are requested; 0 otherwise. For `selfbench tap`, whose
/// channels are not CUDA's.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_area_of_stamps() -> usize {
    stamps::for_measuring()
}

/// The GPU can reach the area at the same address: the calling thread's launches are stamped from now on.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_stamp_at(area: usize) {
    stamps::is_reached(area as u64);
}

/// From now on, CUDA's libraries are looked for.
pub fn look_for_cuda() {
    entry::place();
    lookups::begin();
}
