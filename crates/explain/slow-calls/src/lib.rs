//! Why CUDA calls took long: each moment of each call is assigned to one cause, from the events on the tape. Who waits for whom at one moment, from two
//! looks at a program, is the part of [`wait_graph`].
//!
//! The tape is walked first for its locks and threads (`lock-analysis`), then for the calls ([`gather`]: the causes of all their time,
//! and which lost the most), then for what other threads did during the latter ([`windows`]). Memory grows with the kinds of calls,
//! not with the calls. If the GPU's times were recorded ([`kernels`]), it also grows with the kernels and copies, up to a limit.
//!
//! Invariants: the parts of a call add up to all of it, and time that no event explains is called unknown. As for `decode`, no tape
//! makes this panic, whatever its bytes.

mod activity;
mod between;
mod chain;
mod faults;
mod fixes;
mod gather;
mod kernels;
mod late;
mod moment;
mod names;
mod off_cpu;
mod pageable;
mod parts;
mod plan;
mod rank;
mod rings;
mod rows;
mod steps;
mod usual;
pub mod wait_graph;
mod waits;
mod windows;

use decode::{InsightError, Recording};
use gather::Gather;
use kernels::Runs;
pub use late::{LateKernel, late_kernels};
use lock_analysis::facts::Facts;
use lock_analysis::labels::Labels;
pub use moment::kernels;
pub use plan::plan;
pub use rank::{rank, ranks};
use schema::slow_calls::Why;
use schema::symbols::Places;
use windows::Windows;

/// Which calls to explain individually.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Number of calls to explain, of those that lost the most time.
    pub worst: usize,
    /// The calls with this number in their thread, instead.
    pub number: Option<u32>,
    /// Only calls of this function.
    pub function: Option<String>,
    /// Only calls of this thread.
    pub thread: Option<i32>,
    /// Calls that lost this or more count as slow.
    pub slow_from_ns: u64,
    /// Also calls from the time in which a process begins (`gather::STARTING`).
    pub starting: bool,
}

/// The calls that are shown without a choice.
impl Default for Wanted {
    fn default() -> Wanted {
        Wanted { worst: 10, number: None, function: None, thread: None, slow_from_ns: 50_000, starting: false }
    }
}

/// The explanation of the calls, and the places that its names refer to. `None` for a recording without calls in which no thread waits
/// at the end.
///
/// # Errors
/// The recording cannot be read.
pub fn why(r: &Recording, wanted: &Wanted) -> Result<Option<(Why, Places)>, InsightError> {
    let Some(facts) = Facts::of(r)? else { return Ok(None) };
    let moment = moment::moment(r, &facts)?;
    if facts.calls.is_none() && moment.is_none() {
        return Ok(None);
    }
    let labels = Labels::new(r, &facts);
    let runs = Runs::of(r)?;
    let mut gather = Gather::new(&labels, wanted, runs.as_ref());
    decode::walk::walk(r, &mut gather)?;
    let gathered = gather.finish();
    let mut windows = Windows::new(&labels, gathered.chosen.iter().chain(&gathered.waits), &gathered.gaps);
    decode::walk::walk(r, &mut windows)?;
    let seen = windows.finish();
    let times = decode::kernel_times::kernel_times(r)?;
    let why = rows::why(&labels, wanted, gathered, &seen, runs.as_ref(), &times.unwrap_or_default());
    let why = Why { moment, ..why };
    Ok(Some((why, lock_analysis::places(r, &facts))))
}
