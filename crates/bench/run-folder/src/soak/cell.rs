//! One cell while a period is measured: its summary, its histogram and its slowest samples, in memory of fixed size.

use crate::run::{Ends, observed};
use crate::samples::reads_counters;
use crate::soak::account::{CellName, CellOfSoak, Direction, Slow};
use crate::soak::clock;
use crate::{Explained, PartCell, Sample, Status};
use experiment::{Cell, Stage, What};
use statistics::{Bucket, Histogram, Percentile, Worst};
use std::collections::BTreeMap;

/// The number of slowest samples that a period keeps of each cell.
const WORST: usize = 10;

/// Bits of a value that its bucket keeps, besides the first one: buckets are at most a 64th of their value wide.
const BITS: u32 = 6;

/// Exact figures of samples, of which none is kept: the mean, and the squares of the distances from it (Welford).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moments {
    pub count: u64,
    pub mean: f64,
    squares: f64,
    pub least: Option<u64>,
    pub largest: Option<u64>,
}

impl Moments {
    fn add(&mut self, value: u64) {
        let one = Some(value);
        *self = self.and(&Moments { count: 1, mean: value as f64, squares: 0.0, least: one, largest: one });
    }

    /// Of a cell in a period.
    pub fn of(cell: &CellOfSoak) -> Moments {
        let squares = cell.stddev_ns.unwrap_or(0.0).powi(2) * cell.count.saturating_sub(1) as f64;
        let mean = cell.mean_ns.unwrap_or(0.0);
        Moments { count: cell.count, mean, squares, least: cell.min_ns, largest: cell.max_ns }
    }

    /// Of both together: the squares within the two, and between them (Chan).
    pub fn and(&self, other: &Moments) -> Moments {
        let (one, two) = (self.count as f64, other.count as f64);
        let (part, distance) = (two / (one + two).max(1.0), other.mean - self.mean);
        Moments {
            count: self.count + other.count,
            mean: self.mean + distance * part,
            squares: self.squares + other.squares + distance * distance * one * part,
            least: self.least.into_iter().chain(other.least).min(),
            largest: self.largest.max(other.largest),
        }
    }

    fn stddev(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).sqrt())
    }
}

impl CellOfSoak {
    /// A cell without samples.
    pub(crate) fn new(stage: u32, cell: &Cell) -> CellOfSoak {
        CellOfSoak {
            cell: CellName { stage, subject: cell.subject.name.clone(), bytes: cell.bytes },
            direction: direction(&cell.subject.what),
            misses: cell.subject.deadline_ns.map(|_| 0),
            ..CellOfSoak::default()
        }
    }

    /// With the figures of all samples. `percentiles`: p50, p99 and p99.9. `functional`: without rates.
    pub(crate) fn with(
        self,
        cell: &Cell,
        all: &Moments,
        percentiles: [Option<u64>; 3],
        functional: bool,
    ) -> CellOfSoak {
        let (mean_ns, stddev_ns) = ((all.count > 0).then_some(all.mean), all.stddev());
        let [p50_ns, p99_ns, p999_ns] = percentiles;
        CellOfSoak {
            count: all.count,
            mean_ns,
            min_ns: all.least,
            max_ns: all.largest,
            p50_ns,
            p99_ns,
            p999_ns,
            stddev_ns,
            jitter_ns: all.largest.zip(all.least).map(|(max, min)| max - min),
            relative_fluctuation: over_mean(stddev_ns, mean_ns),
            bytes_per_second: rate(cell, mean_ns, functional),
            ..self
        }
    }
}

/// The percentiles of an account.
pub(crate) const PERCENTILES: [Percentile; 3] = [Percentile::P50, Percentile::P99, Percentile::P999];

pub(crate) struct OpenCell {
    cell: Cell,
    /// Without figures.
    pub of: CellOfSoak,
    histogram: Histogram,
    moments: Moments,
    worst: Worst<Slow>,
}

impl OpenCell {
    pub fn new(stage: &Stage, cell: &Cell) -> OpenCell {
        OpenCell {
            cell: cell.clone(),
            of: CellOfSoak::new(stage.number, cell),
            histogram: Histogram::new(),
            moments: Moments::default(),
            worst: Worst::new(WORST),
        }
    }

    /// Adds what a lap measured of this cell. Samples of rounds in which counters were read are not used here.
    pub fn add(&mut self, period: u32, began_utc_s: f64, counters_every: u32, part: &PartCell, samples: &[Sample]) {
        match &part.status {
            Status::Measured | Status::Invalid(_) => {}
            Status::Unavailable(why) => self.of.unavailable = Some(why.clone()),
            Status::Failed(why) => self.of.failed = self.of.failed.take().or_else(|| Some(why.clone())),
        }
        self.of.checked += part.compared.whole;
        let (observe, deadline) = (self.cell.subject.observe, self.cell.subject.deadline_ns);
        let counting = samples.iter().enumerate().filter(|(_, s)| !reads_counters(s.round, counters_every));
        for (index, sample) in counting {
            let Some(value) = observed(sample, observe) else { continue };
            self.histogram.record(value);
            self.moments.add(value);
            let is_late = deadline.is_some_and(|deadline| sample.done() > deadline);
            self.of.misses = self.of.misses.map(|misses| misses + u64::from(is_late));
            let explained = || part.worst.iter().find(|w| w.index == index as u64);
            self.worst.offer(value, || slow(period, began_utc_s, value, sample, explained()));
        }
    }

    /// Its slowest samples, the slowest first.
    pub fn slowest(&self) -> Vec<Slow> {
        self.worst.clone().into_sorted().into_iter().map(|slow| slow.note).collect()
    }

