//! Which rounds of a run had which speed of the host.
//!
//! Virtual machines and clocks that boost flip between speeds some 5 to 30 % apart, for one round or for many in a row. Then the
//! medians of the rounds lie in two clusters, and how many lie in which is chance.

/// Clusters nearer to each other are not taken for two speeds: they hardly move a result, and noise makes such clusters too.
pub const LEAST_APART: f64 = 1.04;

/// Clusters that are further apart are not taken for two speeds of a host. Something else made those rounds slow, and it
/// stays in the comparison.
pub const MOST_APART: f64 = 1.35;

/// The centres of two clusters lie at least so many standard deviations within them apart. Of 60 rounds without clusters less
/// than one in a thousand is cut into halves so far apart, of evenly spread ones two in a thousand.
const DEVIATIONS: f64 = 4.5;

/// A round by itself is an outlier, and no speed.
const FEWEST: usize = 2;

/// The speeds of one cell's rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Speeds {
    /// Of each round the number of its speed, 0 is the faster one. `None` for rounds without samples.
    pub of: Vec<Option<usize>>,
    /// The mean logarithm of the medians at each speed: one or two, or none without rounds.
    pub centres: Vec<f64>,
}

impl Speeds {
    /// From the median of each round.
    pub fn of(medians: &[Option<f64>]) -> Speeds {
        let logs: Vec<Option<f64>> = medians.iter().map(|m| m.filter(|m| *m > 0.0).map(f64::ln)).collect();
        let mut sorted: Vec<f64> = logs.iter().copied().flatten().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        match cut(&sorted) {
            Some(cut) => {
                let slow = sorted[cut];
                let of = logs.iter().map(|l| l.map(|l| usize::from(l >= slow))).collect();
                Speeds { of, centres: vec![mean(&sorted[..cut]), mean(&sorted[cut..])] }
            }
            None => {
                let centres = if sorted.is_empty() { vec![] } else { vec![mean(&sorted)] };
                Speeds { of: logs.iter().map(|l| l.map(|_| 0)).collect(), centres }
            }
        }
    }

    /// The part of the rounds with samples that had this speed.
    pub fn share(&self, speed: usize) -> f64 {
        let sampled = self.of.iter().flatten().count();
        self.of.iter().flatten().filter(|s| **s == speed).count() as f64 / sampled.max(1) as f64
    }

