//! Intervals.

use crate::estimate::{deviation_of_mean, reach};
use crate::processes::MIN_PROCESSES;
use serde::{Deserialize, Serialize};

/// The confidence of every printed interval.
pub const CONFIDENCE: f64 = 0.95;

/// Two bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval<T> {
    pub low: T,
    pub high: T,
}

impl<T: PartialOrd> Interval<T> {
    pub fn holds(&self, value: T) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether the two have no value in common.
    pub fn apart(&self, other: &Interval<T>) -> bool {
        self.high < other.low || other.high < self.low
    }
}

/// The middle one of `values`, or the mean of the two in the middle. Sorts them. `None` where there are none.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// The median absolute deviation of a normal distribution, times this, is its standard deviation.
const NORMAL: f64 = 1.4826;

/// The median, and the standard deviation by the median absolute deviation: one value in many changes neither. `None` without values.
pub fn median_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    let middle = median(&mut values.to_vec())?;
    let mut off: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    Some((middle, NORMAL * median(&mut off)?))
}

/// The median of values, one for each process, and how far their mean can be off: no interval with fewer than [`MIN_PROCESSES`]. `None` without
/// values.
pub fn median_over_processes(values: &[f64], confidence: f64) -> Option<(f64, Option<Interval<f64>>)> {
    let middle = median(&mut values.to_vec())?;
    let deviation = deviation_of_mean(values).filter(|_| values.len() >= MIN_PROCESSES);
    let reach = deviation.map(|d| d * reach(confidence, values.len() as u32 - 1));
    Some((middle, reach.map(|reach| Interval { low: middle - reach, high: middle + reach })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_touch_are_not_apart() {
        let i = |low, high| Interval { low, high };
        assert!(i(1, 2).apart(&i(3, 4)) && i(3, 4).apart(&i(1, 2)));
        assert!(!i(1, 3).apart(&i(3, 4)) && !i(1, 9).apart(&i(3, 4)));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn one_value_in_many_changes_neither_the_median_nor_the_deviation() {
        assert_eq!(median_and_deviation(&[9.0, 10.0, 11.0, 12.0, 13.0]), Some((11.0, 1.4826)));
        assert_eq!(median_and_deviation(&[9.0, 10.0, 11.0, 12.0, 1e9]), Some((11.0, 1.4826)));
        assert_eq!(median_and_deviation(&[]), None);
    }
}
