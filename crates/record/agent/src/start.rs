//! The constructor and destructor of the preloaded library, and the order in which the modules begin.

use crate::process::environment::{self, BOARD, OURS, SESSION};
use crate::process::renewal::{self, Steps};
use crate::process::wiped::{self, live};
use crate::process::{children, cores, identity, real, region, session, sys, thread};
use crate::{driver, exec, fix, hooks, policy, record, signals, tap, trace};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU32, Ordering};
use tape::region::{capture, contents};
use tape::session::Session;
use tape::starts::Starts;

static STEPS: Steps = Steps {
    attached: &[record::pauses::begin, trace::begin, trace::ranges::begin, hooks::cuda::begin],
    renewed: &[
        (live::RECORDING, record::renew),
        (live::RECORDING, tap::renew),
        (live::RECORDING, driver::renew),
        (live::RECORDING, trace::renew),
        (live::RECORDING, trace::ranges::renew),
        (live::RECORDING, |_| region::renew()),
        (live::POLICIES, policy::renew),
    ],
};

/// Keeps the variables that programs started later need to be followed, while this variable is in the environment.
fn keep(name: &[u8], starts: &'static Starts) {
    if let (Some(libraries), Some(place)) = (environment::entry(OURS), environment::entry(name)) {
        exec::environment::keep(libraries, place, starts);
        exec::glibc::begin();
    }
}

/// Hooks what the recorder requested. A process attaches at its first event that matters. A program that the recorder
/// itself started attaches immediately, so its recording is never empty.
fn begin_session(s: &'static Session) {
    keep(SESSION, &s.starts);
    renewal::set_steps(&STEPS);
    signals::begin();
    record::thread_end::begin();
    children::begin();
    identity::begin();
    session::set_contents(s.contents);
    trace::ranges::prepare(s);
    if sys::getppid() == s.recorder {
        let _ = region::attach();
    }
    let follows = session::wanted(contents::CALLS) || s.capture == capture::PROFILER;
    fix::begin(&s.fixes, !follows);
    if follows || fix::on() {
        hooks::cuda::look_for_cuda();
    }
}

/// 1 after the agent has begun.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// True if the agent has begun, or found that it has nothing to do.
pub fn has_begun() -> bool {
    BEGUN.load(Ordering::Acquire) != 0
}

/// Begins, once: from the constructor, or earlier, at the first use of the driver by another library's constructor.
#[cold]
pub fn begin() {
    // Before libc's constructor there is no environment to read.
    if !environment::is_there() || BEGUN.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    environment::read();
    cores::leave_out_tables();
    // A vfork child must not do this look-up.
    real::look_up();
    thread::find_numbers();
    // Not attached: nothing is recorded or changed, but the environment is still restored.
    if !wiped::prepare() {
        return environment::restore();
    }
    match (environment::session(), environment::board()) {
        (Some(_), _) => {
            if let Some(s) = session::open() {
                begin_session(s);
            }
        }
        (None, Some(board)) => {
            renewal::set_steps(&STEPS);
            if let Some(starts) = policy::attach(board, environment::policies_off()) {
                keep(BOARD, starts);
            }
            if let Some(board) = policy::board() {
                fix::begin(&board.fixes, board.guard == 0);
                fix::kernels::begin(&board.fixes, &board.kernels);
            }
            if policy::guard::on() || fix::on() {
                hooks::cuda::look_for_cuda();
            }
        }
        (None, None) => {
            match environment::fixes() {
                Ok(0) => {}
                Ok(wanted) => {
                    renewal::set_steps(&STEPS);
                    fix::begin_own(wanted);
                    hooks::cuda::look_for_cuda();
                }
                // (A program that its user has set up wrongly.)
                Err(list) => {
                    for part in [
                        &b"doorbell: DOORBELL_FIX="[..],
                        list,
                        b": the fixes are pins, copies, pages, code and memory\n",
                    ] {
                        // SAFETY: bytes with their length.
                        unsafe { sys::syscall6(libc::SYS_write, 2, part.as_ptr() as usize, part.len(), 0, 0, 0) };
                    }
                }
            }
            return;
        }
    }
    environment::restore();
}

/// libc passes constructors the same arguments as main.
unsafe extern "C" fn start(_count: c_int, args: *mut *mut c_char) {
    // (Before the variables are removed.)
    if environment::is_there() && environment::is_shell() {
        // SAFETY: libc's.
        unsafe { environment::shorten_name(args) };
    }
    begin();
}

extern "C" fn finish() {
    driver::finish();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(c_int, *mut *mut c_char) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;
