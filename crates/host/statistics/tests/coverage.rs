//! How often intervals of 95 % hold the truth, on synthetic runs whose processes can be exchanged.

use statistics::{Figure, Ratio, Rounds};

fn normal(random: &mut fastrand::Rng) -> f64 {
    let (a, b) = (1.0 - random.f64(), random.f64());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// How far processes and rounds are apart, the part of the rounds that is slow, and how many times as long these take.
#[derive(Clone, Copy)]
struct Made {
    processes: usize,
    rounds: usize,
    process: f64,
    round: f64,
    slow: (f64, f64),
}

const SAMPLES: usize = 40;

impl Made {
    /// `levels` are those of a host that both cells of a ratio share.
    fn rounds(&self, levels: &[f64], random: &mut fastrand::Rng) -> Rounds {
        let mut own = 0.0;
        let mut round = |n: usize| -> Vec<u64> {
            if n.is_multiple_of(self.rounds) {
                own = self.process * normal(random);
            }
            let speed = if random.f64() < self.slow.0 { self.slow.1.ln() } else { 0.0 };
            let level = own + self.round * normal(random) + speed + levels[n];
            (0..SAMPLES).map(|_| (1e6 * (level + 0.03 * normal(random)).exp()) as u64).collect()
        };
        Rounds::new(&(0..levels.len()).map(&mut round).collect::<Vec<_>>()).in_repeats_of(self.rounds)
    }

    fn alone(&self, random: &mut fastrand::Rng) -> Rounds {
        self.rounds(&vec![0.0; self.processes * self.rounds], random)
    }
}

/// At least 93 of 100 hold it. A tail whose samples come from too few processes has no interval, and does not count.
#[test]
#[ignore = "10 s; run by .ci/run"]
fn intervals_hold_the_truth() {
    let five = Made { processes: 5, rounds: 6, process: 0.0, round: 0.01, slow: (0.0, 1.0) };
    for (name, made) in [
        ("five processes that do not differ", five),
        ("five processes 1 % apart", Made { process: 0.01, ..five }),
        ("five processes 3 % apart", Made { process: 0.03, round: 0.003, ..five }),
        ("ten processes 2 % apart", Made { processes: 10, process: 0.02, ..five }),
        ("40 % of the rounds 15 % slower", Made { slow: (0.4, 1.15), ..five }),
        ("a fifth of the rounds three times as long", Made { slow: (0.2, 3.0), ..five }),
    ] {
        let mut random = fastrand::Rng::with_seed(7);
        let long = Made { processes: 4000, ..made }.alone(&mut random);
        let mut held = [(Figure::P50, 0, 0, 0), (Figure::Mean, 0, 0, 0), (Figure::P99, 0, 0, 0)];
        for _ in 0..600 {
            let rounds = made.alone(&mut random);
            let shared: Vec<f64> = (0..rounds.len()).map(|_| 0.05 * normal(&mut random)).collect();
            let pair = [made.rounds(&shared, &mut random), made.rounds(&shared, &mut random)];
            for (figure, known, in_it, of_ratio) in &mut held {
                let truth = long.figure(*figure).unwrap();
                if let Some(interval) = rounds.interval(*figure, 0.95) {
                    *known += 1;
                    *in_it += u32::from(interval.holds(truth));
                    let (first, last) = (rounds.sorted()[0], *rounds.sorted().last().unwrap());
                    assert!(
                        interval.low >= first as f64 && interval.high <= last as f64,
                        "{name}: {figure}: {interval:?}"
                    );
                }
                let ratio = Ratio::of(&pair[0], &pair[1], *figure, 0.95).and_then(|r| r.interval);
                *of_ratio += u32::from(ratio.is_some_and(|i| i.holds(1.0)));
            }
        }
        for (figure, known, in_it, of_ratio) in held {
            println!("{name}: {figure}: {in_it} of {known} hold it, {of_ratio} of 600 ratios");
            // Two standard deviations of the binomial below 95 %, with 600 tries, is 93 %.
            let is_tail = figure == Figure::P99;
            assert!(known < 30 || in_it * 100 >= known * 93, "{name}: {figure}: {in_it} of {known}");
            assert!(is_tail || (known >= 450 && of_ratio >= 558), "{name}: {figure}: {known} known, {of_ratio} ratios");
        }
    }
}
