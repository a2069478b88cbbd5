//! The cost of a lock and an unlock: alone, and with other threads that use the same lock.
//!
//! Every writer counts in the guarded data, so that two simultaneous writers are detected.

use super::subject::{Access, Subject, Visit, with_mutex, with_rwlock};
use super::{Missing, Plan, Policy};
use measure::clock::Clock;
use statistics::{Percentile, Summary};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// The kind of lock of the pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    Mutex,
    Read,
    Write,
}

impl Pairs {
    pub const ALL: [Pairs; 3] = [Pairs::Mutex, Pairs::Read, Pairs::Write];

    pub fn name(self) -> &'static str {
        match self {
            Pairs::Mutex => "mutex",
            Pairs::Read => "read",
            Pairs::Write => "write",
        }
    }

    fn policies(self) -> &'static [Policy] {
        match self {
            Pairs::Mutex => {
                &[Policy::Stock, Policy::Ticket, Policy::Pi, Policy::StockInherit, Policy::Boost, Policy::Guard]
            }
            Pairs::Read | Pairs::Write => &[Policy::Stock, Policy::StockPreferWriter, Policy::PhaseFair, Policy::Old],
        }
    }

    fn access(self) -> Access {
        if self == Pairs::Read { Access::Read } else { Access::Write }
    }
}

/// One policy with so many threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub pairs: Pairs,
    pub policy: Policy,
    /// 1: no contention.
    pub threads: u32,
    pub outcome: Result<Figures, Missing>,
}

/// Over all rounds, ns a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Each sample is the mean of [`BATCH`] pairs without contention. With contention it is one lock with its wait plus one unlock, without the
    /// section between them, and with two readings of the clock.
    pub samples: u64,
    pub p50_ns: f64,
    pub p99_ns: Option<f64>,
    pub max_ns: f64,
    /// For all threads together; `None` without contention.
    pub pairs_per_s: Option<f64>,
    /// Compared with stock: the median over the rounds of the difference of the two medians of one round.
    pub added_ns: Option<f64>,
}

/// Pairs between two readings of the clock without contention.
pub const BATCH: u32 = 64;

/// Maximum number of kept samples of one thread and round; of more, every second, fourth... is kept.
const KEPT: usize = 1 << 14;

/// The policies take turns in every round. `progress` is called at each round's beginning, with the number of threads.
pub fn costs(plan: &Plan, clock: &Clock, progress: &mut dyn FnMut(u32)) -> Vec<Cost> {
    let mut dice = fastrand::Rng::with_seed(plan.seed);
    let mut cells: Vec<Cell> = Vec::new();
    for threads in std::iter::once(1).chain(plan.threads.iter().copied().filter(|n| *n > 1)) {
        for pairs in Pairs::ALL {
            let all = pairs.policies().iter();
            cells.extend(all.map(|policy| Cell { pairs, policy: *policy, threads, rounds: Ok(Vec::new()) }));
        }
    }
    for _ in 0..plan.rounds {
        for group in cells.chunk_by_mut(|a, b| a.threads == b.threads) {
            progress(group[0].threads);
            let mut order: Vec<usize> = (0..group.len()).collect();
            dice.shuffle(&mut order);
            for index in order {
                group[index].run(plan, clock);
            }
        }
    }
    let stock = |cell: &Cell| {
        let same =
            |other: &&Cell| other.policy == Policy::Stock && other.pairs == cell.pairs && other.threads == cell.threads;
        cells.iter().find(same).and_then(|cell| cell.rounds.as_ref().ok())
    };
    cells.iter().map(|cell| cell.cost(stock(cell))).collect()
}

/// The result of one round.
struct Round {
    /// Sorted. In ns, converted from ticks; without contention for a whole batch.
    samples: Vec<u64>,
    max: u64,
    pairs: u64,
    ns: u64,
}

struct Cell {
    pairs: Pairs,
    policy: Policy,
    threads: u32,
    rounds: Result<Vec<Round>, Missing>,
}

impl Cell {
    fn run(&mut self, plan: &Plan, clock: &Clock) {
        let Ok(rounds) = &mut self.rounds else { return };
        let hammer = Hammer { plan, clock, threads: self.threads, access: self.pairs.access() };
        let round = match self.pairs {
            Pairs::Mutex => with_mutex(self.policy, hammer),
            Pairs::Read | Pairs::Write => with_rwlock(self.policy, hammer),
        };
        match round {
            Ok(round) => rounds.push(round),
            Err(missing) => self.rounds = Err(missing),
        }
    }

    /// The number of pairs of one sample.
    fn batch(&self) -> f64 {
        if self.threads == 1 { BATCH.into() } else { 1.0 }
    }

    fn cost(&self, stock: Option<&Vec<Round>>) -> Cost {
        let outcome = self.rounds.as_ref().map_err(Missing::clone).and_then(|rounds| {
            let mut samples: Vec<u64> = rounds.iter().flat_map(|round| round.samples.iter().copied()).collect();
            let none = || Missing::Failed("no pair was finished".into());
            let all = Summary::of(&mut samples).ok_or_else(none)?;
            let (pairs, ns) = rounds.iter().fold((0, 0), |(p, n), round| (p + round.pairs, n + round.ns));
            let p50 = |round: &Round| Percentile::P50.of(&round.samples).map(|p50| p50 as f64 / self.batch());
            let added = stock.filter(|_| self.policy != Policy::Stock).and_then(|stock| {
                upper_median(rounds.iter().zip(stock).filter_map(|(a, b)| Some(p50(a)? - p50(b)?)).collect())
            });
            Ok(Figures {
                samples: all.count,
                p50_ns: all.p50 as f64 / self.batch(),
                p99_ns: all.p99.map(|p99| p99 as f64 / self.batch()),
                max_ns: rounds.iter().map(|round| round.max).max().unwrap_or(all.max) as f64 / self.batch(),
                pairs_per_s: (self.threads > 1).then(|| pairs as f64 * 1e9 / ns.max(1) as f64),
                added_ns: added,
            })
        });
        Cost { pairs: self.pairs, policy: self.policy, threads: self.threads, outcome }
    }
}

