//! Values over time, one each period: whether they grow, and whether the last ones differ from the first.
//!
//! Neighbours are alike: a machine stays slow for a while, memory stays where it was. Intervals are therefore as wide as for fewer independent
//! values: for an autoregression with the correlation `r` of neighbours, n values count as n (1 - r) / (1 + r).

use crate::Interval;
use crate::distribution::student_quantile;
use serde::{Deserialize, Serialize};

/// With fewer values there is no trend.
pub const MIN_VALUES: usize = 6;

/// Upper limit of the correlation of neighbours: for a random walk no interval would be wide enough.
const MOST_ALIKE: f64 = 0.95;

/// A straight line through values over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// For each unit of time.
    pub slope: f64,
    pub interval: Interval<f64>,
}

impl Trend {
    /// Groups of (time, value), in the order of time. Each group has its own level, and all have one slope: by least squares. `None` with fewer
    /// than [`MIN_VALUES`] values, or if all have the same time.
    pub fn of(groups: &[Vec<(f64, f64)>], confidence: f64) -> Option<Trend> {
        let groups: Vec<&Vec<(f64, f64)>> = groups.iter().filter(|group| !group.is_empty()).collect();
        let n: usize = groups.iter().map(|group| group.len()).sum();
        if n < MIN_VALUES + groups.len() - 1 {
            return None;
        }
        let centred: Vec<Vec<(f64, f64)>> = groups.iter().map(|group| centred(group)).collect();
        let all = || centred.iter().flatten();
        let (spread, product) = all().fold((0.0, 0.0), |(s, p), (t, v)| (s + t * t, p + t * v));
        if spread <= 0.0 {
            return None;
        }
        let slope = product / spread;
        let rests: Vec<Vec<f64>> = centred.iter().map(|g| g.iter().map(|(t, v)| v - slope * t).collect()).collect();
        let wider = wider(&rests, 1.0 + groups.len() as f64);
        let freedom = n as f64 - groups.len() as f64 - 1.0;
        let squares: f64 = rests.iter().flatten().map(|r| r * r).sum();
        let error = (squares / freedom * wider / spread).sqrt();
        let t = student_quantile((1.0 + confidence) / 2.0, (freedom / wider).floor().max(2.0) as u32);
        Some(Trend { slope, interval: Interval { low: slope - t * error, high: slope + t * error } })
    }
}

/// Times and values less their means.
fn centred(group: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let n = group.len() as f64;
    let (time, value) = group.iter().fold((0.0, 0.0), |(a, b), (t, v)| (a + t / n, b + v / n));
    group.iter().map(|(t, v)| (t - time, v - value)).collect()
}

/// How much larger the variance of a mean is than for independent values. `fitted` levels and slopes were estimated: each makes neighbours look
/// less alike than they are, by about (1 + 2 r) / n (Marriott and Pope 1954).
fn wider(rests: &[Vec<f64>], fitted: f64) -> f64 {
    let n: usize = rests.iter().map(Vec::len).sum();
    let squares: f64 = rests.iter().flatten().map(|r| r * r).sum();
    let products: f64 = rests.iter().flat_map(|r| r.windows(2)).map(|two| two[0] * two[1]).sum();
    let seen = if squares > 0.0 { products / squares } else { 0.0 };
    let alike = (seen + fitted * (1.0 + 2.0 * seen.max(0.0)) / n as f64).clamp(0.0, MOST_ALIKE);
    (1.0 + alike) / (1.0 - alike)
}

/// The ratio of the mean of later values to that of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    pub ratio: f64,
    pub interval: Interval<f64>,
}

impl Shift {
    /// `later` over `earlier`, by their logarithms, each in the order of time. `None` with fewer than six of either, or values that are not above
    /// 0. Deviations from a straight line through each count as noise, so that steady growth is not taken for a machine that stays slow for a
    /// while.
    pub fn of(earlier: &[f64], later: &[f64], confidence: f64) -> Option<Shift> {
        if earlier.len().min(later.len()) < LEAST || earlier.iter().chain(later).any(|v| *v <= 0.0) {
            return None;
        }
        let of = |values: &[f64]| {
            let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            (mean, off_line(&logs))
        };
        let ((before, a), (after, b)) = (of(earlier), of(later));
        let variance = |rests: &[f64]| rests.iter().map(|r| r * r).sum::<f64>() / (rests.len() - 2) as f64;
        let parts = [&a, &b].map(|r| variance(r) / r.len() as f64);
        let rests = [a, b];
        let wider = wider(&rests, LINES);
        // Welch and Satterthwaite, with the effective number of values.
        let freedom = |(part, rests): (&f64, &Vec<f64>)| {
            part * part / (rests.len() as f64 / wider - 1.0).clamp(1.0, rests.len() as f64)
        };
        let parts_of_freedom: f64 = parts.iter().zip(&rests).map(freedom).sum();
        let sum: f64 = parts.iter().sum();
        let freedom = if parts_of_freedom > 0.0 { (sum * sum / parts_of_freedom).floor().max(2.0) } else { 2.0 };
        let t = student_quantile((1.0 + confidence) / 2.0, freedom as u32);
        let (change, error) = (after - before, (sum * wider).sqrt());
        let interval = Interval { low: (change - t * error).exp(), high: (change + t * error).exp() };
        Some(Shift { ratio: change.exp(), interval })
    }
}

