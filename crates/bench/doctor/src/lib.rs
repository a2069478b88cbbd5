//! What works on this machine and, for each thing that does not, why: found by trying it.
//!
//! Each check gives the attempted operation, the result and, if it failed, the reason. Checks that are needed to record a CUDA program are
//! marked as required; [`possible`] is the overall result.

mod check;
mod machine;
mod nvidia;
mod own;
mod peers;
mod places;
mod taps;

pub use check::{Check, Verdict};
pub use peers::pairs;

/// Runs all checks. `attempt`: also makes a separate channel and a copy on the GPU.
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
