//! Pausing the recording of a program that runs under `doorbell record`.

use crate::call::run;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The function of the recorder's agent (its `record::pauses`), which is loaded before the program.
type Recording = unsafe extern "C" fn(i32) -> i32;

fn agent() -> Option<Recording> {
    // The function, null before it was looked up, or the address of this where there is none. No lock: a fork's child would wait for it forever.
    static AGENT: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
    let none = (&raw const AGENT).cast_mut().cast();
    let mut at = AGENT.load(Ordering::Relaxed);
    if at.is_null() {
        // SAFETY: a name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_agent_recording".as_ptr()) };
        at = if found.is_null() { none } else { found };
        AGENT.store(at, Ordering::Relaxed);
    }
    // SAFETY: the agent's function has this type.
    (at != none).then(|| unsafe { std::mem::transmute::<*mut libc::c_void, Recording>(at) })
}

/// Calls the agent. `recorded` becomes whether the process is recorded.
///
/// # Safety
/// `recorded` is null or may be written.
unsafe fn say(what: i32, recorded: *mut bool) -> i32 {
    run(|| {
        // SAFETY: the agent's function takes any number.
        let is = agent().is_some_and(|recording| unsafe { recording(what) } != 0);
        if !recorded.is_null() {
            // SAFETY: the caller guarantees it.
            unsafe { recorded.write(is) };
        }
        Ok(())
    })
}

/// Pauses the recording of this process by `doorbell record`, for all its threads. During a pause only driver calls are recorded,
/// and each operation costs a few nanoseconds more than without doorbell. The latest call decides, from any thread. `recorded`
/// (may be null) reports whether the process is recorded. If it is not, the call has no effect.
/// Cost: some 100 ns. Threads: any. Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_recording_pause(recorded: *mut bool) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { say(0, recorded) }
}

/// Resumes the recording of this process, for all its threads. It ends the pause of doorbell_recording_pause(), or the one with
/// which `doorbell record --capture` begins. `recorded` is as there.
/// Cost: some 100 ns. Threads: any. Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_recording_resume(recorded: *mut bool) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { say(1, recorded) }
}

/// Reports whether this process runs under `doorbell record`, paused or not.
/// Cost: some 100 ns. Threads: any. Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_recording_get(recorded: *mut bool) -> i32 {
    // SAFETY: the caller guarantees it.
    unsafe { say(-1, recorded) }
}
