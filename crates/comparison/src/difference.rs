//! How many times as slow one set of rounds is as another.

use crate::Speeds;
use crate::family::ERROR;
use serde::{Deserialize, Serialize};
use statistics::distribution::{student_cdf, student_quantile};
use statistics::{Figure, Interval, MIN_ROUNDS, Rounds};
use std::fmt;

/// So often rounds are drawn for the error of a ratio. It is known to 2 % then.
const DRAWS: u32 = 1000;

/// Of a ratio's logarithm.
const LEAST_VARIANCE: f64 = 1e-12;

/// One of the two.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    pub rounds: &'a Rounds,
    /// The repeat, a process of its own, that each round belongs to.
    pub repeats: &'a [u32],
    pub speeds: &'a Speeds,
    /// The step of the clock, as a part of the median: see [`resolution`].
    pub resolution: f64,
}

/// The least difference of two samples, as a part of their median: what a clock cannot tell apart. 0 where all are alike.
pub fn resolution(rounds: &Rounds) -> f64 {
    let steps = rounds.sorted().windows(2).map(|w| w[1] - w[0]).filter(|step| *step > 0);
    let median = rounds.figure(Figure::P50).filter(|m| *m > 0.0);
    steps.min().zip(median).map_or(0.0, |(step, median)| step as f64 / median)
}

/// B over A, rounds compared at the same speed of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub ratio: f64,
    /// Holds the ratio with 99 %.
    pub interval: Interval<f64>,
    /// How probable it is that two equal cells are so far apart, or further.
    pub probability: f64,
    pub matched: Vec<Matched>,
    /// How much wider the error is than that of independent rounds: repeats or rounds in a row are alike, or the clock is
    /// coarse.
    pub widened: f64,
}

/// A speed of the host that both had.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matched {
    /// The figure at this speed.
    pub a: f64,
    pub b: f64,
    pub rounds_a: u32,
    pub rounds_b: u32,
}

/// Why there is no ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// With so many rounds at a speed that both had.
    Rounds { a: u32, b: u32 },
    /// Too few for a percentile at the speeds that both had.
    Samples { a: u64, b: u64, needs: u64 },
    /// The figure is 0, and nothing is a multiple of it.
    Zero,
    /// Of extremes there is no interval.
    Extreme,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Rounds { a, b } => {
                write!(f, "{a} and {b} rounds at the same speed of the host: {MIN_ROUNDS} are needed")
            }
            Missing::Samples { a, b, needs } => {
                write!(f, "{a} and {b} samples at the same speed of the host: {needs} are needed")
            }
            Missing::Zero => f.write_str("the figure is 0"),
            Missing::Extreme => f.write_str("extremes have no interval"),
        }
    }
}

/// Rounds of both at one speed, by their numbers.
struct Stratum {
    a: Vec<usize>,
    b: Vec<usize>,
    weight: f64,
}

impl Difference {
    pub fn of(a: Side<'_>, b: Side<'_>, figure: Figure, seed: u64) -> Result<Difference, Missing> {
        if !figure.has_interval() {
            return Err(Missing::Extreme);
        }
        if [a, b].iter().any(|side| side.rounds.figure(Figure::P50) == Some(0.0)) {
            return Err(Missing::Zero);
        }
        let strata = strata(a, b, figure)?;
        let matched: Vec<Matched> = strata
            .iter()
            .map(|s| at_one_speed(a.rounds, b.rounds, s, figure))
            .collect::<Option<_>>()
            .ok_or(Missing::Zero)?;
        let whole: f64 = strata.iter().map(|s| s.weight).sum();
        let log = strata.iter().zip(&matched).map(|(s, m)| s.weight * (m.b / m.a).ln()).sum::<f64>() / whole;
        let (rounds_a, rounds_b) = counted(&strata);
        let freedom = (rounds_a + rounds_b - 2 * strata.len()) as f64;
        let own = drawn_variance(a.rounds, b.rounds, &strata, figure, seed).ok_or(Missing::Zero)?;
        let medians = match figure {
            Figure::P50 => own,
            _ => drawn_variance(a.rounds, b.rounds, &strata, Figure::P50, seed).ok_or(Missing::Zero)?,
        };
        let (variance, freedom) = dependence(a, b, &strata).widened(own, medians, freedom);
        // A value lies anywhere within a step of the clock, however often it is read.
        let variance = variance + (a.resolution.powi(2) + b.resolution.powi(2)) / 12.0;
        let error = variance.sqrt();
        let reach = student_quantile(1.0 - ERROR / 2.0, freedom as u32) * error;
        Ok(Difference {
            ratio: log.exp(),
            interval: Interval { low: (log - reach).exp(), high: (log + reach).exp() },
            probability: if log == 0.0 { 1.0 } else { 2.0 * student_cdf(-log.abs() / error, freedom as u32) },
            matched,
            widened: (variance / own).sqrt(),
        })
    }
}

