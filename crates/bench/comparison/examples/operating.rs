//! Prints the table of docs/reference/compare.md: how often each verdict results from comparisons of synthetic runs.
//!
//! `cargo run --release -p comparison --example operating -- 500`

#[path = "../tests/operating/counted.rs"]
mod counted;
#[path = "../tests/operating/host.rs"]
mod host;

use counted::counted;
use host::Host;
use statistics::Figure;

fn main() {
    let tries = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(500u32);
    let hosts = [
        ("a flip each 2 rounds", Host::TYPICAL),
        ("each 10 rounds", Host { flips: 0.1, ..Host::TYPICAL }),
        ("each 30 rounds", Host { flips: 1.0 / 30.0, ..Host::TYPICAL }),
        ("one speed", Host { flips: 0.0, slow: 1.0, ..Host::TYPICAL }),
        ("3 % in the tail", Host { tail: 0.03, ..Host::TYPICAL }),
        ("three repeats of 20", Host { repeats: 3, rounds: 20, flips: 0.0, slow: 1.0, ..Host::TYPICAL }),
        ("one repeat of 60", Host { repeats: 1, rounds: 60, flips: 0.0, slow: 1.0, ..Host::TYPICAL }),
    ];
    println!("| host | baseline | figure | width | 0 % | 1 % | 2 % | 3 % | 5 % | 10 % |");
    println!("|---|---|---|--:|--:|--:|--:|--:|--:|--:|");
    for (name, host) in hosts {
        for baseline in [false, true] {
            for figure in [Figure::P50, Figure::P99] {
                let (mut width, mut cells) = (0.0, Vec::new());
                for times in [1.0, 1.01, 1.02, 1.03, 1.05, 1.1] {
                    let c = counted(&host, times, baseline, figure, tries, 1000);
                    let part = |n: u32| format!("{:.0}", 100.0 * f64::from(n) / f64::from(tries));
                    if times == 1.0 {
                        width = 100.0 * c.width;
                        let wrong = c.slower + c.faster;
                        cells.push(format!("{} ({:.1})", part(c.equal), 100.0 * f64::from(wrong) / f64::from(tries)));
                    } else {
                        cells.push(format!("{} ({})", part(c.slower), part(c.fails)));
                    }
                }
                let baseline = if baseline { "yes" } else { "no" };
                println!("| {name} | {baseline} | {figure} | {width:.1} % | {} |", cells.join(" | "));
            }
        }
    }
}
