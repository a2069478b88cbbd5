//! Synthetic runs. This code is independent of how runs are compared: samples are drawn one by one, with noise whose tails are heavier than a normal
//! distribution's.

use statistics::Rounds;

/// How a machine behaves while a cell is measured.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub processes: usize,
    /// Of one process.
    pub rounds: usize,
    /// Of one round.
    pub samples: usize,
    /// How far processes are apart: a standard deviation.
    pub apart: f64,
    /// How far rounds are apart, and the correlation of neighbours, which outlasts a process.
    pub level: (f64, f64),
    /// The part of the rounds that is slow, how many times as long they take, and the chance that the next round draws its speed anew.
    pub speeds: (f64, f64, f64),
    /// How much slower the last round is than the first, or the first than the last.
    pub drift: f64,
    /// The part of the samples that is a quarter longer on average.
    pub tail: f64,
    /// The part of the samples that loses its CPU for a time slice of 3 ms.
    pub pressure: f64,
    /// This process alone is so many times as slow.
    pub odd: (usize, f64),
}

impl Host {
    pub const QUIET: Host = Host {
        processes: 6,
        rounds: 10,
        samples: 30,
        apart: 0.002,
        level: (0.003, 0.0),
        speeds: (0.0, 1.0, 1.0),
        drift: 0.0,
        tail: 0.02,
        pressure: 0.0,
        odd: (usize::MAX, 1.0),
    };

    /// The same number of rounds and samples in so many processes.
    pub fn in_processes(self, processes: usize) -> Host {
        Host { processes, rounds: self.processes * self.rounds / processes, ..self }
    }
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

/// The rounds of a run of a cell that takes `times` 4 us.
pub fn rounds(host: &Host, times: f64, random: &mut fastrand::Rng) -> Vec<Vec<u64>> {
    let all = host.processes * host.rounds;
    let (share, slow, anew) = host.speeds;
    let (size, alike) = host.level;
    let way = if random.bool() { 1.0 } else { -1.0 };
    // Speeds that are drawn for each round have their share to the round; of speeds that last it is left to chance.
    let mut slow_rounds: Vec<bool> = (0..all).map(|n| (n as f64 + 0.5) < share * all as f64).collect();
    random.shuffle(&mut slow_rounds);
    let (mut is_slow, mut level, mut process) = (random.f64() < share, normal(random), 0.0);
    let mut rounds = Vec::with_capacity(all);
    for (n, slow_round) in slow_rounds.into_iter().enumerate() {
        if n.is_multiple_of(host.rounds) {
            process = host.apart * normal(random) + if n / host.rounds == host.odd.0 { host.odd.1.ln() } else { 0.0 };
        }
        if anew >= 1.0 {
            is_slow = slow_round;
        } else if random.f64() < anew {
            is_slow = random.f64() < share;
        }
        level = alike * level + (1.0 - alike * alike).sqrt() * normal(random);
        let drift = host.drift * way * ((n as f64 + 0.5) / all as f64 - 0.5);
        let speed = if is_slow { slow } else { 1.0 };
        let log = process + size * level + 0.002 * heavy(random) + drift;
        let sample = |_| {
            let mut ns = 4_000.0 * times * speed * (log + 0.05 * normal(random)).exp();
            if random.f64() < host.tail {
                ns *= 1.0 - 0.25 * (1.0 - random.f64()).ln();
            }
            if random.f64() < host.pressure {
                ns += 3e6;
            }
            ns as u64
        };
        rounds.push((0..host.samples).map(sample).collect());
    }
    rounds
}

pub fn run(host: &Host, times: f64, random: &mut fastrand::Rng) -> Rounds {
    Rounds::new(&rounds(host, times, random)).in_repeats_of(host.rounds)
}
