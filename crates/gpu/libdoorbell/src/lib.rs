//! The C ABI of crate `submit`: one session for the process, handles that are numbers, errors that are codes.
//!
//! The invariant: nothing that a caller passes makes this crash, but a pointer that is not null and does not lead to what its
//! function says: an array of as many as the count, a place for the answer. That is what all functions that take pointers ask
//! of their callers. No panic leaves a function: it becomes [`DOORBELL_PANIC`].

#![allow(clippy::missing_safety_doc, reason = "one rule for all, above; the docs below are C's")]
#![allow(non_camel_case_types, reason = "names as C has them")]

mod calls;
mod chains;
mod codes;
mod detail;
mod graphs;
mod recording;
mod types;

pub use calls::*;
pub use chains::*;
pub use codes::*;
pub use detail::doorbell_error_detail;
pub use graphs::*;
pub use recording::*;
pub use types::*;