/// Rounds at the speeds that both had, where they are enough.
fn strata(a: Side<'_>, b: Side<'_>, figure: Figure) -> Result<Vec<Stratum>, Missing> {
    let at = |speeds: &Speeds, speed: usize| -> Vec<usize> {
        (0..speeds.of.len()).filter(|r| speeds.of[*r] == Some(speed)).collect()
    };
    let all: Vec<Stratum> = a
        .speeds
        .matched(b.speeds)
        .into_iter()
        .map(|(of_a, of_b)| {
            let (a, b) = (at(a.speeds, of_a), at(b.speeds, of_b));
            let (m, n) = (a.len() as f64, b.len() as f64);
            // The variance of a difference of two means is as 1 / m + 1 / n.
            Stratum { a, b, weight: m * n / (m + n).max(1.0) }
        })
        .filter(|s| s.a.len().min(s.b.len()) > 1)
        .collect();
    let (rounds_a, rounds_b) = counted(&all);
    if rounds_a.min(rounds_b) < MIN_ROUNDS {
        return Err(Missing::Rounds { a: rounds_a as u32, b: rounds_b as u32 });
    }
    let Figure::Percentile(percentile) = figure else { return Ok(all) };
    // All speeds together have ten samples beyond it, and each has some.
    let needs = percentile.needs();
    let samples = |rounds: &Rounds, of: &[usize]| of.iter().map(|r| rounds.samples(*r)).sum::<u64>();
    let both = |s: &Stratum| (samples(a.rounds, &s.a), samples(b.rounds, &s.b));
    let most = all.iter().map(both).max_by_key(|(a, b)| *a.min(b)).unwrap_or_default();
    let enough: Vec<Stratum> = all.into_iter().filter(|s| both(s).0.min(both(s).1) >= needs.div_ceil(4)).collect();
    let sum = enough.iter().map(both).reduce(|sum, s| (sum.0 + s.0, sum.1 + s.1));
    let (samples_a, samples_b) = sum.unwrap_or(most);
    if samples_a.min(samples_b) < needs {
        return Err(Missing::Samples { a: samples_a, b: samples_b, needs });
    }
    match counted(&enough) {
        (a, b) if a.min(b) < MIN_ROUNDS => Err(Missing::Rounds { a: a as u32, b: b as u32 }),
        _ => Ok(enough),
    }
}

fn counted(strata: &[Stratum]) -> (usize, usize) {
    strata.iter().fold((0, 0), |(a, b), s| (a + s.a.len(), b + s.b.len()))
}

/// A figure that has a logarithm.
fn drawn(rounds: &Rounds, figure: Figure, times: &[u32]) -> Option<f64> {
    rounds.drawn(figure, times).filter(|v| *v > 0.0)
}

fn at_one_speed(a: &Rounds, b: &Rounds, stratum: &Stratum, figure: Figure) -> Option<Matched> {
    let once = |rounds: &Rounds, of: &[usize]| {
        let mut times = vec![0; rounds.len()];
        of.iter().for_each(|r| times[*r] = 1);
        drawn(rounds, figure, &times)
    };
    Some(Matched {
        a: once(a, &stratum.a)?,
        b: once(b, &stratum.b)?,
        rounds_a: stratum.a.len() as u32,
        rounds_b: stratum.b.len() as u32,
    })
}

/// The variance of the logarithm of the ratio, from rounds drawn with replacement, at each speed by itself.
fn drawn_variance(a: &Rounds, b: &Rounds, strata: &[Stratum], figure: Figure, seed: u64) -> Option<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut times_a, mut times_b) = (vec![0; a.len()], vec![0; b.len()]);
    let mut draw = |times: &mut [u32], of: &[usize]| {
        times.fill(0);
        of.iter().for_each(|_| times[of[random.usize(0..of.len())]] += 1);
    };
    let whole: f64 = strata.iter().map(|s| s.weight).sum();
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..DRAWS {
        let mut log = 0.0;
        for s in strata {
            draw(&mut times_a, &s.a);
            draw(&mut times_b, &s.b);
            log += s.weight * (drawn(b, figure, &times_b)? / drawn(a, figure, &times_a)?).ln();
        }
        sum += log / whole;
        squares += (log / whole).powi(2);
    }
    let draws = f64::from(DRAWS);
    let variance = (squares - sum * sum / draws).max(0.0) / (draws - 1.0);
    // Draws from n rounds spread by (n - 1) / n less than rounds do.
    let least = strata.iter().map(|s| s.a.len().min(s.b.len())).max()? as f64;
    // Rounds that are all alike still leave something to be known.
    Some((variance * least / (least - 1.0)).max(LEAST_VARIANCE))
}

