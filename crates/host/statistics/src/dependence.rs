//! How far a figure over rounds can be off: the single model of all intervals and verdicts.
//!
//! A run has repeats (processes), repeats have rounds, rounds have samples. A figure is written as a sum with one term for each round, its *pull*:
//! by how much that round moves the figure. Samples of one round may depend on each other in any way.
//!
//! With three repeats or more, each repeat's sum of pulls is one independent value, and Student's t has one degree of freedom less than there are
//! repeats (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, 2013). With fewer repeats, the rounds are the values. The rounds are also
//! used with more repeats if they show a larger error, because consecutive repeats are alike. A round resembles the one before it, so rounds are
//! modelled as a first-order autoregression. Its correlation is estimated without the bias of few rounds (Marriott and Pope, Bias in the Estimation
//! of Autocorrelations, 1954).

use crate::MIN_ROUNDS;

/// With so many repeats, repeats are the independent values; with fewer, rounds are.
pub const MIN_REPEATS: usize = 3;

/// Minimum number of independent rounds, however similar neighbouring rounds are: a run of a few rounds cannot show fewer.
const FEWEST_INDEPENDENT: f64 = 3.0;

/// The standard deviation of a sum of pulls, and the degrees of freedom that it was estimated with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Deviation {
    pub deviation: f64,
    pub freedom: u32,
}

/// One round: its repeat, and its pull. In the order in which they were measured.
pub(crate) type Pull = (u32, f64);

/// `None` with fewer than [`MIN_ROUNDS`] rounds. The pulls add up to 0, up to rounding.
pub(crate) fn deviation(pulls: &[Pull]) -> Option<Deviation> {
    deviation_of_levels(pulls, pulls)
}

/// The same; the similarity of neighbouring rounds is computed from `levels`, one for each round.
///
/// Rounds that are wholly on one side of a percentile all have the same pull, at any distance from it: so pulls hide a part of the similarity of
/// neighbours.
pub(crate) fn deviation_of_levels(pulls: &[Pull], levels: &[Pull]) -> Option<Deviation> {
    if pulls.len() < MIN_ROUNDS {
        return None;
    }
    let repeats = sums(pulls);
    if repeats.len() < MIN_REPEATS {
        return Some(of_rounds(pulls, levels, FEWEST_INDEPENDENT));
    }
    // If a machine is slow for a while, repeats are alike, too: then the rounds show it.
    let (of, rounds) = (of_repeats(&repeats), of_rounds(pulls, levels, repeats.len() as f64));
    Some(Deviation { deviation: of.deviation.max(rounds.deviation), ..of })
}

/// The sum of the rounds of each repeat.
fn sums(pulls: &[Pull]) -> Vec<f64> {
    let mut repeats: Vec<Pull> = Vec::new();
    for (repeat, pull) in pulls {
        match repeats.iter_mut().find(|(known, _)| known == repeat) {
            Some((_, sum)) => *sum += pull,
            None => repeats.push((*repeat, *pull)),
        }
    }
    repeats.into_iter().map(|(_, sum)| sum).collect()
}

/// The deviation from the sums of the repeats.
pub(crate) fn of_repeats(sums: &[f64]) -> Deviation {
    let n = sums.len() as f64;
    let squares: f64 = sums.iter().map(|s| s * s).sum();
    Deviation { deviation: (n / (n - 1.0) * squares).sqrt(), freedom: sums.len() as u32 - 1 }
}

/// Rounds count as at least `fewest` independent ones.
fn of_rounds(pulls: &[Pull], levels: &[Pull], fewest: f64) -> Deviation {
    let n = pulls.len() as f64;
    let alike = alike(levels, fewest);
    // The variance of the sum of n rounds, divided by n and by the variance of one round.
    let mut wider = 1.0;
    let (mut power, mut apart) = (alike, 1.0);
    while apart < n && power > 1e-9 {
        wider += 2.0 * (1.0 - apart / n) * power;
        power *= alike;
        apart += 1.0;
    }
    let squares = centred(pulls).map(|p| p * p).sum::<f64>();
    let variance = squares / (n - wider).max(1.0) * wider * n;
    // One degree for the mean; two for the correlation: with one, intervals of 30 rounds with correlation 0.6 held 92.4 % (tests/coverage.rs).
    // Rounding must not cost a degree.
    let estimated = if alike > 0.0 { 3.0 } else { 1.0 };
    let freedom = (n * (1.0 - alike) / (1.0 + alike) - estimated + 1e-9).floor().max(1.0);
    Deviation { deviation: variance.sqrt(), freedom: freedom as u32 }
}

