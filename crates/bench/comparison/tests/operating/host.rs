//! Synthetic runs on a host that flips between two speeds.
//!
//! This code is independent of how runs are compared. Samples are drawn one by one. The host also flips in the middle of rounds, and the effect of
//! the slow speed differs between cells. Stalls have the same length at any speed, rounds drift, and repeats differ a little. Noise has heavier
//! tails than a normal distribution.

use comparison::Cell;
use statistics::{Figure, Rounds};

/// The behaviour of a host and of the cells on it.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The chance that the host has another speed in the next round.
    pub flips: f64,
    /// How many times as long everything takes at the slow speed.
    pub slow: f64,
    /// The chance of a flip in the middle of a round instead of between two.
    pub within: f64,
    pub rounds: usize,
    pub repeats: usize,
    pub samples: usize,
    /// The part of the samples that is in the tail, a quarter longer on average.
    pub tail: f64,
}

impl Host {
    pub const TYPICAL: Host =
        Host { flips: 0.5, slow: 1.15, within: 0.15, rounds: 10, repeats: 6, samples: 200, tail: 0.003 };
}

pub fn normal(random: &mut fastrand::Rng) -> f64 {
    let (a, b) = (1.0 - random.f64(), random.f64());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// Student's t with 5 degrees of freedom: heavy tails, a standard deviation of 1.29.
fn heavy(random: &mut fastrand::Rng) -> f64 {
    let squares: f64 = (0..5).map(|_| normal(random).powi(2)).sum();
    normal(random) / (squares / 5.0).sqrt()
}

/// One cell: its duration, and the effect of the host's slowness on it.
struct Subject {
    median_ns: f64,
    share: f64,
    spread: f64,
    drift: f64,
}

impl Subject {
    fn round(&mut self, host: &Host, speeds: &[f64], process: f64, random: &mut fastrand::Rng) -> Vec<u64> {
        self.drift = 0.7 * self.drift + 0.001 * normal(random);
        let round = (0.004 * heavy(random) + self.drift + process).exp();
        let sample = |speed: &f64| {
            let speed = 1.0 + (speed - 1.0) * self.share;
            let mut ns = self.median_ns * speed * round * (self.spread * normal(random)).exp();
            if random.f64() < host.tail {
                ns *= 1.0 - 0.25 * (1.0 - random.f64()).ln();
            }
            if random.f64() < 0.000_5 {
                // A stall of the host: microseconds, however fast the cell is.
                ns += 5_000.0 * (1.0 - random.f64()).powf(-0.6);
            }
            ns as u64
        };
        speeds.iter().map(sample).collect()
    }
}

/// A run of a cell and of a baseline that took turns with it; the cell is `times` as slow as normal.
pub fn run(host: &Host, times: f64, with_baseline: bool, random: &mut fastrand::Rng) -> Cell {
    let mut subject = Subject { median_ns: 4_000.0 * times, share: 1.0, spread: 0.08, drift: 0.0 };
    let mut other = Subject { median_ns: 9_000.0, share: 0.85, spread: 0.12, drift: 0.0 };
    let (mut rounds, mut baseline) = (vec![], vec![]);
    let mut is_slow = random.bool();
    for _ in 0..host.repeats {
        // A new process: other pages, other caches.
        let (process, process_other) = (0.002 * normal(random), 0.002 * normal(random));
        for _ in 0..host.rounds {
            let was_slow = is_slow;
            is_slow ^= random.f64() < host.flips;
            let from =
                if is_slow != was_slow && random.f64() < host.within { random.usize(0..host.samples) } else { 0 };
            let speed = |slow| if slow { host.slow } else { 1.0 };
            let speeds: Vec<f64> =
                (0..host.samples).map(|n| speed(if n < from { was_slow } else { is_slow })).collect();
            rounds.push(subject.round(host, &speeds, process, random));
            if with_baseline {
                baseline.push(other.round(host, &speeds, process_other, random));
            }
        }
    }
    let baseline = with_baseline.then(|| Rounds::new(&baseline).each(Figure::P50));
    Cell { baseline, ..Cell::of(Rounds::new(&rounds).in_repeats_of(host.rounds)) }
}
