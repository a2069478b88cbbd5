//! Samples by rounds, and how far a figure of all of them can be off.
//!
//! Rounds are drawn with replacement, whole: the samples of one round were taken one behind the other, at one speed of the
//! host, and depend on each other. An interval over samples would be far too narrow. Where a round is like the one before it,
//! blocks of rounds are drawn.

use crate::distribution::{normal_cdf, student_quantile};
use crate::{Figure, Interval, Summary};
use std::sync::OnceLock;

/// With fewer rounds there is no interval.
pub const MIN_ROUNDS: usize = 6;

/// So often rounds are drawn for an interval.
pub const RESAMPLES: usize = 2000;

/// The samples of one cell, sorted, each with its round.
#[derive(Clone, Debug)]
pub struct Rounds {
    values: Vec<u64>,
    round_of: Vec<u32>,
    /// Of each round.
    counts: Vec<u64>,
    sums: Vec<f64>,
    /// How many samples of each round lie before each block of [`Rounds::block`] sorted samples: one row a block. With it a
    /// percentile of drawn rounds is found without a look at all samples.
    before: Vec<u64>,
    block: usize,
    /// See [`Rounds::in_a_row`].
    in_a_row: OnceLock<usize>,
}

impl Rounds {
    /// One slice a round, in any order within; a round without samples keeps its number.
    pub fn new<R: AsRef<[u64]>>(rounds: &[R]) -> Rounds {
        // Rows are then a quarter as many numbers as samples at most.
        Rounds::with_block(rounds, (4 * rounds.len()).max(256))
    }

    fn with_block<R: AsRef<[u64]>>(rounds: &[R], block: usize) -> Rounds {
        let mut all: Vec<(u64, u32)> =
            rounds.iter().zip(0..).flat_map(|(samples, r)| samples.as_ref().iter().map(move |v| (*v, r))).collect();
        all.sort_unstable();
        let counts = rounds.iter().map(|r| r.as_ref().len() as u64).collect();
        let sums = rounds.iter().map(|r| r.as_ref().iter().map(|v| *v as f64).sum()).collect();
        let mut before = Vec::with_capacity((all.len() / block + 1) * rounds.len());
        let mut so_far = vec![0; rounds.len()];
        for block in all.chunks(block) {
            before.extend_from_slice(&so_far);
            block.iter().for_each(|(_, r)| so_far[*r as usize] += 1);
        }
        let (values, round_of) = all.into_iter().unzip();
        Rounds { values, round_of, counts, sums, before, block, in_a_row: OnceLock::new() }
    }

    /// How many there are, with those without samples.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The numbers of those that have samples.
    pub fn sampled(&self) -> Vec<usize> {
        (0..self.len()).filter(|r| self.counts[*r] > 0).collect()
    }

    /// Of one round.
    pub fn samples(&self, round: usize) -> u64 {
        self.counts.get(round).copied().unwrap_or(0)
    }

    /// All samples, sorted.
    pub fn sorted(&self) -> &[u64] {
        &self.values
    }