/// The correlation of neighbours. With n rounds the estimate is too small by (1 + 4 r) / n on average.
fn alike(levels: &[Pull], fewest: f64) -> f64 {
    let n = levels.len() as f64;
    let squares: f64 = centred(levels).map(|l| l * l).sum();
    if squares <= 0.0 {
        return 0.0;
    }
    let products: f64 = centred(levels).zip(centred(levels).skip(1)).map(|(a, b)| a * b).sum();
    let independent = n / fewest;
    let most = ((independent - 1.0) / (independent + 1.0)).max(0.0);
    ((products / squares + 1.0 / n) / (1.0 - 4.0 / n)).clamp(0.0, most)
}

fn centred(values: &[Pull]) -> impl Iterator<Item = f64> {
    let mean = values.iter().map(|(_, v)| v).sum::<f64>() / values.len() as f64;
    values.iter().map(move |(_, v)| v - mean)
}

/// The number of places that `counts` would come from if each had the same count: 1 / Simpson's index, without its bias. Infinite if no place has
/// two.
pub(crate) fn places(counts: impl Iterator<Item = u64>) -> f64 {
    let (all, pairs) = counts.fold((0.0, 0.0), |(all, pairs), n| {
        let n = n as f64;
        (all + n, pairs + n * (n - 1.0))
    });
    if pairs > 0.0 { all * (all - 1.0) / pairs } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_the_values_where_there_are_three() {
        // Sums of -3, 1 and 2: their variance is 7, and that of a sum of three 21.
        let pulls = [(0, -1.5), (0, -1.5), (1, 0.5), (1, 0.5), (2, 1.0), (2, 1.0)];
        let found = deviation(&pulls).unwrap();
        assert!((found.deviation.powi(2) - 21.0).abs() < 1e-12 && found.freedom == 2, "{found:?}");
        assert_eq!(deviation(&pulls[..5]), None);
    }

    #[test]
    fn repeats_that_are_alike_do_not_narrow_the_error() {
        // Slow for two repeats, fast for two: the sums differ as much as rounds do, and the rounds show that neighbours are alike.
        let pulls: Vec<Pull> = (0..40).map(|n| (n / 10, if n < 20 { 1.0 } else { -1.0 })).collect();
        let (of, rounds) = (deviation(&pulls).unwrap(), of_rounds(&pulls, &pulls, 4.0));
        assert!(of.deviation >= rounds.deviation && of.freedom == 3, "{of:?} {rounds:?}");
        let apart = |n: u32| if n % 20 < 10 { 0.1 } else { -0.1 };
        let same: Vec<Pull> = (0..40).map(|n| (n / 10, if n % 2 == 0 { 1.0 } else { -1.0 } + apart(n))).collect();
        assert!(deviation(&same).unwrap().deviation >= of_repeats(&sums(&same)).deviation);
    }

    #[test]
    fn independent_rounds_are_the_values_of_one_repeat() {
        // Neighbours are less alike than by chance: n / (n - 1) times the squares, as for n independent values.
        let pulls: Vec<Pull> = (0..10).map(|n| (0, if n % 2 == 0 { 1.0 } else { -1.0 })).collect();
        let found = deviation(&pulls).unwrap();
        assert!((found.deviation.powi(2) - 10.0 * 10.0 / 9.0).abs() < 1e-9 && found.freedom == 9, "{found:?}");
        let alike: Vec<Pull> = (0..10).map(|n| (0, if n < 5 { 1.0 } else { -1.0 })).collect();
        let found = deviation(&alike).unwrap();
        assert!(found.deviation.powi(2) > 25.0 && found.freedom == 1, "{found:?}");
    }

    #[test]
    fn rounds_without_any_difference_have_no_deviation() {
        assert_eq!(deviation(&[(0, 0.0); 8]), Some(Deviation { deviation: 0.0, freedom: 7 }));
    }

    #[test]
    fn places_are_counted_as_if_all_had_as_many() {
        assert!((places([5, 5, 5, 5].into_iter()) - 20.0 * 19.0 / 80.0).abs() < 1e-12);
        assert_eq!(places([9, 0, 0].into_iter()), 1.0);
        assert_eq!(places([1, 1, 0].into_iter()), f64::INFINITY);
    }
}
