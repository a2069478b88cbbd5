//! Analyses the locks of a tape: their costs, the threads that held them while others waited, the orders in which they
//! are taken, and priority inversions. [`plan`] reads plans: which lock follows which protocol, and which calls are fixed.
//!
//! The first walk over the tape collects the facts and the longest waits, the second the holders during these waits. If
//! the tape has context switches or calls, a third walk collects what those threads did in that time, and the calls.
//! Memory grows with the locks and the waits that are kept, not with the operations.
//!
//! Invariant: as for `decode`, no tape makes this panic, whatever its bytes.

pub mod call_kind;
mod calls;
mod diff;
mod each_range;
pub mod facts;
pub mod fast_map;
pub mod graph;
mod happened;
mod holders;
pub mod holds;
mod in_range;
pub mod labels;
mod last_state;
mod looked;
pub mod names;
pub mod ops;
mod pattern;
pub mod plan;
mod python;
mod range_work;
mod ranges;
pub mod remedy;
mod rows;
mod spans;
pub mod threads;
mod uses;
mod wait_pattern;

use decode::events;
use decode::{InsightError, Recording};
pub use diff::diff;
pub use each_range::each_range;
use facts::Facts;
pub use happened::{Happened, each_call};
use holders::Holders;
use labels::Labels;
use looked::{Found, Looked};
pub use python::python;
pub use range_work::RangeWorks;
pub use ranges::ranges;
use rows::Rows;
use schema::locks::Locks;
use schema::symbols::Places;
pub use uses::each_use;

/// Walks the tape. `waits`: how many of the longest waits get a row.
pub fn locks(r: &Recording, waits: usize) -> Result<Locks, InsightError> {
    let Some(mut facts) = Facts::of(r)? else { return Ok(Locks::default()) };
    let kept = facts.take_waits();
    let mut holders = Holders::new(&kept, &facts.locks);
    events::each(r, |source, e| holders.event(source, e))?;
    let found = holders.finish();
    let labels = Labels::new(r, &facts);
    let (seen, calls) = Looked::of(r, &labels, &kept, &found)?;
    let incomplete_because = incomplete(r, &labels);
    let rows = Rows { labels: &labels }.all(&Found::new(&facts, &kept, &found, &seen), waits);
    let places = places(r, &facts);
    Ok(Locks { calls, complete: incomplete_because.is_empty(), incomplete_because, places, ..rows })
}

/// Adds what happened in each wait, in words.
pub fn explain_waits(all: &mut Locks) {
    let patterns: Vec<_> = all.waits.iter().map(|wait| wait_pattern::wait_pattern(wait, all)).collect();
    all.waits.iter_mut().zip(patterns).for_each(|(wait, pattern)| wait.pattern = pattern);
}

/// As [`locks`], of a recording that has them.
///
/// # Errors
/// It was made without locks; it cannot be read.
pub fn recorded(r: &Recording, waits: usize) -> Result<Locks, InsightError> {
    let locks = locks(r, waits)?;
    r.must_have(locks.recorded, "locks")?;
    Ok(locks)
}

/// As [`recorded`], for what needs every operation.
///
/// # Errors
/// As there; it has waits only.
pub fn all_recorded(r: &Recording, waits: usize, what: &'static str) -> Result<Locks, InsightError> {
    let locks = recorded(r, waits)?;
    if locks.waits_only { Err(InsightError::WaitsOnly { path: r.path().into(), what }) } else { Ok(locks) }
}

/// The places of the names that were given so far.
pub fn places(r: &Recording, facts: &Facts) -> Places {
    let recorded_ns = r.clocks().first().map_or(0, |clock| clock.realtime_ns);
    Places { by_name: facts.names.given(), recorded_ns }
}

fn incomplete(r: &Recording, labels: &Labels<'_>) -> Vec<String> {
    let mut all = decode::complete::of_tape(r, labels.lost);
    let f = labels.facts;
    if f.switches.lost > 0 {
        all.push(format!("the kernel lost {} records of context switches: times off CPU lack them", f.switches.lost));
    }
    if f.without_room > 0 {
        all.push(format!(
            "locks taken by a thread that held as many as are followed: {}; who was in the way of waits for those is not known",
            f.without_room
        ));
    }
    if f.left_out > 0 {
        all.push(format!("{} operations on locks after the first {} are left out", f.left_out, facts::LOCKS));
    }
    if f.unknown > 0 {
        all.push(format!("{} operations of a kind that this doorbell does not know", f.unknown));
    }
    all
}