    /// Of all samples together.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of_sorted(&self.values)
    }

    /// Of all samples together.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        figure.of(&self.values)
    }

    /// Of each round by itself; none where it has too few samples for it.
    pub fn each(&self, figure: Figure) -> Vec<Option<f64>> {
        let mut rounds: Vec<Vec<u64>> = self.counts.iter().map(|n| Vec::with_capacity(*n as usize)).collect();
        for (value, round) in self.values.iter().zip(&self.round_of) {
            rounds[*round as usize].push(*value);
        }
        rounds.iter().map(|sorted| figure.of(sorted)).collect()
    }

    /// Each sample divided by its round's divisor, in whole parts of 1 / `unit`. A round without a divisor is left empty.
    pub fn divided(&self, by: &[Option<f64>], unit: f64) -> Rounds {
        let mut rounds = vec![Vec::new(); self.len()];
        for (value, round) in self.values.iter().zip(&self.round_of) {
            if let Some(divisor) = by.get(*round as usize).copied().flatten().filter(|d| *d > 0.0) {
                rounds[*round as usize].push((*value as f64 * unit / divisor).round() as u64);
            }
        }
        Rounds::new(&rounds)
    }

    /// Of all samples of some rounds, each counted as often as `times` says. A percentile is the nearest rank however few
    /// samples there are.
    pub fn drawn(&self, figure: Figure, times: &[u32]) -> Option<f64> {
        let total: u64 = self.counts.iter().zip(times).map(|(n, t)| n * u64::from(*t)).sum();
        if total == 0 {
            return None;
        }
        match figure {
            Figure::Percentile(p) => self.ranked(p.nearest(total), times).map(|v| v as f64),
            Figure::Mean => {
                Some(self.sums.iter().zip(times).map(|(s, t)| s * f64::from(*t)).sum::<f64>() / total as f64)
            }
            Figure::Min => self.first(self.values.iter().zip(&self.round_of), times),
            Figure::Max => self.first(self.values.iter().zip(&self.round_of).rev(), times),
            Figure::Misses(above) => {
                let until = self.values.partition_point(|v| *v <= above);
                Some((total - self.counted(until, times)) as f64 / total as f64)
            }
        }
    }

    fn first<'a>(&self, mut all: impl Iterator<Item = (&'a u64, &'a u32)>, times: &[u32]) -> Option<f64> {
        all.find(|(_, round)| times[**round as usize] > 0).map(|(value, _)| *value as f64)
    }

    /// How many drawn samples there are among the first `until` sorted ones.
    fn counted(&self, until: usize, times: &[u32]) -> u64 {
        let block = (until / self.block).min(self.values.len().div_ceil(self.block).saturating_sub(1));
        let within = self.round_of[block * self.block..until].iter().map(|r| u64::from(times[*r as usize]));
        self.counted_before(block, times) + within.sum::<u64>()
    }

    fn counted_before(&self, block: usize, times: &[u32]) -> u64 {
        let row = &self.before[block * times.len()..][..times.len()];
        row.iter().zip(times).map(|(n, t)| n * u64::from(*t)).sum()
    }

    /// The drawn sample of a rank, the least is the first.
    fn ranked(&self, rank: u64, times: &[u32]) -> Option<u64> {
        let (mut low, mut high) = (0, self.values.len().div_ceil(self.block));
        while high - low > 1 {
            let middle = (low + high) / 2;
            if self.counted_before(middle, times) < rank { low = middle } else { high = middle }
        }
        let mut so_far = self.counted_before(low, times);
        let from = low * self.block;
        self.values[from..].iter().zip(&self.round_of[from..]).find_map(|(value, round)| {
            so_far += u64::from(times[*round as usize]);
            (so_far >= rank).then_some(*value)
        })
    }

    /// So many rounds in a row are drawn together.
    ///
    /// A host that stays slow for some rounds makes a round like the one before it. Of blocks that are long enough each is nearly
    /// independent of the others; longer ones would leave too few of them. Of rounds whose medians follow an autoregression
    /// with the observed correlation of neighbours this is the length with the least error (Carlstein 1986).
    pub fn in_a_row(&self) -> usize {
        *self.in_a_row.get_or_init(|| {
            let medians: Vec<f64> = self.each(Figure::P50).into_iter().flatten().collect();
            let n = medians.len() as f64;
            let mean = medians.iter().sum::<f64>() / n;
            let squares: f64 = medians.iter().map(|m| (m - mean).powi(2)).sum();
            let products: f64 = medians.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
            let alike = products / squares;
            if medians.len() < MIN_ROUNDS || !alike.is_finite() || alike < 2.0 / n.sqrt() {
                return 1;
            }
            let length = ((2.0 * alike / (1.0 - alike * alike)).powi(2) * n).cbrt();
            // Five blocks at least.
            (length.ceil() as usize).clamp(1, (medians.len() / 5).max(1))
        })
    }

    /// Holds the figure with this confidence: the expanded percentile interval of the bootstrap, over rounds, or over blocks of
    /// rounds where these are like the ones before them. `None` with fewer than [`MIN_ROUNDS`] rounds, of a figure that all
    /// samples are too few for, and of the extremes.
    pub fn interval(&self, figure: Figure, seed: u64, confidence: f64) -> Option<Interval<f64>> {
        self.figure(figure).filter(|_| figure.has_interval())?;
        let draws = Draws::new(self.len(), self.sampled(), RESAMPLES, seed)?.in_blocks_of(self.in_a_row());
        draws.interval(confidence, |times| self.drawn(figure, times))
    }
}

/// [`Rounds::interval`], of rounds that nothing else is asked of.
pub fn interval_over_rounds<R: AsRef<[u64]>>(
    rounds: &[R],
    figure: Figure,
    seed: u64,
    confidence: f64,
) -> Option<Interval<f64>> {
    Rounds::new(rounds).interval(figure, seed, confidence)
}

