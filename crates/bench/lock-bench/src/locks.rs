//! The effect of pthread locks on real-time threads, and the effect of the protocols of crate `locks`, without a GPU.
//!
//! * [`starvation`]: a writer that waits for readers with overlapping sections, and a reader that waits for writers;
//! * [`inversion`]: three threads of different priority on one CPU, where the middle one uses no lock;
//! * [`costs`]: a lock and an unlock, alone and contended.
//!
//! Policies take turns in rounds within one run. Each protocol is used as in a program: a gate is inside the real lock and is taken before it, and
//! a conversion is applied to an ordinary pthread mutex.

mod costs;
mod inversion;
mod starvation;
mod subject;

pub use costs::{BATCH, Cost, Figures, Pairs, costs};
pub use inversion::{POLICIES as INVERTED, inversion};
pub use starvation::{POLICIES as STARVED, starvation};
pub use subject::Access;

use statistics::Summary;
use std::ffi::CStr;
use std::fmt;
use std::time::Duration;

/// The C library whose locks are measured: `glibc 2.36`.
pub fn libc_version() -> String {
    // SAFETY: glibc returns a constant string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

/// The rules of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// glibc's locks with default attributes.
    Stock,
    /// glibc's rwlock of the kind PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP.
    StockPreferWriter,
    /// glibc's mutex with PTHREAD_PRIO_INHERIT, requested by the program.
    StockInherit,
    /// The unlock rule of glibc 2.4 to 2.24.
    Old,
    PhaseFair,
    Pi,
    Ticket,
    Boost,
    Guard,
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Policy::Stock => "stock",
            Policy::StockPreferWriter => "stock-prefer-writer",
            Policy::StockInherit => "stock-inherit",
            Policy::Old => "old",
            Policy::PhaseFair => "phase-fair",
            Policy::Pi => "pi",
            Policy::Ticket => "ticket",
            Policy::Boost => "boost",
            Policy::Guard => "guard",
        }
    }

    /// A short description, for readers of a table.
    pub fn about(self) -> &'static str {
        match self {
            Policy::Stock => "glibc as it is",
            Policy::StockPreferWriter => "glibc's other kind of rwlock, for comparison",
            Policy::StockInherit => "glibc's own PI mutex, for comparison",
            Policy::Old => "the unlock rule of glibc 2.4 to 2.24",
            Policy::PhaseFair => "a phase-fair gate before glibc's rwlock",
            Policy::Pi => "glibc's mutex converted to priority inheritance",
            Policy::Ticket => "a FIFO ticket before glibc's mutex",
            Policy::Boost => "glibc's mutex, its holder raised under contention",
            Policy::Guard => "one priority-inheriting mutex around the whole call",
        }
    }
}

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Not possible on this machine, with the reason.
    Unavailable(String),
    /// A lock misbehaved; the text describes how.
    Failed(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Unavailable(reason) => f.write_str(reason),
            Missing::Failed(what) => f.write_str(what),
        }
    }
}

/// The size of the experiments.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Seed for orders and moments.
    pub seed: u64,
    /// Number of threads that hold or want the lock before the waiter.
    pub crowd: u32,
    /// How long each of them stays inside.
    pub section: Duration,
    /// A longer wait counts as endless, and the crowd is stopped.
    pub cap: Duration,
    /// Waits of each policy for readers, and the same number for writers.
    pub repeats: u32,
    /// CPU time that the thread in the middle burns.
    pub burn: Duration,
    /// CPU time of the low thread's critical section.
    pub held: Duration,
    /// Inversions of each policy.
    pub inversions: u32,
    /// Rounds of the costs.
    pub rounds: u32,
    /// Samples of each policy and round without contention.
    pub samples: u32,
    /// How many threads contend.
    pub threads: Vec<u32>,
    /// How long each of those stays inside, busy.
    pub inside: Duration,
    /// How long each contended policy runs in each round.
    pub contended: Duration,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            seed: 1,
            crowd: 4,
            section: Duration::from_millis(20),
            cap: Duration::from_secs(2),
            repeats: 3,
            burn: Duration::from_millis(300),
            held: Duration::from_millis(5),
            inversions: 5,
            rounds: 10,
            samples: 1000,
            threads: vec![2, 4, 8],
            inside: Duration::from_micros(1),
            contended: Duration::from_millis(30),
        }
    }
}

/// The waits of one policy in one experiment; every one is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    pub policy: Policy,
    pub outcome: Result<Vec<Wait>, Missing>,
}

impl Waits {
    /// All waits, capped ones included: their p50 and max are then lower bounds.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&mut self.list().iter().map(|wait| wait.ns).collect::<Vec<_>>())
    }

    /// How many waits ended only because of the cap.
    pub fn capped(&self) -> u64 {
        self.list().iter().filter(|wait| wait.capped).count() as u64
    }

    /// The maximum number of other threads' sections that began during one wait.
    pub fn overtaken(&self) -> u64 {
        self.list().iter().map(|wait| wait.overtaken).max().unwrap_or(0)
    }

    fn list(&self) -> &[Wait] {
        self.outcome.as_deref().unwrap_or_default()
    }
}

/// From the request for a lock until it was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub ns: u64,
    /// It ended because the crowd was stopped, not by the lock's rules: it would have been longer.
    pub capped: bool,
    /// Other threads' sections that began after the request and before it was granted.
    pub overtaken: u64,
}

/// Adds a repeat to the policy's waits; the first missing one ends the list.
fn keep(all: &mut [Waits], policy: Policy, wait: Result<Wait, Missing>) {
    let Some(waits) = all.iter_mut().find(|waits| waits.policy == policy) else { return };
    match (&mut waits.outcome, wait) {
        (Ok(list), Ok(wait)) => list.push(wait),
        (outcome @ Ok(_), Err(missing)) => *outcome = Err(missing),
        (Err(_), _) => {}
    }
}

fn none_yet(policies: &[Policy]) -> Vec<Waits> {
    policies.iter().map(|policy| Waits { policy: *policy, outcome: Ok(Vec::new()) }).collect()
}

/// The policies that can still be measured, in a new random order.
fn turns(all: &[Waits], dice: &mut fastrand::Rng) -> Vec<Policy> {
    let mut turns: Vec<Policy> = all.iter().filter(|waits| waits.outcome.is_ok()).map(|waits| waits.policy).collect();
    dice.shuffle(&mut turns);
    turns
}
