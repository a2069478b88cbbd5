//! A figure of all samples, and how far it can be off.
//!
//! The mean's interval is Student's. A value belongs to the interval of a percentile if the part of the samples at or below it is compatible with the
//! percentile. The part of each process is known, and Student's t bounds the error of their mean (Woodruff, Confidence Intervals for Medians and
//! Other Position Measures, 1952). The interval also covers the interval by Student's t of the processes' own percentiles.

use crate::distribution::student_quantile;
use crate::processes::{MIN_PROCESSES, places};
use crate::{Figure, Interval, Percentile, Rounds};

/// A figure, and the standard deviation of its logarithm to both sides: infinite where it is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub value: f64,
    pub down: f64,
    pub up: f64,
    pub freedom: u32,
}

/// Why there is no estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// Processes do not show how far an extreme can be off.
    Extreme,
    /// Too few samples for the figure.
    Samples,
    /// So many processes, and more are needed.
    Processes(usize),
    /// The samples beyond a tail's percentile come from too few processes.
    Beyond,
    /// None of the samples missed, or all of them did.
    Certain,
}

/// The distance at which [`Rounds::estimate`] measures deviations: that of a comparison's verdict.
const FAR: f64 = 0.99;

/// For an end that is computed from equal samples.
const ROUNDING: f64 = 1e-9;

impl Rounds {
    /// # Errors
    /// Why the figure has no estimate.
    pub fn estimate(&self, figure: Figure) -> Result<Estimate, Why> {
        let (value, freedom) = self.known(figure)?;
        let reach = reach(FAR, freedom);
        let Interval { low, high } = self.ends(figure, value, reach)?;
        let down = low.filter(|low| *low > 0.0).map_or(f64::INFINITY, |low| (value / low).ln() / reach);
        let up = high.map_or(f64::INFINITY, |high| (high / value).ln() / reach);
        Ok(Estimate { value, down, up, freedom })
    }

    /// An interval that holds the figure with this confidence. `None` if [`Rounds::estimate`] has none, or if it would end beyond the samples.
    pub fn interval(&self, figure: Figure, confidence: f64) -> Option<Interval<f64>> {
        let (value, freedom) = self.known(figure).ok()?;
        let ends = self.ends(figure, value, reach(confidence, freedom)).ok()?;
        let (low, high) = (ends.low?, ends.high?);
        // A value may be anywhere within a step of the clock.
        let half = if matches!(figure, Figure::Misses(_)) { 0.0 } else { self.step() as f64 / 2.0 };
        let (first, last) = (*self.sorted().first()? as f64, *self.sorted().last()? as f64);
        let within = |end: f64| if half > 0.0 { end.clamp(first, last) } else { end };
        Some(Interval { low: within(low - half), high: within(high + half) })
    }

    /// The figure, and the degrees of freedom of its error.
    fn known(&self, figure: Figure) -> Result<(f64, u32), Why> {
        if !figure.has_interval() {
            return Err(Why::Extreme);
        }
        let value = self.figure(figure).ok_or(Why::Samples)?;
        let processes = self.processes().len();
        if processes < MIN_PROCESSES {
            return Err(Why::Processes(processes));
        }
        let mut independent = processes as f64;
        if let (Figure::Percentile(_), true) = (figure, figure.is_tail()) {
            // A tail is known from as many processes as its samples come from.
            independent = independent.min(places(self.by_process(&self.above(value)).into_iter()));
            if independent < MIN_PROCESSES as f64 {
                return Err(Why::Beyond);
            }
        }
        Ok((value, independent as u32 - 1))
    }

    /// The ends, so many standard deviations away; none where the samples end before.
    fn ends(&self, figure: Figure, value: f64, reach: f64) -> Result<Interval<Option<f64>>, Why> {
        let all = self.sorted();
        let (Some(min), Some(max)) = (all.first(), all.last()) else { return Err(Why::Samples) };
        let (min, max) = (*min as f64, *max as f64);
        let within =
            |end: f64| (min * (1.0 - ROUNDING) <= end && end <= max * (1.0 + ROUNDING)).then(|| end.clamp(min, max));
        Ok(match figure {
            Figure::Misses(above) => {
                if value <= 0.0 || value >= 1.0 {
                    return Err(Why::Certain);
                }
                let (_, pulls) = self.pulls(&self.above(above as f64));
                let odds = self.deviation_of(&pulls) / (value * (1.0 - value));
                let at = |deviations: f64| logistic((value / (1.0 - value)).ln() + deviations * odds);
                Interval { low: Some(at(-reach)), high: Some(at(reach)) }
            }
            Figure::Percentile(p) => {
                let shares = self.compatible(p, reach);
                let mut off = self.deviation_of_logarithms(p).unwrap_or(0.0);
                if figure.is_tail() {
                    // Few processes do not show the slowest ones, which decide a tail: another process may be slower as a whole.
                    let as_a_whole = self.deviation_of_logarithms(Percentile::P50).unwrap_or(0.0);
                    off = off.max(as_a_whole * (self.processes().len() as f64 + 1.0).sqrt());
                }
                let wider = (off * reach).exp();
                let low = shares.low.and_then(|low| within(low.min(value / wider)));
                let high = shares.high.and_then(|high| within(high.max(value * wider)));
                Interval { low, high }
            }
            _ => {
                let (_, pulls) = self.pulls(self.sums());
                let off = reach * self.deviation_of(&pulls);
                Interval { low: within(value - off), high: within(value + off) }
            }
        })
    }