/// How much the medians of rounds depend on each other. For each figure they stand in: tails of single rounds are too noisy
/// to tell.
///
/// Each repeat is a process of its own with its own addresses and its own luck: where rounds of one repeat are more alike than
/// those of different ones, repeats are the units. And where a round is like the one before it, rounds count for less.
struct Dependence {
    /// The variance of repeats over that of rounds, and the degrees of freedom that repeats leave; `None` where repeats
    /// differ less than rounds do.
    repeats: Option<(f64, f64)>,
    /// How many times the variance of independent rounds it is.
    in_a_row: f64,
}

impl Dependence {
    /// `own` is the variance of a figure over independent rounds, `medians` that of the median. The answer has degrees of
    /// freedom.
    fn widened(&self, own: f64, medians: f64, freedom: f64) -> (f64, f64) {
        let in_a_row = own + medians * (self.in_a_row - 1.0);
        let Some((quotient, repeats_free)) = self.repeats else { return (in_a_row, freedom) };
        let variance = own + medians * (quotient - 1.0);
        // Satterthwaite: what repeats say of the medians has few degrees of freedom, the rest has many.
        let rest = (own - medians).abs();
        let denominator = (medians * quotient).powi(2) / repeats_free + rest.powi(2) / freedom;
        (variance.max(in_a_row), (variance.powi(2) / denominator).clamp(repeats_free, freedom))
    }
}

fn dependence(a: Side<'_>, b: Side<'_>, strata: &[Stratum]) -> Dependence {
    let residuals = [residuals(a, strata.iter().map(|s| &s.a)), residuals(b, strata.iter().map(|s| &s.b))];
    let (mut between, mut groups_free, mut within, mut within_free) = (0.0, 0, 0.0, 0);
    let mut products = 0.0;
    for (side, residuals) in [a, b].iter().zip(&residuals) {
        let mut repeats: Vec<u32> = side.repeats.to_vec();
        repeats.sort_unstable();
        repeats.dedup();
        let mut groups = 0u32;
        for repeat in repeats {
            let own: Vec<f64> = residuals
                .iter()
                .zip(side.repeats)
                .filter_map(|(residual, of)| residual.filter(|_| *of == repeat))
                .collect();
            if own.is_empty() {
                continue;
            }
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            between += own.len() as f64 * mean * mean;
            within += own.iter().map(|r| (r - mean).powi(2)).sum::<f64>();
            within_free += own.len() as u32 - 1;
            groups += 1;
            products += own.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum::<f64>();
        }
        groups_free += groups.saturating_sub(1);
    }
    if within_free == 0 || within <= 0.0 {
        return Dependence { repeats: None, in_a_row: 1.0 };
    }
    let alike = products / within;
    let by_chance = 2.0 / f64::from(within_free).sqrt();
    let in_a_row = if alike > by_chance { (1.0 + alike) / (1.0 - alike) } else { 1.0 };
    let quotient = (between / f64::from(groups_free.max(1))) / (within / f64::from(within_free));
    // No test whether they differ comes first: of three repeats it seldom notices, and what it overlooks is then a false alarm.
    let differ = groups_free > 0 && quotient > 1.0;
    Dependence { repeats: differ.then_some((quotient, f64::from(groups_free))), in_a_row }
}

/// How far the logarithm of each round's median lies from the mean at its speed.
fn residuals<'s>(side: Side<'_>, strata: impl Iterator<Item = &'s Vec<usize>>) -> Vec<Option<f64>> {
    let mut found = vec![None; side.rounds.len()];
    let mut times = vec![0; side.rounds.len()];
    for rounds in strata {
        let logs: Vec<(usize, f64)> = rounds
            .iter()
            .filter_map(|r| {
                times.fill(0);
                times[*r] = 1;
                Some((*r, drawn(side.rounds, Figure::P50, &times)?.ln()))
            })
            .collect();
        let mean = logs.iter().map(|(_, l)| l).sum::<f64>() / logs.len().max(1) as f64;
        logs.into_iter().for_each(|(r, log)| found[r] = Some(log - mean));
    }
    found
}
