//! The speeds at which the rounds of two runs were measured, and whether their shares changed.
//!
//! Virtual machines and clocks that boost flip between speeds some 5 to 30 % apart, and a change may slow some rounds only. Then the medians of the
//! rounds form clusters. If both runs had the same speeds, with shares that chance explains, rounds are compared with rounds at the same speed.
//! Otherwise the cause (host or change) is unknown: all rounds are compared as they are, and the verdict is `slower` or unclear.

use serde::{Deserialize, Serialize};

/// Clusters closer together do not count as two speeds: they hardly change a result, and noise makes such clusters too.
pub const LEAST_APART: f64 = 1.04;

/// Minimum distance of the centres of two clusters, in standard deviations within them. Of 60 rounds without clusters less than one in a thousand
/// is cut into halves this far apart; of evenly spread ones, two in a thousand.
pub(crate) const DEVIATIONS: f64 = 4.5;

/// A single round is an outlier, and no speed.
const FEWEST: usize = 2;

/// Shares differ if the chance of such a difference between two equal runs is smaller.
const CHANCE: f64 = 0.1;

/// A speed of which one run had more rounds than chance allows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speeds {
    /// How many times as slow its rounds are as all others.
    pub times: f64,
    pub share_a: f64,
    pub share_b: f64,
}

/// Rounds by speed.
struct Clusters {
    /// The smallest logarithm of each slower speed, the fastest first.
    cuts: Vec<f64>,
    /// The mean logarithm at each speed.
    centres: Vec<f64>,
}

impl Clusters {
    fn of(logs: &[f64]) -> Clusters {
        let mut sorted = logs.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let mut of = Clusters { cuts: Vec::new(), centres: Vec::new() };
        cut_all(&sorted, &mut of.cuts);
        for n in 0..=of.cuts.len() {
            let centre = mean(&sorted.iter().copied().filter(|l| of.speed(*l) == n).collect::<Vec<_>>());
            of.centres.push(centre);
        }
        of
    }

    fn speed(&self, log: f64) -> usize {
        self.cuts.iter().filter(|cut| log >= **cut).count()
    }

    /// The speed of each round; `None` without a median.
    fn speeds(&self, medians: &[Option<f64>]) -> Vec<Option<usize>> {
        medians.iter().map(|m| m.filter(|m| *m > 0.0).map(|m| self.speed(m.ln()))).collect()
    }

    /// How many of these have each speed.
    fn counts(&self, logs: &[f64]) -> Vec<usize> {
        let mut counts = vec![0; self.centres.len()];
        logs.iter().for_each(|l| counts[self.speed(*l)] += 1);
        counts
    }

    /// Each speed relative to the fastest one, in logarithms.
    fn steps(&self) -> Vec<f64> {
        self.centres.iter().map(|c| c - self.centres[0]).collect()
    }
}

/// Both runs had the same speeds, B's possibly slower as a whole: the divisors that bring each round to the fastest speed.
pub(crate) struct Same {
    pub a: Vec<Option<f64>>,
    pub b: Vec<Option<f64>>,
}

impl Same {
    /// From the medians of both runs' rounds. `host`: the medians that show the speeds, either the same ones or a baseline's of the same rounds.
    /// `None` if each run has one speed, or if the speeds differ.
    pub fn of(host: (&[Option<f64>], &[Option<f64>]), cell: (&[Option<f64>], &[Option<f64>])) -> Option<Same> {
        let (logs_a, logs_b) = (logs(host.0), logs(host.1));
        let (of_a, of_b) = (Clusters::of(&logs_a), Clusters::of(&logs_b));
        let (steps_a, steps_b) = (of_a.steps(), of_b.steps());
        if steps_a.len() < 2 || !are_alike(&steps_a, &steps_b) {
            return None;
        }
        let counts: Vec<(usize, usize)> = of_a.counts(&logs_a).into_iter().zip(of_b.counts(&logs_b)).collect();
        if differing(&counts, steps_a.len() - 1).is_some() {
            return None;
        }
        let (at_a, at_b) = (of_a.speeds(host.0), of_b.speeds(host.1));
        let steps = |at: &[Option<usize>], medians: &[Option<f64>]| -> Vec<f64> {
            let centre = |n: usize| {
                let here = at.iter().zip(medians).filter(|(speed, _)| **speed == Some(n)).map(|(_, m)| *m);
                mean(&logs(&here.collect::<Vec<_>>()))
            };
            (0..steps_a.len()).map(|n| centre(n) - centre(0)).collect()
        };
        let (own_a, own_b) = (steps(&at_a, cell.0), steps(&at_b, cell.1));
        if !are_alike(&own_a, &own_b) {
            return None;
        }
        let divisors = |at: &[Option<usize>]| -> Vec<Option<f64>> {
            at.iter().map(|speed| speed.map(|n| ((own_a[n] + own_b[n]) / 2.0).exp())).collect()
        };
        Some(Same { a: divisors(&at_a), b: divisors(&at_b) })
    }
}

