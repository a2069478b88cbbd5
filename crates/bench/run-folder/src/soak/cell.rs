//! One cell while a period is measured: its summary, its histogram and its slowest samples, in memory of fixed size.

use crate::run::Ends;
use crate::soak::account::{CellName, CellOfPeriod, Direction, Slow};
use crate::soak::clock;
use crate::{Explained, PartCell, Sample, Status};
use experiment::{Cell, Observe, Stage, What};
use statistics::{Bucket, Histogram, Percentile, Worst};
use std::collections::BTreeMap;

/// The number of slowest samples that a period keeps of each cell.
const WORST: usize = 10;

/// Bits of a value that its bucket keeps, besides the first one: buckets are at most a 64th of their value wide.
const BITS: u32 = 6;

pub(crate) struct OpenCell {
    cell: Cell,
    pub name: CellName,
    histogram: Histogram,
    /// The mean, and the squares of the distances from it (Welford).
    mean: f64,
    squares: f64,
    least: Option<u64>,
    largest: Option<u64>,
    worst: Worst<Slow>,
    checked: u64,
    pub wrong: u64,
    pub lost: u64,
    misses: u64,
    unavailable: Option<String>,
    pub failed: Option<String>,
}

impl OpenCell {
    pub fn new(stage: &Stage, cell: &Cell) -> OpenCell {
        let name = CellName { stage: stage.number, subject: cell.subject.name.clone(), bytes: cell.bytes };
        OpenCell {
            cell: cell.clone(),
            name,
            histogram: Histogram::new(),
            mean: 0.0,
            squares: 0.0,
            least: None,
            largest: None,
            worst: Worst::new(WORST),
            checked: 0,
            wrong: 0,
            lost: 0,
            misses: 0,
            unavailable: None,
            failed: None,
        }
    }

    /// Adds what a lap measured of this cell. Samples of rounds in which counters were read are not used here.
    pub fn add(&mut self, period: u32, began_utc_s: f64, counters_every: u32, part: &PartCell, samples: &[Sample]) {
        match &part.status {
            Status::Measured | Status::Invalid(_) => {}
            Status::Unavailable(why) => self.unavailable = Some(why.clone()),
            Status::Failed(why) => self.failed = self.failed.take().or_else(|| Some(why.clone())),
        }
        self.checked += part.compared.whole;
        let (observe, deadline) = (self.cell.subject.observe, self.cell.subject.deadline_ns);
        for (index, sample) in samples.iter().enumerate() {
            if crate::samples::reads_counters(sample.round, counters_every) {
                continue;
            }
            let value = match observe {
                Observe::Submit => Some(sample.submit()),
                Observe::Done => Some(sample.done()),
                Observe::Engine => sample.engine(),
            };
            let Some(value) = value else { continue };
            self.histogram.record(value);
            self.least = Some(self.least.map_or(value, |least| least.min(value)));
            self.largest = self.largest.max(Some(value));
            let distance = value as f64 - self.mean;
            self.mean += distance / self.histogram.count() as f64;
            self.squares += distance * (value as f64 - self.mean);
            self.misses += u64::from(deadline.is_some_and(|deadline| sample.done() > deadline));
            let explained = || part.worst.iter().find(|w| w.index == index as u64);
            self.worst.offer(value, || slow(period, began_utc_s, value, sample, explained()));
        }
    }

    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// The slowest so far.
    pub fn slowest(&self) -> Option<Slow> {
        self.worst.clone().into_sorted().into_iter().next().map(|slow| slow.note)
    }

    /// Its account. `functional`: without rates.
    pub fn account(&self, functional: bool) -> CellOfPeriod {
        let count = self.count();
        let (min, max) = (self.least, self.largest);
        let percentile = |p| self.histogram.percentile(p);
        let mean = (count > 0).then_some(self.mean);
        let stddev = (count > 1).then(|| (self.squares / (count - 1) as f64).sqrt());
        CellOfPeriod {
            cell: self.name.clone(),
            direction: direction(&self.cell.subject.what),
            unavailable: self.unavailable.clone(),
            failed: self.failed.clone(),
            count,
            checked: self.checked,
            wrong: self.wrong,
            lost: self.lost,
            misses: self.cell.subject.deadline_ns.map(|_| self.misses),
            mean_ns: mean,
            min_ns: min,
            max_ns: max,
            p50_ns: percentile(Percentile::P50),
            p99_ns: percentile(Percentile::P99),
            p999_ns: percentile(Percentile::P999),
            stddev_ns: stddev,
            jitter_ns: max.zip(min).map(|(max, min)| max - min),
            relative_fluctuation: over_mean(stddev, mean),
            bytes_per_second: rate(&self.cell, mean, functional),
            histogram: coarse(self.histogram.buckets()),
            worst: self.worst.clone().into_sorted().into_iter().map(|slow| slow.note).collect(),
        }
    }
}

/// A value as a fraction of the mean; `None` if the mean is 0.
pub(crate) fn over_mean(value: Option<f64>, mean: Option<f64>) -> Option<f64> {
    value.zip(mean).filter(|(_, mean)| *mean > 0.0).map(|(value, mean)| value / mean)
}

/// Bytes per second if each sample takes the mean time; `None` if no bytes move, and on the software GPU (`functional`).
pub(crate) fn rate(cell: &Cell, mean_ns: Option<f64>, functional: bool) -> Option<f64> {
    let moves = matches!(cell.subject.what, What::Route(_)) && cell.bytes > 0 && !functional;
    let mean_ns = mean_ns.filter(|mean| moves && *mean > 0.0)?;
    Some(cell.bytes as f64 * f64::from(cell.subject.back_to_back) / mean_ns * 1e9)
}

/// The direction of the bytes: `read` is to the host, or from a device.
pub(crate) fn direction(what: &What) -> Option<Direction> {
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
