//! The same figures as numpy and scipy, of the same samples. `fixtures/make.py` made `fixtures/golden.json`.

use serde::Deserialize;
use statistics::distribution::{student_cdf, student_quantile};
use statistics::{Figure, Line, Percentile, Ratio, Rounds, Summary};

#[derive(Deserialize)]
struct Golden {
    percentiles: Vec<Percentiles>,
    distributions: Distributions,
    intervals: Vec<OfRounds>,
    lines: Vec<Fitted>,
}

#[derive(Deserialize)]
struct Percentiles {
    seed: u64,
    count: usize,
    scale: u64,
    min: u64,
    max: u64,
    mean: f64,
    /// p50, p90, p99, p99.9, p99.99 by `numpy.quantile(.., method="inverted_cdf")`.
    at: [u64; 5],
}

#[derive(Deserialize)]
struct Distributions {
    student_cdf: Vec<(f64, u32, f64)>,
    student_quantile: Vec<(f64, u32, f64)>,
}

/// By `scipy.stats.linregress`, the interval by `scipy.stats.t`.
#[derive(Deserialize)]
struct Fitted {
    points: Vec<(f64, f64)>,
    slope: f64,
    intercept: f64,
    interval: [f64; 2],
    r_squared: f64,
}

/// A figure, or a ratio, of rounds, by numpy and the model written a second time.
#[derive(Deserialize)]
struct OfRounds {
    seed: u64,
    count: usize,
    each: usize,
    /// Rounds of a repeat.
    repeat: usize,
    figure: String,
    of: String,
    value: f64,
    interval: Option<[f64; 2]>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../fixtures/golden.json")).unwrap()
}

struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn sample(&mut self, scale: u64) -> u64 {
        let x = self.next();
        let second_hump = if (x >> 32).is_multiple_of(3) { 5 * scale } else { 0 };
        let tail = if (x >> 40).is_multiple_of(200) { (x >> 50) % (100 * scale) } else { 0 };
        20 * scale + x % (4 * scale) + second_hump + tail
    }

    fn rounds(seed: u64, count: usize, each: usize) -> Rounds {
        let mut random = SplitMix(seed);
        let all: Vec<Vec<u64>> = (0..count)
            .map(|_| {
                let scale = if random.next() % 2 == 1 { 1150 } else { 1000 };
                (0..each).map(|_| random.sample(scale)).collect()
            })
            .collect();
        Rounds::new(&all)
    }
}

fn samples(seed: u64, count: usize, scale: u64) -> Vec<u64> {
    let mut random = SplitMix(seed);
    (0..count).map(|_| random.sample(scale)).collect()
}

fn assert_near(found: f64, expected: f64, part: f64, what: &str) {
    assert!((found - expected).abs() <= expected.abs() * part, "{what}: {found}, expected {expected}");
}

#[test]
fn percentiles_are_those_of_numpy() {
    let all = [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P999, Percentile::P9999];
    let mut checked = 0;
    for set in golden().percentiles {
        let mut values = samples(set.seed, set.count, set.scale);
        let s = Summary::of(&mut values).unwrap();
        assert_eq!((s.count, s.min, s.max), (set.count as u64, set.min, set.max));
        assert_near(s.mean, set.mean, 1e-12, "mean");
        let found = [Some(s.p50), s.p90, s.p99, s.p999, s.p9999];
        for ((percentile, found), expected) in all.iter().zip(found).zip(set.at) {
            assert_eq!(found.is_some(), set.count as u64 >= percentile.needs());
            if let Some(found) = found {
                assert_eq!(found, expected, "{percentile} of {}", set.count);
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 9 + 7 + 5 + 3 + 2);
}

#[test]
fn distributions_are_those_of_scipy() {
    let all = golden().distributions;
    for (x, freedom, expected) in all.student_cdf {
        // In a tail of 1e-9 of the whole, a difference of two numbers near 1 keeps fewer digits.
        assert!((student_cdf(x, freedom) - expected).abs() < 1e-13, "student cdf {x} {freedom}");
    }
    for (p, freedom, expected) in all.student_quantile.into_iter().filter(|(p, _, _)| *p != 0.5) {
        assert_near(student_quantile(p, freedom), expected, 1e-9, &format!("student quantile {p} {freedom}"));
    }
    assert!(student_quantile(0.5, 3).abs() < 1e-15);
}

#[test]
fn intervals_over_processes_are_those_of_numpy_and_scipy() {
    for set in golden().intervals {
        let figure = match set.figure.as_str() {
            "p50" => Figure::P50,
            "p90" => Figure::P90,
            "p99" => Figure::P99,
            "mean" => Figure::Mean,
            "misses" => Figure::Misses(24_500),
            other => panic!("{other}"),
        };
        let made = |seed| SplitMix::rounds(seed, set.count, set.each).in_repeats_of(set.repeat);
        let rounds = made(set.seed);
        let (value, interval) = if set.of == "one" {
            (rounds.figure(figure).unwrap(), rounds.interval(figure, 0.95))
        } else {
            let ratio = Ratio::of(&rounds, &made(set.seed + 100), figure, 0.95).unwrap();
            (ratio.ratio, ratio.interval)
        };
        let what = format!("{} of {}, {} rounds: {interval:?}, {:?}", set.figure, set.of, set.count, set.interval);
        assert_near(value, set.value, 1e-9, &what);
        assert_eq!(interval.is_some(), set.interval.is_some(), "{what}");
        let Some((interval, [low, high])) = interval.zip(set.interval) else { continue };
        assert_near(interval.low, low, 1e-9, &what);
        assert_near(interval.high, high, 1e-9, &what);
    }
}

#[test]
fn lines_are_those_of_scipy() {
    for set in golden().lines {
        let line = Line::through(&set.points, 0.95).unwrap();
        let interval = line.slope_interval.unwrap();
        let what = format!("{} points: {line:?}", set.points.len());
        assert_near(line.slope, set.slope, 1e-12, &what);
        assert_near(line.intercept, set.intercept, 1e-9, &what);
        assert_near(line.r_squared.unwrap(), set.r_squared, 1e-12, &what);
        assert_near(interval.low, set.interval[0], 1e-9, &what);
        assert_near(interval.high, set.interval[1], 1e-9, &what);
    }
}
