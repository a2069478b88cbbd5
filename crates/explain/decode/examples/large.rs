//! Writes a recording like that of a program with many launches, or times the readers of one.
//!
//! `cargo run --release -p decode --example large -- write FILE SUBMISSIONS`, then `... -- time FILE`. `... -- store FILE` stores the summary in it, as
//! `record` does, with places where a walk can begin.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use decode::walk::{At, Filter, Sink, walk};
use std::path::Path;
use std::time::{Duration, Instant};

/// Takes the first submissions.
struct First(u64);

impl Sink for First {
    fn done(&self) -> bool {
        self.0 == 0
    }

    fn submission_end(&mut self, _: &At<'_>) {
        self.0 = self.0.saturating_sub(1);
    }
}

/// Takes the submissions of a time.
struct Second {
    from: u64,
    until: u64,
    begins: bool,
    wanted: u64,
    given: u64,
}

impl Sink for Second {
    fn from(&self) -> Option<u64> {
        self.begins.then_some(self.from)
    }

    fn until(&self) -> Option<u64> {
        Some(self.until)
    }

    fn submission_end(&mut self, at: &At<'_>) {
        self.given += 1;
        self.wanted += u64::from((self.from..self.until).contains(&at.submission.tsc));
    }
}

/// Those of a stream.
struct OfStream(Filter, u64);

impl Sink for OfStream {
    fn filter(&self) -> Option<&Filter> {
        Some(&self.0)
    }

    fn submission_end(&mut self, _: &At<'_>) {
        self.1 += 1;
    }
}

/// CPU seconds of this process so far.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let of = |i: usize| stat.rsplit(')').next()?.split_whitespace().nth(i)?.parse::<f64>().ok();
    (of(11).unwrap_or(0.0) + of(12).unwrap_or(0.0)) / 100.0
}

/// Prints a row of JSON for each reader: `walked` submissions were decoded for those that were wanted.
fn time(file: &Path) {
    let mut first = true;
    let mut timed = |what: &str, read: &mut dyn FnMut() -> [u64; 2]| {
        let (begin, before) = (Instant::now(), cpu());
        let [wanted, walked] = read();
        let (took, used) = (begin.elapsed().as_secs_f64(), cpu() - before);
        let comma = if std::mem::take(&mut first) { "[" } else { "," };
        println!(
            "{comma} {{\"what\": \"{what}\", \"seconds\": {took:.3}, \"cpu\": {used:.2}, \"wanted\": {wanted}, \"walked\": {walked}}}"
        );
    };
    let mut opened = None;
    timed("open", &mut || {
        opened = Some(Recording::open(file).expect("a recording"));
        [0, 0]
    });
    let r = opened.expect("was opened");
    timed("the first 20", &mut || {
        walk(&r, &mut First(20)).expect("a recording");
        [20, 20]
    });
    let middle = r.clocks().first().map_or(0, |c| c.tsc) / 2 + r.clocks().last().map_or(0, |c| c.tsc) / 2;
    for begins in [true, false] {
        let what = if begins { "a second in the middle" } else { "the same from the start" };
        timed(what, &mut || {
            let mut second = Second { from: middle, until: middle + r.hz() as u64, begins, wanted: 0, given: 0 };
            walk(&r, &mut second).expect("a recording");
            [second.wanted, second.given]
        });
    }
    timed("a stream with one", &mut || {
        let mut rare = OfStream(Filter { stream: Some(synthetic::RARE), ..Filter::default() }, 0);
        walk(&r, &mut rare).expect("a recording");
        [1, rare.1]
    });
    timed("summary", &mut || [decode::summary(&r).expect("a recording").submissions, 0]);
    println!("]");
}

fn store(file: &Path) {
    let (begin, size) = (Instant::now(), || file.metadata().map_or(0, |m| m.len()));
    let before = size();
    let stored = decode::store_summary(file, Duration::from_secs(600)).expect("a recording");
    println!("stored: {stored}, {:.3} s, {} bytes of {before}", begin.elapsed().as_secs_f64(), size() - before);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", file, submissions] => synthetic::large(file.as_ref(), submissions.parse().expect("a number")),
        ["time", file] => time(file.as_ref()),
        ["store", file] => store(file.as_ref()),
        _ => panic!("write FILE SUBMISSIONS, time FILE, or store FILE"),
    }
}
