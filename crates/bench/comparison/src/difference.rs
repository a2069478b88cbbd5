//! How many times as slow one set of rounds is as another.

use crate::conditions::Conditions;
use crate::family::ERROR;
use serde::{Deserialize, Serialize};
use statistics::distribution::{student_cdf, student_quantile};
use statistics::{Estimate, Figure, Interval, MIN_ROUNDS, Rounds, Why};
use std::fmt;

/// Minimum variance of a ratio's logarithm: even identical rounds leave some uncertainty.
const LEAST_VARIANCE: f64 = 1e-12;

/// One of the two.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    pub rounds: &'a Rounds,
    /// The step of the clock, as a part of the median.
    pub resolution: f64,
    /// The median of its samples in ns, before any division.
    pub sample_ns: f64,
    pub conditions: Conditions,
}

/// B over A.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub ratio: f64,
    /// Holds the ratio with 99 % confidence.
    pub interval: Interval<f64>,
    /// The probability that two equal cells differ this much or more.
    pub probability: f64,
    /// How much wider the interval is to each side, relative to the ratio, because CPU pressure, steal and the noise floor differ between the runs.
    pub widened: f64,
}

/// Why there is no ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Too few rounds.
    Rounds { a: u32, b: u32 },
    /// Too few for a percentile.
    Samples { a: u64, b: u64, needs: u64 },
    /// The samples beyond a percentile come from too few rounds or repeats.
    Beyond,
    /// The figure is 0, so that there is no ratio to it.
    Zero,
    /// Extremes have no interval.
    Extreme,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Rounds { a, b } => write!(f, "{a} and {b} rounds: {MIN_ROUNDS} are needed"),
            Missing::Samples { a, b, needs } => write!(f, "{a} and {b} samples: {needs} are needed"),
            Missing::Beyond => f.write_str("the samples beyond it come from a few rounds: more rounds are needed"),
            Missing::Zero => f.write_str("the figure is 0"),
            Missing::Extreme => f.write_str("extremes have no interval"),
        }
    }
}

impl Difference {
    pub fn of(a: Side<'_>, b: Side<'_>, figure: Figure) -> Result<Difference, Missing> {
        let of = |side: &Side<'_>| side.rounds.estimate(figure);
        let (one, other) = match (of(&a), of(&b)) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(why), _) | (_, Err(why)) => return Err(missing(why, a, b, figure)),
        };
        if one.value <= 0.0 || other.value <= 0.0 {
            return Err(Missing::Zero);
        }
        let log = (other.value / one.value).ln();
        // A value may be anywhere within a step of the clock, however often it is read.
        let least = LEAST_VARIANCE + (a.resolution.powi(2) + b.resolution.powi(2)) / 12.0 + 2.0 * BETWEEN_RUNS.powi(2);
        let ((down_a, up_a), (down_b, up_b)) = (logarithmic(&one), logarithmic(&other));
        let error = |of_a: f64, of_b: f64| (of_a.powi(2) + of_b.powi(2) + least).sqrt();
        // B may be smaller and A larger than seen, or the other way round.
        let (below, above) = (error(up_a, down_b), error(down_a, up_b));
        let widened = Conditions::apart((&a, &one), (&b, &other), figure);
        let freedom = |of_a: f64, of_b: f64| welch((of_a, one.freedom), (of_b, other.freedom), least);
        let t = |freedom| student_quantile(1.0 - ERROR / 2.0, freedom);
        let reach = |error: f64, freedom: u32| t(freedom) * error + widened;
        let (free_below, free_above) = (freedom(up_a, down_b), freedom(down_a, up_b));
        let (to_one, free) = if log > 0.0 { (below, free_below) } else { (above, free_above) };
        let certain = (log.abs() - widened).max(0.0);
        Ok(Difference {
            ratio: log.exp(),
            interval: Interval {
                low: (log - reach(below, free_below)).exp(),
                high: (log + reach(above, free_above)).exp(),
            },
            probability: if certain == 0.0 { 1.0 } else { 2.0 * student_cdf(-certain / to_one, free) },
            widened: widened.exp() - 1.0,
        })
    }
}

/// The standard deviation of a figure's logarithm between runs on an unchanged machine, beyond what the rounds and repeats of one run show: a
/// machine stays a little slower or faster for longer than a run lasts. Without it, up to 8 of 100 pairs cut from one unchanged series
/// (docs/reference/compare.md) were called different.
const BETWEEN_RUNS: f64 = 0.007;

/// The standard deviations of the logarithm, downwards and upwards.
fn logarithmic(e: &Estimate) -> (f64, f64) {
    let down = if e.below < e.value { -(1.0 - e.below / e.value).ln() } else { f64::INFINITY };
    (down, (e.above / e.value).ln_1p())
}

/// Degrees of freedom of a difference (Welch 1947, Satterthwaite 1946); `known` is a variance that was not estimated.
fn welch((a, of_a): (f64, u32), (b, of_b): (f64, u32), known: f64) -> u32 {
    let (a, b) = (a.powi(2), b.powi(2));
    let all = (a + b + known).powi(2) / (a * a / f64::from(of_a.max(1)) + b * b / f64::from(of_b.max(1)));
    all.clamp(1.0, MOST_FREEDOM) as u32
}

/// With more degrees of freedom, Student's t is the normal distribution.
const MOST_FREEDOM: f64 = 1e4;

fn missing(why: Why, a: Side<'_>, b: Side<'_>, figure: Figure) -> Missing {
    let rounds = |side: Side<'_>| side.rounds.sampled().len() as u32;
    let samples = |side: Side<'_>| side.rounds.sorted().len() as u64;
    match (why, figure) {
        (Why::Extreme, _) => Missing::Extreme,
        (Why::Rounds(_), _) => Missing::Rounds { a: rounds(a), b: rounds(b) },
        (Why::Beyond, _) => Missing::Beyond,
        (Why::Samples, Figure::Percentile(p)) => Missing::Samples { a: samples(a), b: samples(b), needs: p.needs() },
        (Why::Samples | Why::Certain, _) => Missing::Zero,
    }
}
