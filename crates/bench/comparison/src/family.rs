//! Many tests at once.

/// The chance that any cell is called slower or faster if all cells are equal.
pub const ERROR: f64 = 0.01;

/// Holm's adjusted probabilities, in the given order.
///
/// If every test up to some level is called a difference, the chance of any false call is at most that level, for any dependence between the tests.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let n = probabilities.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let (mut adjusted, mut so_far) = (vec![0.0; n], 0.0f64);
    for (rank, &test) in order.iter().enumerate() {
        so_far = so_far.max((probabilities[test] * (n - rank) as f64).min(1.0));
        adjusted[test] = so_far;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_counts_as_often_as_there_are_tests() {
        // The result of R's p.adjust(c(0.01, 0.04, 0.03, 0.005, 0.9), "holm").
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005, 0.9]);
        for (found, expected) in adjusted.iter().zip([0.04, 0.09, 0.09, 0.025, 0.9]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[0.6, 0.7]), [1.0, 1.0]);
    }
}
