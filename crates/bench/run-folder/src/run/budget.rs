//! How the time of a sample is divided into consecutive parts, whose sum is the whole.
//!
//! The invariant: each sample is cut at its own times, each cut no earlier than the one before, so no part is negative and none is counted twice.
//! Times that cannot be separated form a part with its own name.

use super::CellOfRun;
use crate::Sample;
use serde::{Deserialize, Serialize};
use statistics::{CONFIDENCE, Figure, Interval, Rounds};

/// For the samples in the middle half of each round, by their whole time: the typical division, in means, which add up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    pub parts: Vec<PartOfBudget>,
    /// The sum of all parts.
    pub whole_ns: f64,
    pub mostly: Mostly,
}

/// The largest use of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mostly {
    /// Moving bytes: the engine's time beyond that of the same subject's smallest size.
    Link,
    /// The engine's time for the smallest size.
    Engine,
    /// Everything else: the call, fetching the commands, seeing the end.
    CommandPath,
    /// It is unknown when the engine worked, and that may have been most of the time.
    #[default]
    NotKnown,
}

impl Mostly {
    pub fn name(self) -> &'static str {
        match self {
            Mostly::Link => "link",
            Mostly::Engine => "engine",
            Mostly::CommandPath => "command path",
            Mostly::NotKnown => "not known",
        }
    }
}

impl Budget {
    fn mean(&self, name: Span) -> f64 {
        self.parts.iter().find(|part| part.name == name).map_or(0.0, |part| part.mean_ns)
    }

    /// `least_ns` is the engine's time for the subject's smallest size.
    fn mostly(&self, least_ns: f64) -> Mostly {
        let (engine, unknown) = (self.mean(Span::Engine), self.mean(Span::NotToldApart));
        let set_up = engine.min(least_ns);
        let parts = [
            (engine - set_up, Mostly::Link),
            (set_up, Mostly::Engine),
            (self.whole_ns - engine - unknown, Mostly::CommandPath),
            (unknown, Mostly::NotKnown),
        ];
        let largest = parts.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a });
        largest.map_or(Mostly::NotKnown, |(_, mostly)| mostly)
    }
}

/// Sets the part that takes most of the time of each cell with a budget.
pub(super) fn judge(cells: &mut [CellOfRun]) {
    let engines: Vec<(u32, String, u64, f64)> = cells
        .iter()
        .filter_map(|c| Some((c.stage, c.subject.clone(), c.bytes, c.budget.as_ref()?.mean(Span::Engine))))
        .collect();
    for cell in cells {
        let Some(budget) = &mut cell.budget else { continue };
        let same = engines.iter().filter(|e| e.0 == cell.stage && e.1 == cell.subject);
        let least = same.min_by_key(|e| e.2).map_or(0.0, |e| e.3);
        budget.mostly = budget.mostly(least);
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartOfBudget {
    pub name: Span,
    pub mean_ns: f64,
    /// 95 %, from what processes differ by; none with fewer than three.
    pub interval: Option<Interval<f64>>,
}

/// A part of a sample's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// From the intended release to the call.
    Queue,
    /// In the call: locks, building commands, the doorbell, until it returns or the engine has started.
    Call,
    /// From the call's return until the engine starts: the doorbell's way, fetching the commands.
    Fetch,
    Engine,
    /// From the engine's end until the CPU has seen it: the notification's way, waking up.
    Seeing,
    /// From the call's return until the CPU has seen the end, if it is unknown when the engine worked.
    NotToldApart,
}

impl Span {
    pub const ALL: [Span; 6] = [Span::Queue, Span::Call, Span::Fetch, Span::Engine, Span::Seeing, Span::NotToldApart];

    pub fn name(self) -> &'static str {
        match self {
            Span::Queue => "queue",
            Span::Call => "call",
            Span::Fetch => "fetch",
            Span::Engine => "engine",
            Span::Seeing => "seeing",
            Span::NotToldApart => "not told apart",
        }
    }
}

/// A sample's time, divided in the order of [`Span::ALL`].
fn cut(s: &Sample) -> [u64; 6] {
    let call = s.call_ns.max(s.release_ns);
    let done = s.done_ns.max(call);
    let submitted = s.submitted_ns.clamp(call, done);
    let queue = call - s.release_ns;
    if s.started_ns == 0 || s.ended_ns == 0 {
        return [queue, submitted - call, 0, 0, 0, done - submitted];
    }
    let started = s.started_ns.clamp(call, done);
    let ended = s.ended_ns.clamp(started, done);
    // The engine may start before the call returns: the overlap counts for the engine.
    let called = submitted.min(started);
    [queue, called - call, started - called, ended - started, done - ended, 0]
}

/// The samples of one cell, gathered by rounds.
#[derive(Debug)]
pub(super) struct Gathered {
    rounds: Vec<Vec<[u64; 6]>>,
}

