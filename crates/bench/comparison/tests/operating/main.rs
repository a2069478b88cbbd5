//! How often a comparison is right: equal runs are called equal and slower ones slower, on synthetic runs.

mod counted;
mod host;

use counted::counted;
use host::Host;
use statistics::Figure;

/// One flip in two rounds, and one in ten.
const FLIPS: [f64; 2] = [0.5, 0.1];

/// At least 90 of 100 comparisons are right: runs whose second is 5 % slower, and equal runs. For tails, 70 of 100 equal runs are: for the others a
/// slowdown by 5 % is not ruled out. At most 2 of 100 equal runs are called different.
fn holds(flips: f64, figure: Figure, baseline: bool, tries: u32, seed: u64) {
    let host = Host { flips, ..Host::TYPICAL };
    let what = format!("{figure}, baseline {baseline}, a flip each {} rounds", 1.0 / flips);
    let (equal, slower) = std::thread::scope(|scope| {
        let equal = scope.spawn(|| counted(&host, 1.0, baseline, figure, tries, seed));
        let slower = counted(&host, 1.05, baseline, figure, tries, seed + u64::from(tries));
        (equal.join().unwrap(), slower)
    });
    let least = if figure == Figure::P50 { 90 } else { 70 };
    assert!(equal.equal * 100 >= tries * least, "{what}: {} of {tries} are equal", equal.equal);
    let different = equal.slower + equal.faster;
    assert!(different * 100 <= tries * 2, "{what}: {different} of {tries} are different");
    let c = slower;
    assert!(c.fails * 100 >= tries * 90, "{what}: {} of {tries} are regressions", c.fails);
}

#[test]
fn medians_are_called_right_in_90_of_100() {
    holds(0.1, Figure::P50, true, 100, 1);
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn tails_relative_to_a_baseline_are_judged_right_in_90_of_100() {
    holds(0.5, Figure::P99, true, 100, 2);
}

#[test]
#[ignore = "a minute; run by .ci/run"]
fn all_are_called_right_with_many_seeds() {
    for seed in [10_000, 20_000, 30_000] {
        for flips in FLIPS {
            for figure in [Figure::P50, Figure::P99] {
                holds(flips, figure, true, 100, seed);
            }
        }
    }
}

/// Without a baseline, a host that changes its speed cannot be distinguished from a change: equal runs may be unclear, and slower ones too.
#[test]
fn a_host_with_two_speeds_makes_no_difference() {
    for flips in FLIPS {
        let host = Host { flips, ..Host::TYPICAL };
        let c = counted(&host, 1.0, false, Figure::P50, 100, 1);
        assert!(
            c.slower + c.faster <= 5,
            "a flip each {} rounds: {} slower, {} faster",
            1.0 / flips,
            c.slower,
            c.faster
        );
    }
}

/// A comparison must be better than this: medians of all samples of equal runs are often 5 % apart.
#[test]
fn medians_of_all_samples_are_far_apart_in_equal_runs() {
    let host = Host { flips: 0.1, ..Host::TYPICAL };
    let wrong = (0..100).filter(|seed| {
        let mut random = fastrand::Rng::with_seed(*seed);
        let mut one = || host::run(&host, 1.0, false, &mut random).rounds.figure(Figure::P50).unwrap();
        one() / one() >= 1.05
    });
    let wrong = wrong.count();
    assert!(wrong > 10, "{wrong} of 100");
}
