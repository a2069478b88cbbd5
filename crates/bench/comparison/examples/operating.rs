//! Prints the table of docs/reference/compare.md: verdicts of comparisons of synthetic runs.
//!
//! `cargo run --release -p comparison --example operating -- 500`

#[path = "../tests/operating/counted.rs"]
#[allow(dead_code)]
mod counted;
#[path = "../tests/operating/host.rs"]
mod host;

use comparison::Overall;
use counted::counted;
use host::Host;

fn main() {
    let tries = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(500u64);
    let quiet = Host { samples: 200, ..Host::QUIET };
    let two = |share, anew| Host { speeds: (share, 1.15, anew), ..quiet };
    let hosts = [
        ("quiet, six processes 0.2 % apart", quiet),
        ("five processes", quiet.in_processes(5)),
        ("three processes", quiet.in_processes(3)),
        ("one process", quiet.in_processes(1)),
        ("processes 0.5 % apart", Host { apart: 0.005, ..quiet }),
        ("processes 1 % apart", Host { apart: 0.01, ..quiet }),
        ("processes 1.5 % apart", Host { apart: 0.015, ..quiet }),
        ("processes 3 % apart", Host { apart: 0.03, ..quiet }),
        ("half of the rounds 15 % slower", two(0.5, 0.9)),
        ("the same, speeds last for ten rounds", two(0.5, 0.1)),
        ("5 % of the rounds ten times as long", Host { speeds: (0.05, 10.0, 0.9), ..quiet }),
        ("neighbouring rounds alike by 0.9, 1 % apart", Host { level: (0.01, 0.9), ..quiet }),
        ("the same, 3 % apart", Host { level: (0.03, 0.9), ..quiet }),
        ("a drift of 3 %", Host { drift: 0.03, ..quiet }),
    ];
    println!("| machine | equal | different | +3 % | +5 % | +8 % | +15 % |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for (name, host) in hosts {
        let part = |times, is: fn(Overall) -> bool| {
            format!("{:.1}", 100.0 * counted(&host, times, 0.05, tries, is) as f64 / tries as f64)
        };
        let mut cells = vec![part(1.0, |v| v == Overall::Equal)];
        cells.push(part(1.0, |v| matches!(v, Overall::Regression | Overall::Faster)));
        cells.extend([1.03, 1.05, 1.08, 1.15].map(|times| part(times, |v| v == Overall::Regression)));
        println!("| {name} | {} |", cells.join(" | "));
    }
}