impl Gathered {
    pub fn new(rounds: usize) -> Gathered {
        Gathered { rounds: vec![Vec::new(); rounds] }
    }

    pub fn add(&mut self, round: usize, sample: &Sample) {
        if let Some(round) = self.rounds.get_mut(round) {
            round.push(cut(sample));
        }
    }

    pub fn budget(mut self, rounds_of_repeat: usize) -> Option<Budget> {
        for round in &mut self.rounds {
            round.sort_unstable_by_key(|cut| cut.iter().sum::<u64>());
            let quarter = round.len() / 4;
            *round = round[quarter..round.len() - quarter].to_vec();
        }
        let of = |i: usize| -> Option<PartOfBudget> {
            let each: Vec<Vec<u64>> = self.rounds.iter().map(|r| r.iter().map(|cut| cut[i]).collect()).collect();
            let rounds = Rounds::new(&each).in_repeats_of(rounds_of_repeat);
            let mean_ns = rounds.figure(Figure::Mean)?;
            let interval = rounds.interval(Figure::Mean, CONFIDENCE);
            Some(PartOfBudget { name: Span::ALL[i], mean_ns, interval })
        };
        let parts: Vec<PartOfBudget> = (0..Span::ALL.len()).filter_map(of).filter(|part| part.mean_ns > 0.0).collect();
        let whole_ns = parts.iter().map(|part| part.mean_ns).sum();
        (!parts.is_empty()).then_some(Budget { parts, whole_ns, mostly: Mostly::NotKnown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(times: [u64; 6]) -> Sample {
        let [release_ns, call_ns, submitted_ns, started_ns, ended_ns, done_ns] = times;
        Sample { release_ns, call_ns, submitted_ns, started_ns, ended_ns, done_ns, ..Sample::default() }
    }

    #[test]
    fn a_sample_is_cut_at_its_times() {
        assert_eq!(cut(&sample([100, 110, 130, 160, 200, 250])), [10, 20, 30, 40, 50, 0]);
        // It is unknown when the engine worked.
        assert_eq!(cut(&sample([100, 100, 130, 0, 0, 250])), [0, 30, 0, 0, 0, 120]);
        // The engine had ended before the call returned.
        assert_eq!(cut(&sample([100, 100, 240, 120, 200, 250])), [0, 20, 0, 80, 50, 0]);
        // The error of the GPU's clock is larger than the times.
        assert_eq!(cut(&sample([100, 100, 130, 90, 95, 250])), [0, 0, 0, 0, 150, 0]);
    }

    #[test]
    fn the_middle_half_of_each_round_adds_up() {
        let mut all = Gathered::new(8);
        for round in 0..8 {
            (0..8u64).for_each(|i| all.add(round, &sample([0, 0, 10, 30, 70, 100 + i % 2])));
            all.add(round, &sample([0, 0, 10, 30, 70, 1_000_000]));
        }
        let budget = all.budget(1).unwrap();
        let means: Vec<(Span, f64)> = budget.parts.iter().map(|p| (p.name, p.mean_ns)).collect();
        assert_eq!(means[..3], [(Span::Call, 10.0), (Span::Fetch, 20.0), (Span::Engine, 40.0)]);
        assert!(
            (30.0..=31.0).contains(&means[3].1) && (budget.whole_ns - 70.0 - means[3].1).abs() < 1e-9,
            "{budget:?}"
        );
        assert!(budget.parts.iter().all(|p| p.interval.is_some_and(|i| i.low >= 0.0)));
        assert_eq!(Gathered::new(3).budget(1), None);
    }

    #[test]
    fn the_largest_part_is_the_one_with_most_of_the_time() {
        let budget = |engine: u64, path: u64, unknown: u64| {
            let part = |name, ns: u64| PartOfBudget { name, mean_ns: ns as f64, interval: None };
            let parts = vec![part(Span::Call, path), part(Span::Engine, engine), part(Span::NotToldApart, unknown)];
            Budget { parts, whole_ns: (engine + path + unknown) as f64, mostly: Mostly::NotKnown }
        };
        assert_eq!(budget(600, 900, 0).mostly(600.0), Mostly::CommandPath);
        assert_eq!(budget(600, 500, 0).mostly(600.0), Mostly::Engine);
        assert_eq!(budget(6_000, 500, 0).mostly(600.0), Mostly::Link);
        assert_eq!(budget(0, 500, 900).mostly(0.0), Mostly::NotKnown);
        assert_eq!(budget(0, 900, 500).mostly(0.0), Mostly::CommandPath);
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_whole(times in prop::array::uniform6(0..1_000u64)) {
            let mut times = times;
            times[..2].sort_unstable();
            times[5] += times[1];
            let s = sample(times);
            prop_assert_eq!(cut(&s).iter().sum::<u64>(), s.done_ns - s.release_ns);
        }
    }
}