    /// The mean over all samples of something that is summed up by rounds, and how much each round moves it.
    pub(crate) fn pulls(&self, sums: &[f64]) -> (f64, Vec<f64>) {
        let n = self.sorted().len() as f64;
        let mean = sums.iter().sum::<f64>() / n;
        (mean, sums.iter().enumerate().map(|(r, sum)| (sum - mean * self.samples(r) as f64) / n).collect())
    }

    /// The deviation of the mean of the logarithms of the processes' own percentiles, however few samples they have beyond it.
    fn deviation_of_logarithms(&self, percentile: Percentile) -> Option<f64> {
        let own = self.by_process_sorted().into_iter().filter_map(|all| {
            let rank = percentile.nearest(all.len() as u64) as usize;
            all.get(rank.checked_sub(1)?).map(|v| (*v as f64).ln())
        });
        deviation_of_mean(&own.collect::<Vec<_>>()).filter(|d| d.is_finite())
    }

    /// How many samples of each round are at most `value`.
    pub(crate) fn up_to(&self, value: f64) -> Vec<f64> {
        let mut counts = vec![0.0; self.len()];
        let until = self.sorted().partition_point(|v| *v as f64 <= value);
        self.round_of()[..until].iter().for_each(|r| counts[*r as usize] += 1.0);
        counts
    }

    /// How many samples of each round are more than `value`.
    pub(crate) fn above(&self, value: f64) -> Vec<f64> {
        self.up_to(value).iter().enumerate().map(|(r, up_to)| self.samples(r) as f64 - up_to).collect()
    }

    /// The samples whose part at or below them is compatible with the percentile: the first and the last. `None` where no sample is beyond the end.
    fn compatible(&self, percentile: Percentile, reach: f64) -> Interval<Option<f64>> {
        let (samples, rounds) = (self.sorted(), self.round_of());
        let place = self.process_of_rounds();
        let sizes: Vec<f64> = (0..self.len()).map(|r| self.samples(r) as f64).collect();
        let mut processes = Counts::of(self.by_process(&sizes));
        let mut of_rounds = Counts::of(sizes);
        let (units, n, target) = (self.units(), samples.len() as f64, percentile.fraction());
        let (mut low, mut high) = (None, None);
        // The largest part that is compatible with the samples below the current one.
        let mut least_below = 0.0;
        for (at, (value, round)) in samples.iter().zip(rounds).enumerate() {
            place[*round as usize].into_iter().for_each(|process| processes.add(process));
            of_rounds.add(*round as usize);
            if samples.get(at + 1) == Some(value) {
                continue;
            }
            let part = (at + 1) as f64 / n;
            let off = reach * units.deviation(processes.squares(part), of_rounds.squares(part)) / n;
            if low.is_none() && part + off >= target {
                low = Some(*value);
            }
            if least_below < target {
                high = Some(*value);
            }
            least_below = part - off;
        }
        // A single largest sample does not show where larger ones would be.
        let alone = |end: &u64| samples.partition_point(|v| v < end) + 1 == samples.len();
        Interval { low: low.map(|v| v as f64), high: high.filter(|end| !alone(end)).map(|v| v as f64) }
    }
}

/// Counts of some units as they grow, and the sum of squares of their differences from what a part of all samples predicts.
struct Counts {
    counts: Vec<f64>,
    sizes: Vec<f64>,
    squares: f64,
    with_size: f64,
    of_sizes: f64,
}

impl Counts {
    fn of(sizes: Vec<f64>) -> Counts {
        let of_sizes = sizes.iter().map(|n| n * n).sum();
        Counts { counts: vec![0.0; sizes.len()], sizes, squares: 0.0, with_size: 0.0, of_sizes }
    }

    fn add(&mut self, unit: usize) {
        self.squares += 2.0 * self.counts[unit] + 1.0;
        self.with_size += self.sizes[unit];
        self.counts[unit] += 1.0;
    }

    fn squares(&self, part: f64) -> f64 {
        self.squares - 2.0 * part * self.with_size + part * part * self.of_sizes
    }
}

/// The standard deviation of the mean of independent values. `None` with fewer than two.
pub(crate) fn deviation_of_mean(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt())
}

/// Number of standard deviations to each side that hold a figure with this confidence.
pub(crate) fn reach(confidence: f64, freedom: u32) -> f64 {
    student_quantile((1.0 + confidence) / 2.0, freedom)
}

fn logistic(odds: f64) -> f64 {
    1.0 / (1.0 + (-odds).exp())
}
