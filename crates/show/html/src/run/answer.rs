//! The question, the answer in one or two sentences, and the results of the asserts.

use super::Of;
use crate::document::{Block, Kind, Notice, Section};
use crate::view;
use experiment::Metric;
use run_folder::run::{BestOfRun, Cause, CellOfRun, Delay, Judged, RatioOfRun, Verdict as Came, baselines};
use run_folder::{Run, Status};
use statistics::Interval;
use terminal::number::{bytes, count, nanoseconds, of};
use terminal::run::three_digits;

/// Sentences of each kind.
const MOST: usize = 4;

pub fn section(of_run: &Of<'_>) -> Section {
    let run = of_run.run;
    // Broken asserts come before findings.
    let mut section =
        view::section(&of_run.id("answer"), "Answer", |out, style| terminal::run::asserts(out, &style, run));
    let sentences = if run.functional { works(run) } else { times(run) };
    if !run.asserts.is_empty() {
        section.push(Block::Heading("What was found".into()));
    }
    sentences.into_iter().for_each(|s| section.push(Block::Answer(s)));
    if !run.functional {
        section.blocks.extend(slowest(run).map(Block::Text));
    }
    section
}

/// The sentences for a functional run.
fn works(run: &Run) -> Vec<String> {
    let n = |is: fn(&Status) -> bool| run.cells.iter().filter(|c| is(&c.status)).count() as u64;
    let worked = n(|s| matches!(s, Status::Measured));
    let mut all = vec![format!(
        "{} of {} worked; {} were compared with the expected bytes, and all were right.",
        count(worked),
        of(run.cells.len() as u64, "cell"),
        of(run.cells.iter().map(|c| c.checked.whole).sum(), "transfer"),
    )];
    let failed = n(|s| matches!(s, Status::Failed(_)));
    if failed > 0 {
        all[0] = format!(
            "{} of {} worked, and {} failed.",
            count(worked),
            of(run.cells.len() as u64, "cell"),
            count(failed)
        );
    }
    all
}

fn times(run: &Run) -> Vec<String> {
    let mut all = beside(run);
    all.extend(best(run));
    if all.is_empty() {
        all.extend(against(run));
    }
    if all.is_empty() {
        all.push(match run.measured_cells().next().is_some() {
            true => "The experiment compares nothing. The tables have its figures.".into(),
            false => "Nothing was measured.".into(),
        });
    }
    all
}

/// Which way is the best for which sizes.
fn best(run: &Run) -> Vec<String> {
    let p50 = run.best.iter().filter(|b| b.metric == Metric::P50);
    let mut all: Vec<String> = p50.clone().take(MOST).map(|b| one_best(run, b)).collect();
    let more = p50.count().saturating_sub(MOST);
    if more > 0 {
        all.push(format!("{} more are below.", of(more as u64, "direction")));
    }
    all
}

fn one_best(run: &Run, best: &BestOfRun) -> String {
    let ranges: Vec<String> = best
        .ranges
        .iter()
        .map(|range| {
            let at = best.sizes.iter().find(|at| at.bytes == range.from);
            let time = at.map_or(String::new(), |at| {
                let times = at.cuda.as_ref().and_then(|c| c.ratio);
                let times = times.map_or(String::new(), |r| match r.certain() {
                    Some(i) => format!(", {} times CUDA's best, {}", ratio(r.ratio), interval(i)),
                    None => ", no certain difference from CUDA's best".to_owned(),
                });
                let size = if range.from == range.to { String::new() } else { format!(" at {}", bytes(at.bytes)) };
                format!(" ({}{size}{times})", nanoseconds(at.value_ns as u64))
            });
            let stage = at.map_or(0, |at| at.stage);
            let name = run.label(stage, &range.subject);
            match range.from == range.to {
                true => format!("{name} at {}{time}", bytes(range.from)),
                false => format!("{name} from {} to {}{time}", bytes(range.from), bytes(range.to)),
            }
        })
        .collect();
    let place: Vec<String> = best.point.iter().map(|c| format!(", {c}")).collect();
    format!(
        "{} to {}{}: the lowest p50, to within 2 %, is that of {}.",
        best.source,
        best.destination,
        place.concat(),
        ranges.join(", then ")
    )
}