/// Levels and slopes of both lines.
const LINES: f64 = 4.0;

/// The residuals of values from a straight line through them.
fn off_line(values: &[f64]) -> Vec<f64> {
    let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(i, v)| (i as f64, *v)).collect();
    let centred = centred(&points);
    let (spread, product) = centred.iter().fold((0.0, 0.0), |(s, p), (t, v)| (s + t * t, p + t * v));
    centred.iter().map(|(t, v)| v - product / spread * t).collect()
}

/// Values on each side of a shift.
const LEAST: usize = MIN_VALUES;

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of which neighbours are alike by `r`.
    fn noise(n: usize, r: f64, random: &mut fastrand::Rng) -> Vec<f64> {
        let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let mut last = normal();
        let step = (1.0 - r * r).sqrt();
        (0..n)
            .map(|_| {
                let now = last;
                last = r * last + step * normal();
                now
            })
            .collect()
    }

    #[test]
    fn a_line_is_the_one_of_least_squares_whatever_the_level_of_a_group() {
        let line = |level: f64, from: usize| (from..from + 5).map(move |i| (i as f64, level + 3.0 * i as f64));
        let groups = vec![line(0.0, 0).collect(), line(1e6, 5).collect(), Vec::new()];
        let trend = Trend::of(&groups, 0.95).unwrap();
        assert!((trend.slope - 3.0).abs() < 1e-6 && trend.interval.high - trend.interval.low < 1e-4, "{trend:?}");
        // Anscombe's first set: slope 0.5001, standard error 0.1179 for independent values.
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let trend = Trend::of(&[x.into_iter().zip(y).collect()], 0.95).unwrap();
        assert!((trend.slope - 0.5001).abs() < 1e-4, "{trend:?}");
        let half = (trend.interval.high - trend.interval.low) / 2.0;
        // 2.262 standard errors, and more where neighbours may be alike.
        assert!((0.2667..0.45).contains(&half), "{trend:?}");
        assert_eq!(Trend::of(&[vec![(0.0, 1.0); 9]], 0.95), None, "one moment has no slope");
        assert_eq!(Trend::of(&[vec![(0.0, 1.0), (1.0, 2.0)]], 0.95), None);
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let (mut random, tries) = (fastrand::Rng::with_seed(4), 300);
        for (r, least) in [(0.0, (274, 274)), (0.5, (274, 266)), (0.8, (264, 246))] {
            let (mut slopes, mut shifts) = (0, 0);
            for _ in 0..tries {
                let values = noise(72, r, &mut random);
                let line: Vec<(f64, f64)> =
                    values.iter().enumerate().map(|(i, v)| (i as f64, v + 0.01 * i as f64)).collect();
                slopes += usize::from(Trend::of(&[line], 0.95).unwrap().interval.holds(0.01));
                let at = |v: &f64, level: f64| level * (1.0 + 0.01 * v);
                let first: Vec<f64> = values[..24].iter().map(|v| at(v, 50.0)).collect();
                let last: Vec<f64> = values[48..].iter().map(|v| at(v, 55.0)).collect();
                shifts += usize::from(Shift::of(&first, &last, 0.95).unwrap().interval.holds(1.1));
            }
            // 285 of 300 are expected. The correlation of 24 strongly correlated values cannot be estimated well: then some are missing.
            assert!(slopes >= least.0 && shifts >= least.1, "{r}: {slopes} and {shifts} of {tries}");
        }
    }

    #[test]
    fn growth_is_found() {
        let mut random = fastrand::Rng::with_seed(5);
        let values = noise(72, 0.5, &mut random);
        let line: Vec<(f64, f64)> = values.iter().enumerate().map(|(i, v)| (i as f64, v + 0.2 * i as f64)).collect();
        assert!(Trend::of(&[line], 0.95).unwrap().interval.low > 0.0);
        let slower: Vec<f64> = (0..24).map(|i| 1.03 * (100.0 + values[i])).collect();
        let shift = Shift::of(&values[48..].iter().map(|v| 100.0 + v).collect::<Vec<_>>(), &slower, 0.95).unwrap();
        assert!(shift.interval.low > 1.0 && (1.02..1.04).contains(&shift.ratio), "{shift:?}");
        assert_eq!(Shift::of(&[1.0; 5], &[1.0; 9], 0.95), None);
        assert_eq!(Shift::of(&[1.0, 0.0, 2.0, 1.0, 1.0, 1.0], &[1.0; 9], 0.95), None);
        let same = Shift::of(&[2.0; 6], &[3.0; 6], 0.95).unwrap();
        assert!((same.ratio - 1.5).abs() < 1e-9 && same.interval.high < 1.5001);
    }
}