    /// Which speed of this run is which of another one.
    ///
    /// Where both have two, the faster ones and the slower ones belong together. Where one of them saw a single speed, it is
    /// taken for the nearer one of the other run's.
    pub fn matched(&self, other: &Speeds) -> Vec<(usize, usize)> {
        let nearest =
            |to: f64, of: &[f64]| (0..of.len()).min_by(|a, b| (of[*a] - to).abs().total_cmp(&(of[*b] - to).abs()));
        match (self.centres.as_slice(), other.centres.as_slice()) {
            ([_, _], [_, _]) => vec![(0, 0), (1, 1)],
            ([one], others) => nearest(*one, others).map(|n| (0, n)).into_iter().collect(),
            (these, [one]) => nearest(*one, these).map(|n| (n, 0)).into_iter().collect(),
            _ => vec![],
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Where the slower cluster begins, if there are two.
fn cut(sorted: &[f64]) -> Option<usize> {
    let n = sorted.len();
    if n < 2 * FEWEST || sorted[n - 1] - sorted[0] < LEAST_APART.ln() {
        return None;
    }
    // The cut with the least squares within both parts is that with the most between their means.
    let total: f64 = sorted.iter().sum();
    let (mut below, mut best) = (sorted[..FEWEST - 1].iter().sum::<f64>(), (0.0, 0));
    for cut in FEWEST..=n - FEWEST {
        below += sorted[cut - 1];
        let apart = (total - below) / (n - cut) as f64 - below / cut as f64;
        let between = apart * apart * (cut * (n - cut)) as f64;
        if between > best.0 {
            best = (between, cut);
        }
    }
    let (low, high) = sorted.split_at(best.1);
    if low.is_empty() {
        return None;
    }
    let (low_mean, high_mean) = (mean(low), mean(high));
    let squares = |part: &[f64], mean: f64| part.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    let deviation = ((squares(low, low_mean) + squares(high, high_mean)) / (n - 2) as f64).sqrt();
    let apart = high_mean - low_mean;
    let plausible = (LEAST_APART.ln()..=MOST_APART.ln()).contains(&apart);
    (plausible && apart >= DEVIATIONS * deviation).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of twelve evenly spread numbers: nearly normal.
    fn normal(random: &mut fastrand::Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    fn flipping(random: &mut fastrand::Rng, deviation: f64) -> (Vec<Option<f64>>, Vec<Option<usize>>) {
        let state: Vec<Option<usize>> = (0..60).map(|_| Some(random.usize(0..2))).collect();
        let median = |s: &Option<usize>| s.map(|s| 2e4 * [1.0, 1.15][s] * (deviation * normal(random)).exp());
        (state.iter().map(median).collect(), state)
    }

    #[test]
    fn rounds_of_two_speeds_are_told_apart() {
        let mut random = fastrand::Rng::with_seed(1);
        for deviation in [0.002, 0.01, 0.015] {
            for _ in 0..200 {
                let (medians, state) = flipping(&mut random, deviation);
                assert_eq!(Speeds::of(&medians).of, state, "{deviation}");
            }
        }
    }

    #[test]
    fn rounds_of_one_speed_stay_together() {
        let mut random = fastrand::Rng::with_seed(2);
        for deviation in [0.005, 0.02, 0.1] {
            let split = |random: &mut fastrand::Rng| {
                let medians: Vec<_> = (0..60).map(|_| Some(2e4 * (deviation * normal(random)).exp())).collect();
                Speeds::of(&medians).centres.len() == 2
            };
            let split = (0..2000).filter(|_| split(&mut random)).count();
            assert!(split <= 4, "{deviation}: {split} of 2000");
        }
    }

    #[test]
    fn one_slow_round_is_no_speed_and_twice_as_slow_is_no_speed_of_a_host() {
        let mut medians: Vec<_> = (0..20).map(|r| Some(1e4 + f64::from(r))).collect();
        medians[3] = Some(1.15e4);
        assert_eq!(Speeds::of(&medians).centres.len(), 1);
        medians[4] = Some(1.15e4);
        assert_eq!(Speeds::of(&medians).centres.len(), 2);
        medians[3] = Some(2e4);
        medians[4] = Some(2e4);
        assert_eq!(Speeds::of(&medians).centres.len(), 1);
    }

    #[test]
    fn a_run_with_one_speed_is_matched_with_the_nearer_one() {
        let speeds = |centres: &[f64]| Speeds { of: vec![], centres: centres.iter().map(|c| c.ln()).collect() };
        let both = speeds(&[1.0, 1.15]);
        assert_eq!(both.matched(&speeds(&[1.05, 1.21])), [(0, 0), (1, 1)]);
        assert_eq!(both.matched(&speeds(&[1.05])), [(0, 0)]);
        assert_eq!(both.matched(&speeds(&[1.12])), [(1, 0)]);
        assert_eq!(speeds(&[1.2]).matched(&both), [(0, 1)]);
        assert_eq!(both.matched(&speeds(&[])), []);
    }

    #[test]
    fn rounds_without_samples_have_no_speed() {
        let speeds = Speeds::of(&[None, Some(10.0), None, Some(11.0)]);
        assert_eq!(speeds.of, [None, Some(0), None, Some(0)]);
        assert_eq!((speeds.share(0), speeds.share(1)), (1.0, 0.0));
        assert_eq!(Speeds::of(&[None]).centres, []);
    }
}
