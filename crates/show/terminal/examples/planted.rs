//! Injects slowdowns into the samples of a run, and counts the verdicts of `doorbell compare`: the first word of its last line.
//!
//! The run is one long series: `docs/results/compare/quiet.toml` and `busy.toml`, as data files (`doorbell report RUN --digest FILE`). It is cut
//! into 100 disjoint pairs of runs of six repeats, each of ten successive rounds. Only the choice of the slowed rounds is random.
//!
//! `cargo run --release -p terminal --example planted -- DATA.json [DATA.json..]`

use comparison::{Cell, Comparison, Key, Limits, Overall, Request, compare};
use run_folder::data_file::Digest;
use statistics::{Figure, Rounds};
use std::collections::BTreeMap;
use std::path::Path;

const REPEATS: usize = 6;
const ROUNDS: usize = 10;
const PAIRS: usize = 100;
/// Of `--fail-above`.
const LIMIT: f64 = 0.05;

/// The samples of a cell, round by round.
type Series = Vec<Vec<u64>>;

/// The change in the second run of a pair.
#[derive(Clone, Copy)]
enum Plant {
    Nothing,
    /// This fraction of the rounds takes this many times as long.
    Slower {
        part: f64,
        times: f64,
    },
    /// Two speeds 15 % apart: this part of the rounds of A, and that of B, is slow.
    Speeds {
        a: f64,
        b: f64,
    },
}

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: planted DATA.json [DATA.json..], each of a run with one long stage");
        std::process::exit(2);
    }
    println!("| run | cells | figures | planted into B | verdicts of {PAIRS} pairs |");
    println!("|---|--:|---|---|---|");
    for file in files {
        if let Err(e) = one(Path::new(&file)) {
            eprintln!("{file}: {e}");
            std::process::exit(2);
        }
    }
}

fn one(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let cells = read(path)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let spread = cells.values().map(median_spread).fold(0.0, f64::max);
    println!(
        "| {name} | {} | p50 | rounds vary by {:.2} % (robust, the worst cell) | - |",
        cells.len(),
        100.0 * spread
    );
    let p50 = vec![Figure::P50];
    let both = vec![Figure::P50, Figure::Mean, Figure::P99];
    for (subject, series) in &cells {
        let alone = BTreeMap::from([(subject.clone(), series.clone())]);
        let spread = 100.0 * median_spread(series);
        for figures in [&p50, &both] {
            let counts = counted(&alone, Plant::Nothing, figures);
            println!(
                "| {name}: {subject} | 1 | {} | nothing; rounds vary by {spread:.2} % | {counts} |",
                words(figures)
            );
        }
        let counts = counted(&alone, Plant::Slower { part: 0.1, times: 1.08 }, &p50);
        println!("| {name}: {subject} | 1 | p50 | 10 % of the rounds 8 % slower | {counts} |");
    }
    let slower = |part, times| Plant::Slower { part, times };
    for (figures, plant) in [
        (&both, Plant::Nothing),
        (&p50, Plant::Nothing),
        (&both, slower(1.0, 1.08)),
        (&p50, slower(1.0, 1.08)),
        (&p50, slower(0.9, 1.08)),
        (&p50, slower(0.8, 1.08)),
        (&p50, slower(0.9, 1.3)),
        (&p50, slower(0.8, 1.34)),
        (&p50, slower(0.1, 1.08)),
        (&p50, slower(0.2, 1.08)),
        (&p50, slower(0.3, 1.08)),
        (&p50, slower(0.5, 1.08)),
        (&p50, Plant::Speeds { a: 0.25, b: 0.75 }),
        (&p50, Plant::Speeds { a: 0.75, b: 0.25 }),
        (&p50, Plant::Speeds { a: 0.25, b: 0.5 }),
        (&p50, Plant::Speeds { a: 0.0, b: 0.5 }),
    ] {
        let counts = counted(&cells, plant, figures);
        println!("| {name} | {} | {} | {} | {counts} |", cells.len(), words(figures), plant.words());
    }
    Ok(())
}

fn counted(cells: &BTreeMap<String, Series>, plant: Plant, figures: &[Figure]) -> String {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for pair in 0..PAIRS {
        *counts.entry(verdict(cells, pair, plant, figures).to_string()).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
    counts.join(", ")
}

fn words(figures: &[Figure]) -> String {
    figures.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Plant {
    fn words(self) -> String {
        match self {
            Plant::Nothing => "nothing".into(),
            Plant::Slower { part, times } => {
                format!("{:.0} % of the rounds {:.0} % slower", 100.0 * part, 100.0 * (times - 1.0))
            }
            Plant::Speeds { a, b } => {
                format!("{:.0} % of A's and {:.0} % of B's rounds 15 % slower", 100.0 * a, 100.0 * b)
            }
        }
    }

    /// The rounds that are slow in A and B, and how many times as long they take.
    fn parts(self) -> (f64, f64, f64) {
        match self {
            Plant::Nothing => (0.0, 0.0, 1.0),
            Plant::Slower { part, times } => (0.0, part, times),
            Plant::Speeds { a, b } => (a, b, 1.15),
        }
    }
}

/// The samples of the one stage, by subject.
fn read(path: &Path) -> Result<BTreeMap<String, Series>, Box<dyn std::error::Error>> {
    let digest = Digest::read(&run_folder::data_file::read_text(path)?)?;
    let stage = digest.stages.first().ok_or("it has no stage")?;
    let needed = 2 * PAIRS * REPEATS * ROUNDS;
    let mut cells = BTreeMap::new();
    for cell in &stage.cells {
        let series =
            cell.series(cell.observe).ok_or("a cell has no samples")?.values().map_err(|e| format!("{e:?}"))?;
        if series.len() < needed {
            return Err(format!("{}: {} rounds, and {needed} are needed", cell.subject, series.len()).into());
        }
        cells.insert(cell.subject.clone(), series);
    }
    Ok(cells)
}

fn verdict(cells: &BTreeMap<String, Series>, pair: usize, plant: Plant, figures: &[Figure]) -> Overall {
    let (a, b, times) = plant.parts();
    let request = Request { figures: figures.to_vec(), limits: Limits::new(LIMIT, None) };
    let mut rows = Vec::new();
    for (subject, series) in cells {
        let key = Key { subject: subject.clone(), bytes: 0, point: String::new() };
        let side = |number: usize, part: f64| run(series, number, part, times);
        rows.extend(compare(&key, &side(2 * pair, a), &side(2 * pair + 1, b), &request, |_| None));
    }
    Comparison::of(rows, request.limits).overall()
}

/// The `number`-th run of the series; a fraction of its rounds takes `times` as long. All cells have the same slow rounds.
fn run(series: &Series, number: usize, part: f64, times: f64) -> Cell {
    let count = REPEATS * ROUNDS;
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut order: Vec<usize> = (0..count).collect();
    random.shuffle(&mut order);
    let mut rounds: Series = series[number * count..][..count].to_vec();
    for slow in &order[..(part * count as f64).round() as usize] {
        rounds[*slow].iter_mut().for_each(|ns| *ns = (*ns as f64 * times).round() as u64);
    }
    Cell::Measured(Rounds::new(&rounds).in_repeats_of(ROUNDS))
}

/// How far the medians of neighbouring rounds are apart: the middle of half of all.
fn median_spread(series: &Series) -> f64 {
    let medians: Vec<f64> = Rounds::new(series).each(Figure::P50).into_iter().flatten().collect();
    statistics::median_and_deviation(&medians).map_or(0.0, |(middle, deviation)| deviation / middle)
}
