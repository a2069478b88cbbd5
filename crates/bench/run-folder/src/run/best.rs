//! The best route: among a cell's rivals, and by range of sizes.
//!
//! Rivals move equally many bytes between the same two memories in the same stage, and their time ends when the bytes have arrived. The smallest
//! value is the best. Which of several similar ones is the smallest depends on chance, so a range of sizes names one route as long as it is within
//! [`SAME`] of the smallest.

use super::ends::Ends;
use super::groups::grouped;
use super::metric::{figure, value};
use super::{CellOfRun, Coordinate, Measured, Run, StageOfRun};
use experiment::{Arrival, Bound, Experiment, Metric, Observe, Stage};
use serde::{Deserialize, Serialize};
use statistics::{Figure, Ratio, Rounds};

/// Two values within this factor count as equal.
pub const SAME: f64 = 1.02;

const METRICS: [Metric; 4] = [Metric::P50, Metric::Mean, Metric::P99, Metric::Max];

/// For routes between the same two memories, in stages that differ only in their size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestOfRun {
    pub point: Vec<Coordinate>,
    pub source: String,
    pub destination: String,
    pub metric: Metric,
    pub ranges: Vec<BestRange>,
    pub sizes: Vec<BestAt>,
}

/// One route from one measured size to another, within 2 % of the smallest value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestRange {
    pub from: u64,
    pub to: u64,
    pub subject: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestAt {
    pub stage: u32,
    pub bytes: u64,
    /// The subject of the range.
    pub subject: String,
    pub value_ns: f64,
    /// The subject with the smallest value, which `subject` is within 2 % of.
    pub least: String,
    pub least_ns: f64,
    /// CUDA's best form.
    pub cuda: Option<Against>,
}

/// A cell for comparison: `ratio` is the cell's value divided by that of this one, in the same rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    pub subject: String,
    pub value_ns: f64,
    /// None for a cell compared with itself, and if there are too few rounds.
    pub ratio: Option<Ratio>,
}

impl Run {
    /// Whether a cell's p50 is within [`SAME`] of the smallest between the same two memories, at the same place and size.
    pub fn is_best(&self, cell: &CellOfRun, p50_ns: f64) -> bool {
        let Some(ends) = Ends::of(&cell.what).filter(|_| cell.observe == Observe::Done) else { return false };
        let same = |b: &&BestOfRun| {
            b.metric == Metric::P50 && (ends.source, ends.destination) == (b.source.as_str(), b.destination.as_str())
        };
        let mut at = self.best.iter().filter(same).flat_map(|b| &b.sizes);
        at.any(|at| (at.stage, at.bytes) == (cell.stage, cell.bytes) && p50_ns <= at.least_ns * SAME)
    }
}

/// Whether its time is that of a whole copy, so that others can be compared with it.
fn is_whole(cell: &CellOfRun) -> bool {
    cell.observe == Observe::Done && cell.back_to_back == 1 && cell.bytes > 0
}

/// Whether this one could have been used in place of `cell`.
pub(super) fn is_rival(other: &CellOfRun, cell: &CellOfRun) -> bool {
    let (Some(own), Some(others)) = (Ends::of(&cell.what), Ends::of(&other.what)) else { return false };
    let same_ends = (own.source, own.destination) == (others.source, others.destination);
    let same_way = other.arrival == cell.arrival && other.bytes == cell.bytes && other.stage == cell.stage;
    same_ends && same_way && is_whole(other) && is_whole(cell) && others.is_single() && other.subject != cell.subject
}

/// Whether rounds of cells are compared with each other: only then all of them are kept while the run is summarized.
pub(super) fn is_asked(experiment: &Experiment, stages: &[Stage]) -> bool {
    let mut sizes =
        stages.iter().flat_map(|s| &s.cells).filter(|c| Ends::of(&c.subject.what).is_some()).map(|c| c.bytes);
    let first = sizes.next();
    sizes.any(|bytes| Some(bytes) != first)
        || experiment.asserts.iter().any(|a| matches!(a.bound, Bound::WithinBest(_)))
}