/// The same number of speeds, at the same distances.
fn are_alike(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= LEAST_APART.ln() / 2.0)
}

/// The slowest speed whose shares chance does not explain: the most interesting one for a reader.
fn differing(counts: &[(usize, usize)], cuts: usize) -> Option<usize> {
    let all = counts.iter().fold((0, 0), |sum, s| (sum.0 + s.0, sum.1 + s.1));
    let level = CHANCE / cuts.max(1) as f64;
    (0..counts.len()).rev().find(|n| by_chance(counts[*n], all) < level)
}

impl Speeds {
    /// A speed of which one run had more rounds than chance allows. `None` if both have one speed each, the same speeds, or similar shares.
    pub fn changed(a: &[Option<f64>], b: &[Option<f64>]) -> Option<Speeds> {
        let (a, b) = (logs(a), logs(b));
        let all: Vec<f64> = a.iter().chain(&b).copied().collect();
        let joint = Clusters::of(&all);
        let counts: Vec<(usize, usize)> = joint.counts(&a).into_iter().zip(joint.counts(&b)).collect();
        // Each has a single speed: then B as a whole is slower, faster, or equal.
        let is_one = |of: fn(&(usize, usize)) -> usize| counts.iter().filter(|s| of(s) >= FEWEST).count() <= 1;
        if is_one(|s| s.0) && is_one(|s| s.1) {
            return None;
        }
        let n = differing(&counts, joint.cuts.len())?;
        let others: Vec<f64> = all.iter().copied().filter(|l| joint.speed(*l) != n).collect();
        let share = |some: usize, of: &[f64]| some as f64 / of.len().max(1) as f64;
        let times = (joint.centres[n] - mean(&others)).exp();
        Some(Speeds { times, share_a: share(counts[n].0, &a), share_b: share(counts[n].1, &b) })
    }
}

fn logs(medians: &[Option<f64>]) -> Vec<f64> {
    medians.iter().flatten().filter(|m| **m > 0.0).map(|m| m.ln()).collect()
}

/// The smallest number of B's rounds at a separate speed that is more than chance, as a part of them.
pub(crate) fn least_share(a: usize, b: usize) -> f64 {
    let found = (FEWEST..=b).find(|m| by_chance((0, *m), (a, b)) < CHANCE);
    found.map_or(1.0, |m| m as f64 / b.max(1) as f64)
}

/// The standard deviation of the logarithms within the clusters.
pub(crate) fn spread(medians: &[Option<f64>]) -> f64 {
    let mut logs = logs(medians);
    logs.sort_unstable_by(f64::total_cmp);
    let mut cuts = Vec::new();
    cut_all(&logs, &mut cuts);
    let parts = logs.chunk_by(|x, y| !cuts.iter().any(|cut| x < cut && y >= cut));
    let squares: f64 = parts.map(squares).sum();
    (squares / (logs.len() as f64 - 1.0 - cuts.len() as f64).max(1.0)).sqrt()
}

/// Parts with fewer rounds are not cut again: a few rounds form clusters by chance.
const FEWEST_TO_CUT_AGAIN: usize = 10;

