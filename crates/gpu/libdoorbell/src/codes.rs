//! Error codes.

use std::ffi::{CStr, c_char};
use submit::Error;

/// Done.
pub const DOORBELL_OK: i32 = 0;
/// The session was freed.
pub const DOORBELL_CLOSED: i32 = 1;
/// A forked child has no session and cannot open one.
pub const DOORBELL_FORKED: i32 = 2;
/// No such handle: it was freed, is of another kind or another session, or never existed.
pub const DOORBELL_HANDLE: i32 = 3;
/// A buffer's memory was freed, or now belongs to another allocation.
pub const DOORBELL_FREED: i32 = 4;
/// An offset or length is outside the buffer.
pub const DOORBELL_OUTSIDE: i32 = 5;
/// Another thread is submitting on this lane now. The call had no effect: try again.
pub const DOORBELL_BUSY: i32 = 6;
/// Too many submissions are pending. The call had no effect: try again when one is done.
pub const DOORBELL_FULL: i32 = 7;
/// The producer has reached a frame of the ring that is still being copied.
pub const DOORBELL_OVERRUN: i32 = 8;
/// More objects or items than the maximum.
pub const DOORBELL_LIMIT: i32 = 9;
/// A wrong argument: a null pointer, a length of 0, an unknown flag.
pub const DOORBELL_ARGUMENT: i32 = 10;
/// Not done within the given time.
pub const DOORBELL_TIMEOUT: i32 = 11;
/// A GPU error (Xid) killed the channel. Free the session.
pub const DOORBELL_KILLED: i32 = 12;
/// The channel was stopped, because memory was freed under a copy that did not end, or because a channel that it waited for died.
/// Free the session.
pub const DOORBELL_STOPPED: i32 = 13;
/// The memory cannot be pinned.
pub const DOORBELL_NOT_PINNABLE: i32 = 14;
/// Not possible on this machine, or not in this order of calls.
pub const DOORBELL_UNAVAILABLE: i32 = 15;
/// The GPU's kernel driver refused a call.
pub const DOORBELL_DRIVER: i32 = 16;
/// CUDA refused a call.
pub const DOORBELL_CUDA: i32 = 17;
/// An error in doorbell: please report it with the detail.
pub const DOORBELL_PANIC: i32 = 18;
/// doorbell cannot launch or read the graph. The detail gives the reason.
pub const DOORBELL_GRAPH: i32 = 19;

const TEXTS: [&CStr; 20] = [
    c"done",
    c"the session was freed, or never made: call doorbell_create",
    c"this is a forked child: start a new program (exec) to use the GPU here",
    c"no such handle: it was freed, is of another kind or another session, or was never one",
    c"the memory behind the buffer was freed, or is another allocation now",
    c"the bytes do not lie within the buffer",
    c"another thread submits on this lane at this moment; nothing was submitted: try again, or open more lanes",
    c"too many submissions are under way; wait for one of them first",
    c"the next frame of the ring is still under way",
    c"more of these than there may be at a time",
    c"an argument is wrong",
    c"not done in time",
    c"the channel was killed by an error of the GPU's (Xid); free the session and make it again",
    c"the channel was stopped because memory was freed under a copy; free the session and make it again",
    c"the memory cannot be pinned",
    c"not possible here",
    c"the kernel driver refused",
    c"CUDA refused",
    c"a defect of doorbell's: please report it",
    c"the graph has something that doorbell does not launch, or cannot be read",
];

fn text(code: i32) -> &'static CStr {
    let known = usize::try_from(code).ok().and_then(|code| TEXTS.get(code));
    known.copied().unwrap_or(c"no code of doorbell's")
}

pub(crate) fn code(error: &Error) -> i32 {
    match error {
        // (In C, doorbell_create opens each session itself.)
        Error::Closed | Error::AlreadyOpen => DOORBELL_CLOSED,
        Error::Forked => DOORBELL_FORKED,
        Error::Handle(_) => DOORBELL_HANDLE,
        Error::Freed => DOORBELL_FREED,
        Error::Outside { .. } => DOORBELL_OUTSIDE,
        Error::Busy => DOORBELL_BUSY,
        Error::Full(_) => DOORBELL_FULL,
        Error::Overrun => DOORBELL_OVERRUN,
        Error::Limit(_) => DOORBELL_LIMIT,
        Error::Argument(_) => DOORBELL_ARGUMENT,
        Error::Timeout(_) => DOORBELL_TIMEOUT,
        Error::Killed(_) => DOORBELL_KILLED,
        Error::Stopped => DOORBELL_STOPPED,
        Error::Pin(_) => DOORBELL_NOT_PINNABLE,
        Error::Unavailable(_) => DOORBELL_UNAVAILABLE,
        Error::Gpu(_) => DOORBELL_DRIVER,
        Error::Cuda(_) => DOORBELL_CUDA,
        Error::Graph(_) => DOORBELL_GRAPH,
    }
}

/// Returns the meaning of a code, in English. It is never null, for any number, and stays valid forever.
/// Cost: none. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_error_text(code: i32) -> *const c_char {
    text(code).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_text_of_its_own() {
        let last = DOORBELL_GRAPH;
        assert_eq!(last as usize + 1, TEXTS.len());
        let texts: std::collections::BTreeSet<_> = (-1..=last).map(text).collect();
        assert_eq!(texts.len(), TEXTS.len() + 1);
        assert!(text(-1) == text(i32::MAX) && text(-1) == text(last + 1));
        assert_eq!(text(DOORBELL_BUSY).to_bytes()[..14], *b"another thread");
    }
}