/// The cell with the smallest value.
pub(super) fn least<'c>(cells: impl Iterator<Item = &'c CellOfRun>, metric: Metric) -> Option<(&'c CellOfRun, f64)> {
    let known = cells.filter_map(|c| Some((c, value(c, metric).ok()?)));
    known.reduce(|a, b| if b.1 < a.1 { b } else { a })
}

impl Measured<'_> {
    /// The ratio of the value of `cell` to that of `other`.
    pub(super) fn against(&self, cell: &CellOfRun, (other, value_ns): (&CellOfRun, f64), metric: Metric) -> Against {
        let of = |c: &CellOfRun| self.values.get(&(c.stage, c.cell));
        let ratio = || match (of(cell), of(other)) {
            (Some(these), Some(those)) => Ratio::of(these, those, figure(metric)?, statistics::CONFIDENCE),
            _ => without_samples(cell, other, metric),
        };
        let ratio = if other.cell == cell.cell { None } else { ratio() };
        Against { subject: other.subject.clone(), value_ns, ratio }
    }

    /// The ranges of sizes in which each route is the best, if two routes can be compared at two sizes.
    pub(super) fn best(&self) -> Vec<BestOfRun> {
        let mut all = Vec::new();
        // Stages that differ only in their size.
        for (point, of_point) in grouped(self.stages, |stage| point(stage)) {
            let is_here = |c: &&CellOfRun| of_point.iter().any(|s| s.number == c.stage);
            let single = |c: &&CellOfRun| is_whole(c) && Ends::of(&c.what).is_some_and(|ends| ends.is_single());
            for (kind, these) in grouped(self.cells.iter().filter(is_here).filter(single), kind) {
                let Some((source, destination, _)) = kind else { continue };
                for metric in METRICS {
                    let sizes = self.at_each_size(&these, metric);
                    if sizes.len() > 1 {
                        all.push(BestOfRun {
                            point: point.clone(),
                            source: source.to_owned(),
                            destination: destination.to_owned(),
                            metric,
                            ranges: ranges(&sizes),
                            sizes,
                        });
                    }
                }
            }
        }
        all
    }

    /// Sizes at which at least two subjects have a value, the smallest first.
    fn at_each_size(&self, cells: &[&CellOfRun], metric: Metric) -> Vec<BestAt> {
        let mut sizes: Vec<u64> = cells.iter().map(|c| c.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let of_size = |bytes: u64| -> Vec<(&CellOfRun, f64)> {
            let of = cells.iter().filter(|c| c.bytes == bytes);
            of.filter_map(|c| Some((*c, value(c, metric).ok()?))).collect()
        };
        let known: Vec<Vec<(&CellOfRun, f64)>> = sizes.into_iter().map(of_size).filter(|all| all.len() > 1).collect();
        let times: Vec<Vec<(&str, f64)>> =
            known.iter().map(|all| all.iter().map(|(c, value)| (c.subject.as_str(), *value)).collect()).collect();
        let chosen = chosen(&times);
        let mut at = Vec::new();
        for (all, subject) in known.iter().zip(chosen) {
            let Some((cell, value_ns)) = all.iter().find(|(c, _)| c.subject == subject).copied() else { continue };
            let Some((first, least_ns)) = least(all.iter().map(|(c, _)| *c), metric) else { continue };
            let cudas = all.iter().map(|(c, _)| *c).filter(|c| Ends::of(&c.what).is_some_and(|ends| ends.is_cuda()));
            at.push(BestAt {
                stage: cell.stage,
                bytes: cell.bytes,
                subject: subject.to_owned(),
                value_ns,
                least: first.subject.clone(),
                least_ns,
                cuda: least(cudas, metric).map(|cuda| self.against(cell, cuda, metric)),
            });
        }
        at
    }
}

