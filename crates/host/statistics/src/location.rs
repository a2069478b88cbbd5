//! The middle of values, one for each round, of which a few may be far off.

use crate::dependence::{Deviation, MIN_REPEATS, deviation, deviation_of_levels, of_repeats};
use crate::distribution::student_quantile;
use crate::{Interval, median};

/// Values this many standard deviations off, or more, pull as if they were at that distance (Huber, Robust Estimation of a Location Parameter,
/// 1964): for normal values the error is 5 % larger than that of the mean.
const BEND: f64 = 1.345;

/// The median absolute deviation of a normal distribution, times this, is its standard deviation.
const NORMAL: f64 = 1.4826;

/// The middle, and how far it can be off: no deviation with too few rounds.
pub(crate) fn location(values: &[(u32, f64)]) -> Option<(f64, Option<Deviation>)> {
    let all = || values.iter().map(|(_, v)| *v);
    let mut middle = median(&mut all().collect::<Vec<_>>())?;
    let spread = NORMAL * median(&mut all().map(|v| (v - middle).abs()).collect::<Vec<_>>())?;
    if spread <= 0.0 {
        // More than half of them are the same value; the others keep their distances.
        let pulls: Vec<(u32, f64)> = values.iter().map(|(r, v)| (*r, (v - middle) / values.len() as f64)).collect();
        return Some((middle, deviation(&pulls)));
    }
    let bend = BEND * spread;
    let pull = |v: f64, middle: f64| (v - middle).clamp(-bend, bend);
    let straight = |middle: f64| all().filter(|v| (v - middle).abs() < bend).count().max(1) as f64;
    for _ in 0..STEPS {
        let step = all().map(|v| pull(v, middle)).sum::<f64>() / straight(middle);
        middle += step;
        if step.abs() < 1e-9 * spread {
            break;
        }
    }
    let straight = straight(middle);
    let pulls: Vec<(u32, f64)> = values.iter().map(|(r, v)| (*r, pull(*v, middle) / straight)).collect();
    // The similarity of neighbours shows better in values without this limit, except for those that are far off.
    let levels: Vec<(u32, f64)> =
        values.iter().map(|(r, v)| (*r, (v - middle).clamp(-FAR * spread, FAR * spread))).collect();
    Some((middle, deviation_of_levels(&pulls, &levels)))
}

/// 3 in 1,000 normal values are this many standard deviations off.
const FAR: f64 = 3.0;

/// Each step of the iteration leaves a small part of the remaining error.
const STEPS: usize = 50;

/// The median of values, one for each repeat, and how far it can be off: no interval with fewer than three. `None` without values.
pub fn median_over_repeats(values: &[f64], confidence: f64) -> Option<(f64, Option<Interval<f64>>)> {
    let middle = median(&mut values.to_vec())?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let pulls: Vec<f64> = values.iter().map(|v| (v - mean) / values.len() as f64).collect();
    let of = (values.len() >= MIN_REPEATS).then(|| of_repeats(&pulls));
    let reach = of.map(|d| student_quantile((1.0 + confidence) / 2.0, d.freedom) * d.deviation);
    Some((middle, reach.map(|reach| Interval { low: middle - reach, high: middle + reach })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_far_off_hardly_moves_it() {
        let values = |odd: f64| -> Vec<(u32, f64)> {
            (0..20).map(|n| (0, if n == 7 { odd } else { f64::from(n % 5) })).collect()
        };
        let middle = |odd| location(&values(odd)).unwrap().0;
        assert!((middle(2.0) - 2.0).abs() < 0.2, "{}", middle(2.0));
        assert!(middle(1e9) - middle(2.0) < 0.5 && middle(1e9) == middle(1e6));
        assert_eq!(location(&[]), None);
        assert_eq!(location(&[(0, 3.0)]), Some((3.0, None)));
    }

    #[test]
    fn of_values_that_are_nearly_all_the_same_it_is_that_value() {
        let mut values = vec![(0, 1.0); 12];
        assert_eq!(location(&values).unwrap().0, 1.0);
        values[3].1 = 1.5;
        let (middle, deviation) = location(&values).unwrap();
        assert!(middle == 1.0 && deviation.unwrap().deviation > 0.0);
    }
}
