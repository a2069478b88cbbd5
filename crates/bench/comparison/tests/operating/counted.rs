//! Verdicts of many comparisons of synthetic runs.

use crate::host::{Host, rounds, run};
use comparison::{Cell, Comparison, Key, Limits, Overall, Request, compare};
use statistics::{Figure, Rounds};

pub const JUDGED: [Figure; 3] = [Figure::P50, Figure::Mean, Figure::P99];

/// The verdict of one cell in two runs, with the figures and limits of `doorbell compare`.
pub fn overall(a: Rounds, b: Rounds, limit: f64) -> Overall {
    of(&Cell::Measured(a), &Cell::Measured(b), limit).overall()
}

pub fn of(a: &Cell, b: &Cell, limit: f64) -> Comparison {
    let key = Key { subject: "ce0".into(), bytes: 4096, point: String::new() };
    let request = Request { figures: JUDGED.to_vec(), limits: Limits::new(limit, None) };
    Comparison::of(compare(&key, a, b, &request, |_| None), request.limits)
}

/// How many of `tries` pairs have this verdict; the second of each takes `times` as long.
pub fn counted(host: &Host, times: f64, limit: f64, tries: u64, is: impl Fn(Overall) -> bool + Sync) -> usize {
    let one = |seed: u64| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (a, b) = (run(host, 1.0, &mut random), run(host, times, &mut random));
        is(overall(a, b, limit))
    };
    let half = |part: u64| (part..tries).step_by(2).filter(|seed| one(*seed)).count();
    std::thread::scope(|scope| {
        let halves = [0, 1].map(|part| scope.spawn(move || half(part)));
        halves.map(|half| half.join().unwrap()).into_iter().sum()
    })
}

/// A figure of a very long run.
pub fn truth(host: &Host, times: f64) -> [f64; 3] {
    let mut random = fastrand::Rng::with_seed(1);
    let long = Host { processes: 400, odd: (usize::MAX, 1.0), drift: 0.0, ..*host };
    let all: Vec<u64> = rounds(&long, times, &mut random).concat();
    let all = Rounds::new(&[all]);
    JUDGED.map(|figure| all.figure(figure).unwrap())
}
