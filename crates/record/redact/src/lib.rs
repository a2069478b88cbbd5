//! Removes what a recording must not hold: while it is recorded ([`Scrubber`], for `record --no-data`), or from a
//! finished recording ([`Redaction`], for `redact`).
//!
//! Times, locks, calls, objects and the order of everything stay. The same name always gets the same substitute, so that
//! tables of the redacted recording have the same rows.
//!
//! Invariant: bytes of unknown meaning do not stay. These are bytes between events, kinds of events and of chunks that
//! this version does not know, and parameters of driver calls that no reader of recordings looks at.

mod driver_calls;
mod events;
mod names;
mod recording;
mod scrub;

pub use recording::{Redaction, RedactionError, What};
pub use scrub::Scrubber;
