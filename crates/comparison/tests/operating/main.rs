//! How often a comparison is right: equal runs are called equal and slower ones slower, on synthetic runs.

mod host;

use comparison::{Comparison, Key, Request, Run, Verdict, compare};
use host::Host;
use statistics::Figure;

fn key() -> Key {
    Key { subject: "ce0".into(), bytes: 4096, point: String::new() }
}

/// Verdicts of one comparison: is each figure slower or faster for certain, and does it fail `--fail-above 5%`.
fn verdicts(host: &Host, times: f64, baseline: bool, figure: Figure, seed: u64) -> (Verdict, bool, f64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let a = Run::Measured(Box::new(host::run(host, 1.0, baseline, &mut random)));
    let b = Run::Measured(Box::new(host::run(host, times, baseline, &mut random)));
    let request = Request { figures: vec![figure], fail_above: 0.05, seed };
    let comparison = Comparison::of(compare(&key(), &a, &b, &request), 0.05);
    let row = &comparison.rows[0];
    let width = row.interval().map_or(f64::NAN, |i| i.high / i.low - 1.0);
    (row.verdict.clone(), row.fails, width)
}

struct Counted {
    slower: u32,
    faster: u32,
    fails: u32,
    none: u32,
    width: f64,
}

fn counted(host: &Host, times: f64, baseline: bool, figure: Figure, tries: u32, seed: u64) -> Counted {
    let mut c = Counted { slower: 0, faster: 0, fails: 0, none: 0, width: 0.0 };
    for n in 0..tries {
        let (verdict, fails, width) = verdicts(host, times, baseline, figure, seed + u64::from(n));
        c.slower += u32::from(verdict == Verdict::Slower);
        c.faster += u32::from(verdict == Verdict::Faster);
        c.none += u32::from(matches!(verdict, Verdict::TooFew(_)));
        c.fails += u32::from(fails);
        c.width += width / f64::from(tries);
    }
    c
}

const FLIPS: [f64; 2] = [0.5, 0.1];

/// At least 95 of 100 are called right: equal runs, and runs whose second is 5 % slower.
fn holds(figure: Figure, baseline: bool, tries: u32, seed: u64) {
    for flips in FLIPS {
        let host = Host { flips, ..Host::TYPICAL };
        let what = format!("{figure}, baseline {baseline}, a flip each {} rounds", 1.0 / flips);
        let c = counted(&host, 1.0, baseline, figure, tries, seed);
        let equal = tries - c.slower - c.faster - c.none;
        assert!(equal * 100 >= tries * 95 && c.fails * 100 <= tries, "{what}: {equal} of {tries} are equal");
        let c = counted(&host, 1.05, baseline, figure, tries, seed + u64::from(tries));
        assert!(c.fails * 100 >= tries * 95, "{what}: {} of {tries} are regressions", c.fails);
    }
}

#[test]
fn medians_are_called_right_in_95_of_100() {
    holds(Figure::P50, false, 100, 1);
}

#[test]
fn medians_beside_a_baseline_are_called_right_in_95_of_100() {
    holds(Figure::P50, true, 100, 2);
}

#[test]
fn tails_are_called_right_in_95_of_100() {
    holds(Figure::P99, false, 100, 3);
}

#[test]
fn tails_beside_a_baseline_are_called_right_in_95_of_100() {
    holds(Figure::P99, true, 100, 4);
}

#[test]
#[ignore = "a minute; run by .ci/run"]
fn all_are_called_right_with_many_seeds() {
    for seed in [10_000, 20_000, 30_000] {
        for (figure, baseline) in [(Figure::P50, false), (Figure::P50, true), (Figure::P99, false), (Figure::P99, true)]
        {
            holds(figure, baseline, 300, seed);
        }
    }
}

/// The comparison that this one must be better than: medians of all samples, and an interval over rounds.
#[test]
fn medians_of_all_samples_would_be_called_wrong() {
    let host = Host { flips: 0.1, ..Host::TYPICAL };
    let wrong = (0..100).filter(|seed| {
        let mut random = fastrand::Rng::with_seed(*seed);
        let mut one = || host::run(&host, 1.0, false, &mut random).rounds.interval(Figure::P50, 1, 0.95).unwrap();
        one().apart(&one())
    });
    let wrong = wrong.count();
    assert!(wrong > 10, "{wrong} of 100");
}

#[test]
#[ignore = "prints the table of docs/reference/compare.md; run by hand"]
fn table() {
    let tries = std::env::var("TRIES").map_or(400, |t| t.parse().unwrap());
    for (name, host) in [
        ("flips at each other round", Host::TYPICAL),
        ("flips each 10 rounds", Host { flips: 0.1, ..Host::TYPICAL }),
        ("flips each 30 rounds", Host { flips: 0.033, ..Host::TYPICAL }),
        ("one speed", Host { flips: 0.0, slow: 1.0, ..Host::TYPICAL }),
        ("heavy tail", Host { tail: 0.03, ..Host::TYPICAL }),
        ("one repeat of 20", Host { repeats: 1, ..Host::TYPICAL }),
    ] {
        for baseline in [false, true] {
            for figure in [Figure::P50, Figure::P99] {
                print!("{name:26} {:9} {figure:4}", if baseline { "baseline" } else { "alone" });
                for times in [1.0, 1.01, 1.02, 1.03, 1.05, 1.1] {
                    let c = counted(&host, times, baseline, figure, tries, 1000);
                    let of = |n: u32| 100.0 * f64::from(n) / f64::from(tries);
                    print!(" | {:5.1} {:5.1} f{:5.1}", of(c.slower), of(c.faster), of(c.fails));
                    if c.none > 0 {
                        print!(" none {:.1}", of(c.none));
                    }
                    if times == 1.0 {
                        print!(" w{:.3}", c.width);
                    }
                }
                println!();
            }
        }
    }
}