    /// Its account. `functional`: without rates.
    pub fn account(&self, functional: bool) -> CellOfSoak {
        let percentiles = PERCENTILES.map(|p| self.histogram.percentile(p));
        let histogram = coarse(self.histogram.buckets());
        let account = CellOfSoak { histogram, worst: self.slowest(), ..self.of.clone() };
        account.with(&self.cell, &self.moments, percentiles, functional)
    }
}

/// A value as a fraction of the mean; `None` if the mean is 0.
pub(crate) fn over_mean(value: Option<f64>, mean: Option<f64>) -> Option<f64> {
    value.zip(mean).filter(|(_, mean)| *mean > 0.0).map(|(value, mean)| value / mean)
}

/// Bytes per second if each sample takes the mean time; `None` if no bytes move, and on the software GPU (`functional`).
fn rate(cell: &Cell, mean_ns: Option<f64>, functional: bool) -> Option<f64> {
    let moves = matches!(cell.subject.what, What::Route(_)) && cell.bytes > 0 && !functional;
    let mean_ns = mean_ns.filter(|mean| moves && *mean > 0.0)?;
    Some(cell.bytes as f64 * f64::from(cell.subject.back_to_back) / mean_ns * 1e9)
}

/// The direction of the bytes: `read` is to the host, or from a device.
fn direction(what: &What) -> Option<Direction> {
    let (source, destination) = Ends::of(what)?.direction();
    match (source, destination) {
        ("device", _) => Some(Direction::Read),
        (_, "device") => Some(Direction::Write),
        ("host", "host") => None,
        (_, "host") => Some(Direction::Read),
        ("host", _) => Some(Direction::Write),
        _ => None,
    }
}

fn slow(period: u32, began_utc_s: f64, value: u64, s: &Sample, explained: Option<&Explained>) -> Slow {
    let between = |from: u64, to: u64| to as i64 - from as i64;
    let engine = (s.ended_ns > 0).then(|| between(s.submitted_ns, s.ended_ns));
    Slow {
        period,
        at: clock::precise(began_utc_s + s.call_ns as f64 / 1e9),
        value_ns: value,
        total_ns: s.done(),
        waited_ns: s.call_ns.saturating_sub(s.release_ns),
        submit_ns: s.submit(),
        engine_ns: engine,
        seen_ns: (s.ended_ns > 0).then(|| between(s.ended_ns, s.done_ns)),
        longest_gap_ns: explained.and_then(|e| e.longest_gap_ns),
        run_queue_ns: explained.and_then(|e| e.run_queue_ns),
        asleep_ns: explained.and_then(|e| e.asleep_ns),
        capped: s.capped,
    }
}

/// The lowest value in the bucket of this value, and the bucket's width.
fn bucket(value: u64) -> (u64, u64) {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    ((value >> shift) << shift, 1 << shift)
}

/// With fewer buckets: hours of them fit into a folder.
pub(crate) fn coarse(fine: impl Iterator<Item = Bucket>) -> Vec<Bucket> {
    let mut all: BTreeMap<u64, Bucket> = BTreeMap::new();
    for Bucket { low, count, .. } in fine {
        let (low, width) = bucket(low);
        all.entry(low).or_insert(Bucket { low, high: low + (width - 1), count: 0 }).count += count;
    }
    all.into_values().collect()
}

/// The last value of the bucket in which this percentile is, at most the largest sample; `None` with fewer than ten samples beyond it.
pub(crate) fn percentile(buckets: &[Bucket], percentile: Percentile, largest: u64) -> Option<u64> {
    let count = buckets.iter().map(|bucket| bucket.count).sum();
    let rank = percentile.rank(count)?;
    let mut so_far = 0;
    let found = buckets.iter().find(|bucket| {
        so_far += bucket.count;
        so_far >= rank
    })?;
    Some(found.high.min(largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_buckets_hold_all_samples_and_are_as_narrow_as_they_say() {
        let mut random = fastrand::Rng::with_seed(2);
        let values: Vec<u64> = (0..5000).map(|_| random.u64(..) >> random.u32(22..64)).collect();
        let fine: Histogram = values.iter().copied().collect();
        let buckets = coarse(fine.buckets());
        assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), 5000);
        assert!(buckets.windows(2).all(|two| two[0].high < two[1].low));
        assert!(buckets.iter().all(|b| (b.high - b.low) as f64 <= b.low as f64 / 64.0), "{buckets:?}");
        // Merged from parts they are the same.
        let again = coarse(buckets.iter().copied());
        assert_eq!(again, buckets);
        let mut sorted = values;
        sorted.sort_unstable();
        let (exact, near) = (sorted[2499], percentile(&buckets, Percentile::P50, u64::MAX).unwrap());
        assert!(near >= exact && (near - exact) as f64 <= exact as f64 / 32.0, "{exact} {near}");
    }

    #[test]
    fn directions_are_those_of_a_device_or_of_the_host() {
        let of = |text: &str| direction(&What::Route(text.into()));
        assert_eq!(of("device->dma->gpu0"), Some(Direction::Read));
        assert_eq!(of("gpu0->staged[sleeps]->device"), Some(Direction::Write));
        assert_eq!(of("host[pageable]->cuda->gpu0"), Some(Direction::Write));
        assert_eq!(of("gpu0->ce0->host"), Some(Direction::Read));
        assert_eq!(of("gpu0->ce0->gpu1"), None);
        assert_eq!(direction(&What::Call("launch".into())), None);
    }
}