/// The smallest value of each slower cluster, the fastest first.
fn cut_all(sorted: &[f64], cuts: &mut Vec<f64>) {
    let Some(at) = nearest_cut(sorted) else { return };
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for (part, found) in [(&sorted[..at], &mut low), (&sorted[at..], &mut high)] {
        if part.len() >= FEWEST_TO_CUT_AGAIN {
            cut_all(part, found);
        }
    }
    // The clusters next to the cut on each side, once the parts are cut themselves: of three speeds, two are together at first.
    let below = &sorted[sorted[..at].partition_point(|v| low.last().is_some_and(|cut| v < cut))..at];
    let above = &sorted[at..][..sorted[at..].partition_point(|v| high.first().is_none_or(|cut| v < cut))];
    cuts.append(&mut low);
    if are_apart(below, above) {
        cuts.push(sorted[at]);
    }
    cuts.append(&mut high);
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn squares(part: &[f64]) -> f64 {
    let mean = mean(part);
    part.iter().map(|v| (v - mean).powi(2)).sum::<f64>()
}

/// Where the slower cluster would begin, if there were two.
fn nearest_cut(sorted: &[f64]) -> Option<usize> {
    let n = sorted.len();
    if n < 2 * FEWEST || sorted[n - 1] - sorted[0] < LEAST_APART.ln() {
        return None;
    }
    // The cut with the most standard deviations between the means of both parts.
    let (total, all) = (sorted.iter().sum::<f64>(), sorted.iter().map(|v| v * v).sum::<f64>());
    let (mut below, mut squares) = (0.0, 0.0);
    let (mut most, mut best) = (0.0, None);
    for cut in 1..=n - FEWEST {
        below += sorted[cut - 1];
        squares += sorted[cut - 1].powi(2);
        if cut < FEWEST {
            continue;
        }
        let (low, high) = (cut as f64, (n - cut) as f64);
        let within = (squares - below * below / low) + (all - squares - (total - below).powi(2) / high);
        let apart = (total - below) / high - below / low;
        let score = apart * apart / within.max(LEAST_SQUARES);
        if score > most {
            (most, best) = (score, Some(cut));
        }
    }
    best
}

/// For identical rounds: the remainder of rounding.
const LEAST_SQUARES: f64 = 1e-12;

fn are_apart(low: &[f64], high: &[f64]) -> bool {
    let freedom = (low.len() + high.len()).saturating_sub(2).max(1) as f64;
    let deviation = ((squares(low) + squares(high)) / freedom).sqrt();
    let apart = mean(high) - mean(low);
    apart >= LEAST_APART.ln() && apart >= DEVIATIONS * deviation
}

/// The chance of counts this far apart or farther, if both runs are equal: Fisher's exact test.
fn by_chance((a, b): (usize, usize), (of_a, of_b): (usize, usize)) -> f64 {
    let some = a + b;
    let logs: Vec<f64> = std::iter::once(0.0)
        .chain((1..=of_a + of_b).scan(0.0, |sum, n| {
            *sum += (n as f64).ln();
            Some(*sum)
        }))
        .collect();
    let choose = |n: usize, k: usize| logs[n] - logs[k] - logs[n - k];
    let chance = |a: usize| (choose(of_a, a) + choose(of_b, some - a) - choose(of_a + of_b, some)).exp();
    let seen = chance(a) * (1.0 + 1e-9);
    let possible = some.saturating_sub(of_b)..=some.min(of_a);
    possible.map(chance).filter(|p| *p <= seen).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of twelve evenly spread numbers: nearly normal.
    fn normal(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    /// 60 rounds; the part `share` of them `times` as slow.
    fn rounds(share: f64, times: f64, deviation: f64, random: &mut fastrand::Rng) -> Vec<Option<f64>> {
        let slow = (60.0 * share).round() as usize;
        let median = |r: usize| 2e4 * if r < slow { times } else { 1.0 } * (deviation * normal(random)).exp();
        (0..60).map(median).map(Some).collect()
    }

    #[test]
    fn the_chance_is_fishers() {
        // R: fisher.test(matrix(c(0, 60, 6, 54), 2)), (3, 1, 1, 3) and (15, 45, 45, 15).
        for ((a, b), of, expected) in [
            ((0, 6), (60, 60), 0.027_41),
            ((3, 1), (4, 4), 0.485_7),
            ((15, 45), (60, 60), 6.54e-8),
            ((7, 7), (60, 60), 1.0),
        ] {
            let found = by_chance((a, b), of);
            assert!((found - expected).abs() <= 0.01 * expected, "{a} {b}: {found}");
        }
        assert_eq!(least_share(60, 60), 5.0 / 60.0);
    }

    #[test]
    fn a_speed_of_one_run_and_changed_shares_are_found() {
        let mut random = fastrand::Rng::with_seed(1);
        for (a, b, times) in [(0.0, 0.1, 1.08), (0.0, 0.9, 1.3), (0.0, 0.8, 1.34), (0.25, 0.75, 1.15), (0.1, 0.0, 1.5)]
        {
            for _ in 0..100 {
                let (one, other) = (rounds(a, times, 0.01, &mut random), rounds(b, times, 0.01, &mut random));
                let found = Speeds::changed(&one, &other).unwrap_or_else(|| panic!("{a} {b} {times}"));
                let near = |found: f64, made: f64| (found - made).abs() <= 0.034;
                assert!(near(found.times, times) && near(found.share_a, a) && near(found.share_b, b), "{found:?}");
            }
        }
    }

    #[test]
    fn equal_shares_and_a_run_that_is_slower_as_a_whole_are_no_change() {
        let mut random = fastrand::Rng::with_seed(2);
        for (deviation, times) in [(0.005, 1.0), (0.02, 1.0), (0.1, 1.0), (0.01, 1.2), (0.01, 0.8)] {
            let mut changed = |_: &usize| {
                let (one, other) =
                    (rounds(0.0, 1.0, deviation, &mut random), rounds(1.0, times, deviation, &mut random));
                Speeds::changed(&one, &other).is_some()
            };
            let changed = (0..1000).filter(&mut changed).count();
            assert!(changed <= 2, "{deviation} {times}: {changed} of 1000");
        }
        let (one, other) = (rounds(0.4, 1.15, 0.01, &mut random), rounds(0.5, 1.15, 0.01, &mut random));
        assert_eq!(Speeds::changed(&one, &other), None);
    }

    #[test]
    fn the_same_speeds_are_divided_out() {
        let mut random = fastrand::Rng::with_seed(3);
        let slower =
            |rounds: Vec<Option<f64>>| -> Vec<Option<f64>> { rounds.iter().map(|m| m.map(|m| m * 1.05)).collect() };
        let (one, other) = (rounds(0.5, 1.15, 0.001, &mut random), slower(rounds(0.4, 1.15, 0.001, &mut random)));
        let same = Same::of((&one, &other), (&one, &other)).unwrap();
        assert!((same.a[0].unwrap() - 1.15).abs() < 0.002 && same.b[59] == Some(1.0), "{:?}", same.a);
        for (share, times) in [(0.0, 1.0), (0.9, 1.15), (0.5, 1.25)] {
            let other = rounds(share, times, 0.001, &mut random);
            assert!(
                Same::of((&one, &other), (&one, &other)).is_none() && Speeds::changed(&one, &other).is_some(),
                "{share} {times}"
            );
        }
    }

    #[test]
    fn one_slow_round_is_no_speed() {
        let mut medians: Vec<_> = (0..20).map(|r| Some(1e4 + f64::from(r))).collect();
        let before = medians.clone();
        medians[3] = Some(1.5e4);
        assert_eq!(Speeds::changed(&before, &medians), None);
        assert!(spread(&before) < 0.001);
        assert_eq!(Speeds::changed(&[None], &[]), None);
    }

    #[test]
    fn three_speeds_are_told_apart() {
        let of = |shares: [usize; 3]| -> Vec<Option<f64>> {
            let times = [1.0, 1.15, 1.4];
            (0..3).flat_map(|n| (0..shares[n]).map(move |r| Some(1e4 * times[n] + r as f64))).collect()
        };
        let found = Speeds::changed(&of([20, 20, 0]), &of([20, 10, 10])).unwrap();
        assert!((found.share_a, found.share_b) == (0.0, 0.25), "{found:?}");
    }
}
