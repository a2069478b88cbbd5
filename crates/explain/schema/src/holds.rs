//! For how long a call was measured to hold other threads' launches, copies and waits up.

use serde::Serialize;

/// The longest that was measured of a function (`docs/results/holds.md`): not of this recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HoldsOthers {
    /// In the median of its calls.
    pub p50_ns: u64,
    /// The maximum.
    pub max_ns: u64,
    /// Bytes that each of these calls was for; null if it is for none.
    pub bytes: Option<u64>,
    /// What else they were: `PTX, 400 kernels`, `fresh pages`. Empty if there is nothing to add.
    pub with: &'static str,
    /// The GPU that it was measured on.
    pub gpu: &'static str,
}
