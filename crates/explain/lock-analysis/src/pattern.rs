//! A call's pattern of locks: the holds that began in it, in the order in which they were taken.
//!
//! Two calls follow the same pattern if they take locks of the same names, in the same way, in the same order and nesting.
//! Blocks that repeat count once.

use crate::ops;
use std::collections::HashMap;
use tape::lock::op;

/// Patterns of one call that are counted separately.
const PATTERNS: usize = 64;
/// Elements of a pattern; further ones are left out.
const LENGTH: usize = 64;
/// Maximum number of elements of a block that may repeat.
const BLOCK: usize = 6;

/// How a lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    Mutex,
    Read,
    Write,
}

impl Mode {
    pub fn of(op: u8) -> Mode {
        match op {
            op::RWLOCK_RDLOCK..=op::RWLOCK_CLOCKRDLOCK => Mode::Read,
            op::RWLOCK_WRLOCK..=op::RWLOCK_CLOCKWRLOCK => Mode::Write,
            _ => Mode::Mutex,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Mode::Mutex => "mutex",
            Mode::Read => "read",
            Mode::Write => "write",
        }
    }
}

/// One use of a lock by a thread: a hold, or a failed attempt.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub lock: usize,
    /// Number of the lock's name.
    pub name: u32,
    pub op: u8,
    pub taken: u64,
    /// As `taken`, if the attempt failed.
    pub released: u64,
    pub wait: u64,
    pub failed: bool,
}

/// An element of a pattern. Equal elements are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Element {
    pub name: u32,
    pub mode: Mode,
    pub failed: bool,
    /// Taken again after a wait for a condition.
    pub again: bool,
    /// Locks of the call that were held.
    pub depth: u8,
}

/// Sums over the calls that follow a pattern.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub calls: u64,
    pub ticks: u64,
    pub elements: Vec<Sum>,
}

/// Sums of one element.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub times: u64,
    /// From the call's begin to the first taking.
    pub at: u64,
    pub wait: u64,
    pub hold: u64,
}

/// The patterns of one kind of call.
#[derive(Debug, Default)]
pub struct Patterns {
    pub known: HashMap<Vec<Element>, Sums>,
    /// Calls with other patterns.
    pub others: u64,
}

impl Patterns {
    /// Adds a call with the locks that it took, in the order of taking.
    pub fn add(&mut self, began: u64, ticks: u64, taken: &[Taken]) {
        let (elements, sums) = shape(began, taken);
        if self.known.len() >= PATTERNS && !self.known.contains_key(&elements) {
            self.others += 1;
            return;
        }
        let to = self.known.entry(elements).or_default();
        to.calls += 1;
        to.ticks = to.ticks.saturating_add(ticks);
        to.elements.resize(sums.len(), Sum::default());
        for (to, s) in to.elements.iter_mut().zip(sums) {
            to.times += s.times;
            to.at = to.at.saturating_add(s.at);
            to.wait = to.wait.saturating_add(s.wait);
            to.hold = to.hold.saturating_add(s.hold);
        }
    }
}

fn shape(began: u64, taken: &[Taken]) -> (Vec<Element>, Vec<Sum>) {
    let mut open: Vec<u64> = Vec::new();
    let mut elements: Vec<Element> = Vec::new();
    let mut sums: Vec<Sum> = Vec::new();
    for t in taken {
        open.retain(|released| *released > t.taken);
        let depth = open.len().min(u8::MAX.into()) as u8;
        let again = ops::is_wait_for_condition(t.op);
        let element = Element { name: t.name, mode: Mode::of(t.op), failed: t.failed, again, depth };
        let hold = t.released.saturating_sub(t.taken);
        elements.push(element);
        sums.push(Sum { times: 1, at: t.taken.saturating_sub(began), wait: t.wait, hold });
        fold(&mut elements, &mut sums);
        if elements.len() > LENGTH {
            elements.truncate(LENGTH);
            sums.truncate(LENGTH);
        }
        if !t.failed {
            open.push(t.released);
        }
    }
    (elements, sums)
}

/// Adds a block at the end to the same block before it.
fn fold(elements: &mut Vec<Element>, sums: &mut Vec<Sum>) {
    let n = elements.len();
    for block in (1..=BLOCK.min(n / 2)).filter(|b| elements[n - b..] == elements[n - 2 * b..n - b]) {
        // (A block that begins deeper than another of its elements is a part of a larger one.)
        let first = elements[n - block].depth;
        if elements[n - block..].iter().any(|e| e.depth < first) {
            continue;
        }
        for k in 0..block {
            let from = sums[n - block + k];
            let to = &mut sums[n - 2 * block + k];
            to.times += from.times;
            to.wait = to.wait.saturating_add(from.wait);
            to.hold = to.hold.saturating_add(from.hold);
        }
        elements.truncate(n - block);
        sums.truncate(n - block);
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(name: u32, op: u8, taken: u64, released: u64) -> Taken {
        Taken { lock: name as usize, name, op, taken, released, wait: 0, failed: false }
    }

    fn told(taken: &[Taken]) -> Vec<(u32, Mode, u8, u64)> {
        let (e, s) = shape(0, taken);
        e.iter().zip(s).map(|(e, s)| (e.name, e.mode, e.depth, s.times)).collect()
    }

    #[test]
    fn nested_and_sequential_are_told_apart() {
        let (m, r, w) = (op::MUTEX_LOCK, op::RWLOCK_RDLOCK, op::RWLOCK_WRLOCK);
        let nested = [took(1, r, 10, 50), took(2, m, 20, 30), took(3, w, 60, 70)];
        let expected = [(1, Mode::Read, 0, 1), (2, Mode::Mutex, 1, 1), (3, Mode::Write, 0, 1)];
        assert_eq!(told(&nested), expected);
        let sequential = [took(1, r, 10, 15), took(2, m, 20, 30), took(3, w, 60, 70)];
        assert_eq!(told(&sequential)[1].2, 0);
    }

    #[test]
    fn blocks_that_repeat_count_once() {
        let m = op::MUTEX_LOCK;
        let mut taken = Vec::new();
        for i in 0..10 {
            taken.push(took(1, m, 100 * i, 100 * i + 50));
            taken.push(took(2, m, 100 * i + 10, 100 * i + 20));
        }
        assert_eq!(told(&taken), [(1, Mode::Mutex, 0, 10), (2, Mode::Mutex, 1, 10)]);
        let mut p = Patterns::default();
        p.add(0, 1000, &taken);
        p.add(0, 2000, &taken[..6]);
        assert_eq!((p.known.len(), p.others), (1, 0));
        let sums = p.known.values().next().unwrap();
        assert_eq!((sums.calls, sums.ticks, sums.elements[0].times, sums.elements[1].hold), (2, 3000, 13, 130));
    }

    #[test]
    fn many_patterns_and_long_ones_are_bounded() {
        let mut p = Patterns::default();
        for i in 0..1000u32 {
            p.add(0, 1, &[took(i, op::MUTEX_LOCK, 1, 2)]);
        }
        assert_eq!((p.known.len() as u64 + p.others, p.known.len()), (1000, PATTERNS));
        let long: Vec<Taken> =
            (0..5000).map(|i| took(i, op::MUTEX_LOCK, u64::from(i) * 2, u64::from(i) * 2 + 1)).collect();
        assert_eq!(shape(0, &long).0.len(), LENGTH);
    }
}