/// The middle one, or the upper of the two in the middle, so that it is a measured difference. (`statistics::median` takes the mean of the two.)
fn upper_median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

struct Hammer<'a> {
    plan: &'a Plan,
    clock: &'a Clock,
    threads: u32,
    access: Access,
}

/// The guarded data: counted by a load and a store, so that a count is lost if two threads are inside at once.
#[repr(align(128))]
struct Guarded(AtomicU64);

impl Guarded {
    #[inline]
    fn touch(&self, access: Access) {
        // ORDERING: Relaxed is enough, because the lock orders its holders.
        let seen = std::hint::black_box(self.0.load(Ordering::Relaxed));
        if access == Access::Write {
            self.0.store(seen.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

impl Visit for Hammer<'_> {
    type Out = Round;

    fn visit<S: Subject>(self, lock: &S) -> Result<Round, Missing> {
        let guarded = Guarded(AtomicU64::new(0));
        let (this, data) = (&self, &guarded);
        // A separate thread even without contention: in a program with one thread libc takes short cuts.
        let (begin, stop) = (&Barrier::new(self.threads as usize + 1), &AtomicBool::new(false));
        let (hands, ns) = thread::scope(|scope| {
            let body = || match this.threads {
                1 => this.alone(lock, data, begin),
                _ => this.contend(lock, data, begin, stop),
            };
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(body)).collect();
            begin.wait();
            let from = self.clock.now();
            if self.threads > 1 {
                thread::sleep(self.plan.contended);
                stop.store(true, Ordering::Relaxed);
            }
            let hands: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            (hands, self.clock.ns(self.clock.now().saturating_sub(from)))
        });
        let mut round = Round { samples: Vec::new(), max: 0, pairs: 0, ns };
        for hand in hands {
            let hand = hand.map_err(|_| Missing::Failed("a thread that used the lock ended early".into()))?;
            if hand.trouble != 0 {
                return Err(Missing::Failed(format!("an operation of the lock ended with error {}", hand.trouble)));
            }
            round.samples.extend(hand.samples.iter().map(|ticks| self.clock.ns(*ticks)));
            round.max = round.max.max(self.clock.ns(hand.max));
            round.pairs += hand.pairs;
        }
        round.samples.sort_unstable();
        let counted = guarded.0.into_inner();
        if self.access == Access::Write && counted != round.pairs {
            let what = format!("two threads were inside at once: {} pairs, {counted} counted", round.pairs);
            return Err(Missing::Failed(what));
        }
        Ok(round)
    }
}

/// The result of one thread; in ticks.
#[derive(Default)]
struct Hand {
    samples: Vec<u64>,
    max: u64,
    pairs: u64,
    trouble: i32,
}

impl Hammer<'_> {
    #[inline]
    fn pair<S: Subject>(&self, lock: &S, hand: &S::Hand<'_>, data: &Guarded) -> i32 {
        let taken = lock.take(hand, self.access);
        if taken != 0 {
            return taken;
        }
        data.touch(self.access);
        lock.release(hand, self.access)
    }

    fn alone<S: Subject>(&self, lock: &S, data: &Guarded, begin: &Barrier) -> Hand {
        let hand = lock.hand();
        let mut mine = Hand { samples: vec![1; self.plan.samples as usize], ..Hand::default() };
        begin.wait();
        for _ in 0..BATCH * 16 {
            mine.trouble |= self.pair(lock, &hand, data);
        }
        for sample in &mut mine.samples {
            let from = self.clock.now();
            for _ in 0..BATCH {
                mine.trouble |= self.pair(lock, &hand, data);
            }
            *sample = self.clock.now().saturating_sub(from);
        }
        mine.max = mine.samples.iter().copied().max().unwrap_or(0);
        mine.pairs = u64::from(BATCH) * (16 + u64::from(self.plan.samples));
        mine
    }

    fn contend<S: Subject>(&self, lock: &S, data: &Guarded, begin: &Barrier, stop: &AtomicBool) -> Hand {
        let hand = lock.hand();
        let mut mine = Hand { samples: vec![1; KEPT], ..Hand::default() };
        mine.samples.clear();
        let (mut step, section) = (1u64, self.plan.inside.as_nanos() as u64);
        begin.wait();
        while !stop.load(Ordering::Relaxed) {
            let asked = self.clock.now();
            let taken = lock.take(&hand, self.access);
            if taken != 0 {
                mine.trouble = taken;
                break;
            }
            let inside = self.clock.now();
            data.touch(self.access);
            let mut done = self.clock.now();
            while self.clock.ns(done.saturating_sub(inside)) < section {
                done = self.clock.now();
            }
            mine.trouble = lock.release(&hand, self.access);
            let ticks = inside.saturating_sub(asked) + self.clock.now().saturating_sub(done);
            mine.max = mine.max.max(ticks);
            if mine.pairs.is_multiple_of(step) {
                if mine.samples.len() == KEPT {
                    let mut index = 0;
                    mine.samples.retain(|_| {
                        index += 1;
                        index % 2 == 1
                    });
                    step *= 2;
                }
                if mine.pairs.is_multiple_of(step) {
                    mine.samples.push(ticks);
                }
            }
            mine.pairs += 1;
            if mine.trouble != 0 {
                break;
            }
        }
        mine
    }
}
