//! A figure of all samples, and how far it can be off.
//!
//! A percentile's pulls are those of the part of the samples that is at or below it. The samples themselves show what an error of that part means
//! for the percentile, on the scale of log odds: the percentiles a standard deviation to both sides (Woodruff, Confidence Intervals for Medians and
//! Other Position Measures, 1952; Francisco and Fuller 1991).

use crate::dependence::{self, Deviation, Pull, deviation, deviation_of_levels, places};
use crate::distribution::student_quantile;
use crate::{Figure, Interval, MIN_ROUNDS, Rounds};

/// Minimum number of rounds that the samples beyond a tail's percentile must come from, counted as if each had the same number of them. A single
/// slow round does not show how often rounds are slow.
const FEWEST_PLACES: f64 = 5.0;

/// With several repeats, the minimum part of the repeats that they must come from.
const PART_OF_REPEATS: f64 = 0.6;

/// A figure, and its standard deviation to both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub below: f64,
    pub above: f64,
    pub freedom: u32,
    /// The log odds of a part of the samples, and their standard deviation.
    odds: Option<(f64, f64)>,
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// Rounds do not show how far an extreme can be off.
    Extreme,
    /// Too few samples for the figure.
    Samples,
    Rounds(usize),
    /// The samples beyond a tail's percentile come from too few rounds, or repeats.
    Beyond,
    /// None of the samples missed, or all of them did.
    Certain,
}

impl Rounds {
    /// # Errors
    /// Why the figure has no estimate.
    pub fn estimate(&self, figure: Figure) -> Result<Estimate, Why> {
        if !figure.has_interval() {
            return Err(Why::Extreme);
        }
        let value = self.figure(figure).ok_or(Why::Samples)?;
        let sampled = self.sampled();
        if sampled.len() < MIN_ROUNDS {
            return Err(Why::Rounds(sampled.len()));
        }
        let (part, pulls) = self.pulls(figure, value);
        let of = self.deviation(figure, &pulls).ok_or(Why::Rounds(sampled.len()))?;
        let (deviation, freedom) = (of.deviation, of.freedom);
        match figure {
            Figure::Percentile(p) => {
                if figure.is_tail() && !self.is_spread(value) {
                    return Err(Why::Beyond);
                }
                let (part, target) = (part.clamp(1e-9, 1.0 - 1e-9), p.fraction());
                // The same deviation of the odds, at the requested percentile: several samples may have its value.
                let odds = ((target / (1.0 - target)).ln(), deviation / (part * (1.0 - part)));
                let at = |deviations: f64| self.at_odds(odds.0 + deviations * odds.1);
                let (below, above) = (value - at(-1.0), at(1.0) - value);
                Ok(Estimate { value, below: below.max(0.0), above: above.max(0.0), freedom, odds: Some(odds) })
            }
            Figure::Misses(_) => {
                if value <= 0.0 || value >= 1.0 {
                    return Err(Why::Certain);
                }
                let odds = ((value / (1.0 - value)).ln(), deviation / (value * (1.0 - value)));
                Ok(Estimate { value, below: deviation, above: deviation, freedom, odds: Some(odds) })
            }
            _ => Ok(Estimate { value, below: deviation, above: deviation, freedom, odds: None }),
        }
    }

    /// An interval that holds the figure with this confidence. `None` if [`Rounds::estimate`] has none.
    pub fn interval(&self, figure: Figure, confidence: f64) -> Option<Interval<f64>> {
        let e = self.estimate(figure).ok()?;
        let reach = e.reach(confidence);
        // A time cannot fall below 0: downwards, equal deviations are steps of equal ratio.
        let down = |below: f64| if below < e.value { e.value * (1.0 - below / e.value).powf(reach) } else { 0.0 };
        Some(match (figure, e.odds) {
            (Figure::Percentile(_), Some((at, deviation))) => {
                let (low, high) = (self.at_odds(at - reach * deviation), self.at_odds(at + reach * deviation));
                // The samples end: beyond the last of them the interval continues by the deviation.
                Interval { low: low.min(down(e.below)), high: high.max(e.value + reach * e.above) }
            }
            (_, Some((at, deviation))) => {
                Interval { low: logistic(at - reach * deviation), high: logistic(at + reach * deviation) }
            }
            _ => Interval { low: (e.value - reach * e.below).max(0.0), high: e.value + reach * e.above },
        })
    }

    fn deviation(&self, figure: Figure, pulls: &[Pull]) -> Option<Deviation> {
        match figure {
            Figure::Percentile(_) if !figure.is_tail() => {
                let medians = self.each(Figure::P50).into_iter().enumerate();
                let levels: Vec<Pull> = medians.filter_map(|(r, m)| Some((self.repeat(r), m?))).collect();
                deviation_of_levels(pulls, &levels)
            }
            _ => deviation(pulls),
        }
    }

    /// The part of the samples that a figure is about, and how much each round moves it. For the mean: the mean itself.
    pub(crate) fn pulls(&self, figure: Figure, value: f64) -> (f64, Vec<Pull>) {
        let n = self.sorted().len() as f64;
        let sums: Vec<f64> = match figure {
            Figure::Percentile(_) => self.up_to(value).into_iter().map(|n| n as f64).collect(),
            Figure::Misses(above) => {
                let met = self.up_to(above as f64);
                (0..self.len()).map(|r| (self.samples(r) - met[r]) as f64).collect()
            }
            _ => self.sums().to_vec(),
        };
        let part = sums.iter().sum::<f64>() / n;
        let pull = |r: usize| (self.repeat(r), (sums[r] - part * self.samples(r) as f64) / n);
        (part, self.sampled().into_iter().map(pull).collect())
    }

    /// How many samples of each round are at most `value`.
    fn up_to(&self, value: f64) -> Vec<u64> {
        let mut counts = vec![0; self.len()];
        let until = self.sorted().partition_point(|v| *v as f64 <= value);
        self.round_of()[..until].iter().for_each(|r| counts[*r as usize] += 1);
        counts
    }

    /// Whether the samples beyond `value` come from enough rounds, and from enough repeats.
    fn is_spread(&self, value: f64) -> bool {
        let up_to = self.up_to(value);
        let beyond = |r: usize| self.samples(r) - up_to[r];
        if places((0..self.len()).map(beyond)) < FEWEST_PLACES {
            return false;
        }
        let mut repeats: Vec<(u32, u64)> = Vec::new();
        for r in self.sampled() {
            match repeats.iter_mut().find(|(known, _)| *known == self.repeat(r)) {
                Some((_, sum)) => *sum += beyond(r),
                None => repeats.push((self.repeat(r), beyond(r))),
            }
        }
        let many = repeats.len();
        many < dependence::MIN_REPEATS || places(repeats.into_iter().map(|(_, n)| n)) >= PART_OF_REPEATS * many as f64
    }

    /// The sample at this place of all, given as log odds.
    fn at_odds(&self, odds: f64) -> f64 {
        self.at_part(logistic(odds))
    }

    /// The sample that this part of all samples does not exceed.
    pub fn at_part(&self, part: f64) -> f64 {
        let n = self.sorted().len();
        let rank = (part * n as f64).ceil().clamp(1.0, n.max(1) as f64) as usize;
        self.sorted().get(rank - 1).map_or(0.0, |v| *v as f64)
    }
}

impl Estimate {
    /// Number of standard deviations to each side that hold it with this confidence.
    pub fn reach(&self, confidence: f64) -> f64 {
        student_quantile((1.0 + confidence) / 2.0, self.freedom)
    }
}

fn logistic(odds: f64) -> f64 {
    1.0 / (1.0 + (-odds).exp())
}
