//! What works on this machine and, for each thing that does not, why: found by trying it.
//!
//! Each check says what was tried, what was found and, where it failed, the reason. What recording a CUDA program needs is
//! marked as required; [`possible`] is the judgement over all of them.

mod check;
mod machine;
mod nvidia;
mod own;
mod peers;
mod places;
mod taps;

pub use check::{Check, Verdict};
pub use peers::pairs;

/// Tries everything; `attempt`: a channel and a copy of our own on the GPU as well.
pub fn examine(attempt: bool) -> Vec<Check> {
    let mut all = machine::checks();
    all.extend(nvidia::checks());
    all.extend(places::checks(&places::Sources::here()));
    all.extend(own::checks(&all, attempt));
    all.extend(taps::checks());
    all.extend(peers::checks());
    all
}

/// Whether a CUDA program can be recorded here.
pub fn possible(checks: &[Check]) -> bool {
    checks.iter().all(|c| !c.required || c.verdict == Verdict::Yes)
}
