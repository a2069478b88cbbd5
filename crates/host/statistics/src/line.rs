//! A straight line through points, and the steps of a quantity.

use crate::Interval;
use crate::distribution::student_quantile;
use serde::{Deserialize, Serialize};

/// The line with minimum squared distances in y, as in `scipy.stats.linregress`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub points: u64,
    pub slope: f64,
    pub intercept: f64,
    /// By Student's distribution with two degrees of freedom less than points; none with two points. It assumes that deviations from the line are
    /// independent: points on a staircase are not, and have no valid interval of this kind.
    pub slope_interval: Option<Interval<f64>>,
    /// The part of y's variance that the line explains; none if y does not vary.
    pub r_squared: Option<f64>,
}

impl Line {
    /// `None` of points with fewer than two different x.
    pub fn through(points: &[(f64, f64)], confidence: f64) -> Option<Line> {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x_mean, y_mean) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|(x, y)| of(x - x_mean, y - y_mean)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if points.len() < 2 || xx <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        let left = sum(&|x, y| (y - slope * x).powi(2));
        let freedom = points.len() as u32 - 2;
        let slope_interval = (freedom > 0).then(|| {
            let error = (left / f64::from(freedom) / xx).sqrt();
            let half = student_quantile(f64::midpoint(1.0, confidence), freedom) * error;
            Interval { low: slope - half, high: slope + half }
        });
        Some(Line {
            points: points.len() as u64,
            slope,
            intercept: y_mean - slope * x_mean,
            slope_interval,
            r_squared: (yy > 0.0).then(|| xy * xy / xx / yy),
        })
    }
}

/// A quantity that is counted exactly changed between two neighbouring points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The last x with the old value and the first with the new one: the change is somewhere between them.
    pub after: u64,
    pub at: u64,
    pub from: u64,
    pub to: u64,
}

/// The changes of y, of points in the order of x.
pub fn steps(points: &[(u64, u64)]) -> Vec<Step> {
    let step = |two: &[(u64, u64)]| Step { after: two[0].0, at: two[1].0, from: two[0].1, to: two[1].1 };
    points.windows(2).filter(|two| two[0].1 != two[1].1).map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again() {
        let points: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), 3.0 * f64::from(x) - 7.0)).collect();
        let line = Line::through(&points, 0.95).unwrap();
        assert!((line.slope - 3.0).abs() < 1e-12 && (line.intercept + 7.0).abs() < 1e-12, "{line:?}");
        let interval = line.slope_interval.unwrap();
        assert!(interval.high - interval.low < 1e-9 && (line.r_squared.unwrap() - 1.0).abs() < 1e-12, "{line:?}");
    }

    #[test]
    fn too_few_points_have_no_line() {
        assert_eq!(Line::through(&[], 0.95), None);
        assert_eq!(Line::through(&[(1.0, 2.0), (1.0, 3.0)], 0.95), None);
        let two = Line::through(&[(0.0, 1.0), (2.0, 5.0)], 0.95).unwrap();
        assert_eq!((two.slope, two.intercept, two.slope_interval), (2.0, 1.0, None));
        assert_eq!(Line::through(&[(0.0, 4.0), (1.0, 4.0), (2.0, 4.0)], 0.95).unwrap().r_squared, None);
    }

    #[test]
    fn the_interval_holds_the_slope_at_its_confidence() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut held, tries) = (0, 2000);
        for _ in 0..tries {
            // A sum of twelve uniform numbers is nearly normal.
            let mut noise = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            let points: Vec<(f64, f64)> = (0..8).map(|x| (f64::from(x), 0.5 * f64::from(x) + noise())).collect();
            held += u32::from(Line::through(&points, 0.95).unwrap().slope_interval.unwrap().holds(0.5));
        }
        // 95 %, within five standard deviations of the binomial.
        assert!((1850..=1950).contains(&held), "{held} of {tries}");
    }

    #[test]
    fn steps_lie_between_the_points_that_differ() {
        let found = steps(&[(1, 100), (2, 100), (5, 140), (9, 140), (10, 100)]);
        let one = Step { after: 2, at: 5, from: 100, to: 140 };
        assert_eq!(found, [one, Step { after: 9, at: 10, from: 140, to: 100 }]);
        assert!(steps(&[(1, 5)]).is_empty());
    }
}
