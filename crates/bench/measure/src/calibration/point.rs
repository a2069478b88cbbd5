//! The knowledge about one size: the samples of each route, and the best route according to them.

use statistics::{CONFIDENCE, Figure, Interval, Percentile, Ratio, Rounds, median_over_processes};
use submit::route_choice::{Metric, decide};

/// With fewer samples, a tail and a maximum depend on a handful of them.
pub const NEEDS: u64 = 10_000;
/// Routes whose median is farther from the best are no rivals for a tail.
const RIVALS: f64 = 4.0;

/// Samples that each rival needs for a metric.
pub fn needs(metric: Metric) -> u64 {
    match metric {
        Metric::P50 => 1,
        Metric::P999 => Percentile::P999.needs(),
        Metric::Max => NEEDS,
    }
}

fn figure_of(metric: Metric) -> Figure {
    match metric {
        Metric::P50 => Figure::P50,
        Metric::P999 => Figure::P999,
        Metric::Max => Figure::Max,
    }
}

/// One size of one sweep.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Of each candidate.
    pub cells: Vec<Cell>,
    /// Rounds so far, of all stages that this size was in.
    rounds: usize,
    /// How often it was measured.
    pub visits: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// By the number of the round; samples of the same round have the same index.
    rounds: Vec<Vec<u64>>,
    sorted: Option<Rounds>,
    /// Its median, ns; none if it was not measured.
    pub p50: Option<f64>,
    pub samples: u64,
    /// Why it cannot move so many bytes, or the error.
    pub refused: Option<String>,
}

impl Cell {
    /// A figure and its interval, for the profile.
    pub fn figure(&self, metric: Metric) -> Option<(u64, Option<(u64, u64)>)> {
        let rounds = self.sorted.as_ref()?;
        let figure = figure_of(metric);
        let value = rounds.figure(figure)?;
        let interval = rounds.interval(figure, CONFIDENCE);
        Some((value.round() as u64, interval.map(|i| (i.low.round() as u64, i.high.round() as u64))))
    }
}

/// The best route, and the metric that decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    pub route: usize,
    /// More samples could still change it.
    pub open: bool,
    pub by: Metric,
}

impl Point {
    pub fn new(candidates: usize) -> Point {
        Point { cells: vec![Cell::default(); candidates], ..Point::default() }
    }

    /// Makes room for the rounds of one stage, and returns the number of its first round.
    pub fn stage(&mut self, rounds: usize) -> usize {
        self.visits += 1;
        let first = self.rounds;
        self.rounds += rounds;
        first
    }

    /// Stores the samples of one route in the stage whose first round this is.
    pub fn told(&mut self, route: usize, first: usize, samples: Vec<Vec<u64>>) {
        let cell = &mut self.cells[route];
        cell.rounds.resize(first, Vec::new());
        cell.samples += samples.iter().map(|round| round.len() as u64).sum::<u64>();
        cell.rounds.extend(samples);
        let sorted = Rounds::new(&cell.rounds).rounds_are_processes();
        cell.p50 = sorted.figure(Figure::P50);
        cell.sorted = Some(sorted);
    }

    pub fn measured(&self) -> impl Iterator<Item = usize> {
        (0..self.cells.len()).filter(|n| self.cells[*n].p50.is_some())
    }

    /// The smallest median.
    pub fn least(&self) -> Option<f64> {
        self.cells.iter().filter_map(|cell| cell.p50).min_by(f64::total_cmp)
    }

    /// The routes that may be the best by this metric.
    pub fn rivals(&self, metric: Metric) -> Vec<usize> {
        let Some(least) = self.least() else { return Vec::new() };
        let near = |n: &usize| metric == Metric::P50 || self.cells[*n].p50.is_some_and(|p50| p50 <= least * RIVALS);
        self.measured().filter(near).collect()
    }

    /// The number of samples of the rival with the fewest.
    pub fn fewest(&self, metric: Metric) -> u64 {
        self.rivals(metric).into_iter().map(|n| self.cells[n].samples).min().unwrap_or(0)
    }

    /// The best by a metric, if there are enough samples for it.
    pub fn best(&self, routes: &[String], metric: Metric) -> Option<Best> {
        let rivals = self.rivals(metric);
        // With a single rival there is no decision to make.
        if rivals.len() > 1 && self.fewest(metric) < needs(metric) {
            return None;
        }
        let names: Vec<&str> = rivals.iter().map(|n| routes[*n].as_str()).collect();
        let sorted: Vec<&Rounds> = rivals.iter().filter_map(|n| self.cells[*n].sorted.as_ref()).collect();
        let compare = |a: usize, b: usize| match ratio(sorted[a], sorted[b], metric) {
            Some((ratio, interval)) => (ratio, interval.map(|i| (i.low, i.high))),
            None => (1.0, None),
        };
        let verdict = decide::best(&names, compare)?;
        Some(Best { route: rivals[verdict.best], open: verdict.open, by: metric })
    }

    /// The best by a metric; by the median if there are too few samples for the metric.
    pub fn best_or_median(&self, routes: &[String], metric: Metric) -> Option<Best> {
        self.best(routes, metric).or_else(|| self.best(routes, Metric::P50))
    }
}

/// For medians and maxima, the median of the rounds' quotients: a host that changes its speed changes it for both, and a round of few samples may
/// be far off.
fn ratio(these: &Rounds, those: &Rounds, metric: Metric) -> Option<(f64, Option<Interval<f64>>)> {
    let figure = figure_of(metric);
    if metric == Metric::P999 {
        return Ratio::of(these, those, figure, CONFIDENCE).map(|r| (r.ratio, r.interval));
    }
    let (a, b) = (these.each(figure), those.each(figure));
    let both = a.iter().zip(&b).filter_map(|(a, b)| Some((*a)? / b.filter(|b| *b > 0.0)?)).filter(|q| *q > 0.0);
    let (middle, interval) = median_over_processes(&both.map(f64::ln).collect::<Vec<_>>(), CONFIDENCE)?;
    Some((middle.exp(), interval.map(|i| Interval { low: i.low.exp(), high: i.high.exp() })))
}