/// Rounds drawn with replacement, many times over. Two cells that took turns are drawn the same rounds.
#[derive(Clone, Debug)]
pub struct Draws {
    rounds: usize,
    from: Vec<usize>,
    /// So many of them in a row at a time.
    block: usize,
    resamples: usize,
    seed: u64,
}

impl Draws {
    /// Of `rounds` rounds those in `from` are drawn. `None` where they are fewer than [`MIN_ROUNDS`].
    pub fn new(rounds: usize, from: Vec<usize>, resamples: usize, seed: u64) -> Option<Draws> {
        (from.len() >= MIN_ROUNDS).then_some(Draws { rounds, from, block: 1, resamples, seed })
    }

    /// Rounds in a row are drawn together; behind the last one comes the first.
    pub fn in_blocks_of(self, block: usize) -> Draws {
        Draws { block: block.clamp(1, self.from.len()), ..self }
    }

    /// The values of `figure`, sorted. It gets how often each round was drawn.
    pub fn figures(&self, mut figure: impl FnMut(&[u32]) -> Option<f64>) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut times = vec![0u32; self.rounds];
        let mut figures: Vec<f64> = (0..self.resamples)
            .filter_map(|_| {
                times.fill(0);
                let n = self.from.len();
                for drawn in (0..n).step_by(self.block) {
                    let first = random.usize(0..n);
                    (0..self.block.min(n - drawn)).for_each(|i| times[self.from[(first + i) % n]] += 1);
                }
                figure(&times)
            })
            .collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures
    }

    /// Between the figures at both ends of the sorted ones. `None` where a draw has no figure.
    pub fn interval(&self, confidence: f64, figure: impl FnMut(&[u32]) -> Option<f64>) -> Option<Interval<f64>> {
        let figures = self.figures(figure);
        if figures.len() < self.resamples {
            return None;
        }
        let tail = self.tail(confidence);
        let low = (tail * figures.len() as f64).floor() as usize;
        Some(Interval { low: *figures.get(low)?, high: *figures.get(figures.len() - 1 - low)? })
    }

    /// The part of the draws that is left out at each end.
    ///
    /// Draws from n rounds spread by sqrt((n - 1) / n) less than rounds do, and know nothing of how uncertain that spread is.
    /// An interval between the plain percentiles is therefore too narrow: of 6 rounds 95 % hold about 86 %. The percentiles
    /// are moved outwards to where Student's t lies (Hesterberg, What Teachers Should Know about the Bootstrap, 2015).
    pub fn tail(&self, confidence: f64) -> f64 {
        let units = self.from.len() / self.block;
        let n = units as f64;
        let t = student_quantile((1.0 + confidence) / 2.0, units.saturating_sub(1).max(1) as u32);
        normal_cdf(-t * (n / (n - 1.0).max(1.0)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_drawn_figure_is_that_of_the_samples_written_out(
            rounds in prop::collection::vec(prop::collection::vec(0u64..200, 0..60), 1..30),
            seed in any::<u64>(),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let all = Rounds::with_block(&rounds, 7);
            let times: Vec<u32> = rounds.iter().map(|_| random.u32(0..4)).collect();
            let mut written: Vec<u64> =
                rounds.iter().zip(&times).flat_map(|(r, t)| r.repeat(*t as usize)).collect();
            written.sort_unstable();
            for figure in [Figure::Min, Figure::Mean, Figure::Max, Figure::Misses(random.u64(0..210)), Figure::P50] {
                let (drawn, expected) = (all.drawn(figure, &times), figure.of(&written));
                match (drawn, expected) {
                    (Some(a), Some(b)) => prop_assert!((a - b).abs() < 1e-9, "{}: {} {}", figure, a, b),
                    (a, b) => prop_assert_eq!(a, b),
                }
            }
            for (r, alone) in all.each(Figure::P50).into_iter().enumerate() {
                let mut sorted = rounds[r].clone();
                sorted.sort_unstable();
                prop_assert_eq!(alone, Figure::P50.of(&sorted));
            }
            if !written.is_empty() {
                let rank = random.u64(0..written.len() as u64) + 1;
                prop_assert_eq!(all.ranked(rank, &times), Some(written[rank as usize - 1]));
            }
        }
    }

    #[test]
    fn few_rounds_have_no_interval_and_neither_have_extremes() {
        let rounds: Vec<Vec<u64>> = (0..6).map(|r| (0..10).map(|v| v + r).collect()).collect();
        let interval = |rounds: &[Vec<u64>], figure| interval_over_rounds(rounds, figure, 1, 0.95);
        assert!(interval(&rounds, Figure::P50).is_some());
        assert_eq!(interval(&rounds[..5], Figure::P50), None);
        assert_eq!(interval(&rounds, Figure::Max), None);
        assert_eq!(interval(&rounds, Figure::P99), None, "60 samples");
        let mut empty = rounds.clone();
        empty[2].clear();
        assert_eq!(interval(&empty, Figure::P50), None, "five rounds have samples");
        empty.push(vec![3]);
        assert!(interval(&empty, Figure::P50).is_some());
    }

    #[test]
    fn rounds_are_divided_by_what_is_theirs() {
        let rounds = Rounds::new(&[vec![10, 20], vec![30], vec![7], vec![8]]);
        let divided = rounds.divided(&[Some(10.0), Some(20.0), None], 1e6);
        assert_eq!(divided.sorted(), [1_000_000, 1_500_000, 2_000_000]);
        assert_eq!((divided.len(), divided.sampled()), (4, vec![0, 1]));
    }

    /// Rounds of a host that has one of two speeds in each of them.
    fn flipping(rounds: usize, random: &mut fastrand::Rng) -> Vec<Vec<u64>> {
        let round = |random: &mut fastrand::Rng| {
            let speed = if random.bool() { 1.15 } else { 1.0 };
            (0..200).map(|_| (1e6 * speed * (1.0 + 0.1 * random.f64())) as u64).collect()
        };
        (0..rounds).map(|_| round(random)).collect()
    }

    #[test]
    fn intervals_hold_the_mean_as_often_as_they_say() {
        let truth = 1e6 * 1.075 * 1.05;
        let (mut random, tries) = (fastrand::Rng::with_seed(5), 400);
        for rounds in [12, 30] {
            let holds = |random: &mut fastrand::Rng| {
                let seed = random.u64(..);
                interval_over_rounds(&flipping(rounds, random), Figure::Mean, seed, 0.95).unwrap().holds(truth)
            };
            let held = (0..tries).filter(|_| holds(&mut random)).count();
            // 380 of 400 are expected; four standard deviations of the binomial to both sides.
            assert!((362..=397).contains(&held), "{rounds} rounds: {held} of {tries}");
        }
    }

    /// A host that has another speed in the next round with the chance `flips`.
    fn staying(rounds: usize, flips: f64, random: &mut fastrand::Rng) -> Vec<Vec<u64>> {
        let mut slow = random.bool();
        let mut round = |random: &mut fastrand::Rng| {
            slow ^= random.f64() < flips;
            let speed = if slow { 1.15 } else { 1.0 };
            (0..50).map(|_| (1e6 * speed * (1.0 + 0.1 * random.f64())) as u64).collect()
        };
        (0..rounds).map(|_| round(random)).collect()
    }

    #[test]
    #[ignore = "2 s; run by .ci/run"]
    fn a_host_that_stays_slow_for_a_while_widens_the_interval() {
        let truth = 1e6 * 1.075 * 1.05;
        let (mut random, tries) = (fastrand::Rng::with_seed(6), 400);
        // 380 of 400 are asked for. Long stays leave few blocks: then some is missing, but not the half.
        for (flips, least, most_alone) in [(0.5, 368, 400), (0.2, 360, 300), (0.1, 332, 220)] {
            let hosts: Vec<_> = (0..tries).map(|_| (staying(60, flips, &mut random), random.u64(..))).collect();
            let count = |hosts: &[(Vec<Vec<u64>>, u64)]| {
                let (mut held, mut alone) = (0, 0);
                for (samples, seed) in hosts {
                    let rounds = Rounds::new(samples);
                    held += usize::from(rounds.interval(Figure::Mean, *seed, 0.95).unwrap().holds(truth));
                    let draws = Draws::new(60, rounds.sampled(), RESAMPLES, *seed).unwrap();
                    let interval = draws.interval(0.95, |times| rounds.drawn(Figure::Mean, times));
                    alone += usize::from(interval.unwrap().holds(truth));
                }
                (held, alone)
            };
            let (one, other) = hosts.split_at(tries / 2);
            let (one, other) = std::thread::scope(|scope| {
                let one = scope.spawn(|| count(one));
                (count(other), one.join().unwrap())
            });
            let (held, alone) = (one.0 + other.0, one.1 + other.1);
            assert!(held >= least, "{flips}: {held} of {tries}");
            assert!(alone <= most_alone, "{flips}: single rounds hold it in {alone} of {tries}");
        }
    }
}