/// The result from the rounds' own figures, if there are no samples: for the median it is the same.
fn without_samples(cell: &CellOfRun, other: &CellOfRun, metric: Metric) -> Option<Ratio> {
    let rounds = |c: &CellOfRun| -> Vec<(u32, u32)> {
        c.per_round.repeat.iter().copied().zip(c.per_round.round.iter().copied()).collect()
    };
    let (these, those) = (rounds(cell), rounds(other));
    let pairs: Vec<(usize, usize)> =
        these.iter().enumerate().filter_map(|(n, at)| Some((n, those.iter().position(|o| o == at)?))).collect();
    if metric == Metric::P50 {
        let medians = |of: Vec<Option<u64>>, repeat: &dyn Fn(usize) -> u32| {
            let all: Vec<Vec<u64>> = of.into_iter().map(|ns| ns.into_iter().collect()).collect();
            Rounds::new(&all).in_repeats(repeat)
        };
        let these: Vec<Option<u64>> = pairs.iter().map(|(n, _)| cell.per_round.p50.get(*n).copied()).collect();
        let those: Vec<Option<u64>> = pairs.iter().map(|(_, n)| other.per_round.p50.get(*n).copied()).collect();
        let repeat = |n: usize| pairs.get(n).and_then(|(n, _)| cell.per_round.repeat.get(*n)).copied().unwrap_or(0);
        return Ratio::of(&medians(these, &repeat), &medians(those, &repeat), Figure::P50, statistics::CONFIDENCE);
    }
    let (value, others) = (value(cell, metric).ok()?, value(other, metric).ok()?);
    (others > 0.0).then(|| Ratio { ratio: value / others, interval: None, rounds: pairs.len() as u64 })
}

/// The named subject of each size: the one that stays within [`SAME`] of the smallest value for the most sizes from there on; among several the
/// nearest to it.
fn chosen<'s>(sizes: &[Vec<(&'s str, f64)>]) -> Vec<&'s str> {
    let mut named = Vec::new();
    while let Some(rest) = sizes.get(named.len()..).filter(|rest| !rest.is_empty()) {
        // Its value relative to the smallest, at this size; none if it is not among the best.
        let times = |of: &[(&str, f64)], subject: &str| {
            let least = of.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
            let (_, value) = of.iter().find(|(name, _)| *name == subject)?;
            let times = if least > 0.0 { value / least } else { 1.0 };
            (times <= SAME).then_some(times)
        };
        let run = |subject: &str| -> (usize, f64) {
            let times: Vec<f64> = rest.iter().map_while(|of| times(of, subject)).collect();
            (times.len(), times.iter().product::<f64>().powf(1.0 / times.len().max(1) as f64))
        };
        let runs = rest[0].iter().map(|(subject, _)| (*subject, run(subject)));
        let best = runs.reduce(|a, b| {
            let better = b.1.0 > a.1.0 || (b.1.0 == a.1.0 && b.1.1 < a.1.1);
            if better { b } else { a }
        });
        let Some((subject, (sizes, _))) = best.filter(|(_, (sizes, _))| *sizes > 0) else { break };
        named.extend(std::iter::repeat_n(subject, sizes));
    }
    named
}

fn ranges(sizes: &[BestAt]) -> Vec<BestRange> {
    let same = sizes.chunk_by(|a, b| a.subject == b.subject);
    same.filter_map(|of| {
        let (first, last) = (of.first()?, of.last()?);
        Some(BestRange { from: first.bytes, to: last.bytes, subject: first.subject.clone() })
    })
    .collect()
}

/// What routes that can replace each other have in common, besides their size.
fn kind<'c>(c: &&'c CellOfRun) -> Option<(&'c str, &'c str, Arrival)> {
    Ends::of(&c.what).map(|ends| (ends.source, ends.destination, c.arrival))
}

/// Without the size.
fn point(stage: &StageOfRun) -> Vec<Coordinate> {
    stage.point.iter().filter(|c| c.name != "bytes").cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_one_route_as_long_as_it_is_among_the_best() {
        // At the second size `b` is the smallest by chance; at the last `a` is too far away.
        let sizes = [
            vec![("a", 100.0), ("b", 300.0)],
            vec![("a", 101.0), ("b", 100.0)],
            vec![("a", 100.0), ("b", 120.0)],
            vec![("a", 103.0), ("b", 100.0), ("c", 101.0)],
            vec![("b", 104.0), ("c", 100.0)],
        ];
        let named = |sizes: &[Vec<(&'static str, f64)>]| chosen(sizes).join("");
        assert_eq!(named(&sizes), "aaacc");
        assert_eq!(named(&sizes[3..4]), "b");
        assert_eq!(named(&[]), "");
        // A value of 0 cannot be a divisor.
        assert_eq!(named(&[vec![("a", 0.0), ("b", 1.0)]]), "a");
    }
}
