//! How many times as slow one set of samples is as another.

use crate::family::ERROR;
use serde::{Deserialize, Serialize};
use statistics::distribution::{student_cdf, student_quantile};
use statistics::{Estimate, Figure, Interval, MIN_PROCESSES, Rounds, Why};
use std::fmt;

/// Minimum variance of a ratio's logarithm: even identical samples leave some uncertainty.
const LEAST_VARIANCE: f64 = 1e-12;

/// How far a figure of one process differs from that of another on an unchanged machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Between {
    /// The standard deviation of the logarithm.
    pub deviation: f64,
    pub freedom: u32,
}

/// Fewer processes do not show it well enough for a run that has one or two.
pub const SHOW_BETWEEN: usize = 5;

impl Between {
    /// `None` with fewer than [`SHOW_BETWEEN`] processes, or where the figure's error is unknown.
    pub fn shown(rounds: &Rounds, figure: Figure) -> Option<Between> {
        let processes = rounds.processes().len();
        let e = rounds.estimate(figure).ok().filter(|_| processes >= SHOW_BETWEEN)?;
        let deviation = e.down.max(e.up) * (processes as f64).sqrt();
        deviation.is_finite().then_some(Between { deviation, freedom: e.freedom })
    }
}

/// One of the two.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    pub rounds: &'a Rounds,
    /// For a run with too few processes to show it.
    pub between: Option<Between>,
}

impl Side<'_> {
    fn estimate(&self, figure: Figure) -> Result<Estimate, Why> {
        let own = self.rounds.estimate(figure);
        let (Err(Why::Processes(n)), Some(between)) = (own, self.between) else { return own };
        let value = self.rounds.figure(figure).ok_or(Why::Samples)?;
        let deviation = between.deviation / (n.max(1) as f64).sqrt();
        Ok(Estimate { value, down: deviation, up: deviation, freedom: between.freedom })
    }
}

/// B over A.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub ratio: f64,
    /// Holds the ratio with 99 % confidence.
    pub interval: Interval<f64>,
    /// The probability that two equal cells differ this much or more.
    pub probability: f64,
}

/// Why there is no ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Too few processes, and no earlier run of this machine shows how far they differ.
    Processes { a: u32, b: u32 },
    /// Too few for a percentile.
    Samples { a: u64, b: u64, needs: u64 },
    /// The samples beyond a percentile come from too few processes.
    Beyond,
    /// The figure is 0, so that there is no ratio to it.
    Zero,
    /// Extremes have no interval.
    Extreme,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Processes { a, b } => {
                write!(
                    f,
                    "{a} and {b} processes: {MIN_PROCESSES} are needed, or an earlier run of {SHOW_BETWEEN} on this machine"
                )
            }
            Missing::Samples { a, b, needs } => write!(f, "{a} and {b} samples: {needs} are needed"),
            Missing::Beyond => f.write_str("the samples beyond it come from too few processes"),
            Missing::Zero => f.write_str("the figure is 0"),
            Missing::Extreme => f.write_str("extremes have no interval"),
        }
    }
}

impl Difference {
    pub fn of(a: Side<'_>, b: Side<'_>, figure: Figure) -> Result<Difference, Missing> {
        let (one, other) = match (a.estimate(figure), b.estimate(figure)) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(why), _) | (_, Err(why)) => return Err(missing(why, a, b, figure)),
        };
        if one.value <= 0.0 || other.value <= 0.0 {
            return Err(Missing::Zero);
        }
        let log = (other.value / one.value).ln();
        // A value may be anywhere within a step of the clock, however often it is read.
        let clock = (a.rounds.resolution().powi(2) + b.rounds.resolution().powi(2)) / 12.0 + LEAST_VARIANCE;
        // B may be smaller and A larger than seen, or the other way round.
        let below = Error::of((one.up, one.freedom), (other.down, other.freedom), clock);
        let above = Error::of((one.down, one.freedom), (other.up, other.freedom), clock);
        let to_one = if log > 0.0 { &below } else { &above };
        Ok(Difference {
            ratio: log.exp(),
            interval: Interval { low: (log - below.reach()).exp(), high: (log + above.reach()).exp() },
            probability: to_one.chance(log),
        })
    }
}

/// The error of a difference to one side.
struct Error {
    deviation: f64,
    freedom: u32,
}

impl Error {
    /// Degrees of freedom of a difference: Welch 1947, Satterthwaite 1946. `known` is a variance that was not estimated.
    fn of((a, of_a): (f64, u32), (b, of_b): (f64, u32), known: f64) -> Error {
        let (a, b) = (a.powi(2), b.powi(2));
        let all = (a + b + known).powi(2) / (a * a / f64::from(of_a.max(1)) + b * b / f64::from(of_b.max(1)));
        Error { deviation: (a + b + known).sqrt(), freedom: all.clamp(1.0, MOST_FREEDOM) as u32 }
    }

    fn reach(&self) -> f64 {
        student_quantile(1.0 - ERROR / 2.0, self.freedom) * self.deviation
    }

    fn chance(&self, log: f64) -> f64 {
        if log == 0.0 || self.deviation.is_infinite() {
            1.0
        } else {
            2.0 * student_cdf(-log.abs() / self.deviation, self.freedom)
        }
    }
}

/// With more degrees of freedom, Student's t is the normal distribution.
const MOST_FREEDOM: f64 = 1e4;

fn missing(why: Why, a: Side<'_>, b: Side<'_>, figure: Figure) -> Missing {
    let processes = |side: Side<'_>| side.rounds.processes().len() as u32;
    let samples = |side: Side<'_>| side.rounds.sorted().len() as u64;
    match (why, figure) {
        (Why::Extreme, _) => Missing::Extreme,
        (Why::Processes(_), _) => Missing::Processes { a: processes(a), b: processes(b) },
        (Why::Beyond, _) => Missing::Beyond,
        (Why::Samples, Figure::Percentile(p)) => Missing::Samples { a: samples(a), b: samples(b), needs: p.needs() },
        (Why::Samples | Why::Certain, _) => Missing::Zero,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in docs/reference/compare.md.
    #[test]
    fn the_page_has_a_ratio_that_can_be_computed_by_hand() {
        let counts = [
            [2, 5, 6, 4, 2, 1, 0],
            [1, 3, 6, 5, 3, 1, 1],
            [3, 5, 5, 4, 2, 1, 0],
            [1, 2, 5, 6, 4, 1, 1],
            [2, 4, 6, 4, 3, 1, 0],
        ];
        let run = |percent: u64| {
            let process = |counts: &[usize; 7]| -> Vec<u64> {
                let values = (0..7).map(|step| (4000 + 50 * step) * percent / 100);
                values.zip(counts).flat_map(|(value, n)| vec![value; *n]).collect()
            };
            Rounds::new(&counts.iter().map(process).collect::<Vec<_>>()).in_repeats_of(1)
        };
        let (a, b) = (run(100), run(105));
        let Interval { low, high } = a.interval(Figure::P50, 0.99).unwrap();
        // With half a step of the clock.
        assert_eq!((a.figure(Figure::P50), low.round(), high), (Some(4100.0), 4029.0, 4175.0));
        let side = |rounds| Side { rounds, between: None };
        let found = Difference::of(side(&a), side(&b), Figure::P50).unwrap();
        let rounded = [found.ratio, found.interval.low, found.interval.high].map(|v| (v * 1000.0).round() / 1000.0);
        assert_eq!(rounded, [1.05, 1.033, 1.067]);
    }
}
