//! Writes a recording as of a program that launches much, or times what reads one.
//!
//! `cargo run --release -p decode --example large -- write FILE SUBMISSIONS`, then `... -- time FILE`.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use decode::walk::{At, Sink, walk};
use std::path::Path;
use std::time::Instant;

/// The first submissions.
struct First(u64);

impl Sink for First {
    fn done(&self) -> bool {
        self.0 == 0
    }

    fn submission_end(&mut self, _: &At<'_>) {
        self.0 = self.0.saturating_sub(1);
    }
}

fn time(file: &Path) {
    let timed = |what: &str, begin: Instant| println!("{what}: {:.3} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    let r = Recording::open(file).expect("a recording");
    timed("open", begin);
    let begin = Instant::now();
    walk(&r, &mut First(20)).expect("a recording");
    timed("20 submissions", begin);
    let begin = Instant::now();
    let submissions = decode::summary(&r).expect("a recording").submissions;
    timed("summary", begin);
    println!("{submissions} submissions, {:.2} us each", begin.elapsed().as_secs_f64() * 1e6 / submissions as f64);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", file, submissions] => synthetic::large(file.as_ref(), submissions.parse().expect("a number")),
        ["time", file] => time(file.as_ref()),
        _ => panic!("write FILE SUBMISSIONS, or time FILE"),
    }
}
