//! The result of a sweep: a figure for each place, and figures over the places.

use experiment::{Addresses, Cell};
use serde::{Deserialize, Serialize};
use statistics::Rounds;

/// Figures over the means of all measured places, by the observed value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Places {
    /// Bytes from one to the next.
    pub step: u64,
    pub count: u64,
    pub measured: u64,
    pub mean_ns: f64,
    /// Standard deviation, for a sample of places (n - 1); 0 for a single place.
    pub sd_ns: f64,
    pub least_ns: f64,
    /// The offset of that place, bytes.
    pub least_at: u64,
    pub most_ns: f64,
    pub most_at: u64,
    /// The mean of each place, in the order of their offsets; null without samples.
    pub each_ns: Vec<Option<f64>>,
}

impl Places {
    /// `rounds` are the values of all samples, with `each` rounds for each repeat in sequence.
    pub(super) fn of(cell: &Cell, rounds: &Rounds, each: u32) -> Option<Places> {
        let Addresses::Sweep { step, .. } = cell.subject.addresses else { return None };
        let count = cell.subject.addresses.places();
        let mut sums = vec![(0.0, 0.0); usize::try_from(count).ok()?];
        for (number, mean) in rounds.each(statistics::Figure::Mean).into_iter().enumerate() {
            let place = (number as u64 % u64::from(each.max(1)) % count) as usize;
            let samples = rounds.samples(number) as f64;
            if let Some(mean) = mean {
                sums[place] = (sums[place].0 + mean * samples, sums[place].1 + samples);
            }
        }
        let each_ns: Vec<Option<f64>> = sums.into_iter().map(|(sum, n)| (n > 0.0).then(|| sum / n)).collect();
        let found = || each_ns.iter().enumerate().filter_map(|(n, mean)| Some((n as u64 * step, (*mean)?)));
        let measured = found().count();
        let (least_at, least_ns) = found().reduce(|a, b| if b.1 < a.1 { b } else { a })?;
        let (most_at, most_ns) = found().reduce(|a, b| if b.1 > a.1 { b } else { a })?;
        let mean_ns = found().map(|(_, mean)| mean).sum::<f64>() / measured as f64;
        let squares: f64 = found().map(|(_, mean)| (mean - mean_ns) * (mean - mean_ns)).sum();
        let sd_ns = if measured > 1 { (squares / (measured - 1) as f64).sqrt() } else { 0.0 };
        let measured = measured as u64;
        Some(Places { step, count, measured, mean_ns, sd_ns, least_ns, least_at, most_ns, most_at, each_ns })
    }
}