/// Three digits, and enough decimals to distinguish it from 1.
fn ratio(v: f64) -> String {
    if (v - 1.0).abs() < 0.1 { format!("{v:.3}") } else { three_digits(v) }
}

/// `0.62 to 0.64`
fn interval(i: Interval<f64>) -> String {
    format!("{} to {}", ratio(i.low), ratio(i.high))
}

/// How loads affect subjects: the smallest and the largest certain effect.
fn beside(run: &Run) -> Vec<String> {
    let found = run.delays();
    let text = |d: &Delay| {
        let place: String = d.point.iter().map(|c| format!(" with {c}")).collect();
        format!(
            "with {} running{place}, the p50 of {} is {} times what it is alone ({}: {} against {})",
            d.load,
            sized(&d.victim.subject, d.victim.bytes),
            ratio(d.times.p50),
            interval(d.bounds),
            nanoseconds(d.times.figures.p50_ns),
            nanoseconds(d.victim.alone.p50_ns),
        )
    };
    let mut said = match (&found.largest, &found.smallest) {
        (Some(most), Some(least)) => {
            vec![format!("Most delayed: {}.", text(most)), format!("Least delayed: {}.", text(least))]
        }
        (Some(one), None) => vec![format!("Delayed: {}.", text(one))],
        _ => Vec::new(),
    };
    match (found.all - found.certain, found.all) {
        (0, _) => {}
        (n, all) if n == all => {
            said.push("No load certainly delays anything: each difference is within its interval.".into());
        }
        (n, all) => {
            said.push(format!("In {n} of {all} cases no delay is certain: the difference is within its interval."))
        }
    }
    said
}

/// Certain ratios to the baseline: the smallest and the largest.
fn against(run: &Run) -> Option<String> {
    let found = run.differences();
    let text = |(cell, of): &(&CellOfRun, &RatioOfRun)| {
        format!(
            "{}{} has {} times the {} of {}{}",
            sized(&cell.subject, cell.bytes),
            super::place(run, cell.stage),
            ratio(of.ratio.ratio),
            of.metric,
            of.baseline,
            of.ratio.certain().map_or(String::new(), |i| format!(" ({})", interval(i)))
        )
    };
    match (&found.smallest, &found.largest) {
        (Some(least), Some(most)) => Some(format!("The least: {}. The most: {}.", text(least), text(most))),
        (None, Some(one)) => Some(format!("{}.", text(one))),
        _ if found.all == 0 => None,
        _ => {
            let baselines = baselines(run.measured_cells()).join(" and ");
            Some(format!("No difference from {baselines} is certain: each is within its interval."))
        }
    }
}

/// The slowest sample of all.
fn slowest(run: &Run) -> Option<String> {
    let (cell, worst) = run_folder::run::slowest(run.measured_cells())?;
    let mostly = match worst.mostly {
        Cause::Unknown => String::new(),
        cause => format!("; most of that: {}", terminal::run::name(cause)),
    };
    let least = if worst.capped { "at least " } else { "" };
    Some(format!(
        "The slowest of {}: {least}{}, {}{}{mostly}. It is one sample, and no difference follows from it.",
        of(run.measured_cells().map(|c| c.samples).sum(), "sample"),
        nanoseconds(worst.value_ns),
        sized(&cell.subject, cell.bytes),
        super::place(run, cell.stage),
    ))
}

pub fn sized(subject: &str, size: u64) -> String {
    if size == 0 { subject.to_owned() } else { format!("{subject} with {}", bytes(size)) }
}

/// Asserts that were broken or could not be judged: they are shown above all findings.
pub fn broken(run: &Run) -> Vec<Notice> {
    let one = |judged: &&Judged| {
        let (kind, word) = match judged.verdict {
            Came::Broken => (Kind::Bad, "Broken assert"),
            _ => (Kind::Warning, "Not judged"),
        };
        let of: Vec<_> = judged.not_held().into_iter().filter(|c| c.verdict == judged.verdict).collect();
        let first = of.first().map_or(String::new(), |c| format!(" {}", terminal::run::of_cell(run, judged, c)));
        let more = if of.len() > 1 { format!("; and {} more", of.len() - 1) } else { String::new() };
        Notice { kind, text: format!("{word}: {}.{first}{more}.", terminal::run::asked(judged)) }
    };
    if run.functional { Vec::new() } else { run.not_held().iter().map(one).collect() }
}
