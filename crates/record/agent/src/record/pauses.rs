//! Pauses: during one, only driver calls are recorded, because later submissions cannot be read without them.
//!
//! The latest request counts, from any of three: a call by the program, CUDA's profiler functions if the recorder uses
//! them, or the recorder itself.

use super::event;
use crate::process::restrictions::{may, need};
use crate::process::{region, session, sys};
use core::sync::atomic::{AtomicU32, Ordering};
use tape::event::{PauseBody, kind, pause_by};
use tape::region::{Control, capture};
use tape::session::{Session, paused};

/// The process has attached: its recording may begin with a pause.
pub fn begin(_: &'static Control) {
    if region::paused() {
        tell(true, pause_by::START, sys::tsc());
    }
}

fn tell(paused: bool, by: u32, tsc: u64) {
    event(kind::PAUSE, 0, tsc, &PauseBody { paused: paused.into(), by }, &[], &[]);
}

fn set(pause: bool, by: u32) {
    let tsc = sys::tsc();
    if region::control().is_some_and(|c| c.pause(pause, tsc)) {
        tell(pause, by, tsc);
        // (During a pause it sleeps for long.)
        if let Some(s) = session::get().filter(|s| !pause && s.paused.load(Ordering::Relaxed) == paused::BY_RECORDER) {
            wake(s);
        }
    }
}

#[cold]
fn wake(s: &Session) {
    s.call();
    if may(need::FUTEX) {
        sys::futex_wake(&s.calls);
    }
}

/// True if CUDA's profiler functions begin and end pauses.
pub fn profiler_decides() -> bool {
    region::control().is_some_and(|c| c.capture == capture::PROFILER)
}

/// cudaProfilerStart or cuProfilerStart (`pause` is false), or a call that ends what they began.
#[cold]
pub fn profiler(pause: bool) {
    if region::active() && profiler_decides() {
        set(pause, pause_by::PROFILER);
    }
}

/// Open ranges for which the recorder requests a recording.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// In a forked child.
pub fn no_range() {
    OPEN.store(0, Ordering::Relaxed);
}

/// Such a range begins.
#[cold]
pub fn range_begins() {
    let _keep = sys::Errno::keep();
    OPEN.fetch_add(1, Ordering::Relaxed);
    if region::arrive() {
        set(false, pause_by::RANGE);
    }
}

/// Such a range ends. (A range may be ended twice, or in a forked child.)
#[cold]
pub fn range_ends() {
    let _keep = sys::Errno::keep();
    let last = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) == Ok(1);
    if last && region::active() {
        set(true, pause_by::RANGE);
    }
}

/// Records from now on, or (`on` is 0) pauses, or (negative) changes nothing. 1 if the process is recorded, otherwise 0.
/// libdoorbell looks this name up.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_agent_recording(on: i32) -> i32 {
    let _keep = sys::Errno::keep();
    if !region::arrive() || !region::active_here() {
        return 0;
    }
    if on >= 0 {
        set(on == 0, pause_by::CALL);
    }
    1
}
