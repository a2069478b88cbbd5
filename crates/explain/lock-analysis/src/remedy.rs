//! Which lock policy shortens the waits for a lock, from its rows, or the reason why none does. Pure: it takes rows and returns
//! a decision with its reason.

use schema::locks::{LockRow, Locks, WaitRow};
use std::fmt;

/// In a wait longer than this many holds, others overtook the waiter.
const PASSED: u64 = 4;
/// When a writer asks, usually fewer readers than this hold the lock.
const MANY_HOLDS: u64 = 16;
/// Shorter waits are not worth a rule: waking a thread takes about as long.
const SHORT_NS: u64 = 50_000;
/// Approximate cost of handing a mutex over to a sleeping thread (docs/results/protocols.md, "Convoys").
const HAND_OVER_NS: u64 = 10_000;

/// A policy of `doorbell run --lock-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Pi,
    Ticket,
    PhaseFair,
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Policy::Pi => "pi",
            Policy::Ticket => "ticket",
            Policy::PhaseFair => "phase-fair",
        }
    }
}

/// Why no policy is named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// The lock has a protocol that must stay: the attribute.
    OwnProtocol(&'static str),
    /// Generated code made the lock, at another place in each run.
    Generated,
    /// An inversion, but other threads unlocked the lock this often.
    UnlockedByOthers(u64),
    /// Others overtook the waiter, but its usual wait is shorter than a hand-over.
    HandOver { usual_wait_ns: f64 },
    /// The waits are as long as the holds.
    LongHolds,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::OwnProtocol(own) => write!(f, "{own}: keeps its own protocol"),
            Refusal::Generated => f.write_str("made by generated code, whose place changes from run to run"),
            Refusal::UnlockedByOthers(n) => {
                write!(f, "an inversion, but unlocked by other threads {n} times, so not pi")
            }
            Refusal::HandOver { usual_wait_ns } => write!(
                f,
                "others overtook the waiter, but a queue would hand it over to a thread that sleeps each time, about 10 us, and its \
                 usual wait is {:.1} us: no ticket",
                usual_wait_ns / 1e3
            ),
            Refusal::LongHolds => f.write_str("its waits are as long as its holds: no policy shortens those"),
        }
    }
}

/// The remedy for the waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Remedy {
    Policy(Policy),
    None(Refusal),
}

/// Whether threads that asked later got the lock again and again while a thread waited. True for at least `MANY_HOLDS` such
/// holds in one wait, none of them longer than half of it. Some may be long, because a holder that loses its CPU makes one of
/// many holds long.
pub fn is_overtaken(wait: &WaitRow) -> bool {
    let longest = wait.holders.iter().map(|h| h.of_wait_ns).max().unwrap_or(0);
    wait.overtaken >= MANY_HOLDS && wait.wait_ns / 2 > longest
}

/// Whether `name` is the name of one of the row's locks: with several of them, each has a number.
pub fn is_of(row: &LockRow, name: &str) -> bool {
    name == row.name || name.strip_prefix(&row.name).is_some_and(|n| n.starts_with('#'))
}

/// `None` where no thread waited long enough, and where holds are not known ([`Locks::waits_only`]).
pub fn remedy(row: &LockRow, locks: &Locks) -> Option<Remedy> {
    let mutex = row.name.ends_with("/mutex");
    let longest_hold_ns = row.longest_hold_ns?;
    if row.longest_wait_ns < SHORT_NS || !(mutex || row.name.ends_with("/rwlock")) {
        return None;
    }
    let inverted = locks.inversions.iter().any(|i| i.inheritance_helps && is_of(row, &i.lock));
    let mut waits = locks.waits.iter().filter(|w| is_of(row, &w.lock));
    let passed = row.longest_wait_ns / PASSED > longest_hold_ns || !mutex && waits.any(is_overtaken);
    let own = ["process-shared", "robust", "priority inheritance", "priority ceiling"];
    if let Some(own) = own.into_iter().find(|own| row.attributes.contains(own)) {
        return Some(Remedy::None(Refusal::OwnProtocol(own)));
    }
    if row.name.starts_with("generated+") || row.name.starts_with("0x") {
        return Some(Remedy::None(Refusal::Generated));
    }
    let slow_hand_over = row.wait_ns < row.contended.saturating_mul(HAND_OVER_NS);
    Some(match (mutex, inverted) {
        (true, true) if row.foreign_unlocks != 0 => Remedy::None(Refusal::UnlockedByOthers(row.foreign_unlocks)),
        (true, true) => Remedy::Policy(Policy::Pi),
        (true, false) if passed && slow_hand_over => {
            let usual_wait_ns = row.wait_ns as f64 / row.contended as f64;
            Remedy::None(Refusal::HandOver { usual_wait_ns })
        }
        (true, false) if passed => Remedy::Policy(Policy::Ticket),
        (false, _) if passed => Remedy::Policy(Policy::PhaseFair),
        _ => Remedy::None(Refusal::LongHolds),
    })
}
