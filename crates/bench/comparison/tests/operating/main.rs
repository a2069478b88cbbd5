//! How often a comparison is right, on synthetic runs.

mod counted;
mod host;

use comparison::{Cell, Overall};
use counted::{counted, of, overall, truth};
use host::{Host, run};

fn is_different(verdict: Overall) -> bool {
    matches!(verdict, Overall::Regression | Overall::Faster)
}

const LIMITS: [f64; 5] = [0.0, 0.01, 0.02, 0.05, 0.1];

/// What is planted into B, with A's machine and B's.
fn plants() -> Vec<(&'static str, Host, Host, f64)> {
    let quiet = Host { apart: 0.004, ..Host::QUIET };
    let two = |share, times| Host { speeds: (share, times, 1.0), ..quiet };
    vec![
        ("45 % of the rounds three times as long, then 60 %", two(0.45, 3.0), two(0.6, 3.0), 1.0),
        ("30 % of the rounds three times as long, then 53 %", two(0.3, 3.0), two(0.53, 3.0), 1.0),
        ("25 % of the rounds 15 % slower, then 75 %", two(0.25, 1.15), two(0.75, 1.15), 1.0),
        ("half of the rounds 15 % slower", quiet, two(0.5, 1.15), 1.0),
        ("7 % of the rounds ten times as long", quiet, two(0.07, 10.0), 1.0),
        ("3 % of the rounds ten times as long", quiet, two(0.03, 10.0), 1.0),
        ("a tail three times as frequent", quiet, Host { tail: 0.06, ..quiet }, 1.0),
        ("10 % faster with a long tail", quiet, Host { tail: 0.1, ..quiet }, 0.9),
        ("a fifth of a percent of the samples loses its CPU", quiet, Host { pressure: 0.002, ..quiet }, 1.0),
        ("2 % of the samples lose their CPU", quiet, Host { pressure: 0.02, ..quiet }, 1.0),
        ("all rounds 1.5 % slower", quiet, quiet, 1.015),
        ("all rounds 6 % slower", quiet, quiet, 1.06),
        (
            "all rounds 12 % slower, processes 2 % apart",
            Host { apart: 0.02, ..quiet },
            Host { apart: 0.02, ..quiet },
            1.12,
        ),
        ("all rounds 20 % slower, three processes", quiet.in_processes(3), quiet.in_processes(3), 1.2),
    ]
}

#[test]
#[ignore = "10 s; run by .ci/run"]
fn a_planted_slowdown_beyond_the_limit_is_never_equal_or_faster() {
    let (mut beyond, mut near, mut near_wrong) = (0u32, 0u32, 0u32);
    for (what, before, after, times) in plants() {
        let (a, b) = (truth(&before, 1.0), truth(&after, times));
        for limit in LIMITS {
            // How many times the limit the figure that is slowest by its own limit exceeds.
            let over = (0..3).map(|f| (b[f] / a[f] - 1.0) / (limit * [1.0, 1.0, 5.0][f]).max(1e-9)).fold(0.0, f64::max);
            for seed in 0..16u64 {
                let mut random = fastrand::Rng::with_seed(seed);
                let verdict = overall(run(&before, 1.0, &mut random), run(&after, times, &mut random), limit);
                let wrong = matches!(verdict, Overall::Equal | Overall::Faster);
                beyond += u32::from(over > 1.5);
                assert!(!wrong || over <= 1.5, "{what}, seed {seed}, limit {limit}: {verdict}, {over} times the limit");
                near += u32::from(over > 1.0 && over <= 1.5);
                near_wrong += u32::from(wrong && over > 1.0);
            }
        }
    }
    println!("{beyond} beyond 1.5 times the limit: none equal or faster; {near} from 1 to 1.5 times: {near_wrong}");
    assert!(beyond >= 700 && near >= 16 && near_wrong * 1000 <= near * 25, "{beyond} {near} {near_wrong}");
}

#[test]
fn what_is_not_there_is_not_equal() {
    let mut random = fastrand::Rng::with_seed(3);
    for limit in LIMITS {
        for seed in 0..10 {
            random.seed(seed);
            let a = Cell::Measured(run(&Host::QUIET, 1.0, &mut random));
            assert_eq!(of(&a, &Cell::Failed("wrong bytes".into()), limit).overall(), Overall::Lost);
            assert_eq!(of(&a, &Cell::Absent("no route".into()), limit).overall(), Overall::Unclear);
            // Five rounds are left, of a cell that takes 100 times as long.
            let few = Host { processes: 1, rounds: 5, ..Host::QUIET };
            let (a, few) = (run(&Host::QUIET, 1.0, &mut random), run(&few, 100.0, &mut random));
            assert!(!matches!(overall(a, few, limit), Overall::Equal | Overall::Faster));
            // One process of six takes half as long again.
            let odd = Host { odd: (2, 1.5), ..Host::QUIET };
            let (a, odd) = (run(&Host::QUIET, 1.0, &mut random), run(&odd, 1.0, &mut random));
            assert!(!matches!(overall(a, odd, limit), Overall::Equal | Overall::Faster));
            // Half of the processes are missing, and 30 % slower.
            let half = Host { processes: 3, ..Host::QUIET };
            let (a, half) = (run(&Host::QUIET, 1.0, &mut random), run(&half, 1.3, &mut random));
            assert!(!matches!(overall(a, half, limit), Overall::Equal | Overall::Faster));
        }
    }
}

#[test]
#[ignore = "20 s; run by .ci/run"]
fn equal_runs_are_hardly_ever_called_different() {
    let quiet = Host::QUIET;
    let hosts = [
        ("independent rounds", quiet),
        ("two speeds 15 % apart", Host { speeds: (0.5, 1.15, 0.9), ..quiet }),
        ("two speeds 30 % apart", Host { speeds: (0.4, 1.3, 0.9), ..quiet }),
        ("two speeds 15 % apart that last for five rounds", Host { speeds: (0.5, 1.15, 0.2), ..quiet }),
        ("neighbours alike by 0.6", Host { level: (0.01, 0.6), ..quiet }),
        ("neighbours alike by 0.9", Host { level: (0.01, 0.9), ..quiet }),
        ("a drift of 3 %", Host { drift: 0.03, ..quiet }),
        ("5 % of the rounds ten times as long", Host { speeds: (0.05, 10.0, 0.9), ..quiet }),
        ("processes 1 % apart", Host { apart: 0.01, ..quiet }),
        ("processes 3 % apart", Host { apart: 0.03, ..quiet }),
    ];
    for processes in [1, 3, 6] {
        for (what, host) in hosts {
            let different = counted(&host.in_processes(processes), 1.0, 0.05, 200, is_different);
            println!("{what}, {processes} processes: {different} of 200 called different");
            assert!(different <= 4, "{what}, {processes} processes: {different} of 200");
        }
    }
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn slowdowns_of_all_rounds_are_found() {
    for apart in [0.002, 0.005, 0.01, 0.015] {
        let host = Host { apart, ..Host::QUIET };
        let found = |times| counted(&host, times, 0.05, 100, |v| v == Overall::Regression);
        let (five, eight) = (found(1.05), found(1.08));
        println!("processes {apart} apart: +5 % found in {five} of 100, +8 % in {eight}");
        assert!(five >= 80 && eight >= 98, "processes {apart} apart: {five} and {eight} of 100");
    }
}

#[test]
fn equal_quiet_runs_are_equal() {
    let host = Host { samples: 200, ..Host::QUIET };
    let equal = counted(&host, 1.0, 0.05, 50, |v| v == Overall::Equal);
    assert!(equal >= 45, "{equal} of 50");
}
