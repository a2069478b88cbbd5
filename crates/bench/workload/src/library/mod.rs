//! libdoorbell's own functions, called as programs call them: from C (its C ABI) and from Python (its package, in an interpreter inside this
//! process).
//!
//! The functions are linked into this program, so its one session and the channels of the routes see the same CUDA calls. The first subject that
//! needs the session opens it, and the last closes it.

mod copies;
mod functions;
mod graphs;
mod python;

pub(crate) use copies::COPY;
pub(crate) use graphs::Launched;

use crate::entry::{Call, Value};
use crate::{Error, Machine, Unavailable};
use ::doorbell::*;
use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// By libdoorbell's C ABI.
pub(crate) const C: &str = "c";
/// From Python: by libdoorbell's package, or by CUDA through ctypes.
pub(crate) const PYTHON: Value = Value::Choice("python", &["doorbell", "cuda"]);

/// Who makes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    C,
    Python,
    /// From Python, by CUDA.
    PythonByCuda,
}

impl Caller {
    /// The caller that a call names; `None` if it names none.
    pub(crate) fn of(call: &Call) -> Result<Option<Caller>, Error> {
        match (call.has(C), call.given(PYTHON.key())) {
            (true, Some(_)) => Err(Unavailable::new("c and python= each choose the caller: give one").into()),
            (true, None) => Ok(Some(Caller::C)),
            (false, Some("cuda")) => Ok(Some(Caller::PythonByCuda)),
            (false, Some(_)) => Ok(Some(Caller::Python)),
            (false, None) => Ok(None),
        }
    }
}

/// How many subjects need the session.
static USERS: Mutex<u32> = Mutex::new(0);
/// The session, as long as somebody needs it.
static DOORBELL: AtomicPtr<doorbell_t> = AtomicPtr::new(std::ptr::null_mut());
/// Threads that submit at a time: the one that measures, and loads.
const LANES: u32 = 4;

/// The session that all subjects share, open as long as one of these lives.
pub(crate) struct Session(());

impl Session {
    /// # Errors
    /// [`Error::Unavailable`] if libdoorbell has no GPU to open.
    pub(crate) fn open(machine: &Machine) -> Result<Session, Error> {
        let mut users = poison::ignore(USERS.lock());
        if *users == 0 {
            let options = doorbell_options_t {
                size: size_of::<doorbell_options_t>(),
                kind: if machine.context().is_ok() { DOORBELL_BESIDE_CUDA } else { DOORBELL_SOFTWARE },
                gpu: machine.index(),
                lanes: LANES,
                flags: 0,
                log: None,
                log_user: std::ptr::null_mut(),
                // No profile, whatever the environment names: copy engines move everything.
                profile: c"".as_ptr(),
                launch_lanes: 1,
            };
            let mut opened = std::ptr::null_mut();
            // SAFETY: options of this size, whose texts live; a pointer is written.
            check(unsafe { doorbell_create(&options, &mut opened) })?;
            DOORBELL.store(opened, Ordering::SeqCst);
        }
        *users += 1;
        Ok(Session(()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut users = poison::ignore(USERS.lock());
        *users -= 1;
        if *users == 0 {
            doorbell_free(DOORBELL.swap(std::ptr::null_mut(), Ordering::SeqCst));
        }
    }
}

/// The session that the subjects share.
#[inline]
pub(crate) fn doorbell() -> *mut doorbell_t {
    DOORBELL.load(Ordering::Relaxed)
}

/// The meaning of a libdoorbell error code here.
#[inline]
pub(crate) fn check(code: i32) -> Result<(), Error> {
    if code == DOORBELL_OK { Ok(()) } else { Err(failed(code)) }
}

#[cold]
fn failed(code: i32) -> Error {
    // SAFETY: the text is never null, and this thread makes no other call in between.
    let detail = unsafe { CStr::from_ptr(doorbell_error_detail()) }.to_string_lossy().into_owned();
    match code {
        DOORBELL_UNAVAILABLE | DOORBELL_GRAPH | DOORBELL_NOT_PINNABLE => Unavailable::new(detail).into(),
        code => Error::Told(format!("libdoorbell, code {code}: {detail}")),
    }
}

/// Waits for a ticket as a program in C does.
#[inline]
pub(crate) fn wait(ticket: u64, timeout: Duration, bytes: u64) -> Result<(), Error> {
    let limit = u64::try_from(timeout.as_nanos()).unwrap_or(DOORBELL_FOREVER);
    match doorbell_wait(doorbell(), ticket, limit) {
        DOORBELL_TIMEOUT => Err(Error::Late { bytes, after: timeout }),
        code => check(code),
    }
}

/// Whether a ticket is done.
pub(crate) fn is_done(ticket: u64) -> Result<bool, Error> {
    let mut done = false;
    // SAFETY: writes one flag.
    check(unsafe { doorbell_poll(doorbell(), ticket, &mut done) })?;
    Ok(done)
}
