//! The locks of two recordings, compared.

use serde::Serialize;
use std::collections::BTreeMap;

/// Two counts are equal if they differ by no more than `floor`, or by no more than `percent` of the larger one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// Per cent.
    pub percent: f64,
    /// Counts.
    pub floor: u64,
}

impl Tolerance {
    pub fn equal(&self, a: u64, b: u64) -> bool {
        let apart = a.abs_diff(b);
        apart <= self.floor || apart as f64 <= self.percent / 100.0 * a.max(b) as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Same,
    /// On both tapes, with a different count or attribute.
    Changed,
    /// Used on the second tape only.
    New,
    /// Used on the first tape only.
    Gone,
}

/// A number on the first tape and on the second.
pub type Both = (u64, u64);

#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// No lock and no order is new, gone or changed.
    pub equal: bool,
    pub tolerance: Tolerance,
    /// Operations by function.
    pub operations: Both,
    pub contended: Both,
    pub wait_ns: Both,
    pub longest_wait_ns: Both,
    /// Changed locks first; of those, the largest change first.
    pub locks: Vec<LockDiff>,
    pub order: Vec<OrderDiff>,
    /// CUDA calls, if both tapes have them.
    pub calls: Vec<CallDiff>,
}

/// One kind of call.
#[derive(Clone, Debug, Serialize)]
pub struct CallDiff {
    pub change: Change,
    pub call: String,
    /// Of a copy, if the caller said it.
    pub direction: Option<&'static str>,
    /// Class of sizes.
    pub size: Option<&'static str>,
    pub count: Both,
    pub mean_ns: Both,
    pub max_ns: Both,
    /// Time that waited for locks, per thousand of the time in these calls.
    pub waited: Both,
    /// The pattern that most of them follow, if it differs, with locks under the names of the first tape.
    pub pattern: Option<(Vec<String>, Vec<String>)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LockDiff {
    pub change: Change,
    /// Its name on the first tape, if it is there.
    pub name: String,
    /// Its name on the second tape, if it has another place there and was recognised by its operations.
    pub moved_to: Option<String>,
    /// The operations whose counts differ.
    pub operations: BTreeMap<&'static str, Both>,
    /// Kind and protocol.
    pub attributes: (Vec<&'static str>, Vec<&'static str>),
    pub all_operations: Both,
    pub contended: Both,
    pub wait_ns: Both,
    pub longest_wait_ns: Both,
    pub longest_hold_ns: Both,
}

/// One lock taken while another is held.
#[derive(Clone, Debug, Serialize)]
pub struct OrderDiff {
    pub change: Change,
    /// The lock that was held.
    pub held: String,
    /// The lock that was then taken.
    pub taken: String,
    pub count: Both,
}
