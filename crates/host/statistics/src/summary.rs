//! The usual figures of one set of samples, exact.

use crate::Percentile;
use serde::{Deserialize, Serialize};

/// Figures of one quantity of one cell, in its own unit. A figure with fewer than ten samples beyond it is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub count: u64,
    pub min: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    #[serde(rename = "p99.9")]
    pub p999: Option<u64>,
    #[serde(rename = "p99.99")]
    pub p9999: Option<u64>,
    pub max: u64,
}

impl Summary {
    /// Sorts `values`. `None` where there are none.
    pub fn of(values: &mut [u64]) -> Option<Summary> {
        values.sort_unstable();
        Summary::of_sorted(values)
    }

    pub fn of_sorted(sorted: &[u64]) -> Option<Summary> {
        let sum: u128 = sorted.iter().map(|v| u128::from(*v)).sum();
        Some(Summary {
            count: sorted.len() as u64,
            min: *sorted.first()?,
            mean: sum as f64 / sorted.len() as f64,
            p50: Percentile::P50.of(sorted)?,
            p90: Percentile::P90.of(sorted),
            p99: Percentile::P99.of(sorted),
            p999: Percentile::P999.of(sorted),
            p9999: Percentile::P9999.of(sorted),
            max: *sorted.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By counting instead of sorting: the smallest value that at least `of / out_of` of all values do not exceed.
    fn naive(values: &[u64], of: u64, out_of: u64) -> u64 {
        let enough = |v: &u64| values.iter().filter(|o| *o <= v).count() as u64 * out_of >= of * values.len() as u64;
        *values.iter().filter(|v| enough(v)).min().unwrap()
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        // Few distinct values make ties; the large ones would overflow a careless sum.
        prop_oneof![
            prop::collection::vec(0u64..5, 1..300),
            prop::collection::vec(any::<u64>(), 1..300),
            prop::collection::vec(50u64..100_000, 990..1100),
        ]
    }

    proptest! {
        #[test]
        fn every_figure_is_that_of_a_naive_count(values in values()) {
            let s = Summary::of(&mut values.clone()).unwrap();
            let n = values.len() as u64;
            prop_assert_eq!(s.count, n);
            prop_assert_eq!(s.min, *values.iter().min().unwrap());
            prop_assert_eq!(s.max, *values.iter().max().unwrap());
            prop_assert_eq!(s.p50, naive(&values, 1, 2));
            prop_assert_eq!(s.p90, (n >= 100).then(|| naive(&values, 9, 10)));
            prop_assert_eq!(s.p99, (n >= 1000).then(|| naive(&values, 99, 100)));
            prop_assert_eq!((s.p999, s.p9999), (None, None));
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / n as f64;
            prop_assert!((s.mean - mean).abs() <= mean * 1e-9);
        }
    }

    #[test]
    fn no_samples_have_no_figures() {
        assert_eq!(Summary::of(&mut []), None);
    }

    #[test]
    fn its_fields_are_named_as_people_write_percentiles() {
        let s = Summary::of(&mut [3, 1, 2]).unwrap();
        let text = serde_json::to_string(&s).unwrap();
        assert_eq!(
            text,
            r#"{"count":3,"min":1,"mean":2.0,"p50":2,"p90":null,"p99":null,"p99.9":null,"p99.99":null,"max":3}"#
        );
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), s);
    }
}
