//! Named checks of crate `gpu`, the same on the software GPU and on a real one: [`CHECKS`], run by [`run`].
//!
//! Each check opens the device again, in a separate address space without CUDA, and frees all its objects, so a check that kills its channel does
//! not affect the others. Checks move random data between guard bytes and compare it byte by byte. A check reports its findings: which byte
//! differs, which semaphore did not arrive, which error killed the channel.
//!
//! The one invariant: on real hardware no check may harm other users of the GPU. The first operation on it is one copy of 8 bytes,
//! sizes and counts are small, and no words are submitted that no known code has written.

mod armed;
mod bad;
mod bar1;
mod compare;
mod fork;
mod ground;
mod leaks;
mod ledger;
mod list;
mod moves;
mod prepared;
mod ring;
mod time;

pub use ground::{Ground, Rig, Stop};
pub use list::CHECKS;

use crate::data::bytes as random_bytes;
use std::time::{Duration, Instant};

/// The result of a check: what it did, or why it stopped.
pub type Outcome = Result<String, Stop>;

/// One check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub name: &'static str,
    /// What must hold.
    pub about: &'static str,
    run: fn(&Ground) -> Outcome,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What was done.
    Passed(String),
    /// What was wrong.
    Failed(String),
    /// With why it could not be tried.
    Skipped(String),
}

/// A check that was run.
#[derive(Clone, Debug)]
pub struct Record {
    pub name: &'static str,
    pub verdict: Verdict,
    pub took: Duration,
}

/// Runs one check.
pub fn run(check: &Check, ground: &Ground) -> Record {
    let start = Instant::now();
    let verdict = match (check.run)(ground) {
        Ok(what) => Verdict::Passed(what),
        Err(Stop::Failed(why)) => Verdict::Failed(why),
        Err(Stop::Skipped(why)) => Verdict::Skipped(why),
    };
    Record { name: check.name, verdict, took: start.elapsed() }
}

/// The check of this name.
pub fn find(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}
