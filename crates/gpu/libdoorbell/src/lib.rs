//! The C ABI of crate `submit`: sessions are pointers, handles are numbers, errors are codes.
//!
//! The invariant: no argument crashes it, except a pointer that is neither null nor valid. A valid one leads to an array with as
//! many elements as the count, or to memory for the result. All functions that take pointers require this of their callers. No
//! panic leaves a function: it becomes [`DOORBELL_PANIC`].
//!
//! `tests/header` makes `doorbell.h` from these files: each is a section.

#![allow(clippy::missing_safety_doc, reason = "one rule for all, above; the docs below are C's")]
#![allow(non_camel_case_types, reason = "names as C has them")]
#![allow(clippy::too_many_arguments, reason = "C has no other way")]

mod buffers;
mod call;
mod chains;
mod codes;
mod copies;
mod detail;
mod graphs;
mod growing;
mod loops;
mod messages;
mod queues;
mod recording;
mod removed;
mod rings;
mod session;
mod table;
mod tickets;
mod transfers;
mod types;

pub use buffers::*;
pub use chains::*;
pub use codes::*;
pub use copies::*;
pub use detail::doorbell_error_detail;
pub use graphs::*;
pub use loops::*;
pub use messages::*;
pub use queues::*;
pub use recording::*;
pub use rings::*;
pub use session::*;
pub use tickets::*;
pub use transfers::*;
pub use types::*;

/// The version of the interface, in the form of DOORBELL_VERSION: major << 16 | minor << 8 | patch.
pub(crate) const VERSION: u32 = version();

const fn version() -> u32 {
    const fn number(text: &str) -> u32 {
        let (bytes, mut at, mut value) = (text.as_bytes(), 0, 0);
        while at < bytes.len() {
            value = value * 10 + (bytes[at] - b'0') as u32;
            at += 1;
        }
        value
    }
    number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
        | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
        | number(env!("CARGO_PKG_VERSION_PATCH"))
}
